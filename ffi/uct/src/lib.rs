//! UCT, the transport layer of UCX, opened at run time: which transports there are, and a safe way to drive them.
//!
//! * [`Uct`] is the opened library: what `IRONWEAVE_UCT_LIB` names, or `libuct.so.0`; 1.13 to 1.22 by the same bindings.
//! * [`Resource`] is a transport on a device, as the library lists them.
//! * [`Port`] is a worker with interfaces and endpoints. Its error handler is always set, it owns every handle, and closes
//!   them in its `drop` alone.
//!
//! Layouts are written by hand after UCX's public headers (`raw.rs`, with a test against them); nothing is linked. What is
//! inline in those headers goes over the interface's table of calls. No decision about errors is made here: what the library
//! returns is handed up as [`Status`] (law 3). (Blueprint, "The house": unsafe lives in `ffi/`.)
#![allow(unsafe_code)] // Calls a C library through its documented types; each block says by which invariant.

mod attributes;
mod inbox;
mod library;
mod port;
mod raw;
mod sleep;
mod status;
mod survey;

pub use attributes::{Attributes, RKEY_MAX};
pub use inbox::{Event, Expected, Look};
pub use library::{DeviceKind, Resource, Uct, UctError, VARIABLE};
pub use port::{Direction, EpId, IfaceId, Memory, Name, NotWaitable, Port, RemoteMemory};
pub use status::Status;
pub use survey::{ADDRESS_MAX, KERNEL, MESSAGE_MIN, Standing, Transport, defaults, survey};
