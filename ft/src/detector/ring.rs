//! Who is in the ring: all processes of the job in the order of their numbers, without the dead and those that left.
//! Knows neighbours and the circulant graph; no time, no message.

use super::message::{CHAIN_MAX, Digest, Run};
use crate::circulant::{Neighbours, neighbours_by};

/// A set of processes: a list while they are few, then a bit for each.
#[derive(Debug, Clone)]
enum Set {
    /// Ascending.
    Few(Vec<u32>),
    Many(Vec<u64>),
}

/// Members of a list.
const FEW: usize = 32;

impl Set {
    fn contains(&self, process: u32) -> bool {
        match self {
            Set::Few(list) => list.binary_search(&process).is_ok(),
            Set::Many(words) => {
                words.get(process as usize / 64).is_some_and(|word| word >> (process % 64) & 1 == 1)
            }
        }
    }

    /// `false` when it was in already.
    fn insert(&mut self, process: u32, size: u32) -> bool {
        match self {
            Set::Few(list) => {
                let Err(at) = list.binary_search(&process) else { return false };
                if list.len() < FEW {
                    list.insert(at, process);
                    return true;
                }
                let list = std::mem::take(list);
                *self = Set::Many(vec![0; (size as usize).div_ceil(64)]);
                list.into_iter().chain([process]).for_each(|one| {
                    self.insert(one, size);
                });
                true
            }
            Set::Many(words) => {
                let word = &mut words[process as usize / 64];
                let bit = 1 << (process % 64);
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
        }
    }

    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (list, words) = match self {
            Set::Few(list) => (list.as_slice(), &[][..]),
            Set::Many(words) => (&[][..], words.as_slice()),
        };
        let bits = words.iter().enumerate().flat_map(|(index, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 64 + bit)
        });
        list.iter().copied().chain(bits)
    }
}

impl Default for Set {
    fn default() -> Self {
        Set::Few(Vec::new())
    }
}

/// The ring as one process knows it.
#[derive(Debug, Clone)]
pub struct Ring {
    pub me: u32,
    pub size: u32,
    dead: Set,
    left: Set,
    known: Digest,
}

impl Ring {
    pub fn new(me: u32, size: u32) -> Ring {
        assert!(me < size, "process {me} of {size}");
        Ring { me, size, dead: Set::default(), left: Set::default(), known: Digest::default() }
    }

    /// Takes a failed process out for good; `false` when it was known.
    pub fn fail(&mut self, process: u32) -> bool {
        let new = self.dead.insert(process, self.size);
        if new {
            self.known.add(process);
        }
        new
    }

    /// Takes out a process that left the job.
    pub fn leave(&mut self, process: u32) {
        self.left.insert(process, self.size);
    }

    pub fn is_dead(&self, process: u32) -> bool {
        self.dead.contains(process)
    }

    pub fn has_left(&self, process: u32) -> bool {
        self.left.contains(process)
    }

    /// Another process that is neither dead nor has left.
    pub fn is_other_member(&self, process: u32) -> bool {
        process != self.me && !self.is_dead(process) && !self.has_left(process)
    }

