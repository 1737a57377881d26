//! One side of a collective: the user's blocks as bytes that schedules move.
//!
//! Blocks without gaps are moved where they are. Where one has gaps, all are packed into memory of the library's, and those that
//! come are unpacked at the end ([`Side::land`]).

use crate::data;
use crate::prelude::*;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_coll::Block;
use ironweave_pml::ob1::{Buffer, Payload};

/// No process has memory below this address (Linux's `mmap_min_addr`).
const LOWEST: usize = 64 << 10;

/// A block of the user's: so many elements at an address.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub at: *mut c_void,
    pub count: usize,
    pub datatype: MPI_Datatype,
}

impl Piece {
    /// `count` elements at a buffer's address.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`.
    pub fn new(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Result<Piece> {
        let count = crate::count::count("count", count)?;
        Ok(Piece { at: buf.cast_mut(), count, datatype })
    }

    /// `count` elements, `displacement` bytes behind a buffer's address.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`, `MPI_ERR_BUFFER`, `MPI_ERR_TYPE`.
    pub fn at(
        buf: *const c_void,
        displacement: isize,
        count: i64,
        datatype: MPI_Datatype,
    ) -> Result<Piece> {
        // Behind a null pointer it would not be seen any more; but behind MPI_BOTTOM a displacement may be an address.
        if displacement.unsigned_abs() < LOWEST {
            data::present(buf, count, datatype)?;
        }
        Piece::new(buf.cast::<u8>().wrapping_offset(displacement).cast(), count, datatype)
    }
}

/// Whether some of these addresses and lengths overlap.
fn overlap(blocks: &[(usize, usize)]) -> bool {
    let meet = |blocks: &[(usize, usize)]| {
        let used = blocks.iter().filter(|(_, len)| *len > 0);
        used.clone().zip(used.skip(1)).any(|(one, next)| next.0 < one.0.saturating_add(one.1))
    };
    // Mostly they are in order.
    if !meet(blocks) {
        return false;
    }
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    meet(&sorted)
}

/// The blocks of one side: mostly one piece of the user's memory.
#[derive(Debug)]
pub struct Side {
    start: *mut u8,
    len: usize,
    parts: Option<Box<Parts>>,
}

/// What a side of several blocks, or of blocks with gaps, has beside.
#[derive(Debug)]
struct Parts {
    blocks: Vec<Block>,
    staged: Option<Staged>,
}

/// Packed blocks. Datatypes are looked up when the side is made: their handles may be freed while the operation runs.
#[derive(Debug)]
struct Staged {
    bytes: Box<[u8]>,
    /// Where each block comes from, where it goes, and where it is here.
    home: Vec<(Payload, Buffer, Block)>,
    /// What is in the user's blocks matters.
    pack: bool,
}

impl Staged {
    fn pack(&mut self) {
        if self.pack {
            for (payload, _, Block { offset, len }) in &self.home {
                payload.pack(0, &mut self.bytes[*offset..offset + len]);
            }
        }
    }
}

// SAFETY: addresses of the user's, who lent them to the operation, and of boxes.
unsafe impl Send for Side {}

impl Side {
    /// Nothing.
    pub fn nothing() -> Side {
        Side { start: std::ptr::null_mut(), len: 0, parts: None }
    }

    /// So many bytes of the user's, as they are.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER`.
    ///
    /// # Safety
    /// As [`sending`](Side::sending), or [`receiving`](Side::receiving).
    pub unsafe fn raw(start: *mut u8, len: usize) -> Result<Side> {
        data::present(start.cast(), len as i64, MPI_BYTE)?;
        Ok(Side { start, len, parts: None })
    }

    /// One block to send.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`, `MPI_ERR_BUFFER`.
    ///
    /// # Safety
    /// The block is readable, and stays as it is, while the side is in use.
    pub unsafe fn sending(piece: Piece) -> Result<Side> {
        // SAFETY: this function's contract.
        unsafe { Side::single(piece, true) }
    }

    /// One block to receive; with `holds`, what is in it matters too.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`, `MPI_ERR_BUFFER`.
    ///
    /// # Safety
    /// The block is the library's while the side is in use.
    pub unsafe fn receiving(piece: Piece, holds: bool) -> Result<Side> {
        // SAFETY: this function's contract.
        unsafe { Side::single(piece, holds) }
    }

    unsafe fn single(piece: Piece, pack: bool) -> Result<Side> {
        let Some((offset, len)) = data::piece(piece.count, piece.datatype)? else {
            // SAFETY: this function's contract.
            return unsafe { Side::stage(vec![piece], pack) };
        };
        data::present(piece.at, len as i64, piece.datatype)?;
        let start = piece.at.cast::<u8>().wrapping_offset(offset);
        Ok(Side { start, len, parts: None })
    }

    /// Several blocks; with `pack`, what is in them matters.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`.
    ///
    /// # Safety
    /// As [`sending`](Side::sending), or [`receiving`](Side::receiving).
    pub unsafe fn several(pieces: Vec<Piece>, pack: bool) -> Result<Side> {
        // SAFETY: this function's contract.
        unsafe { Side::blocks_of(pieces, pack, false) }
    }

