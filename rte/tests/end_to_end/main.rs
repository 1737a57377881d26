//! The launcher end to end: real processes, killed for real, on one host and on several made of
//! network namespaces. Each test has a watchdog and cleans up after itself.

mod failures;
mod hosts;
mod jobs;
mod mpiexec;
mod support;
mod tools;
mod words;
