//! MPI datatypes (MPI 5.0, chapter 5) without handles: what a message's bytes look like in memory.
//!
//! A [`Datatype`] is made by a [`Constructor`] and compiled at once to a flat program of runs in loops. A
//! [`SendLayout`] or [`RecvLayout`] is a number of them at an address: it packs and unpacks any range of the message's
//! bytes, in any order, for the PML. Nothing here knows handles, communicators, clocks or files; only the module
//! `memory` touches user memory.
//!
//! ```
//! use ironweave_datatype::{Basic, Constructor, Datatype, SendLayout};
//! use ironweave_pml::ob1::Pack;
//!
//! let matrix: [i32; 12] = std::array::from_fn(|i| i as i32); // 3 rows of 4
//! let column = Datatype::new(Constructor::Vector {
//!     count: 3,
//!     blocklength: 1,
//!     stride: 4,
//!     of: Datatype::named(Basic::Int),
//! })?;
//! // SAFETY: the matrix outlives the layout, which is inside it.
//! let layout = unsafe { SendLayout::new(&column, 1, matrix[1..].as_ptr().cast()) }?;
//! let mut packed = [0; 12];
//! layout.pack(0, &mut packed);
//! let values: Vec<i32> = packed.chunks(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
//! assert_eq!(values, [1, 5, 9]);
//! # Ok::<(), ironweave_datatype::TypeError>(())
//! ```

mod array;
mod basic;
mod bounds;
mod constructor;
mod contents;
mod datatype;
mod error;
mod external;
mod map;
mod memory;
mod program;
mod shape;
mod signature;

pub use array::{DEFAULT_ARGUMENT, Distribution, Order};
pub use basic::{Basic, Kind, Scalar};
pub use constructor::Constructor;
pub use contents::{Combiner, Contents};
pub use datatype::{Datatype, MAX_DEPTH, UNDEFINED};
pub use error::{Argument, TypeError};
pub use memory::{RecvLayout, SendLayout};
pub use shape::Shape;
pub use signature::Signature;
