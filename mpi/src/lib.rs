//! Fault-tolerant message passing for HPC clusters, in Rust.
