//! The table of known parameters, whichever part of Ironweave reads them. A plain list: adding a
//! parameter is adding a row. Names are Open MPI's where the meaning is the same.

use super::{Def, Kind};

const fn row(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Def {
    Def { name, kind, default, help }
}

/// Byte transports that exist, in order of preference.
pub const BTLS: &[&str] = &["self", "shm", "verbs", "ofi", "uct", "tcp"];
/// Point-to-point layers that exist.
pub const PMLS: &[&str] = &["ob1"];

/// Every parameter there is.
#[rustfmt::skip] // one row, one line where it fits
pub static TABLE: &[Def] = &[
    row("btl", Kind::Selection(BTLS), "self,shm,verbs,tcp",
        "Byte transports to use; ^ in front leaves the listed ones out. ofi and uct are used only where they are named."),
    row("pml", Kind::Choice(PMLS), "ob1",
        "The point-to-point layer."),

    row("btl_tcp_if_include", Kind::List, "",
        "Interfaces (eth0) or networks (10.1.0.0/16, fd00::/8) tcp may use; empty means all that are up."),
    row("btl_tcp_if_exclude", Kind::List, "",
        "Interfaces or networks tcp never uses; loopback is used only between processes of one host."),
    row("btl_tcp_links", Kind::Count(1, 16), "1",
        "Connections to each peer over each pair of interfaces; each is a rail of its own."),
    row("btl_tcp_sndbuf", Kind::Size, "0",
        "Send buffer of a connection in bytes; 0 leaves it to the system, within bounds between processes of one host."),
    row("btl_tcp_rcvbuf", Kind::Size, "0",
        "Receive buffer of a connection in bytes; 0 leaves it to the system, within bounds between processes of one host."),
    row("btl_tcp_user_timeout", Kind::Duration, "10s",
        "How long sent data may stay unacknowledged before the connection counts as lost."),
    row("btl_tcp_keepalive", Kind::Duration, "5s",
        "Idle time after which a connection is probed; 0 never probes."),
    row("btl_tcp_connect_timeout", Kind::Duration, "30s",
        "How long a connection may take to be made and to prove the job secret."),

    row("btl_ofi_provider_include", Kind::List, "",
        "libfabric's providers to choose from, best first (cxi, verbs, tcp); empty leaves it to what suits."),
    row("btl_ofi_provider_exclude", Kind::List, "",
        "libfabric's providers never to use."),
    row("btl_ofi_refused_too", Kind::Flag, "false",
        "Also take providers that are known to break (ironweave doctor says how) where btl_ofi_provider_include names them."),
    row("btl_ofi_domain_include", Kind::List, "",
        "Domains (mlx5_0, eth0) or fabrics of the provider to use; empty means all, lo only without any other."),
    row("btl_ofi_rails", Kind::Count(1, 16), "4",
        "Domains of the provider that are used at most; each is a rail of its own."),
    row("btl_ofi_frame_size", Kind::Size, "64k",
        "Longest payload of one message of libfabric's, and longest MPI message sent without asking."),
    row("btl_ofi_window", Kind::Size, "1M",
        "Bytes that may be on their way to one peer that has not read them."),
    row("btl_ofi_connect_timeout", Kind::Duration, "30s",
        "How long a connection may take to be made and to prove the job secret."),
    row("btl_ofi_peer_timeout", Kind::Duration, "5min",
        "How long nothing may get through to a peer before it becomes a suspect (it may be busy); 0 for ever."),
    row("btl_uct_transports", Kind::List, "",
        "UCX's transports to use (posix, tcp, rc_verbs; cma beside posix); empty means posix and the best network there is."),
    row("btl_uct_devices", Kind::List, "",
        "Network devices (mlx5_0:1, eth0) uct may use; empty means all, lo only without any other."),
    row("btl_uct_rails", Kind::Count(1, 16), "4",
        "Devices of a network that uct uses at most; each is a rail of its own."),
    row("btl_uct_frame_size", Kind::Size, "0",
        "Longest payload of one message of UCX's, where the transport has no lower limit; 0 for 256k over tcp and 32k otherwise."),
    row("btl_uct_connect_timeout", Kind::Duration, "30s",
        "How long a connection may take to be made and to prove the job secret."),
    row("btl_uct_peer_timeout", Kind::Duration, "5min",
        "How long nothing may get through to a peer before it becomes a suspect (it may be busy); 0 for ever."),
    row("btl_uct_check", Kind::Duration, "100ms",
        "How often each peer is checked, where its failure does not show by itself."),

    row("btl_verbs_include", Kind::List, "",
        "RDMA devices (mlx5_0) or ports (mlx5_0:1) verbs may use, as rails in this order; empty means all active ports."),
    row("btl_verbs_exclude", Kind::List, "",
        "RDMA devices or ports verbs never uses."),
    row("btl_verbs_gid_index", Kind::Count(0, 255), "255",
        "Entry of the port's GID table; 255 chooses (RoCE v2)."),
    row("btl_verbs_ip", Kind::Choice(&["any", "ipv4", "ipv6"]), "any",
        "Which of a port's GIDs connections over Ethernet use; any: what both ends have and leads there, IPv4 first."),
    row("btl_verbs_pkey_index", Kind::Count(0, 65535), "0",
        "Entry of the port's partition table."),
    row("btl_verbs_service_level", Kind::Count(0, 15), "0",
        "Service level of connections."),
    row("btl_verbs_traffic_class", Kind::Count(0, 255), "0",
        "Traffic class of connections over Ethernet."),
    row("btl_verbs_mtu", Kind::Choice(&["auto", "256", "512", "1024", "2048", "4096"]), "auto",
        "Largest path MTU to use in bytes; the lesser of both ports' counts all the same."),
    row("btl_verbs_timeout", Kind::Count(1, 31), "14",
        "Wait for an acknowledgement before a packet is sent again: 4.096 µs times 2 to this power."),
    row("btl_verbs_retry_count", Kind::Count(0, 6), "6",
        "How often a packet is sent again before the connection counts as lost; 7 would be for ever on some devices."),
    row("btl_verbs_rnr_retry", Kind::Count(0, 6), "6",
        "How often a peer without a receive is tried again; 7 would be for ever."),
    row("btl_verbs_buffer_size", Kind::Size, "8k",
        "Bytes of payload in one frame, and of each buffer to receive into."),
    row("btl_verbs_credits", Kind::Count(4, 1024), "32",
        "Frames under way to each peer that has not taken them."),
    row("btl_verbs_ring", Kind::Choice(&["auto", "on", "off"]), "auto",
        "Short frames are written straight into rings at the receiver: auto does so on InfiniBand and RoCE, not over iWARP."),
    row("btl_verbs_ring_after", Kind::Count(0, 1_000_000), "16",
        "Short frames of a peer after which it is offered a ring; 0 never offers or uses one."),
    row("btl_verbs_ring_peers", Kind::Count(0, 4096), "16",
        "Peers of each rail that have a ring at a time, first come."),
    row("btl_verbs_ring_slots", Kind::Count(1, 1024), "32",
        "Slots of a ring; what finds none free is sent."),
    row("btl_verbs_ring_size", Kind::Count(128, 4096), "256",
        "Bytes of a slot, of which 24 are not a frame's header and payload."),
    row("btl_verbs_kept", Kind::Size, "256m",
        "Bytes of memory from MPI_Alloc_mem that stay registered with each device; 0 keeps none."),
    row("btl_verbs_on_demand", Kind::Choice(&["auto", "always", "never"]), "auto",
        "Devices that page on demand keep the program's own memory registered: auto what is used again, always from the first use on."),
    row("btl_verbs_probe", Kind::Duration, "1s",
        "Idle time after which a peer is probed, so that its death shows; 0 never probes."),
    row("btl_verbs_stall_timeout", Kind::Duration, "10s",
        "How long a request may stay without any completion before the connection counts as lost."),
    row("btl_verbs_link_timeout", Kind::Duration, "2s",
        "How long a port may be down before its connections count as lost."),
    row("btl_verbs_connect_timeout", Kind::Duration, "30s",
        "How long a connection may take to be made and to prove the job secret."),

    row("btl_shm_single_copy", Kind::Choice(&["auto", "cma", "none"]), "auto",
        "Large messages in one copy, by process_vm_readv and _writev: auto takes what proves faster, and goes on learning; cma from 32 KiB on."),
    row("btl_shm_ring_size", Kind::Size, "256k",
        "Bytes of each ring between two processes of a host; a power of two from 16k to 16M."),

    row("pml_ob1_eager_limit", Kind::Size, "0",
        "Largest message sent without asking first; 0 takes each transport's own limit."),
    row("pml_ob1_unexpected_limit", Kind::Size, "16M",
        "Bytes of one sender's messages kept because no receive is posted; beyond, it keeps its data and only announces."),
    row("pml_ob1_pipeline_depth", Kind::Count(1, 1024), "8",
        "Fragments of a rendezvous under way at once on each rail."),

    row("coll_barrier_algorithm", Kind::Choice(&["auto", "linear", "dissemination", "tree", "node"]), "auto",
        "Algorithm of barrier operations; auto chooses by size, number of ranks and hosts."),
    row("coll_bcast_algorithm", Kind::Choice(&["auto", "linear", "binomial", "scatter_allgather", "chain", "node"]), "auto",
        "Algorithm of broadcast operations; auto chooses by size, number of ranks and hosts."),
    row("coll_reduce_algorithm", Kind::Choice(&["auto", "linear", "binomial", "rabenseifner", "node"]), "auto",
        "Algorithm of reduce operations; auto chooses by size, number of ranks and hosts."),
    row("coll_allreduce_algorithm", Kind::Choice(&["auto", "linear", "recursive_doubling", "rabenseifner", "ring", "reduce_bcast", "node"]), "auto",
        "Algorithm of allreduce operations; auto chooses by size, number of ranks and hosts."),
    row("coll_gather_algorithm", Kind::Choice(&["auto", "linear", "binomial"]), "auto",
        "Algorithm of gather operations; auto chooses by size, number of ranks and hosts."),
    row("coll_scatter_algorithm", Kind::Choice(&["auto", "linear", "binomial"]), "auto",
        "Algorithm of scatter operations; auto chooses by size, number of ranks and hosts."),
    row("coll_allgather_algorithm", Kind::Choice(&["auto", "linear", "recursive_doubling", "bruck", "ring"]), "auto",
        "Algorithm of allgather operations; auto chooses by size, number of ranks and hosts."),
    row("coll_alltoall_algorithm", Kind::Choice(&["auto", "linear", "pairwise", "bruck"]), "auto",
        "Algorithm of alltoall operations; auto chooses by size, number of ranks and hosts."),
    row("coll_reduce_scatter_algorithm", Kind::Choice(&["auto", "linear", "pairwise", "recursive_halving", "reduce_scatterv"]), "auto",
        "Algorithm of reduce_scatter operations; auto chooses by size, number of ranks and hosts."),
    row("coll_scan_algorithm", Kind::Choice(&["auto", "linear", "recursive_doubling"]), "auto",
        "Algorithm of scan and exscan operations; auto chooses by size, number of ranks and hosts."),
    row("coll_segment_size", Kind::Size, "0",
        "Bytes of a segment where long messages are passed on in segments; 0 takes the built-in size."),

    row("ft_detector", Kind::Choice(&["on", "off"]), "on",
        "Heartbeats between processes, by a thread in each: finds hung and stopped processes and lost hosts."),
    row("ft_detector_period", Kind::Duration, "250ms",
        "Time between two heartbeats."),
    row("ft_detector_timeout", Kind::Duration, "3s",
        "Silence after which a process counts as failed and is ended; pauses of the listener itself do not count."),
    row("ft_probe_timeout", Kind::Duration, "1s",
        "How long a process that a transport cannot reach may take to answer before it counts as failed."),

    row("rte_suspect_timeout", Kind::Duration, "20s",
        "How long a process that cannot be reached, but that nobody calls dead, is waited for."),
    row("rte_line_buffered", Kind::Choice(&["on", "off"]), "on",
        "Standard output of C programs leaves line by line, so that a killed process loses none; off leaves it to the C library."),
    row("rte_host_timeout", Kind::Duration, "10s",
        "How long another host may be unreachable before its ranks count as failed (whole seconds, at least 3s)."),
];

/// Environment variables with our prefix that are not parameters.
pub const INTERNAL: &[&str] = &[
    // the configuration file to read instead of the usual ones
    "IRONWEAVE_CONFIG",
    // what to log (tracing's filter syntax)
    "IRONWEAVE_LOG",
    // launcher to rank: the liveness page, the board, the --mca arguments, the cores its host's ranks share, how long messages
    // go between two of them
    "IRONWEAVE_LIVENESS_FD",
    "IRONWEAVE_BOARD_FD",
    "IRONWEAVE_MCA",
    "IRONWEAVE_CORES",
    "IRONWEAVE_SINGLE_COPY",
    // launcher to rank: the error handler that MPI_COMM_WORLD begins with (MPI 5.0, §9.3 and 11.5)
    "IRONWEAVE_INITIAL_ERRHANDLER",
    // launcher to rank: the first failure ends the job (`--with-ft none`)
    "IRONWEAVE_END_ON_FAILURE",
    // what tests and simulations are told: budgets, and the seed to replay
    "IRONWEAVE_SIM_BUDGET",
    "IRONWEAVE_FUZZ_SECONDS",
    "IRONWEAVE_SEED",
    // the libraries of the ofi and uct transports, by soname or path, instead of libfabric.so.1 and libuct.so.0
    ironweave_ffi::ofi::VARIABLE,
    ironweave_ffi_uct::VARIABLE,
    // device tests: the devices of each host, whether this is the virtual machine and where it is kept, and where our programs
    // and the tests are
    "IRONWEAVE_VERBS_HOSTS",
    "IRONWEAVE_VERBS_PAGING",
    "IRONWEAVE_VM",
    "IRONWEAVE_VM_CACHE",
    "IRONWEAVE_TESTS",
    "IRONWEAVE_PROGRAMS",
    // the compilers behind mpicc and mpicxx
    "IRONWEAVE_CC",
    "IRONWEAVE_CXX",
    // seconds after which a process that waits in vain tells what it waits for
    "IRONWEAVE_WATCHDOG",
];
