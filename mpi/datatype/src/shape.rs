//! A number of datatypes one after the other, wherever they are: lengths, and which bytes are where.

use crate::basic::Basic;
use crate::datatype::Datatype;
use crate::error::{Argument, TypeError, at_least};
use crate::program::{Piece, Visit};
use std::ops::Range;

/// `count` of a datatype, each an extent after the one before.
#[derive(Clone, Debug)]
pub struct Shape {
    datatype: Datatype,
    count: i64,
    whole: Piece,
    len: usize,
    span: (i64, i64),
}

impl Shape {
    /// # Errors
    /// When the count is negative, or the data exceed what the address space holds.
    pub fn new(datatype: &Datatype, count: i64) -> Result<Shape, TypeError> {
        at_least(Argument::Count, 0, count, 0)?;
        let len = datatype.size().checked_mul(count).ok_or(TypeError::TooLarge)?;
        let len = usize::try_from(len).map_err(|_| TypeError::TooLarge)?;
        let map = datatype.map();
        let bounds = map.bounds.place(count, datatype.extent(), 0)?;
        let span = (bounds.true_lb(), bounds.true_extent()?);
        let whole = Piece::repeat(&map.program, count, datatype.extent());
        Ok(Shape { datatype: datatype.clone(), count, whole, len, span })
    }

    /// The datatype.
    #[must_use]
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// How many of it.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Bytes of packed data.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first byte of data is, and how far it is from there to the one after the last; gaps included.
    #[must_use]
    pub fn span(&self) -> (i64, i64) {
        self.span
    }

    /// If all data are one contiguous block: where that begins.
    #[must_use]
    pub fn contiguous(&self) -> Option<i64> {
        self.whole.contiguous()
    }

    /// The displacement of the packed byte at `at`, which is less than the length, and how many bytes from it on are
    /// contiguous with it.
    #[must_use]
    pub fn locate(&self, at: usize) -> (i64, usize) {
        assert!(at < self.len, "byte {at} of {}", self.len);
        let (offset, contiguous) = self.whole.locate(at as i64);
        (offset, contiguous as usize)
    }

    /// Shows `visit` the blocks of the packed `range`, in order.
    pub(crate) fn walk(&self, range: Range<usize>, visit: &mut impl Visit) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "bytes {range:?} of {}",
            self.len
        );
        self.whole.walk(range.start as i64..range.end as i64, 0, visit);
    }

    /// Bytes in external32.
    #[must_use]
    pub fn external_len(&self) -> usize {
        // No type is longer in external32 than here.
        self.datatype.external_size(self.count).map_or(self.len, |len| len as usize)
    }

    /// Calls `piece` for stretches of one basic type and moderate length: the type, its packed native bytes and its
    /// bytes in external32.
    pub(crate) fn for_each_stretch(
        &self,
        piece: &mut impl FnMut(Basic, Range<usize>, Range<usize>),
    ) {
        let (mut native, mut external) = (0, 0);
        let mut run = |basic: Basic, mut count: i64| {
            while count > 0 {
                let now = count.min((STRETCH / basic.size()) as i64) as usize;
                let end = (native + now * basic.size(), external + now * basic.external_size());
                piece(basic, native..end.0, external..end.1);
                (native, external) = end;
                count -= now as i64;
            }
        };
        let signature = self.datatype.signature();
        match signature.homogeneous() {
            // Small types in large numbers: one run for all.
            Some(basic) => run(basic, (self.len / basic.size()) as i64),
            None => (0..self.count).for_each(|_| signature.for_each_run(&mut run)),
        }
    }
}

/// Bytes converted at a time: they stay in the first cache.
pub(crate) const STRETCH: usize = 4096;
