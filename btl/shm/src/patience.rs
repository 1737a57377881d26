//! How long a receiver that has just sent something looks away before it looks for the answer.
//!
//! A look at a line that the writer has not written yet takes the line away from it: the writer has to fetch it back before its store
//! is seen, and the next look has to fetch it again. If both sides look for the first time when the answer is there, the first of the two
//! ways is saved. Measured on a Xeon of the fifth generation, whose lines take some 80 ns between cores, 8 bytes to and fro, in turns:
//! 0.154 to 0.166 us instead of 0.164 to 0.175, in quiet moments 0.124 instead of 0.149. With a fixed number of pauses on both sides 8 gained most (12 and 25 % in
//! two series), 4 to 6 from 14 % to nothing, 10 to 12 up to 6 %.
//!
//! But where both sides send and then receive, as in a barrier, the message may have been on its way all the time, and the pauses
//! are lost: a barrier of two took 1.3 times as long. Nobody tells which it is. So one side of each pair, the one of the lower rank, tries both now and then,
//! a few receives each, keeps what took less time, and tries again when the time changes, or after a while. The other side does as
//! the first says, in a word of the ring: one of them alone gains nothing.

use std::time::{Duration, Instant};

/// Pauses of the processor before the first look, if any: some 115 ns, where it was measured.
const PAUSES: u32 = 8;
/// Receives of one turn of a trial.
const TURN: u32 = 64;
/// The turns of a trial: whether with pauses. So a change of tide has begun and ended within both alike.
const TURNS: [bool; 4] = [false, true, true, false];
/// Pauses are kept if they save this part of the time.
const GAIN: u32 = 32;
/// After so many receives what they took is compared with the trial, …
const SPAN: u32 = 512;
/// … and after so many times as many there is another trial in any case.
const SPANS: u32 = 64;
/// At least so many times there is none, whatever they took.
const SPANS_MIN: u32 = 2;
/// Frames that came another way before pauses are given up.
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
pub(crate) struct Patience {
    /// Pauses, now.
    pauses: u32,
    /// Receives until that is thought over.
    left: u32,
    /// Frames until pauses are given up.
    strays: u32,
    stage: Stage,
    began: Option<Instant>,
    /// The shorter of the two turns without and with pauses.
    took: [Duration; 2],
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience {
            pauses: 0,
            left: SPAN,
            strays: STRAYS,
            stage: Stage::Kept { spans: 0, took: Duration::ZERO },
            began: None,
            took: [Duration::MAX; 2],
        }
    }

    /// What is to be done where the deciding side says this (law 9).
    #[inline(always)]
    pub(crate) fn believed(said: u64) -> u32 {
        said.min(u64::from(PAUSES)) as u32
    }

    /// An answer was received. Pauses from now on, if that changes.
    #[inline(always)]
    pub(crate) fn answered(&mut self) -> Option<u32> {
        self.left -= 1;
        if self.left != 0 {
            return None;
        }
        self.think_over(Instant::now())
    }

    /// A frame came, and nobody waited for it in this way. Pauses from now on, if that changes.
    #[inline(always)]
    pub(crate) fn strayed(&mut self) -> Option<u32> {
        if self.pauses == 0 {
            return None;
        }
        self.give_up()
    }

    #[cold]
    fn give_up(&mut self) -> Option<u32> {
        self.strays -= 1;
        (self.strays == 0).then(|| {
            *self = Patience::new();
            self.pauses
        })
    }

    #[cold]
    fn think_over(&mut self, now: Instant) -> Option<u32> {
        let span = self.began.replace(now).map(|began| now - began);
        self.strays = STRAYS;
        let (stage, pauses) = match (self.stage, span) {
            (Stage::Trial { turn }, Some(span)) => {
                let took = &mut self.took[usize::from(TURNS[turn])];
                *took = span.min(*took);
                let [without, with] = self.took;
                let gains = with < without - without / GAIN;
                match TURNS.get(turn + 1) {
                    Some(&pauses) => (Stage::Trial { turn: turn + 1 }, pauses),
                    None => {
                        let took = if gains { with } else { without } * (SPAN / TURN);
                        (Stage::Kept { spans: SPANS, took }, gains)
                    }
                }
            }
            (Stage::Kept { spans: left @ 1.., took }, Some(span))
                if left > SPANS - SPANS_MIN || (took * 3 / 4..took * 5 / 4).contains(&span) =>
            {
                (Stage::Kept { spans: left - 1, took }, self.pauses > 0)
            }
            (Stage::Kept { .. } | Stage::Trial { .. }, _) => {
                self.took = [Duration::MAX; 2];
                (Stage::Trial { turn: 0 }, TURNS[0])
            }
        };
        self.stage = stage;
        self.left = if matches!(stage, Stage::Trial { .. }) { TURN } else { SPAN };
        let pauses = if pauses { PAUSES } else { 0 };
        (std::mem::replace(&mut self.pauses, pauses) != pauses).then_some(pauses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives that take so many nanoseconds without and with pauses: how many of `receives` were with pauses.
    fn run(patience: &mut Patience, now: &mut Instant, receives: u32, takes: [u64; 2]) -> u32 {
        let mut paused = 0;
        for _ in 0..receives {
            let pauses = patience.pauses > 0;
            paused += u32::from(pauses);
            *now += Duration::from_nanos(takes[usize::from(pauses)]);
            patience.left -= 1;
            if patience.left == 0 {
                patience.think_over(*now);
            }
        }
        paused
    }

    #[test]
    fn pauses_are_kept_where_they_gain() {
        let (mut patience, mut now) = (Patience::new(), Instant::now());
        run(&mut patience, &mut now, SPAN, [330, 270]);
        let paused = run(&mut patience, &mut now, 100_000, [330, 270]);
        assert!(paused > 99_000, "{paused}");
    }

    #[test]
    fn where_they_lose_hardly_any_receive_is_late() {
        for takes in [[200, 270], [300, 300], [300, 295]] {
            let (mut patience, mut now) = (Patience::new(), Instant::now());
            let paused = run(&mut patience, &mut now, 100_000, takes);
            assert!(paused <= 4 * 2 * TURN, "{takes:?}: {paused}");
        }
    }

    #[test]
    fn another_pattern_is_found_soon() {
        let (mut patience, mut now) = (Patience::new(), Instant::now());
        run(&mut patience, &mut now, 10_000, [330, 270]);
        assert_eq!(patience.pauses, PAUSES);
        run(&mut patience, &mut now, 2 * SPAN + 4 * TURN, [150, 200]);
        assert_eq!(patience.pauses, 0);
        let paused = run(&mut patience, &mut now, 10_000, [150, 200]);
        assert!(paused <= 2 * TURN, "{paused}");
    }

    #[test]
    fn times_that_change_all_the_time_are_not_tried_all_the_time() {
        let (mut patience, mut now) = (Patience::new(), Instant::now());
        let mut paused = 0;
        for round in 0..200 {
            let takes = if round % 2 == 0 { [150, 200] } else { [1500, 1550] };
            paused += run(&mut patience, &mut now, SPAN, takes);
        }
        assert!(paused <= 200 * SPAN / 8, "{paused}");
    }

    #[test]
    fn who_receives_another_way_gives_them_up() {
        let (mut patience, mut now) = (Patience::new(), Instant::now());
        run(&mut patience, &mut now, 10_000, [330, 270]);
        let told: Vec<_> = (0..2 * STRAYS).filter_map(|_| patience.strayed()).collect();
        assert_eq!(told, [0]);
        assert_eq!(patience.pauses, 0);
    }

    #[test]
    fn nobody_is_made_to_wait_for_long() {
        assert_eq!(Patience::believed(u64::MAX), PAUSES);
        assert_eq!(Patience::believed(3), 3);
    }
}
