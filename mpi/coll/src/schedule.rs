//! A collective operation of one process as plain data: rounds of messages, each followed by local work.
//!
//! A schedule names memory by space and offset and processes by rank, so one schedule serves any number of runs with
//! any buffers. It is checked once, when it is built: everything is inside the buffers, nothing is written while
//! something else reads or writes it. What the runner does with memory is sound because of that check (law 2).
//! A schedule knows neither values nor operators, and never allocates after it was made.

use std::fmt;

/// The buffers that a schedule works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// What the caller contributes. Only read.
    Send,
    /// Where the caller's result goes.
    Recv,
    /// Memory of the runner.
    Scratch,
}

/// A place in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(u64);

const SPACE_SHIFT: u32 = 62;

impl At {
    /// The byte at `offset` of `space`.
    ///
    /// # Panics
    /// When the offset needs more than 62 bits, which no buffer does.
    #[must_use]
    pub const fn new(space: Space, offset: usize) -> Self {
        assert!((offset as u64) >> SPACE_SHIFT == 0, "no buffer is that long");
        At((space as u64) << SPACE_SHIFT | offset as u64)
    }

    /// The buffer.
    #[inline]
    #[must_use]
    pub const fn space(self) -> Space {
        match self.0 >> SPACE_SHIFT {
            0 => Space::Send,
            1 => Space::Recv,
            _ => Space::Scratch,
        }
    }

    /// The offset in it, in bytes.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> usize {
        (self.0 & ((1 << SPACE_SHIFT) - 1)) as usize
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{}", self.space(), self.offset())
    }
}

/// A piece of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Span {
    at: At,
    len: usize,
}

impl Span {
    /// `len` bytes of `space` from `offset` on.
    #[must_use]
    pub const fn new(space: Space, offset: usize, len: usize) -> Self {
        Span { at: At::new(space, offset), len }
    }

    /// Where it starts.
    #[inline]
    #[must_use]
    pub const fn at(self) -> At {
        self.at
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Its buffer.
    #[inline]
    #[must_use]
    pub const fn space(self) -> Space {
        self.at.space()
    }

    /// The part of `len` bytes from `start` on.
    ///
    /// # Panics
    /// When that is not inside.
    #[must_use]
    pub const fn part(self, start: usize, len: usize) -> Span {
        assert!(start <= self.len && len <= self.len - start, "a part outside of its span");
        Span::new(self.space(), self.at.offset() + start, len)
    }

    const fn end(self) -> u64 {
        self.at.0 + self.len as u64
    }

    /// Whether the two have bytes in common.
    #[must_use]
    pub const fn overlaps(self, other: Span) -> bool {
        !self.is_empty() && !other.is_empty() && self.at.0 < other.end() && other.at.0 < self.end()
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{}", self.at, self.at.offset() + self.len)
    }
}

/// A process that messages go to or come from.
///
/// On an inter-communicator the ranks of the communicator are those of the remote group; members of the own group are
/// reached over a second communicator, of the local group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(u32);

const LOCAL: u32 = 1 << 31;

impl Target {
    /// The rank of the communicator (of its remote group).
    ///
    /// # Panics
    /// For ranks of 2^31 and above; no group is that large.
    #[must_use]
    pub const fn main(rank: u32) -> Self {
        assert!(rank < LOCAL, "no group is that large");
        Target(rank)
    }

    /// The rank of the local group of an inter-communicator.
    ///
    /// # Panics
    /// As [`main`](Target::main).
    #[must_use]
    pub const fn local(rank: u32) -> Self {
        assert!(rank < LOCAL, "no group is that large");
        Target(rank | LOCAL)
    }

    /// The rank in its group.
    #[inline]
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.0 & !LOCAL
    }

    /// Whether it is reached over the communicator of the local group.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0 & LOCAL != 0
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_local() { "local " } else { "" }, self.rank())
    }
}

