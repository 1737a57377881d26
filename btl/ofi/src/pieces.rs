//! Long frames in several messages: each side copies while the kernel moves what is before or after it. Pure; nothing is
//! believed (law 9).
//!
//! ```text
//!  BEGIN  header │ length of the whole payload, 4 bytes │ its first piece
//!  PIECE  the next piece; nothing but pieces comes between it and the BEGIN
//! ```
//!
//! The owner is asked where the payload shall go when the first piece is there ([`Sink::landing`]), and each is written there
//! as it comes, by this process: no provider ever has that memory. A life that ends gives it back ([`Piecewise::give_up`]).

use crate::wire::Kind;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Fault, Header, Landing, Peer, Sink, Token};

/// Length of what a BEGIN has before its first piece, in bytes.
pub(crate) const WHOLE: usize = size_of::<u32>();
/// A frame that is packed has at most so many pieces.
pub(crate) const MOST: usize = 8;

/// How a payload of `len` bytes is cut into pieces of at most `longest`: the length of each but the last.
pub(crate) fn cut(len: usize, longest: usize) -> usize {
    debug_assert!(longest.is_multiple_of(64) && len > longest);
    let pieces = len.div_ceil(longest);
    len.div_ceil(pieces).next_multiple_of(64)
}

#[derive(Debug)]
enum Body {
    /// In memory of ours.
    Buffered { header: Header, payload: Vec<u8> },
    /// Where the owner wants it.
    Direct { region: RecvRegion, token: Token },
}

/// A frame that has begun to arrive.
#[derive(Debug)]
pub(crate) struct Piecewise {
    body: Body,
    filled: usize,
    len: usize,
}

