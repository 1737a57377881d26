//! Why rows are missed that are missed, as far as it was found. Printed beside them; a row that is met says nothing.

/// Beginnings of the names of rows, and what was found.
const FOUND: &[(&str, &str)] = &[
    (
        "shm_latency_8B",
        "0.66 and 0.70 (C) since messages of a few bytes have a way of their own, 0.71 to 0.96 before. A loop of bare words to and fro takes 0.049 us, everybody's share; then 90 instructions follow from the message's arrival to the return of the receive, and 180 to the answer's word in the ring (single steps through the C library). When the host moves the cores all change together (0.070 beside 0.078). On a Xeon of the fifth generation 0.73 to 0.81 in six runs of 2026-11-26, then, since both sides look for an answer when it may be there, 0.68, 0.67, 0.83, 0.77, 0.63, 0.72 and 0.72 in seven more (0.131 to 0.190 us, by what else the host does), and 0.57 to 0.62 in six since lines are moved to the shared cache",
    ),
    (
        "shm_latency_4KiB",
        "0.68 and 0.71 since such messages are received without a request and their header is stored last; 0.73 to 1.12 before. On a Xeon of the fifth generation 0.80 to 0.97, and 0.70 to 0.86 in six runs since lines are moved to the shared cache",
    ),
    (
        "shm_latency_64KiB",
        "1.06 in a quieter hour (2.33 beside 2.19 us; Intel's other settings 2.36). Both answer in the memory that the question lay in; a loop with nothing but these copies takes 2.15 (`btl/shm/src/shuttle.rs`)",
    ),
    (
        "shm_latency_1MiB",
        "1.00 in a quieter hour (33.9 beside 34.0 us, in turns). A loop with nothing but these copies takes 33 to 34 us, through whatever memory; in the evening of 2026-11-24 32 to 35 with each of 17 ways to copy on either side: lines of one or both sides asked for ahead at several distances and into several caches, 512-bit registers, two streams, `rep movsb`. On Zen 5 20.8 to 21.5 beside 20.2 to 20.6 us: frames of 512 KiB, rings of 0.5 to 4 MiB, shorter last pieces and a reader that looks less often made no difference",
    ),
    (
        "shm_latency_4MiB",
        "in turns in a quieter hour 161 to 165 us beside 147 and 179 (Intel's two settings). On Zen 3 in a busy hour of the host 1.8 and 3.0 times Intel's in two runs, 1.2 to 3 in turns, where single runs differ by as much (390 to 1040 us): a bulk area of a half or a quarter, other ways to copy, huge pages and compacted memory changed nothing that was seen above that. One size of the ring's bulk area serves two opposite cases: with half of it 4 MiB took 167 instead of 217 us, but windows of 4 MiB moved 10 instead of 15 GB/s. Twice a core's cache, it lives in the cache that the host's other guests share (inferred: 160 us at one hour, 320 at another). A loop of copies alone gains 8 % from half of it, but with a ring that goes in half laps for those who take turns it was 147 beside 145 us, and windows both ways a tenth slower",
    ),
    (
        "shm_bw_4MiB",
        "20.6 beside 20.4 GB/s in a quieter hour; see the latency of 4 MiB: a larger bulk area gains 5 % here and doubles that",
    ),
    (
        "shm_rate_8B",
        "1.12 and 1.23 in two runs of one night. Between 0.97 and 1.41 in runs of two days, 1.20 in turns (23.9 beside 20.0 M/s): what of the hour does it was not found. 1.00 to 1.28 since short messages have a way of their own (six runs of one hour, the peer between 14.8 and 18.0 M/s). The receiver is the slower side; of its time a fifth is the wait for the lines of the ring, a fifth the matching, a third to post (perf). Since the evening of 2026-11-24 it posts in fewer steps: 25.5 instead of 24.7 M/s in turns, the peer 20.7. On Zen 5 1.09 to 1.13 (37.0 beside 32.8 M/s). On a Xeon of the fifth generation 0.94 to 1.58: a receiver executed some 510 instructions a message, and 470 since the night of 2026-11-26 (single steps; 1.30 to 1.61 in four runs since), four a cycle where the host leaves the core alone (22 M/s) and two where it does not (13), the best peer, who waits for lines, 14.7 and 12",
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
    ("abi_ibcast_64KiB", "0.90 in another run of the day; one message of 64 KiB, see there"),
    (
        "abi_vector_64KiB",
        "0.90 in a quieter hour (3.33 beside 3.70 us, in turns): what of the hour does it was not found",
    ),
    (
        "tcp_latency_64KiB",
        "on a Xeon of the fifth generation 0.97 to 1.11 in eight runs of an evening, 0.92 in one of the afternoon: all copy once in and once out, with as many calls. Pauses between polls, and to read 128 bytes to 16 KiB of a frame at first instead of 4 KiB, gained nothing in turns. Since 32 KiB go ahead of the rest 0.89 to 0.99 in five runs, 1.07 in one",
    ),
    (
        "tcp_latency_1MiB",
        "on a Xeon of the fifth generation 0.88, 1.02 and 1.13 in three runs of 2026-11-26 since such messages go unasked to who waits, 0.83 and 1.07 before, 0.95 to 1.12 in six runs since 32 KiB go ahead of the rest; a loop of bare sends and receives over a loopback took 0.9 to 1.0 of ours, whatever its pieces, buffers and ways to wait",
    ),
    ("tcp_", "not found: other runs of these days had it met"),
    (
        "ofi_latency_8B",
        "0.90, 0.98 and 1.07 of the best of three peers in three runs of 2026-11-25 (of MPICH and Open MPI 0.83 to 1.01): one epoll_wait that finds it, one recv and one send for each message, as the peers have. Since the detector's thread has descriptors of its own, system calls take no longer than in a process with one thread (6.86 to 6.66 us in turns)",
    ),
    (
        "ofi_latency_16KiB",
        "one message out of the user's memory, as the peers send it; it lands in a buffer of the rail's and is copied from there, where the peers' libraries match it with a receive that is posted with the provider. What a rail may lose is copied, too, after it was sent",
    ),
    (
        "ofi_bw_64KiB",
        "see 16 KiB and the latency of 64 KiB: a copy at either end that the peers do not make",
    ),
    (
        "ofi_latency_64KiB",
        "see 16 KiB: one message, and a copy out of the rail's buffer, 2 to 3 us of 27 on Zen 3 (calls of both sides traced). A receive posted with the message's tag before it comes, in two pieces because of the header, was as fast: the provider asks epoll again between the pieces",
    ),
    (
        "ofi_latency_256KiB",
        "a message with the first 24 KiB says where the rest goes, which the provider moves from memory to memory (`btl/ofi/src/leads.rs`), where the peers send one; and what a rail may lose is copied after it was sent, 10 us on Zen 3 while the receiver is at it. With the same speed of the kernel 49.5 us beside Open MPI's 47 (calls of both sides traced)",
    ),
    (
        "ofi_latency_1MiB",
        "three messages more than the peers' one (the offer, the request of the read, FIN), some 10 us of 130 where nobody is paced. Where BBR is the system's default it takes 50 us and more from all whose connections stay with it; ours leaves it within a host. On AMD's Zen 3 copies to 1 to 31 bytes ahead of their source, within pages, are 20 times as slow: a header of 16 bytes (a read's) or 24 (Intel's messages) before a whole page costs 300 us and more, one of 32 (MPICH's) nothing. Ours begins long reads with a short one for it",
    ),
    (
        "ofi_bare",
        "not found: 1.07 and 0.95 the day before, on the same library; that long frames go in pieces since then may be the cause of the second, and was not measured against a build without. On 2026-11-27 whole runs differed by half: eight each of ours 4.1 to 6.4 us, of Open MPI 4.1 to 6.3; 36 runs each in turns, over 2.5: bare programs that send 8 and 44 bytes 4.58 and 4.54 (3.3 to 5), ours 4.71 and 4.81 us (3.4 to 5.2), so 1.04 to 1.06",
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
        "a switch between ranks for each message, as everybody has; between 0.92 and 1.17 in four runs of two days, on either side",
    ),
    (
        "shm_bw_1MiB",
        "on a Xeon of the fifth generation 0.88 to 1.09 in six runs of 2026-11-26, 1.09 to 1.36 in seven more since 64 MiB count as more than its cache keeps",
    ),
    ("shm_bw_64KiB", "0.90 to 1.01 on Zen 5 (50 to 54 beside 52 to 54 GB/s)"),
    (
        "abi_bw_64KiB",
        "1.00 by itself, some minutes later, on Zen 5 (51.1 beside 51.3 GB/s). One launch in 20 to 50 moves 19 instead of 53 GB/s until the end of the test, in all of its blocks, with its sender's copies into the ring slower than the receiver's out of it; the next test of the same launch is quick again. It is so whoever copies by strings or by blocks (15 of 378 blocks of the loop with both by strings, 8 of 276 with neither); not found: neither the buffers' addresses nor the judged distance of the cores is another",
    ),
    (
        "abi_bcast_64KiB",
        "on Zen 5 1.59 to 1.76 us beside 1.18 of UCX over posix and 1.6 and 1.8 of MPICH and Intel; 2.05 before long copies were string moves",
    ),
    (
        "abi_bibw_64KiB",
        "1.00 in another run of the day. All but the first sends of a window are copied in before anything is copied out, so each core writes lines that the other has just read. On Zen 5 0.90 and 0.94, 0.72 before long copies were string moves",
    ),
    (
        "abi_iallreduce_8B",
        "0.83 in the run of 2026-11-24, 0.73 in one with 35 blocks and more of each; 0.68, 0.97 and 1.58 on a build that built each message's header in pieces, in three runs of the day before (0.42 beside 0.62 us, 1.19 beside 1.23). Beside 20 us of computation it takes 0.4 us to start and 0.45 to wait (eight runs, in the hour of the 1.58), without one 0.34 for both: after the pause it runs cold; 0.15 to 0.28 us more are the computation's own, without any MPI. Others have that too (Open MPI over UCX 0.62 and 1.35 us in two hours); why more in some hours, and why less in Open MPI's sm, was not found: its two settings, one for 8 bytes, had 0.66 and 0.93",
    ),
    (
        "abi_iallreduce_64KiB",
        "by reading the code: the peer's half lies in its cache during the 20 us of computation, and is copied out and then reduced; the blocking form does both at once",
    ),
    (
        "abi_allreduce_64KiB",
        "on near cores 0.86 to 0.90 in turns (7.0 to 7.3 beside 8.1 us) and 1.11 in one run; on far ones 1.26 (15.1 beside 12.0), where 64 KiB alone take 7.8 beside 5.8: to far readers we store past the cache, and Intel copies to and fro in one piece of memory by `rep movsb` (seen in its code and registers)",
    ),
    (
        "uct_posix",
        "0.99 to 1.18 near (0.123 to 0.132 us beside 0.105 to 0.129) and 0.86 far since the answer claims the line with the end of the peer's queue in time (`Endpoint::claim`, `ffi/uct/src/port.rs`); 1.34 to 1.56 before",
    ),
    (
        "uct_",
        "a receiver copies its frames out of the library's memory, which the bare program leaves there; the sender's copy is spared since frames go out of user memory (0.93 to 1.06 in three series of eight to ten runs in turns, 1.05 to 1.25 before)",
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
