//! How two processes that wait for each other's answers hand lines over.
//!
//! A look at a line that the writer has not written yet takes the line away from it: the writer has to fetch it back before its store
//! is seen, and the next look has to fetch it again. If both sides look for the first time when the answer is there, the first of the two
//! ways is saved. Measured on a Xeon of the fifth generation, whose lines take some 80 ns between cores, 8 bytes to and fro, in turns:
//! 0.154 to 0.166 us instead of 0.164 to 0.175, in quiet moments 0.124 instead of 0.149. With a fixed number of pauses on both sides 8 gained most (12 and 25 % in
//! two series), 4 to 6 from 14 % to nothing, 10 to 12 up to 6 %.
//!
//! And a line that was just written is in its writer's own cache, where the reader has to have it looked for. A writer with nothing
//! else to do can move it to the cache that both share ([`Writer::await_next`](crate::ring::Writer::await_next)). In turns on that Xeon 64 to 256 bytes took a fifth to a quarter
//! less, 512 bytes to 2 KiB 9 to 25 per cent, 4 and 8 KiB 3 to 13, and 8 bytes 5 to 18; in a loop of bare stores 8 bytes gained where both look late, too, and little otherwise.
//!
//! Neither is always a gain. Where both sides send and then receive, as in a barrier, the message may have been on its way all the
//! time, and the pauses are lost: a barrier of two took 1.3 times as long. And two processors of one core, as which a virtual machine's
//! may find themselves without notice, share the nearest cache already: there lines that are moved away cost two and three times the
//! time. Nobody tells which it is. So one side of each pair, the one of the lower rank, tries all now and then, a few receives each,
//! keeps what took less time, and tries again when the time changes, or after a while. The other side does as
//! the first says, in a word of the ring: one of them alone gains nothing.

use std::time::{Duration, Instant};

/// What both sides do. A set of two bits: also what the word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manner(u8);

impl Manner {
    /// Looks as soon as it waits, and leaves lines where they are.
    pub(crate) const PLAIN: Manner = Manner(0);
    /// Looks late: not before an answer may be there.
    const LATE: Manner = Manner(1);
    /// Moves lines towards the reader.
    const MOVED: Manner = Manner(2);
    /// Both.
    const LATE_AND_MOVED: Manner = Manner(3);
    const ALL: usize = 4;

    /// What is to be done where the deciding side says this (law 9).
    #[inline(always)]
    pub(crate) const fn said(word: u64) -> Manner {
        Manner(word as u8 & Self::LATE_AND_MOVED.0)
    }

    /// How it is said.
    pub(crate) const fn word(self) -> u64 {
        self.0 as u64
    }

    /// Pauses of the processor before the first look.
    #[inline(always)]
    pub(crate) const fn pauses(self) -> u32 {
        if self.0 & Self::LATE.0 != 0 { PAUSES } else { 0 }
    }

    /// Whether lines are moved towards the reader.
    #[inline(always)]
    pub(crate) const fn moves(self) -> bool {
        self.0 & Self::MOVED.0 != 0
    }
}

/// Pauses of the processor before a late first look: some 115 ns, where it was measured.
const PAUSES: u32 = 8;
/// Receives of one turn of a trial.
const TURN: u32 = 64;
/// The turns of a trial there and back, so that a change of tide has begun and ended within all alike.
const TURNS: &[Manner] = &[Manner::PLAIN, Manner::LATE, Manner::LATE, Manner::PLAIN];
/// The same where lines can be moved.
const TURNS_MOVING: &[Manner] = &[
    Manner::PLAIN,
    Manner::MOVED,
    Manner::LATE_AND_MOVED,
    Manner::LATE_AND_MOVED,
    Manner::MOVED,
    Manner::PLAIN,
];
/// What is not plain is kept if it saves this part of the time.
const GAIN: u32 = 32;
/// After so many receives what they took is compared with the trial, …
const SPAN: u32 = 512;
/// … and after so many times as many there is another trial in any case.
const SPANS: u32 = 64;
/// At least so many times there is none, whatever they took.
const SPANS_MIN: u32 = 2;
/// Frames that came another way before both are plain again.
const STRAYS: u32 = 64;

