//! Buffers of simulated processes: cut from large chunks that live as long as the simulation, so that regions may be
//! handed around, and so that what is written after a request is complete can be seen in the end (law 2).
#![allow(unsafe_code)] // the regions of test buffers are made here

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};

/// What memory is filled with while no request uses it.
const CANARY: u8 = 0xC5;
/// Bytes of a chunk; longer buffers get one of their own.
const CHUNK: usize = 64 << 10;

/// The first byte that is no canary.
fn first_other(bytes: &[u8]) -> Option<usize> {
    let (front, words, back) = (0, bytes.chunks_exact(256), bytes.len() / 256 * 256);
    let block = words.clone().position(|block| block != [CANARY; 256]);
    let from = block.map_or(back, |block| front + block * 256);
    let at = bytes[from..].iter().position(|&byte| byte != CANARY)?;
    Some(from + at)
}

/// A piece of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    chunk: u32,
    start: u32,
    pub len: u32,
}

/// All buffers of one process. Nothing is used twice within a simulation.
#[derive(Default)]
pub struct Arena {
    chunks: Vec<OwnedBuffer>,
    used: usize,
    /// Pieces that a request uses now, by their start; everything else is canary.
    lent: std::collections::BTreeMap<(u32, u32), u32>,
}

impl Arena {
    pub fn take(&mut self, len: usize) -> Piece {
        if self.chunks.last().is_none_or(|chunk| self.used + len > chunk.len()) {
            self.chunks.push(OwnedBuffer::from(vec![CANARY; CHUNK.max(len)]));
            self.used = 0;
        }
        let chunk = self.chunks.len() as u32 - 1;
        let piece = Piece { chunk, start: self.used as u32, len: len as u32 };
        // A gap, so that a write past the end meets a canary.
        self.used += len + 8;
        self.lent.insert((piece.chunk, piece.start), piece.len);
        piece
    }

    fn whole(&self, piece: Piece) -> (RecvRegion, SendRegion) {
        let buffer = &self.chunks[piece.chunk as usize];
        let range = piece.start as usize..(piece.start + piece.len) as usize;
        // SAFETY: chunks are freed with the arena, after every engine and rail; one thread uses them, through regions
        // only, and sends and receives never share a piece.
        unsafe { (buffer.recv_region().part(range.clone()), buffer.send_region().part(range)) }
    }

    pub fn target(&self, piece: Piece) -> RecvRegion {
        self.whole(piece).0
    }

    pub fn source(&self, piece: Piece) -> SendRegion {
        self.whole(piece).1
    }

    pub fn write(&self, piece: Piece, bytes: &[u8]) {
        self.target(piece).write(0, bytes);
    }

    pub fn with<R>(&self, piece: Piece, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.source(piece).as_slice())
    }

    /// The request that used the piece is over: from now on nobody reads it for truth, and nobody writes it.
    pub fn retire(&mut self, piece: Piece) {
        self.lent.remove(&(piece.chunk, piece.start));
        self.target(piece).write(0, &[CANARY; 4096][..piece.len.min(4096) as usize]);
        if piece.len > 4096 {
            self.target(piece).write(0, &vec![CANARY; piece.len as usize]);
        }
    }

    /// Where memory was written that no request uses: chunk and offset.
    pub fn disturbed(&self) -> Option<(u32, usize)> {
        (0..).zip(&self.chunks).find_map(|(chunk, buffer)| {
            let mut from = 0;
            // Over what is still lent, the check jumps.
            let lent = self.lent.range((chunk, 0)..(chunk + 1, 0));
            let ends = lent.map(|(&(_, start), &len)| (start as usize, (start + len) as usize));
            // Nothing beyond the first unused bytes was ever handed out.
            let last = chunk as usize + 1 == self.chunks.len();
            let end = if last { buffer.len().min(self.used + 256) } else { buffer.len() };
            for (until, next) in ends.chain([(end, end)]) {
                if let Some(at) = first_other(&buffer.as_slice()[from..until]) {
                    return Some((chunk, from + at));
                }
                from = next;
            }
            None
        })
    }
}
