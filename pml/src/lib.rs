//! Point-to-point messaging layer: matching and protocols.
//!
//! [`ob1`] cuts messages into fragments and carries them over byte transports ([`ironweave_btl`]). It is an
//! engine without clock, thread, socket or file: its owner calls it, and it hands back completions and suspects.

pub mod ob1;
