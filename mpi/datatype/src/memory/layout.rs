//! Layouts: datatypes at an address, as the PML sends and receives them.

use super::kernels::{self, Gather, Grid, Scatter, Way};
use crate::datatype::Datatype;
use crate::error::TypeError;
use crate::external::{self, Direction};
use crate::program::Visit;
use crate::shape::{STRETCH, Shape};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_pml::ob1::{Pack, Unpack};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Range;

/// Blocks from this length on are worth a piece of their own in a rail's list; shorter ones are faster copied.
const REGION_MIN: usize = 4096;

/// Pieces that a rail is given at once, at most.
const REGIONS_MAX: usize = 8;

/// Data to send: `count` of a datatype at an address.
#[derive(Debug)]
pub struct SendLayout {
    shape: Shape,
    base: *const u8,
}

// SAFETY: a shape and an address with a promise, made in `new`, that holds for all threads of the process.
unsafe impl Send for SendLayout {}
// SAFETY: it is only read through, and nobody writes the memory, by the promise of `new`.
unsafe impl Sync for SendLayout {}

impl SendLayout {
    /// # Errors
    /// When the count is negative, or the data exceed what the address space holds.
    ///
    /// # Safety
    /// The bytes of the type map of `count` of `datatype` at `base` are valid for reads, and nobody writes them, until
    /// this layout and every region it gave out is gone.
    pub unsafe fn new(
        datatype: &Datatype,
        count: i64,
        base: *const u8,
    ) -> Result<SendLayout, TypeError> {
        Ok(SendLayout { shape: Shape::new(datatype, count)?, base })
    }

    /// What is where.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Appends all data to a buffer for `MPI_Pack`: at `position`, which moves on.
    ///
    /// # Errors
    /// `Truncated`, with nothing written, when the rest of the buffer is too short.
    pub fn pack_at(&self, out: &mut [u8], position: &mut usize) -> Result<(), TypeError> {
        let place = rest_of(out.len(), *position, self.shape.len())?;
        self.pack(0, &mut out[place.clone()]);
        *position = place.end;
        Ok(())
    }

    /// As [`pack_at`](SendLayout::pack_at), in external32.
    ///
    /// # Errors
    /// As `pack_at`.
    pub fn pack_external_at(&self, out: &mut [u8], position: &mut usize) -> Result<(), TypeError> {
        let place = rest_of(out.len(), *position, self.shape.external_len())?;
        let out = &mut out[place.clone()];
        let mut native = [0; STRETCH];
        self.shape.for_each_stretch(&mut |basic, from, to| {
            let native = &mut native[..from.len()];
            self.pack(from.start, native);
            external::convert(basic, Direction::Out, native, &mut out[to]);
        });
        *position = place.end;
        Ok(())
    }
}

impl Pack for SendLayout {
    fn packed_len(&self) -> usize {
        self.shape.len()
    }

    fn pack(&self, offset: usize, out: &mut [u8]) {
        let range = offset..offset + out.len();
        // The base is only read: `Gather` writes to the packed side alone.
        let base = self.base.cast_mut();
        let mut mover = Mover::<Gather>::new(base, out.as_mut_ptr(), out.len());
        self.shape.walk(range, &mut mover);
        mover.finish();
    }

    fn regions(&self, range: Range<usize>) -> Option<SmallVec<[SendRegion; 2]>> {
        let mut regions = SmallVec::new();
        let mut at = range.start;
        while at < range.end {
            let (offset, contiguous) = self.shape.locate(at);
            let len = contiguous.min(range.end - at);
            // The ends of the range may cut a block.
            let cut = at == range.start || len < contiguous;
            if regions.len() == REGIONS_MAX || contiguous < REGION_MIN && !cut {
                return None;
            }
            // SAFETY: bytes of the type map, valid as long as the region by the promise of `new`.
            regions.push(unsafe { SendRegion::new(address(self.base.cast_mut(), offset), len) });
            at += len;
        }
        (regions.len() * REGION_MIN <= range.len() + REGION_MIN).then_some(regions)
    }
}

/// Where received data go: `count` of a datatype at an address.
#[derive(Debug)]
pub struct RecvLayout {
    shape: Shape,
    base: *mut u8,
    // Not `Sync`: two threads must not write through one layout.
    _not_sync: PhantomData<std::cell::Cell<u8>>,
}

// SAFETY: as for `SendLayout`; the maker promised exclusive use by the holder of the layout and its regions.
unsafe impl Send for RecvLayout {}

