//! How a long payload is cut into pieces, so that the reader copies one out while the writer copies the next in.
//!
//! The figures were found with `examples/shm_pingpong`: the latency of 4 KiB to 64 KiB decides.

/// Payloads up to here are published whole, stored through the cache or past it: there, publishing costs more.
const WHOLE: [usize; 2] = [4 << 10, 8 << 10];
/// The first piece of a longer payload: short, so that the reader starts early.
const FIRST_PIECE: [usize; 2] = [4 << 10, 4 << 10];
/// The longest piece: longer ones gain nothing.
pub(crate) const PIECE_MAX: usize = 32 << 10;
/// A payload is cut into about so many pieces: the last one is what the reader has left to do.
const PIECES: usize = 4;
/// How a payload of `len` bytes is cut: the length of the piece at an offset. Pieces are whole lines.
#[inline]
pub(crate) fn pieces(len: usize, streamed: bool) -> impl Fn(usize) -> usize {
    let (whole, first) = (WHOLE[usize::from(streamed)], FIRST_PIECE[usize::from(streamed)]);
    let usual = (len / PIECES).clamp(first, PIECE_MAX).next_multiple_of(64);
    move |offset| match offset {
        _ if len <= whole => len,
        0 => first,
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines_and_few() {
        for streamed in [false, true] {
            for len in [1, 2048, 2049, 9000, 65_536, 262_144] {
                let cut = pieces(len, streamed);
                let (mut offset, mut count) = (0, 0);
                while offset < len {
                    assert!(offset.is_multiple_of(64), "{len} at {offset}");
                    offset += cut(offset);
                    count += 1;
                }
                assert!(count <= PIECES + 1 + len / PIECE_MAX, "{len}: {count} pieces");
            }
        }
    }
}
