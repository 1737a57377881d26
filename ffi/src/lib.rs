//! C libraries opened at run time: what is found, which version, or why not.
