//! Simulated byte transport in virtual time, and the chaos wrapper that injects faults into any transport.
