//! The datatype itself: immutable, shared, compiled when it is made.

use crate::basic::Basic;
use crate::constructor::Constructor;
use crate::contents::Contents;
use crate::error::TypeError;
use crate::map::Map;
use crate::signature::Signature;
use std::sync::{Arc, OnceLock};

/// How deep constructors may nest. Bounds the recursion of everything that follows datatypes.
pub const MAX_DEPTH: usize = 512;

/// Stands for a precision or range that was not given, and for results that cannot be told. The value is the ABI's.
pub const UNDEFINED: i64 = -32766;

/// A datatype. Cheap to clone; clones are the same datatype.
///
/// ```
/// use ironweave_datatype::{Basic, Constructor, Datatype};
///
/// // One column of a matrix of 4 rows and 10 columns.
/// let column = Datatype::new(Constructor::Vector {
///     count: 4,
///     blocklength: 1,
///     stride: 10,
///     of: Datatype::named(Basic::Double),
/// })?;
/// assert_eq!((column.size(), column.extent()), (32, 31 * 8));
/// # Ok::<(), ironweave_datatype::TypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Datatype(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    constructor: Constructor,
    /// Made by a large-count call: its counts are told as large counts.
    large: bool,
    depth: usize,
    map: Map,
    extent: i64,
    true_extent: i64,
}

impl Datatype {
    /// The datatype that a call with `int` counts makes.
    ///
    /// # Errors
    /// Which argument is wrong, or that the type map does not fit into the address space or nests too deep.
    pub fn new(constructor: Constructor) -> Result<Datatype, TypeError> {
        Self::make(constructor, false)
    }

    /// The datatype that a large-count call makes. It differs only in its [`contents`](Datatype::contents).
    ///
    /// # Errors
    /// As [`new`](Datatype::new).
    pub fn new_large(constructor: Constructor) -> Result<Datatype, TypeError> {
        Self::make(constructor, true)
    }

    fn make(constructor: Constructor, large: bool) -> Result<Datatype, TypeError> {
        let depth = constructor.inner().iter().map(Datatype::depth).max().map_or(0, |d| d + 1);
        if depth > MAX_DEPTH {
            return Err(TypeError::TooDeep);
        }
        let map = constructor.compile()?;
        let (extent, true_extent) = (map.bounds.extent()?, map.bounds.true_extent()?);
        Ok(Datatype(Arc::new(Inner { constructor, large, depth, map, extent, true_extent })))
    }

    /// A predefined datatype.
    #[must_use]
    pub fn named(basic: Basic) -> Datatype {
        static NAMED: [OnceLock<Datatype>; 256] = [const { OnceLock::new() }; 256];
        let slot = &NAMED[usize::from(basic.abi()) % 256];
        slot.get_or_init(|| {
            Self::new(Constructor::Named(basic)).expect("predefined types are small")
        })
        .clone()
    }

    /// The predefined datatype it is. A duplicate is none.
    #[must_use]
    pub fn basic(&self) -> Option<Basic> {
        match self.0.constructor {
            Constructor::Named(basic) => Some(basic),
            _ => None,
        }
    }

    /// The predefined datatype that reductions take it for: itself, or the one that precision and range have chosen (§19.1.9).
    #[must_use]
    pub fn counts_as(&self) -> Option<Basic> {
        self.basic().or_else(|| self.0.constructor.chosen())
    }

    /// Whether it is predefined and has a name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.basic().is_some()
    }

    /// Whether both are the same datatype (not merely alike).
    #[must_use]
    pub fn is(&self, other: &Datatype) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of data in one.
    #[must_use]
    pub fn size(&self) -> i64 {
        self.signature().bytes()
    }

    /// Lower bound, in bytes from the address that a call is given.
    #[must_use]
    pub fn lb(&self) -> i64 {
        self.0.map.bounds.lb()
    }

    /// Distance between two in an array, in bytes.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.0.extent
    }

    /// Where its first byte of data is, in bytes from the address that a call is given.
    #[must_use]
    pub fn true_lb(&self) -> i64 {
        self.0.map.bounds.true_lb()
    }

    /// Distance from its first byte of data to the one after the last.
    #[must_use]
    pub fn true_extent(&self) -> i64 {
        self.0.true_extent
    }

    /// The basic types its data consist of.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        &self.0.map.signature
    }

    /// How it was made.
    #[must_use]
    pub fn constructor(&self) -> &Constructor {
        &self.0.constructor
    }

    /// How it was made, as `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell it.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents::of(&self.0.constructor, self.0.large)
    }

    /// Bytes that `count` of it take in external32; none when that is more than fits.
    #[must_use]
    pub fn external_size(&self, count: i64) -> Option<i64> {
        self.signature().external_bytes().checked_mul(count)
    }

    /// How many whole ones `bytes` bytes are, as `MPI_Get_count` counts; none if there is a rest.
    #[must_use]
    pub fn count_in(&self, bytes: i64) -> Option<i64> {
        match self.size() {
            0 => (bytes == 0).then_some(0),
            size => (bytes % size == 0).then_some(bytes / size),
        }
    }

    /// If `count` of it are one contiguous block of memory: where that begins, in bytes from the address that a call
    /// is given. Its length is `count` times the size.
    #[inline]
    #[must_use]
    pub fn is_dense(&self, count: i64) -> Option<i64> {
        let offset = self.0.map.program.contiguous()?;
        (count <= 1 || self.extent() == self.size()).then_some(offset)
    }

    pub(crate) fn map(&self) -> &Map {
        &self.0.map
    }

    fn depth(&self) -> usize {
        self.0.depth
    }
}
