//! Compiled layouts: where the packed bytes lie in memory, as runs in loops.
//!
//! A program lists, in packed order, pieces: `count` equal blocks at a constant stride, or the same for a nested program.
//! Neighbouring blocks are joined, equally spaced ones become one piece, loops of one piece fuse with it. Finding a packed
//! offset costs a binary search and a division for each level of nesting. Pure: knows displacements, no memory.

use std::ops::Range;
use std::sync::Arc;

/// Pieces in packed order.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pieces: Box<[Piece]>,
    size: i64,
}

/// `count` things of `len` packed bytes; the first at `offset`, each `stride` after the one before.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Packed bytes of all pieces before this one in the program.
    start: i64,
    offset: i64,
    len: i64,
    count: i64,
    stride: i64,
    /// What is repeated, with its displacements from the thing's place; a contiguous block if there is none.
    body: Option<Arc<Program>>,
}

/// Takes contiguous blocks in packed order.
pub(crate) trait Visit {
    /// `count` blocks of `len` bytes, the first at `offset`, `stride` apart.
    fn strided(&mut self, offset: i64, len: i64, count: i64, stride: i64);

    /// `rows` times `strided`, at `offset` and each `pitch` after the one before.
    fn grid(&mut self, offset: i64, row: (i64, i64, i64), rows: i64, pitch: i64) {
        let (len, count, stride) = row;
        for i in 0..rows {
            self.strided(offset + i * pitch, len, count, stride);
        }
    }
}

impl Piece {
    /// One contiguous block.
    pub const fn block(offset: i64, len: i64) -> Piece {
        Piece { start: 0, offset, len, count: 1, stride: 0, body: None }
    }

    /// Packed bytes.
    pub const fn size(&self) -> i64 {
        self.len * self.count
    }

    /// The offset, if it is one contiguous block.
    pub const fn contiguous(&self) -> Option<i64> {
        if self.body.is_none() && self.count == 1 { Some(self.offset) } else { None }
    }

    /// `count` times `program`, `stride` apart.
    pub fn repeat(program: &Arc<Program>, count: i64, stride: i64) -> Piece {
        match &*program.pieces {
            [] => Piece::block(0, 0),
            _ if count == 0 => Piece::block(0, 0),
            [piece] if count == 1 => piece.clone(),
            [piece] if piece.count == 1 && piece.body.is_none() => {
                if stride == piece.len {
                    return Piece::block(piece.offset, piece.len * count);
                }
                Piece { count, stride, ..piece.clone() }
            }
            [piece] if piece.count.checked_mul(piece.stride) == Some(stride) => {
                Piece { count: piece.count * count, ..piece.clone() }
            }
            _ => {
                let body = Some(Arc::clone(program));
                Piece { start: 0, offset: 0, len: program.size, count, stride, body }
            }
        }
    }

    /// Shows `visit` the blocks of the packed `range`, whose displacements are from `base`.
    pub fn walk(&self, range: Range<i64>, base: i64, visit: &mut impl Visit) {
        if range.start >= range.end {
            return;
        }
        let base = base + self.offset;
        if range.start == 0 && range.end == self.size() {
            return self.walk_things(base, self.count, visit);
        }
        // The first thing may lack its beginning, the last its end; those between are whole.
        let (mut first, cut) = (range.start / self.len, range.start % self.len);
        let (last, end) = (range.end / self.len, range.end % self.len);
        if first == last {
            return self.walk_part(base + first * self.stride, cut..end, visit);
        }
        if cut > 0 {
            self.walk_part(base + first * self.stride, cut..self.len, visit);
            first += 1;
        }
        if first < last {
            self.walk_things(base + first * self.stride, last - first, visit);
        }
        self.walk_part(base + last * self.stride, 0..end, visit);
    }

    /// All of `count` things from `offset` on.
    fn walk_things(&self, offset: i64, count: i64, visit: &mut impl Visit) {
        let Some(body) = &self.body else {
            return visit.strided(offset, self.len, count, self.stride);
        };
        if let [Piece { offset: inner, len, count: columns, stride, body: None, .. }] = *body.pieces
        {
            return visit.grid(offset + inner, (len, columns, stride), count, self.stride);
        }
        for i in 0..count {
            let place = offset + i * self.stride;
            for piece in &body.pieces {
                piece.walk_things(place + piece.offset, piece.count, visit);
            }
        }
    }

    /// A part of the thing at `offset`.
    fn walk_part(&self, offset: i64, range: Range<i64>, visit: &mut impl Visit) {
        if range.start >= range.end {
            return;
        }
        let Some(body) = &self.body else {
            return visit.strided(offset + range.start, range.end - range.start, 1, 0);
        };
        for piece in &body.pieces[body.find(range.start)..] {
            if piece.start >= range.end {
                break;
            }
            let from = (range.start - piece.start).max(0);
            let until = (range.end - piece.start).min(piece.size());
            piece.walk(from..until, offset, visit);
        }
    }