/// What goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Such a turn of a trial.
    Trial { turn: usize },
    /// The result of one, for so many more times [`SPAN`] receives, which took so long in the trial.
    Kept { spans: u32, took: Duration },
}

/// What the side that decides knows of one ring.
#[derive(Debug)]
pub(crate) struct Manners {
    /// What both do now.
    now: Manner,
    /// Receives until that is thought over.
    left: u32,
    /// Frames until both are plain.
    strays: u32,
    stage: Stage,
    began: Option<Instant>,
    turns: &'static [Manner],
    /// The shortest turn of each.
    took: [Duration; Manner::ALL],
}

impl Manners {
    /// `moving`: the processor can move lines.
    pub(crate) fn new(moving: bool) -> Manners {
        Manners {
            now: Manner::PLAIN,
            left: SPAN,
            strays: STRAYS,
            stage: Stage::Kept { spans: 0, took: Duration::ZERO },
            began: None,
            turns: if moving { TURNS_MOVING } else { TURNS },
            took: [Duration::MAX; Manner::ALL],
        }
    }

    /// What both do now.
    #[inline(always)]
    pub(crate) fn now(&self) -> Manner {
        self.now
    }

    /// An answer was received. What both do from now on, if that changes.
    #[inline(always)]
    pub(crate) fn answered(&mut self) -> Option<Manner> {
        self.left -= 1;
        if self.left != 0 {
            return None;
        }
        self.think_over(Instant::now())
    }

    /// A frame came, and nobody waited for it in this way. What both do from now on, if that changes.
    #[inline(always)]
    pub(crate) fn strayed(&mut self) -> Option<Manner> {
        if self.now == Manner::PLAIN {
            return None;
        }
        self.give_up()
    }

    #[cold]
    fn give_up(&mut self) -> Option<Manner> {
        self.strays -= 1;
        (self.strays == 0).then(|| {
            *self = Manners { turns: self.turns, ..Manners::new(false) };
            self.now
        })
    }

    #[cold]
    fn think_over(&mut self, now: Instant) -> Option<Manner> {
        let span = self.began.replace(now).map(|began| now - began);
        self.strays = STRAYS;
        let (stage, manner) = match (self.stage, span) {
            (Stage::Trial { turn }, Some(span)) => {
                let took = &mut self.took[usize::from(self.turns[turn].0)];
                *took = span.min(*took);
                match self.turns.get(turn + 1) {
                    Some(&next) => (Stage::Trial { turn: turn + 1 }, next),
                    None => {
                        let (best, took) = self.best();
                        (Stage::Kept { spans: SPANS, took: took * (SPAN / TURN) }, best)
                    }
                }
            }
            (Stage::Kept { spans: left @ 1.., took }, Some(span))
                if left > SPANS - SPANS_MIN || (took * 3 / 4..took * 5 / 4).contains(&span) =>
            {
                (Stage::Kept { spans: left - 1, took }, self.now)
            }
            (Stage::Kept { .. } | Stage::Trial { .. }, _) => {
                self.took = [Duration::MAX; Manner::ALL];
                (Stage::Trial { turn: 0 }, self.turns[0])
            }
        };
        self.stage = stage;
        self.left = if matches!(stage, Stage::Trial { .. }) { TURN } else { SPAN };
        (std::mem::replace(&mut self.now, manner) != manner).then_some(manner)
    }

