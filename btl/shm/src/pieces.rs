//! How a long payload is cut into pieces, so that the reader copies one out while the writer copies the next in.
//!
//! The figures were found by the latency of 4 KiB to 64 KiB between near cores. First pieces of 8 instead of 4 KiB, measured in
//! turns: 16 KiB 1.04 to 0.84 µs, 64 KiB 2.36 to 2.32. In a shuttle 4 KiB whole instead of in two pieces 0.41 to 0.32 µs, 8 KiB
//! 0.70 to 0.45. Taken without a request and with the header stored last (`ring.rs`), 4 KiB went from 0.36 to 0.28 µs, 8 KiB from 0.47 to 0.40.

use crate::ring::{Full, Writer};
use crate::shuttle::Shuttles;
use ironweave_btl::copy::strings_are_quick;

/// What decides how payloads are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Stored through the cache: publishing costs little.
    Cached,
    /// Stored through the cache to lines that are in it (`shuttle.rs`): writing is so quick that waiting for all of it costs less
    /// than pieces do.
    Shuttle,
    /// Stored past the cache: publishing costs a barrier.
    Streamed,
    /// More processes than cores: the reader hardly runs while the writer does, so pieces gain nothing.
    Crowded,
}

impl Cut {
    /// Payloads up to here are published whole.
    const fn whole(self) -> usize {
        match self {
            Cut::Cached => 2 << 10,
            Cut::Shuttle | Cut::Streamed => 8 << 10,
            Cut::Crowded => usize::MAX,
        }
    }

    /// The first piece of a longer payload of `len` bytes: short, so that the reader starts early; but not too short, for a
    /// reader that waits for the next piece delays its writer by 50 to 100 ns.
    fn first(self, len: usize) -> usize {
        match self {
            Cut::Cached if len <= 8 << 10 => 2 << 10,
            Cut::Cached | Cut::Shuttle if len >= 32 << 10 && strings_are_quick() => 16 << 10,
            Cut::Cached if len >= 16 << 10 => 8 << 10,
            Cut::Shuttle => 8 << 10,
            _ => 4 << 10,
        }
    }
}

/// The longest piece. Measured in turns, windows of 4 MiB between near cores, in fragments of 256 KiB: 5 % more with this than
/// with half of it; single messages of 1 MiB the same.
const PIECE_MAX: usize = 64 << 10;
/// The same where strings move quickly. Measured on Zen 5, in turns: 1 MiB 20.8 instead of 21.3 µs, windows the
/// same; with first pieces of 16 instead of 8 KiB, 64 KiB 1.19 instead of 1.23 µs.
const PIECE_MAX_QUICK: usize = 32 << 10;
/// A payload is cut into about so many pieces: the last one is what the reader has left to do.
const PIECES: usize = 4;

/// The longest piece on this processor.
#[inline]
pub(crate) fn longest() -> usize {
    if strings_are_quick() { PIECE_MAX_QUICK } else { PIECE_MAX }
}

/// How a payload of `len` bytes is cut: the length of the piece at an offset. Pieces are whole lines.
#[inline]
pub(crate) fn pieces(len: usize, cut: Cut) -> impl Fn(usize) -> usize {
    let (whole, first) = (cut.whole(), cut.first(len));
    let usual = (len / PIECES).clamp(first, longest()).next_multiple_of(64);
    move |offset| match offset {
        _ if len <= whole => len,
        0 => first,
        _ => usual,
    }
}

/// Sends a payload of `len` bytes that does not go inline: in a shuttle, if one is held that takes it, otherwise through the bulk
/// area, and in pieces. `crowded`: there are more processes than cores.
///
/// # Errors
/// As [`Writer::send_bulk`].
#[inline(always)]
pub(crate) fn send(
    writer: &mut Writer,
    shuttles: Option<&mut Shuttles>,
    crowded: bool,
    header: &[u8],
    len: usize,
    fill: impl FnMut(usize, &mut [u8]),
) -> Result<(), Full> {
    let cut = |usual| if crowded { Cut::Crowded } else { usual };
    match shuttles.and_then(|shuttles| Some((shuttles.lend(len)?, shuttles))) {
        Some((shuttle, shuttles)) => {
            let lent = Some((shuttle, &*shuttles));
            let sent = writer.send_bulk(header, len, lent, pieces(len, cut(Cut::Shuttle)), fill);
            if sent.is_err() {
                shuttles.keep(shuttle);
            }
            sent
        }
        None => {
            let usual = if len >= writer.bulk_from() { Cut::Streamed } else { Cut::Cached };
            writer.send_bulk(header, len, None, pieces(len, cut(usual)), fill)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines_and_few() {
        for cut in [Cut::Cached, Cut::Shuttle, Cut::Streamed, Cut::Crowded] {
            for len in [1, 2048, 2049, 9000, 65_536, 262_144] {
                let piece = pieces(len, cut);
                let (mut offset, mut count) = (0, 0);
                while offset < len {
                    assert!(offset.is_multiple_of(64), "{len} at {offset}");
                    offset += piece(offset);
                    count += 1;
                }
                assert!(count <= PIECES + 1 + len / longest(), "{len}: {count} pieces");
            }
        }
    }
}
