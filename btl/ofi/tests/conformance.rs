//! The contract's suite, once for each library and provider: real processes over loopback, killed for real.
//!
//! What is not installed is skipped by name. Providers that are refused because they break take part in what they were not seen to
//! break in; `refused.rs` has all of it for them, and shm and sm2, of which each process leaves files in /dev/shm that does not
//! close them in good order.

mod support;

use support::{DEBIAN, V1_22, V2_5};

/// Tests that a provider was seen to fail, and how.
type Cannot = [(&'static str, &'static str)];

const RXD: &Cannot = &[
    (
        "delivers_exactly_once_in_order",
        "udp;ofi_rxd posts no receives any more after packets were lost, in one run of five",
    ),
    (
        "gives_everything_back_when_invalidated",
        "udp;ofi_rxd told others' lengths of two messages, once; not in 934 runs after that",
    ),
    (
        "ends_in_time_when_the_peer_is_stopped",
        "what udp;ofi_rxd has for a stopped peer holds up all that is sent to others",
    ),
    (
        "survives_the_death_of_a_peer",
        "what udp;ofi_rxd has for a dead peer holds up all that is sent to others",
    ),
    (
        "leaves_nothing_behind",
        "what udp;ofi_rxd has for a dead peer holds up all that is sent to others",
    ),
];

providers! {
    tcp_rxm_1_17: DEBIAN, "tcp;ofi_rxm";
    net_1_17: DEBIAN, "net";
    tcp_1_22: V1_22, "tcp";
    tcp_rxm_1_22: V1_22, "tcp;ofi_rxm";
    tcp_2_5: V2_5, "tcp";
    sockets_1_17: DEBIAN, "sockets";
    udp_rxd_1_22: V1_22, "udp;ofi_rxd", cannot RXD;
}