/// What a message of a frame was.
pub(crate) enum Next {
    /// The frame has this many bytes, and is reported.
    Whole(usize),
    More(Piecewise),
    Wrong(&'static str),
}

impl Piecewise {
    /// Takes up the first message of a frame of at most `most` bytes.
    pub(crate) fn begin<S: Sink>(
        from: Peer,
        header: &[u8],
        payload: &[u8],
        most: usize,
        sink: &mut S,
    ) -> Next {
        let Some((len, first)) = payload.split_first_chunk::<WHOLE>() else {
            return Next::Wrong("a long frame without a length");
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > most || first.len() >= len {
            return Next::Wrong("the length of a long frame");
        }
        let body = match sink.landing(from, header, len) {
            Landing::Buffered => {
                let header = Header::new(header);
                Body::Buffered { header, payload: Vec::with_capacity(len) }
            }
            Landing::Direct { region, token } => {
                assert!(region.len() >= len, "a landing of {} bytes for {len}", region.len());
                Body::Direct { region, token }
            }
        };
        Piecewise { body, filled: 0, len }.add(from, first, sink)
    }

    /// Takes the next message.
    pub(crate) fn next<S: Sink>(self, from: Peer, kind: Kind, piece: &[u8], sink: &mut S) -> Next {
        let wrong = match kind {
            Kind::Piece if !piece.is_empty() && piece.len() <= self.len - self.filled => None,
            Kind::Piece => Some("the length of a piece"),
            _ => Some("a frame amid another"),
        };
        match wrong {
            None => self.add(from, piece, sink),
            Some(what) => {
                // The connection ends for it, but not before this is back.
                let fault = Fault::rail(from, ironweave_btl::Cause::Malformed(what));
                self.give_up(from, &fault, sink);
                Next::Wrong(what)
            }
        }
    }

    fn add<S: Sink>(mut self, from: Peer, piece: &[u8], sink: &mut S) -> Next {
        match &mut self.body {
            Body::Buffered { payload, .. } => payload.extend_from_slice(piece),
            Body::Direct { region, .. } => region.write(self.filled, piece),
        }
        self.filled += piece.len();
        if self.filled < self.len {
            return Next::More(self);
        }
        match self.body {
            Body::Buffered { header, payload } => sink.frame(from, header.as_bytes(), &payload),
            Body::Direct { region, token } => sink.landed(from, region, token, Ok(())),
        }
        Next::Whole(self.len)
    }

    /// The rest will not come; whether that was reported.
    pub(crate) fn give_up<S: Sink>(self, from: Peer, fault: &Fault, sink: &mut S) -> bool {
        match self.body {
            Body::Buffered { .. } => false,
            Body::Direct { region, token } => {
                sink.landed(from, region, token, Err(fault.clone()));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, first};
    use ironweave_btl::Cause;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_few_and_even() {
        assert_eq!(cut(64 << 10, 32 << 10), 32 << 10);
        assert_eq!(cut((32 << 10) + 1, 32 << 10), (16 << 10) + 64);
        for len in [65, 1000, 40_000, 262_143, 262_144] {
            let longest = (len / MOST).next_multiple_of(64).max(64);
            let longest = if len > longest * MOST { longest + 64 } else { longest };
            let each = cut(len, longest);
            assert!(each <= longest && len.div_ceil(each) <= MOST, "{len}");
        }
    }

    #[test]
    fn memory_comes_back_when_the_rest_does_not() {
        let fault = Fault::rail(Peer(3), Cause::Disconnected);
        for (direct, reports) in [(None, 0), (Some(300), 1)] {
            let mut log = Log::new(direct);
            let Next::More(it) =
                Piecewise::begin(Peer(3), b"h", &first(200, &[7; 100]), 4096, &mut log)
            else {
                panic!("half of it is there")
            };
            assert_eq!(it.give_up(Peer(3), &fault, &mut log), reports == 1);
            assert_eq!(log.landed, vec![Err(fault.clone()); reports]);
        }
    }

    #[test]
    fn lies_about_lengths_are_refused() {
        let mut log = Log::new(Some(300));
        for lie in [&first(5000, b"x")[..], &first(3, b"abc"), &first(0, b""), b"abc", b""] {
            let next = Piecewise::begin(Peer(3), b"h", lie, 4096, &mut log);
            assert!(matches!(next, Next::Wrong(_)), "{lie:?}");
        }
        assert_eq!(log.asked, 0, "nobody was asked for memory");
        for (kind, len) in [(Kind::Piece, 101), (Kind::Piece, 0), (Kind::Data, 5), (Kind::Begin, 5)]
        {
            let Next::More(it) =
                Piecewise::begin(Peer(3), b"h", &first(200, &[7; 100]), 4096, &mut log)
            else {
                panic!("half of it is there")
            };
            let before = log.landed.len();
            assert!(matches!(it.next(Peer(3), kind, &vec![1; len], &mut log), Next::Wrong(_)));
            assert_eq!(log.landed.len(), before + 1, "its memory is back");
            assert!(log.landed[before].is_err());
        }
        assert!(log.frames.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_cut_comes_whole(
            bytes in proptest::collection::vec(any::<u8>(), 2..2000),
            at in proptest::collection::vec(1_usize..2000, 1..7),
            direct in any::<bool>(),
        ) {
            let mut log = Log::new(direct.then_some(2000));
            let mut cuts: Vec<usize> = at.into_iter().filter(|&at| at < bytes.len()).collect();
            cuts.push(bytes.len() - 1);
            cuts.sort_unstable();
            cuts.dedup();
            let begun =
                Piecewise::begin(Peer(3), b"h", &first(bytes.len(), &bytes[..cuts[0]]), 2000, &mut log);
            let mut next = begun;
            cuts.push(bytes.len());
            for range in cuts.windows(2) {
                let Next::More(it) = next else { panic!("not whole yet") };
                next = it.next(Peer(3), Kind::Piece, &bytes[range[0]..range[1]], &mut log);
            }
            prop_assert!(matches!(next, Next::Whole(len) if len == bytes.len()));
            prop_assert_eq!(log.asked, 1);
            match &log.target {
                Some(target) => {
                    prop_assert_eq!(&target.as_slice()[..bytes.len()], &bytes[..]);
                    prop_assert_eq!((log.landed.len(), log.frames.len()), (1, 0));
                }
                None => prop_assert_eq!(log.frames, vec![bytes]),
            }
        }
    }
}
