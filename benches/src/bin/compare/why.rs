//! Why rows are missed that are missed, as far as it was found. Printed beside them; a row that is met says nothing.

/// Beginnings of the names of rows, and what was found.
const FOUND: &[(&str, &str)] = &[
    (
        "shm_latency_8B",
        "0.80 in a quieter hour of 2026-11-22 (0.089 beside 0.111 us, in turns), between 0.71 and 0.94 in runs of three days: what of the hour does it was not found",
    ),
    (
        "shm_latency_4KiB",
        "1.09 in a quieter hour (0.41 beside 0.375 us). Intel's settings for AVX-512 copy in 512-bit registers and, longer pieces, by `rep movsb` (seen in its code); 512-bit registers in our copies took 0.41 to 0.40 us here and 2.54 to 2.65 at 64 KiB",
    ),
    (
        "shm_latency_64KiB",
        "1.15 in a quieter hour (2.54 beside 2.20 us). As Intel does, pieces copied out by `rep movsb` gained nothing, copied in that way they took twice as long; 512-bit registers 2.54 to 2.65",
    ),
    (
        "shm_latency_1MiB",
        "1.08 in a quieter hour (35.4 beside 32.7 us). Copying out by `rep movsb`, as Intel does, in a noisy hour: 42.8 to 40.2 us in one run, 51.0 to 42.5 in the next, far cores 77 to 82: not decided",
    ),
    (
        "shm_latency_4MiB",
        "one size of the ring's bulk area serves two opposite cases: with half of it 4 MiB took 167 instead of 217 us (Intel 185 beside it), but windows of 4 MiB moved 10 instead of 15 GB/s. Twice a core's cache, it lives in the cache that the host's other guests share (inferred: 199 us at one hour, 320 at another, Intel 209 and 192). Copying out by `rep movsb`, in a noisy hour: 314 to 247 us in one run and 314 to 333 in the next: not decided",
    ),
    ("shm_bw_4MiB", "see the latency of 4 MiB: a larger bulk area gains 5 % here and doubles that"),
    (
        "shm_rate_8B",
        "1.11 in a quieter hour (23.3 beside 20.9 M/s): a receiver spends 14 ns to post and 26 to finish a message, a sender 28",
    ),
    ("abi_bcast_8B", "within a few hundredths, on either side"),
    (
        "abi_alltoall_64KiB",
        "1.08 in a quieter hour (5.42 beside 5.03 us); two messages of 64 KiB at once, see there",
    ),
    (
        "abi_rate_8B",
        "1.13 in a quieter hour (22.8 beside 20.2 M/s, in turns): what of the hour does it was not found",
    ),
    (
        "abi_ibcast_64KiB",
        "0.86 in a quieter hour (3.26 beside 3.78 us, in turns); one message of 64 KiB, see there",
    ),
    (
        "abi_vector_64KiB",
        "0.90 in a quieter hour (3.33 beside 3.70 us, in turns): what of the hour does it was not found",
    ),
    ("tcp_", "not found: other runs of these days had it met"),
    (
        "ofi_latency_8B",
        "one send and one receive of the kernel's for each message, as the peers have; what the rest is was not measured; builds from before and after the day's changes measured the same beside each other",
    ),
    (
        "ofi_latency_64KiB",
        "two copies: frames go through buffers of ours on both sides, because libfabric's tcp provider takes back no peer's operation but by closing the endpoint (law 2); the peers hand it the user's memory. Pieces let copies overlap with the kernel's",
    ),
    (
        "ofi_latency_1MiB",
        "inferred, not measured: three messages more than the peers' one (RNDV, the request of the read, FIN)",
    ),
    (
        "ofi_bare",
        "not found: 1.07 and 0.95 the day before, on the same library; that long frames go in pieces since then may be the cause of the second, and was not measured against a build without",
    ),
    (
        "exchange4_8B",
        "all spend the same: 4.7 to 5 switches between ranks for an exchange and a system call for each; what is left is what lies between two switches",
    ),
    (
        "exchange4_64KiB",
        "two copies, and each rank writes lines that the other core has just read; pieces and other sizes of rings gained nothing",
    ),
    (
        "abi4_",
        "a switch between ranks for each message, as everybody has; within a few hundredths, on either side",
    ),
    (
        "abi_bibw_64KiB",
        "all sends of a window are copied in before anything is copied out, so each core writes lines that the other has just read; no size of ring, piece or kind of store was clearly better. 29 beside 35 GB/s in a quieter hour; in a noisy one copying out by `rep movsb` gave 14 to 21 in one run and 17.8 to 18.1 in the next: not decided",
    ),
    (
        "abi_iallreduce_64KiB",
        "by reading the code: the peer's half lies in its cache during the 20 us of computation, and is copied out and then reduced; the blocking form does both at once",
    ),
    (
        "uct_posix",
        "1.34 to 1.48 since such rails count as never lost and nothing is kept (1.70 before); a profile shows UCX's own functions and the wait for the next message, and nothing of ours that stands out",
    ),
    (
        "uct_",
        "by reading the code: frames that are copied on both sides, where the bare program sends one message",
    ),
];

/// What is known of this row.
pub fn why(row: &str) -> &'static str {
    let known = FOUND.iter().find(|(beginning, _)| row.starts_with(beginning));
    known.map_or("the cause was not found", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::{FOUND, why};
    use crate::rows::ROWS;

    #[test]
    fn every_reason_is_some_rows_reason() {
        for (beginning, text) in FOUND {
            let used = ROWS.iter().any(|row| why(row.name) == *text);
            assert!(used, "no row begins with {beginning}, or all are explained before");
        }
    }
}
