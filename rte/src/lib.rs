//! Run-time environment: the launcher, PMI-1, wire-up, the liveness page, parameters.
