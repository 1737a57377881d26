//! The contract's suite, once for each library and provider: real processes over loopback, killed for real.
//!
//! What is not installed is skipped by name. Providers that are refused because they break take part in what they were not seen to
//! break in; `refused.rs` has all of it for them. A process that does not close shm or sm2 in good order leaves files in /dev/shm, so
//! each test of those has one of its own.

mod support;

use ironweave_btl_conformance::own_shared_memory;
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

const SHM_KILLED: &str = "a process killed inside shm may leave a lock in shared memory on which all others spin for ever";

const SHM: &Cannot = &[
    ("survives_the_death_of_a_peer", SHM_KILLED),
    ("survives_a_peer_killed_while_packing", SHM_KILLED),
    ("shows_a_crash", SHM_KILLED),
    ("leaves_nothing_behind", "a process killed inside shm leaves a file in /dev/shm"),
    (
        "ends_in_time_when_the_peer_is_stopped",
        "all others spin on the lock of a process stopped inside shm",
    ),
];

const SM2_KILLED: &str = "a process killed inside sm2 may stop all others";

const SM2: &Cannot = &[
    ("survives_the_death_of_a_peer", SM2_KILLED),
    ("survives_a_peer_killed_while_packing", SM2_KILLED),
    ("shows_a_crash", SM2_KILLED),
    ("leaves_nothing_behind", SM2_KILLED),
    (
        "ends_in_time_when_the_peer_is_stopped",
        "what sm2 has for a stopped peer holds up all that is sent to others",
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
    shm_1_17: DEBIAN, "shm", prepare own_shared_memory, cannot SHM;
    shm_1_22: V1_22, "shm", prepare own_shared_memory, cannot SHM;
    sm2_1_22: V1_22, "sm2", prepare own_shared_memory, cannot SM2;
}
