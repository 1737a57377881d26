//! Failure knowledge: one ordered, monotonic list of failed processes per process.
