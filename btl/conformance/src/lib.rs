//! One conformance suite that every byte transport must pass.