impl RecvLayout {
    /// # Errors
    /// When the count is negative, or the data exceed what the address space holds.
    ///
    /// # Safety
    /// The bytes of the type map of `count` of `datatype` at `base` are valid for writes, and nobody else reads or
    /// writes them, until this layout and every region it gave out is gone; all are used from one thread at a time.
    pub unsafe fn new(
        datatype: &Datatype,
        count: i64,
        base: *mut u8,
    ) -> Result<RecvLayout, TypeError> {
        Ok(RecvLayout { shape: Shape::new(datatype, count)?, base, _not_sync: PhantomData })
    }

    /// What is where.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Takes all data from a buffer of `MPI_Pack`: at `position`, which moves on.
    ///
    /// # Errors
    /// `Truncated`, with nothing taken, when the rest of the buffer is too short.
    pub fn unpack_at(&mut self, packed: &[u8], position: &mut usize) -> Result<(), TypeError> {
        let place = rest_of(packed.len(), *position, self.shape.len())?;
        self.unpack(0, &packed[place.clone()]);
        *position = place.end;
        Ok(())
    }

    /// As [`unpack_at`](RecvLayout::unpack_at), from external32.
    ///
    /// # Errors
    /// As `unpack_at`.
    pub fn unpack_external_at(
        &mut self,
        packed: &[u8],
        position: &mut usize,
    ) -> Result<(), TypeError> {
        let place = rest_of(packed.len(), *position, self.shape.external_len())?;
        let packed = &packed[place.clone()];
        let mut native = [0; STRETCH];
        self.shape.for_each_stretch(&mut |basic, to, from| {
            let native = &mut native[..to.len()];
            external::convert(basic, Direction::In, &packed[from], native);
            self.put(to.start, native);
        });
        *position = place.end;
        Ok(())
    }

    fn put(&self, offset: usize, packed: &[u8]) {
        let range = offset..offset + packed.len();
        // The packed bytes are only read: `Scatter` writes to the strided side alone.
        let from = packed.as_ptr().cast_mut();
        let mut mover = Mover::<Scatter>::new(self.base, from, packed.len());
        self.shape.walk(range, &mut mover);
        mover.finish();
    }
}

impl Unpack for RecvLayout {
    fn capacity(&self) -> usize {
        self.shape.len()
    }

    fn unpack(&mut self, offset: usize, packed: &[u8]) {
        self.put(offset, packed);
    }

    fn region(&self, range: Range<usize>) -> Option<RecvRegion> {
        if range.is_empty() {
            return None;
        }
        let (offset, contiguous) = self.shape.locate(range.start);
        // SAFETY: bytes of the type map, valid as long as the region by the promise of `new`.
        (range.len() <= contiguous)
            .then(|| unsafe { RecvRegion::new(address(self.base, offset), range.len()) })
    }
}

/// The place for `needed` bytes at `position` in a buffer of `len`.
fn rest_of(len: usize, position: usize, needed: usize) -> Result<Range<usize>, TypeError> {
    let room = len.saturating_sub(position);
    if needed > room || position > len {
        return Err(TypeError::Truncated { needed, room });
    }
    Ok(position..position + needed)
}

/// The address `offset` bytes from `base`. A null base is `MPI_BOTTOM`: displacements are addresses then.
fn address(base: *mut u8, offset: i64) -> *mut u8 {
    if base.is_null() {
        std::ptr::with_exposed_provenance_mut(offset as usize)
    } else {
        base.wrapping_offset(offset as isize)
    }
}

/// Moves the blocks it is shown between memory and a packed buffer.
struct Mover<W> {
    base: *mut u8,
    packed: *mut u8,
    left: usize,
    _way: PhantomData<W>,
}

impl<W: Way> Mover<W> {
    fn new(base: *mut u8, packed: *mut u8, left: usize) -> Self {
        Mover { base, packed, left, _way: PhantomData }
    }

    fn finish(self) {
        assert_eq!(self.left, 0, "a walk shows as many bytes as its range has");
    }
}

impl<W: Way> Visit for Mover<W> {
    #[inline]
    fn strided(&mut self, offset: i64, len: i64, count: i64, stride: i64) {
        self.grid(offset, (len, count, stride), 1, 0);
    }

    #[inline]
    fn grid(&mut self, offset: i64, row: (i64, i64, i64), rows: i64, pitch: i64) {
        let (len, count, stride) = row;
        let grid = Grid {
            len: len as usize,
            count: count as usize,
            stride: stride as isize,
            rows: rows as usize,
            pitch: pitch as isize,
        };
        let total = grid.len * grid.count * grid.rows;
        assert!(total <= self.left, "a walk shows as many bytes as its range has");
        // SAFETY: the blocks are bytes of the type map, by the contract of the layout's `new`; the packed side has
        // `left` bytes of a live slice, which the promise keeps apart from the type map's.
        unsafe {
            kernels::run::<W>(grid, address(self.base, offset), self.packed);
            self.packed = self.packed.add(total);
        }
        self.left -= total;
    }
}