    /// The displacement of the packed byte `at`, and the bytes from it on that are contiguous with it.
    pub fn locate(&self, at: i64) -> (i64, i64) {
        let (mut piece, mut at, mut base) = (self, at, 0);
        loop {
            let (thing, rest) = (at / piece.len, at % piece.len);
            base += piece.offset + thing * piece.stride;
            let Some(body) = &piece.body else {
                return (base + rest, piece.len - rest);
            };
            piece = &body.pieces[body.find(rest)];
            at = rest - piece.start;
        }
    }
}

/// A program of the one piece.
pub(crate) fn single(piece: Piece) -> Arc<Program> {
    if piece.size() == 0 {
        return Arc::default();
    }
    Arc::new(Program { size: piece.size(), pieces: Box::new([Piece { start: 0, ..piece }]) })
}

impl Program {
    /// `count` times `program`, `stride` apart.
    pub fn repeat(program: &Arc<Program>, count: i64, stride: i64) -> Arc<Program> {
        if count == 1 {
            return Arc::clone(program);
        }
        single(Piece::repeat(program, count, stride))
    }

    /// The offset, if all of it is one contiguous block, or nothing.
    pub fn contiguous(&self) -> Option<i64> {
        match &*self.pieces {
            [] => Some(0),
            [piece] => piece.contiguous(),
            _ => None,
        }
    }

    /// The index of the piece that has the packed byte `at`.
    fn find(&self, at: i64) -> usize {
        self.pieces.partition_point(|piece| piece.start <= at) - 1
    }
}

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pieces: Vec<Piece>,
}

impl Builder {
    /// Appends `count` times `program`, the first at `offset`, each `stride` after the one before.
    pub fn push(&mut self, program: &Arc<Program>, count: i64, stride: i64, offset: i64) {
        if count == 1 {
            for piece in &program.pieces {
                self.push_piece(Piece { offset: piece.offset + offset, ..piece.clone() });
            }
            return;
        }
        let piece = Piece::repeat(program, count, stride);
        if piece.size() > 0 {
            self.push_piece(Piece { offset: piece.offset + offset, ..piece });
        }
    }

    fn push_piece(&mut self, mut new: Piece) {
        while let Some(last) = self.pieces.last_mut() {
            if last.body.is_some() || new.body.is_some() || last.len != new.len && new.count > 1 {
                break;
            }
            let end = last.offset + (last.count - 1) * last.stride; // where its last block is
            if new.count == 1 && end + last.len == new.offset {
                // The new block goes on where the last one ends: take that out and look again.
                new = Piece::block(end, last.len + new.len);
                last.count -= 1;
                if last.count == 0 {
                    self.pieces.pop();
                }
                continue;
            }
            let gap = new.offset - end;
            let evenly = last.len == new.len
                && (last.count == 1 || last.stride == gap)
                && (new.count == 1 || new.stride == gap);
            if evenly {
                last.count += new.count;
                last.stride = gap;
                return;
            }
            break;
        }
        self.pieces.push(new);
    }

    pub fn finish(mut self) -> Arc<Program> {
        let mut size = 0;
        for piece in &mut self.pieces {
            piece.start = size;
            size += piece.size();
        }
        Arc::new(Program { pieces: self.pieces.into(), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(blocks: &[(i64, i64)]) -> Arc<Program> {
        let mut builder = Builder::default();
        for &(offset, len) in blocks {
            builder.push(&single(Piece::block(0, len)), 1, 0, offset);
        }
        builder.finish()
    }

    fn shape(program: &Program) -> Vec<(i64, i64, i64, i64)> {
        program.pieces.iter().map(|p| (p.offset, p.len, p.count, p.stride)).collect()
    }

    #[test]
    fn neighbours_join_and_even_spacing_is_one_piece() {
        assert_eq!(shape(&program(&[(0, 4), (4, 4), (8, 8)])), [(0, 16, 1, 0)]);
        assert_eq!(shape(&program(&[(0, 4), (8, 4), (16, 4)])), [(0, 4, 3, 8)]);
        // A block that continues the last of a row leaves the row one shorter.
        assert_eq!(
            shape(&program(&[(0, 4), (8, 4), (16, 4), (20, 4)])),
            [(0, 4, 2, 8), (16, 8, 1, 0)]
        );
        assert_eq!(shape(&program(&[(8, 4), (4, 4), (0, 4)])), [(8, 4, 3, -4)]);
    }

    #[test]
    fn loops_of_one_piece_fuse() {
        let row = Program::repeat(&program(&[(0, 8)]), 4, 16);
        assert_eq!(shape(&Program::repeat(&row, 3, 64)), [(0, 8, 12, 16)]);
        assert_eq!(shape(&Program::repeat(&row, 3, 100)), [(0, 32, 3, 100)]);
        assert_eq!(shape(&Program::repeat(&program(&[(4, 8)]), 5, 8)), [(4, 40, 1, 0)]);
        assert!(Program::repeat(&row, 0, 64).pieces.is_empty());
    }
}