/// One thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A message out of a buffer.
    Send {
        /// The receiver.
        to: Target,
        /// The message.
        from: Span,
    },
    /// A message into a buffer, of exactly that length.
    Recv {
        /// The sender.
        from: Target,
        /// Where it goes.
        into: Span,
    },
    /// Bytes from one place to another.
    Copy {
        /// What.
        from: Span,
        /// Where to.
        into: At,
    },
    /// `into = from ∘ into`, element by element, with the run's operation: `from` is the left operand.
    Reduce {
        /// The left operand.
        from: Span,
        /// The right operand, and the result.
        into: At,
    },
}

impl Step {
    /// What it writes in memory, if anything.
    fn written(self) -> Option<Span> {
        match self {
            Step::Send { .. } => None,
            Step::Recv { into, .. } => Some(into),
            Step::Copy { from, into } | Step::Reduce { from, into } => {
                Some(Span { at: into, len: from.len })
            }
        }
    }
}

/// Where a round's steps are in the list of all: where they start, and where each kind ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Ends {
    start: u32,
    sends: u32,
    recvs: u32,
    local: u32,
}

/// The steps of one round. Sends and receives are begun together; when all are over the local steps are done, in order.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Messages out.
    pub sends: &'a [Step],
    /// Messages in.
    pub recvs: &'a [Step],
    /// Copies and reductions.
    pub local: &'a [Step],
}

/// Sizes that a schedule refers to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of the caller's send buffer that may be read.
    pub send: usize,
    /// Bytes of the caller's receive buffer that may be read and written.
    pub recv: usize,
    /// Bytes of scratch memory.
    pub scratch: usize,
    /// Bytes of an element of reductions; 0 when there are none.
    pub extent: usize,
    /// Processes that [`Target::main`] can name.
    pub main: u32,
    /// Processes that [`Target::local`] can name.
    pub local: u32,
}

/// What is wrong with a schedule. Never seen outside of this crate's tests unless an algorithm has a bug.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// A piece of memory is not inside its buffer.
    #[error("round {round}: {span:?} is outside of its buffer")]
    Bounds {
        /// Which round.
        round: usize,
        /// The piece.
        span: Span,
    },
    /// The caller's send buffer would be written.
    #[error("round {round}: {span:?} is written")]
    ReadOnly {
        /// Which round.
        round: usize,
        /// The piece.
        span: Span,
    },
    /// Memory is written while something else uses it.
    #[error("round {round}: {written:?} is written while {used:?} is in use")]
    Conflict {
        /// Which round.
        round: usize,
        /// What is written.
        written: Span,
        /// What else is in use.
        used: Span,
    },
    /// A process that does not exist.
    #[error("round {round}: there is no process {target:?}")]
    NoSuchProcess {
        /// Which round.
        round: usize,
        /// The process.
        target: Target,
    },
    /// A reduction of parts of elements, or without an element type.
    #[error("round {round}: {span:?} is not a number of whole elements")]
    Elements {
        /// Which round.
        round: usize,
        /// The piece.
        span: Span,
    },
    /// More steps than a schedule holds.
    #[error("too many steps")]
    TooLong,
}

/// The part of one process in a collective operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    steps: Box<[Step]>,
    rounds: Box<[Ends]>,
    sizes: Sizes,
}

impl Schedule {
    /// The sizes it was built for.
    #[inline]
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// How many rounds it has.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// The steps of a round.
    ///
    /// # Panics
    /// When there is no such round.
    #[inline]
    #[must_use]
    pub fn round(&self, index: usize) -> Round<'_> {
        let Ends { start, sends, recvs, local } = self.rounds[index];
        Round {
            sends: &self.steps[start as usize..sends as usize],
            recvs: &self.steps[sends as usize..recvs as usize],
            local: &self.steps[recvs as usize..local as usize],
        }
    }

    /// All rounds in order.
    pub fn rounds(&self) -> impl Iterator<Item = Round<'_>> {
        (0..self.len()).map(|index| self.round(index))
    }
}

/// Steps of a schedule that is being made, round by round.
#[derive(Default)]
pub(crate) struct Draft {
    steps: Vec<Step>,
    rounds: Vec<Ends>,
    sends: Vec<Step>,
    recvs: Vec<Step>,
    local: Vec<Step>,
}

