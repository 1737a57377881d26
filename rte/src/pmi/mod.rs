//! PMI-1, the text protocol by which process managers wire up a job: the wire, the client every
//! rank uses under any launcher, and the server our launcher is.
//!
//! It is used at start only: put, one fence, gets; never a fence after that (Slurm's never
//! completes after a death, and a failed one ends the step).

pub mod client;
pub mod mapping;
pub mod server;
pub mod text;
pub mod wire;