    /// Several blocks to receive; with `holds`, what is in them matters too. Blocks that overlap are an error of the program's, which
    /// others do not see: here they land one after the other, in the order of ranks.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`.
    ///
    /// # Safety
    /// As [`receiving`](Side::receiving).
    pub unsafe fn several_to_receive(pieces: Vec<Piece>, holds: bool) -> Result<Side> {
        // SAFETY: this function's contract.
        unsafe { Side::blocks_of(pieces, holds, true) }
    }

    unsafe fn blocks_of(pieces: Vec<Piece>, pack: bool, apart: bool) -> Result<Side> {
        let mut dense: Vec<(usize, usize)> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let Some((offset, len)) = data::piece(piece.count, piece.datatype)? else {
                // SAFETY: this function's contract.
                return unsafe { Side::stage(pieces, pack) };
            };
            dense.push((piece.at.addr().wrapping_add_signed(offset), len));
        }
        if apart && overlap(&dense) {
            // SAFETY: this function's contract.
            return unsafe { Side::stage(pieces, pack) };
        }
        let used = || dense.iter().filter(|(_, len)| *len > 0);
        let start = used().map(|(start, _)| *start).min().unwrap_or(0);
        let end = used().map(|(start, len)| start + len).max().unwrap_or(0);
        let block = |&(at, len): &(usize, usize)| match len {
            0 => Block { offset: 0, len: 0 },
            _ => Block { offset: at - start, len },
        };
        let blocks = dense.iter().map(block).collect();
        // An address of the user's memory, from the addresses given.
        let start = std::ptr::with_exposed_provenance_mut(start);
        let parts = Some(Box::new(Parts { blocks, staged: None }));
        Ok(Side { start, len: end - start.addr(), parts })
    }

    unsafe fn stage(pieces: Vec<Piece>, pack: bool) -> Result<Side> {
        let mut home = Vec::with_capacity(pieces.len());
        let mut end = 0;
        for Piece { at, count, datatype } in pieces {
            // SAFETY: this function's contract.
            let (payload, buffer) = unsafe {
                let count = count as i64;
                (data::payload(at, count, datatype)?, data::buffer(at, count, datatype)?)
            };
            let block = Block { offset: end, len: payload.len() };
            end += block.len;
            home.push((payload, buffer, block));
        }
        let mut staged = Staged { bytes: vec![0; end].into_boxed_slice(), home, pack };
        staged.pack();
        let blocks = staged.home.iter().map(|(_, _, block)| *block).collect();
        let (start, len) = (staged.bytes.as_mut_ptr(), staged.bytes.len());
        Ok(Side { start, len, parts: Some(Box::new(Parts { blocks, staged: Some(staged) })) })
    }

    /// Another run begins: what is in the user's blocks is taken again.
    pub fn refresh(&mut self) {
        if let Some(parts) = &mut self.parts
            && let Some(staged) = &mut parts.staged
        {
            staged.pack();
            self.start = staged.bytes.as_mut_ptr();
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they share memory of the user's. Not looked for between two sides of several blocks.
    pub fn meets(&self, other: &Side) -> bool {
        let one = match (&self.parts, &other.parts) {
            (None, _) => self,
            (Some(_), None) => return other.meets(self),
            (Some(_), Some(_)) => return false,
        };
        let (start, there) = (one.start.addr(), other.start.addr());
        let hit = |at: usize, len: usize| {
            len > 0 && at < start.saturating_add(one.len) && start < at.saturating_add(len)
        };
        one.len > 0
            && hit(there, other.len)
            && other.parts.as_ref().is_none_or(|parts| {
                parts.blocks.iter().any(|block| hit(there + block.offset, block.len))
            })
    }

    /// Where its blocks are, in bytes.
    pub fn blocks(&self) -> std::sync::Arc<[Block]> {
        self.parts.as_ref().map_or(&[][..], |parts| &parts.blocks).into()
    }

    /// Lends it to a run that sends from it.
    ///
    /// # Safety
    /// The run is over before the side goes, and before the caller has its memory back.
    pub unsafe fn lend(&self) -> SendRegion {
        // SAFETY: valid by the promise to the makers, for as long as this function's contract says.
        unsafe { SendRegion::new(self.start, self.len) }
    }

    /// Lends it to a run that receives into it.
    ///
    /// # Safety
    /// As [`lend`](Side::lend), and nobody else uses it until then.
    pub unsafe fn lend_mut(&self) -> RecvRegion {
        // SAFETY: as in `lend`.
        unsafe { RecvRegion::new(self.start, self.len) }
    }

    /// The run is over: what came goes home.
    #[inline]
    pub fn land(&mut self) {
        let Some(parts) = &mut self.parts else { return };
        let Some(Staged { bytes, home, .. }) = &mut parts.staged else { return };
        for (_, buffer, Block { offset, len }) in home {
            buffer.unpack(0, &bytes[*offset..*offset + *len]);
        }
    }
}