impl Draft {
    /// Adds a step to the round that is being made. Local steps come last in a round.
    pub fn push(&mut self, step: Step) {
        match step {
            Step::Send { .. } | Step::Recv { .. } if !self.local.is_empty() => {
                self.close();
                self.push(step);
            }
            Step::Send { .. } => self.sends.push(step),
            Step::Recv { .. } => self.recvs.push(step),
            Step::Copy { .. } | Step::Reduce { .. } => self.local.push(step),
        }
    }

    /// Ends the round that is being made: what follows waits for it.
    pub fn close(&mut self) {
        if self.sends.is_empty() && self.recvs.is_empty() && self.local.is_empty() {
            return;
        }
        let start = self.rounds.last().map_or(0, |last| last.local);
        let mut end = |part: &mut Vec<Step>| {
            self.steps.append(part);
            u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
        };
        let sends = end(&mut self.sends);
        let recvs = end(&mut self.recvs);
        let local = end(&mut self.local);
        self.rounds.push(Ends { start, sends, recvs, local });
    }

    /// Whether the round that is being made has messages.
    pub fn has_messages(&self) -> bool {
        !self.sends.is_empty() || !self.recvs.is_empty()
    }

    /// Checks everything, and makes the schedule.
    pub fn finish(mut self, sizes: Sizes) -> Result<Schedule, Invalid> {
        self.close();
        if self.steps.len() >= u32::MAX as usize {
            return Err(Invalid::TooLong);
        }
        let schedule = Schedule { steps: self.steps.into(), rounds: self.rounds.into(), sizes };
        let mut check = Check { sizes, round: 0, written: Vec::new() };
        for (index, round) in schedule.rounds().enumerate() {
            check.round = index;
            check.messages(round)?;
            check.local(round.local)?;
        }
        Ok(schedule)
    }
}

struct Check {
    sizes: Sizes,
    round: usize,
    /// What the round's receives write, sorted.
    written: Vec<Span>,
}

impl Check {
    fn inside(&self, span: Span) -> Result<(), Invalid> {
        let len = match span.space() {
            Space::Send => self.sizes.send,
            Space::Recv => self.sizes.recv,
            Space::Scratch => self.sizes.scratch,
        };
        let offset = span.at.offset();
        if offset > len || span.len > len - offset {
            return Err(Invalid::Bounds { round: self.round, span });
        }
        Ok(())
    }

    fn writable(&self, span: Span) -> Result<(), Invalid> {
        self.inside(span)?;
        if span.space() == Space::Send && !span.is_empty() {
            return Err(Invalid::ReadOnly { round: self.round, span });
        }
        Ok(())
    }

    fn exists(&self, target: Target) -> Result<(), Invalid> {
        let size = if target.is_local() { self.sizes.local } else { self.sizes.main };
        if target.rank() >= size {
            return Err(Invalid::NoSuchProcess { round: self.round, target });
        }
        Ok(())
    }

    /// All messages of a round are under way at the same time, in any order.
    fn messages(&mut self, round: Round<'_>) -> Result<(), Invalid> {
        self.written.clear();
        for step in round.recvs {
            if let Step::Recv { from, into } = *step {
                self.exists(from)?;
                self.writable(into)?;
                if !into.is_empty() {
                    self.written.push(into);
                }
            }
        }
        self.written.sort_unstable_by_key(|span| span.at);
        for pair in self.written.windows(2) {
            if pair[0].overlaps(pair[1]) {
                let (written, used) = (pair[0], pair[1]);
                return Err(Invalid::Conflict { round: self.round, written, used });
            }
        }
        for step in round.sends {
            if let Step::Send { to, from } = *step {
                self.exists(to)?;
                self.inside(from)?;
                // The last receive that starts before the end of what is sent is the only one to look at: they are
                // disjoint and sorted, so earlier ones end before it starts.
                let before = self.written.partition_point(|span| span.at.0 < from.end());
                if let Some(&written) = before.checked_sub(1).map(|last| &self.written[last])
                    && written.overlaps(from)
                {
                    return Err(Invalid::Conflict { round: self.round, written, used: from });
                }
            }
        }
        Ok(())
    }

