//! What algorithms write schedules with: groups seen from one process, messages, copies and ordered reductions.
//!
//! Algorithms only ever speak of indices in a [`Group`]; which processes these are (all of a communicator, one host,
//! the leaders of all hosts, the local group of an inter-communicator) is decided where the group is made.

use crate::call::Block;
use crate::schedule::{Draft, Invalid, Schedule, Sizes, Space, Span, Step, Target};

/// Scratch pieces start at multiples of this, so that user functions see aligned elements and cores share no line.
const ALIGN: usize = 64;

/// Some processes in an order, seen from one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    /// The index of this process.
    pub me: u32,
    /// How many there are.
    pub size: u32,
    /// Their ranks; `None`: all ranks in order.
    ranks: Option<&'a [u32]>,
    /// They are reached over the communicator of the local group.
    local: bool,
}

impl<'a> Group<'a> {
    /// All ranks of an intra-communicator.
    pub const fn all(me: u32, size: u32) -> Self {
        Group { me, size, ranks: None, local: false }
    }

    /// The own group of an inter-communicator.
    pub const fn local(me: u32, size: u32) -> Self {
        Group { me, size, ranks: None, local: true }
    }

    /// Some ranks of an intra-communicator; this process has index `me` among them.
    pub fn of(me: u32, ranks: &'a [u32]) -> Self {
        Group { me, size: ranks.len() as u32, ranks: Some(ranks), local: false }
    }

    /// The process with this index.
    pub fn at(&self, index: u32) -> Target {
        debug_assert!(index < self.size);
        let rank = self.ranks.map_or(index, |ranks| ranks[index as usize]);
        if self.local { Target::local(rank) } else { Target::main(rank) }
    }

    /// The index `by` places after `index`, in a circle.
    pub fn after(&self, index: u32, by: u32) -> u32 {
        ((u64::from(index) + u64::from(by)) % u64::from(self.size)) as u32
    }

    /// The index `by` (less than the size) places before `index`, in a circle.
    pub fn before(&self, index: u32, by: u32) -> u32 {
        self.after(index, self.size - by)
    }
}

/// One block of memory for each process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout<'a> {
    /// Blocks of one length, one after the other.
    Even {
        /// All of them.
        whole: Span,
        /// Length of each.
        block: usize,
    },
    /// Blocks anywhere in `whole`.
    Listed {
        /// The buffer.
        whole: Span,
        /// Where they are in it.
        blocks: &'a [Block],
    },
}

impl Layout<'_> {
    /// The block of `index`.
    pub fn block(&self, index: u32) -> Span {
        match *self {
            Layout::Even { whole, block } => whole.part(index as usize * block, block),
            Layout::Listed { whole, blocks } => {
                let Block { offset, len } = blocks[index as usize];
                whole.part(offset, len)
            }
        }
    }

    /// The blocks `first..first + count` as one piece, when they are of one length and in a row.
    pub fn row(&self, first: u32, count: u32) -> Option<Span> {
        match *self {
            Layout::Even { whole, block } => {
                Some(whole.part(first as usize * block, count as usize * block))
            }
            Layout::Listed { .. } => None,
        }
    }
}

/// Splits `count` elements of `extent` bytes into `parts` nearly equal pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    extent: usize,
    base: usize,
    longer: usize,
}

impl Cut {
    pub fn new(len: usize, extent: usize, parts: u32) -> Self {
        let extent = extent.max(1);
        let count = len / extent;
        Cut { extent, base: count / parts as usize, longer: count % parts as usize }
    }

    /// Where part `index` starts; for the number of parts, where the last one ends. In bytes.
    pub fn start(&self, index: u32) -> usize {
        let index = index as usize;
        (index * self.base + index.min(self.longer)) * self.extent
    }

    /// The parts from `first` up to `end` of `whole`.
    pub fn parts(&self, whole: Span, first: u32, end: u32) -> Span {
        whole.part(self.start(first), self.start(end) - self.start(first))
    }

    /// One part of `whole`.
    pub fn part(&self, whole: Span, index: u32) -> Span {
        self.parts(whole, index, index + 1)
    }
}

/// Makes a schedule.
pub(crate) struct Builder {
    draft: Draft,
    sizes: Sizes,
    /// The order of operands may be changed.
    pub commutative: bool,
}

impl Builder {
    /// `sizes.scratch` grows as scratch memory is asked for.
    pub fn new(sizes: Sizes, commutative: bool) -> Self {
        Builder { draft: Draft::default(), sizes, commutative }
    }

    /// Bytes of an element of reductions.
    pub fn extent(&self) -> usize {
        self.sizes.extent
    }

    /// Scratch memory.
    pub fn scratch(&mut self, len: usize) -> Span {
        let start = self.sizes.scratch;
        self.sizes.scratch = (start + len).next_multiple_of(ALIGN);
        Span::new(Space::Scratch, start, len)
    }

    /// A message; one of no bytes is not sent: its receiver knows too.
    pub fn send(&mut self, to: Target, from: Span) {
        if !from.is_empty() {
            self.draft.push(Step::Send { to, from });
        }
    }

    /// The other end of [`send`](Self::send).
    pub fn recv(&mut self, from: Target, into: Span) {
        if !into.is_empty() {
            self.draft.push(Step::Recv { from, into });
        }
    }

    /// A message of no bytes.
    pub fn notify(&mut self, to: Target) {
        self.draft.push(Step::Send { to, from: Span::new(Space::Scratch, 0, 0) });
    }

    /// The other end of [`notify`](Self::notify).
    pub fn await_from(&mut self, from: Target) {
        self.draft.push(Step::Recv { from, into: Span::new(Space::Scratch, 0, 0) });
    }

    /// After the messages so far: copies `from` to the span of the same length.
    pub fn copy(&mut self, from: Span, into: Span) {
        assert_eq!(from.len(), into.len(), "a copy between different lengths");
        if !from.is_empty() && from != into {
            self.draft.push(Step::Copy { from, into: into.at() });
        }
    }

    /// After the messages so far: `into = from ∘ into`.
    pub fn reduce(&mut self, from: Span, into: Span) {
        assert_eq!(from.len(), into.len(), "a reduction of different lengths");
        if !from.is_empty() {
            self.draft.push(Step::Reduce { from, into: into.at() });
        }
    }

    /// `into = into ∘ from` (`from` on the right) or `from ∘ into`; with an operator that does not commute and `from` on the
    /// right, `from` is overwritten on the way.
    pub fn fold(&mut self, from: Span, into: Span, from_is_right: bool) {
        if from_is_right && !self.commutative {
            self.reduce(into, from);
            self.copy(from, into);
        } else {
            self.reduce(from, into);
        }
    }

    /// What follows waits until the messages so far are over.
    pub fn wait(&mut self) {
        if self.draft.has_messages() {
            self.draft.close();
        }
    }

    /// Checks the schedule.
    pub fn finish(self) -> Result<Schedule, Invalid> {
        self.draft.finish(self.sizes)
    }
}
