//! User memory described by datatypes: the only place of this crate that touches memory it does not own.
//!
//! A layout is a promise by its maker, like the regions it resembles: the bytes that the datatype describes at that
//! address stay valid as long as the layout and every region cut from it. All displacements come from compiled programs, which
//! name exactly the bytes of the type map; nothing here computes an address from anything else. Memory is read and
//! written by raw copies only, never through references, so it may be shared and uninitialised.
#![allow(unsafe_code)] // copies user memory by pointers: blueprint, "the registration of user memory"

mod kernels;
mod layout;

pub use layout::{RecvLayout, SendLayout};
