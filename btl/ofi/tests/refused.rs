//! The whole suite for providers that are refused because they break (`ffi/src/ofi/standing.rs`): to see how, and whether a
//! newer library mends it. What they were not seen to fail is in `conformance.rs` as well. Not part of `ci/test`: `cargo nextest run -p ironweave-btl-ofi --features refused --test refused`.
//! Most of it passes. What was seen not to:
//!
//! * shm, 1.17: `survives_the_death_of_a_peer` hangs in one run of three: the killed process held a spin lock in shared
//!   memory, and `fi_cq_read` of all others spins on it for ever. 2.5 has no lock, and stops delivering instead.
//!   `ends_in_time_when_the_peer_is_stopped` on 1.17 hangs in one run of three, likely on the lock of the stopped process.
//!   `leaves_nothing_behind`: a file in /dev/shm for each killed process. The other sixteen tests passed in five runs of five on 1.22.
//! * sm2, 1.22 and 2.5: `survives_the_death_of_a_peer` hangs or ends with completions missing, and so does
//!   `ends_in_time_when_the_peer_is_stopped`; `leaves_nothing_behind` failed in one run of three. Its one file of a gigabyte for all
//!   processes of a user, /dev/shm/fi_sm2_mmaps, stays for good.
//! * udp;ofi_rxd, 1.17: `delivers_exactly_once_in_order` hangs in one run of five: after packets were lost, receive buffers of
//!   the endpoint run out and none is posted again (`strace` shows no `recvmsg` at all). 1.17 and 1.22:
//!   `ends_in_time_when_the_peer_is_stopped`, `leaves_nothing_behind`: what was sent to a dead or stopped peer holds up all
//!   that is sent to others. (It also delivers messages twice; `Endpoint::is_new_frame` sees to that.) 1.22:
//!   `gives_everything_back_when_invalidated` failed once on a machine with much else to do: two messages came whole but with the lengths of
//!   others, and nothing but the provider's completion says how long a message is. Not seen again in 934 runs, 130 of them with
//!   the same seed and 100 with packets lost for want of room in the socket; where in the provider it happens was not found.

mod support;

use ironweave_btl_conformance::own_shared_memory;
use support::{DEBIAN, V1_22, V2_5};

providers! {
    shm_1_17: DEBIAN, "shm", prepare own_shared_memory;
    shm_1_22: V1_22, "shm", prepare own_shared_memory;
    shm_2_5: V2_5, "shm", prepare own_shared_memory;
    sm2_1_22: V1_22, "sm2", prepare own_shared_memory;
    sm2_2_5: V2_5, "sm2", prepare own_shared_memory;
    udp_rxd_1_17: DEBIAN, "udp;ofi_rxd";
    udp_rxd_1_22: V1_22, "udp;ofi_rxd";
    udp_rxd_2_5: V2_5, "udp;ofi_rxd";
}