    pub fn dead(&self) -> impl Iterator<Item = u32> + '_ {
        self.dead.iter()
    }

    pub fn known(&self) -> Digest {
        self.known
    }

    /// How many do not count as dead, and the lowest of them.
    pub fn living(&self) -> (u32, u32) {
        let lowest = (0..self.size).find(|process| !self.is_dead(*process));
        (self.size - self.known.count, lowest.unwrap_or(self.me))
    }

    /// Steps from `from` to `to` in ring order.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + (self.size - from) }
    }

    /// Those strictly between `from` and `to` in ring order, members or not.
    pub fn between(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + use<> {
        let size = u64::from(self.size);
        let steps = self.distance(from, to);
        (1..steps).map(move |step| ((u64::from(from) + u64::from(step)) % size) as u32)
    }

    /// The nearest member before `process`; `None` when that would be this process itself.
    pub fn before(&self, process: u32) -> Option<u32> {
        self.scan(process, |at| if at == 0 { self.size - 1 } else { at - 1 })
    }

    /// The nearest member after `process`; `None` when that would be this process itself.
    pub fn after(&self, process: u32) -> Option<u32> {
        self.scan(process, |at| if at + 1 == self.size { 0 } else { at + 1 })
    }

    /// The members of `chain`, the nearest first.
    pub fn members<'a>(&'a self, chain: &'a [Run]) -> impl Iterator<Item = u32> + 'a {
        let backwards = move |run: &'a Run| {
            let first = run.first;
            (0..run.len).map(move |steps| self.back(first, steps))
        };
        chain.iter().flat_map(backwards).filter(|process| self.is_other_member(*process))
    }

    /// All before this process that have not left, as its observer is told: those after `emitter` as we know them,
    /// `emitter`, and `chain`, which that one told. The dead are in it: who skips one must know of it from a notice.
    pub fn chain_of_mine(&self, emitter: u32, chain: &[Run]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let add = |runs: &mut Vec<Run>, next: Run| match runs.last_mut() {
            Some(last) if self.distance(next.first, last.first) == last.len => last.len += next.len,
            _ => runs.push(next),
        };
        let gap = self.distance(emitter, self.me);
        for back in 1..=gap {
            let process = self.back(self.me, back);
            if !self.has_left(process) {
                add(&mut runs, Run { first: process, len: 1 });
            }
        }
        for run in chain {
            // Once around it ends.
            let to_me = self.distance(self.me, run.first);
            let len = run.len.min(to_me);
            if len > 0 {
                add(&mut runs, Run { first: run.first, len });
            }
            if len < run.len || runs.len() > CHAIN_MAX {
                break;
            }
        }
        runs.truncate(CHAIN_MAX);
        runs
    }

    /// The process `steps` before `process`.
    fn back(&self, process: u32, steps: u32) -> u32 {
        if steps <= process { process - steps } else { self.size - (steps - process) }
    }

    /// What remains of `chain` before `process`; nothing if it is not in it.
    pub fn chain_before(&self, process: u32, chain: &[Run]) -> Vec<Run> {
        for (index, run) in chain.iter().enumerate() {
            let back = self.distance(process, run.first);
            if back < run.len {
                let first = self.back(process, 1);
                let here = Run { first, len: run.len - back - 1 };
                let rest = chain[index + 1..].iter().copied();
                return Some(here).filter(|here| here.len > 0).into_iter().chain(rest).collect();
            }
        }
        Vec::new()
    }

    fn scan(&self, from: u32, step: impl Fn(u32) -> u32) -> Option<u32> {
        let mut at = step(from);
        while at != self.me && at != from {
            if self.is_other_member(at) {
                return Some(at);
            }
            at = step(at);
        }
        None
    }

    /// Whom this process passes notices on to: its neighbours in the graph that notices take, over the members. The ring's next
    /// member is one, so the graph of the living is connected whoever fails.
    pub fn targets(&self) -> Neighbours {
        neighbours_by(self.me, None, self.size, |at| {
            if self.is_other_member(at) { Some(at) } else { self.after(at) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_skip_the_dead_and_those_that_left() {
        let mut ring = Ring::new(2, 6);
        assert_eq!((ring.before(2), ring.after(2)), (Some(1), Some(3)));
        ring.fail(3);
        ring.leave(4);
        ring.leave(1);
        assert_eq!((ring.before(2), ring.after(2)), (Some(0), Some(5)));
        ring.fail(0);
        assert_eq!((ring.before(2), ring.after(2)), (Some(5), Some(5)));
        assert_eq!(ring.before(5), None, "before 5 comes this process");
        ring.fail(5);
        assert_eq!((ring.before(2), ring.after(2)), (None, None));
        assert_eq!(ring.dead().collect::<Vec<_>>(), [0, 3, 5]);
        assert_eq!(ring.living(), (3, 1));
    }

    #[test]
    fn chains_grow_at_the_front_and_are_cut_there() {
        let run = |first, len| Run { first, len };
        let mine = |me, emitter, chain: &[Run]| Ring::new(me, 6).chain_of_mine(emitter, chain);
        assert_eq!(mine(1, 0, &[run(5, 2), run(2, 1)]), [run(0, 3), run(2, 1)]);
        assert_eq!(mine(4, 3, &[run(1, 2)]), [run(3, 1), run(1, 2)]);
        assert_eq!(mine(4, 3, &[]), [run(3, 1)]);
        assert_eq!(mine(1, 0, &[run(5, 5)]), [run(0, 5)], "never once around");
        assert_eq!(mine(1, 5, &[run(4, 3), run(1, 2)]), [run(0, 5)]);
        let mut ring = Ring::new(1, 6);
        ring.leave(5);
        assert_eq!(ring.chain_of_mine(4, &[run(3, 1)]), [run(0, 1), run(4, 2)]);
        let mut ring = Ring::new(1, 6);
        let chain = [run(0, 3), run(2, 1)];
        assert_eq!(ring.members(&chain).collect::<Vec<_>>(), [0, 5, 4, 2]);
        assert_eq!(ring.chain_before(5, &chain), [run(4, 1), run(2, 1)]);
        assert_eq!(ring.chain_before(4, &chain), [run(2, 1)]);
        assert_eq!(ring.chain_before(2, &chain), []);
        assert_eq!(ring.chain_before(3, &chain), []);
        ring.fail(5);
        assert_eq!(ring.members(&chain).collect::<Vec<_>>(), [0, 4, 2]);
    }

    #[test]
    fn everybody_is_reached_over_the_graph_whoever_is_out() {
        for size in [1u32, 2, 3, 7, 8, 33, 64, 100] {
            for out in 0..size.min(40) {
                // Every second and third process is out, beginning anywhere.
                let is_out =
                    |process: u32| (process + out) % 2 == 1 || (process + out).is_multiple_of(3);
                let members: Vec<u32> = (0..size).filter(|process| !is_out(*process)).collect();
                let Some(&start) = members.first() else { continue };
                let mut reached = BTreeSet::from([start]);
                let mut todo = vec![start];
                while let Some(me) = todo.pop() {
                    let mut ring = Ring::new(me, size);
                    (0..size)
                        .filter(|process| is_out(*process))
                        .for_each(|dead| assert!(ring.fail(dead)));
                    todo.extend(
                        ring.targets().into_iter().filter(|target| reached.insert(*target)),
                    );
                }
                assert_eq!(reached.into_iter().collect::<Vec<_>>(), members, "{size} {out}");
            }
        }
    }
}