    /// What did best in the trial, and how long a turn of it took.
    fn best(&self) -> (Manner, Duration) {
        let took = |manner: Manner| self.took[usize::from(manner.0)];
        let plain = took(Manner::PLAIN);
        let best = self.turns.iter().copied().min_by_key(|&manner| took(manner));
        let gains = |&best: &Manner| took(best) < plain - plain / GAIN;
        let best = best.filter(gains).unwrap_or(Manner::PLAIN);
        (best, took(best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `receives` were of each manner, when each takes so many nanoseconds.
    fn run(
        manners: &mut Manners,
        now: &mut Instant,
        receives: u32,
        takes: [u64; Manner::ALL],
    ) -> [u32; Manner::ALL] {
        let mut times = [0; Manner::ALL];
        for _ in 0..receives {
            let manner = usize::from(manners.now.0);
            times[manner] += 1;
            *now += Duration::from_nanos(takes[manner]);
            manners.left -= 1;
            if manners.left == 0 {
                manners.think_over(*now);
            }
        }
        times
    }

    /// Such times where nothing can be moved.
    const fn fixed(plain: u64, late: u64) -> [u64; Manner::ALL] {
        [plain, late, 1, 1]
    }

    #[test]
    fn what_gains_most_is_kept() {
        let cases = [
            (false, 1, fixed(330, 270)),
            (true, 2, [330, 1, 280, 290]),
            (true, 3, [330, 1, 290, 280]),
        ];
        for (moving, best, takes) in cases {
            let (mut manners, mut now) = (Manners::new(moving), Instant::now());
            run(&mut manners, &mut now, SPAN, takes);
            let times = run(&mut manners, &mut now, 100_000, takes);
            assert!(times[best] > 98_000, "{takes:?}: {times:?}");
        }
    }

    #[test]
    fn where_nothing_gains_hardly_any_receive_is_not_plain() {
        let takes = [fixed(200, 270), fixed(300, 300), fixed(300, 295), [600, 1, 1500, 1600]];
        for (takes, moving) in takes.into_iter().zip([false, false, false, true]) {
            let (mut manners, mut now) = (Manners::new(moving), Instant::now());
            let times = run(&mut manners, &mut now, 100_000, takes);
            assert!(times[0] >= 100_000 - 4 * 4 * TURN, "{takes:?}: {times:?}");
        }
    }

    #[test]
    fn another_pattern_is_found_soon() {
        let (mut manners, mut now) = (Manners::new(false), Instant::now());
        run(&mut manners, &mut now, 10_000, fixed(330, 270));
        assert_eq!(manners.now, Manner::LATE);
        run(&mut manners, &mut now, 2 * SPAN + 4 * TURN, fixed(150, 200));
        assert_eq!(manners.now, Manner::PLAIN);
        let [_, late, ..] = run(&mut manners, &mut now, 10_000, fixed(150, 200));
        assert!(late <= 2 * TURN, "{late}");
    }

    #[test]
    fn times_that_change_all_the_time_are_not_tried_all_the_time() {
        let (mut manners, mut now) = (Manners::new(false), Instant::now());
        let mut late = 0;
        for round in 0..200 {
            let takes = if round % 2 == 0 { fixed(150, 200) } else { fixed(1500, 1550) };
            late += run(&mut manners, &mut now, SPAN, takes)[1];
        }
        assert!(late <= 200 * SPAN / 8, "{late}");
    }

    #[test]
    fn who_receives_another_way_gives_it_up() {
        let (mut manners, mut now) = (Manners::new(true), Instant::now());
        run(&mut manners, &mut now, 10_000, [330, 1, 300, 270]);
        let told: Vec<_> = (0..2 * STRAYS).filter_map(|_| manners.strayed()).collect();
        assert_eq!(told, [Manner::PLAIN]);
        assert_eq!((manners.now, manners.turns), (Manner::PLAIN, TURNS_MOVING));
    }

    #[test]
    fn a_word_is_one_of_four_whoever_wrote_it() {
        assert_eq!(Manner::said(u64::MAX), Manner::LATE_AND_MOVED);
        assert_eq!(Manner::said(1 << 8), Manner::PLAIN);
        for manner in TURNS.iter().chain(TURNS_MOVING) {
            assert_eq!(Manner::said(manner.word()), *manner);
        }
        assert_eq!((Manner::LATE.pauses(), Manner::LATE.moves()), (PAUSES, false));
        assert_eq!((Manner::MOVED.pauses(), Manner::MOVED.moves()), (0, true));
    }
}