    /// Local steps are done one after the other.
    fn local(&self, steps: &[Step]) -> Result<(), Invalid> {
        for step in steps {
            let (Step::Copy { from, .. } | Step::Reduce { from, .. }) = *step else { continue };
            let Some(written) = step.written() else { continue };
            self.inside(from)?;
            self.writable(written)?;
            if written.overlaps(from) {
                return Err(Invalid::Conflict { round: self.round, written, used: from });
            }
            if let Step::Reduce { .. } = step
                && (self.sizes.extent == 0 || !from.len.is_multiple_of(self.sizes.extent))
            {
                return Err(Invalid::Elements { round: self.round, span: from });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { send: 16, recv: 16, scratch: 16, extent: 4, main: 4, local: 0 };

    fn finish(steps: &[Step]) -> Result<Schedule, Invalid> {
        let mut draft = Draft::default();
        steps.iter().for_each(|&step| draft.push(step));
        draft.finish(SIZES)
    }

    const fn send(to: u32, from: Span) -> Step {
        Step::Send { to: Target::main(to), from }
    }

    const fn recv(from: u32, into: Span) -> Step {
        Step::Recv { from: Target::main(from), into }
    }

    const fn of(space: Space, offset: usize, len: usize) -> Span {
        Span::new(space, offset, len)
    }

    #[test]
    fn a_step_is_small() {
        assert_eq!(size_of::<Step>(), 32);
    }

    #[test]
    fn rounds_begin_where_messages_follow_local_work() {
        let all = of(Space::Recv, 0, 16);
        let copy = Step::Copy { from: all, into: At::new(Space::Scratch, 0) };
        let schedule =
            finish(&[recv(1, all), copy, send(2, all), recv(3, of(Space::Scratch, 0, 4))])
                .expect("nothing is wrong");
        assert_eq!(schedule.len(), 2);
        assert_eq!((schedule.round(0).recvs.len(), schedule.round(0).local.len()), (1, 1));
        assert_eq!((schedule.round(1).sends.len(), schedule.round(1).recvs.len()), (1, 1));
    }

    #[test]
    fn conflicts_are_found() {
        let conflict = |steps: &[Step]| matches!(finish(steps), Err(Invalid::Conflict { .. }));
        let (a, b) = (of(Space::Recv, 0, 8), of(Space::Recv, 4, 8));
        assert!(conflict(&[recv(1, a), recv(2, b)]));
        assert!(conflict(&[recv(1, a), send(2, b)]));
        assert!(conflict(&[recv(1, b), send(2, a)]));
        assert!(conflict(&[Step::Copy { from: a, into: b.at() }]));
        assert!(conflict(&[Step::Reduce { from: a, into: a.at() }]));
        assert!(!conflict(&[send(1, a), send(2, b)]), "both only read");
        assert!(!conflict(&[recv(1, a), recv(2, of(Space::Recv, 8, 8))]));
        assert!(!conflict(&[recv(1, a), recv(2, of(Space::Scratch, 0, 8))]));
    }

    #[test]
    fn what_does_not_exist_is_found() {
        let wrong = |step| finish(&[step]).expect_err("it is wrong");
        let bounds = wrong(send(1, of(Space::Send, 9, 8)));
        assert!(matches!(bounds, Invalid::Bounds { .. }));
        let written = wrong(recv(1, of(Space::Send, 0, 8)));
        assert!(matches!(written, Invalid::ReadOnly { .. }));
        assert!(matches!(wrong(send(4, of(Space::Send, 0, 8))), Invalid::NoSuchProcess { .. }));
        let local = Step::Send { to: Target::local(0), from: of(Space::Send, 0, 8) };
        assert!(matches!(wrong(local), Invalid::NoSuchProcess { .. }));
        let parts = Step::Reduce { from: of(Space::Send, 0, 6), into: At::new(Space::Recv, 0) };
        assert!(matches!(wrong(parts), Invalid::Elements { .. }));
    }
}
