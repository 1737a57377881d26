//! Failure notices: what this process knows of the dead of the job, and how it tells others.
//!
//! The list is state, not a queue: what a neighbour has been told is a position in it. So nothing is lost when sending
//! has to wait, and a neighbour that takes a dead one's place is told everything. Notices that follow each other
//! closely are put together (at most one a neighbour every `gap`), which bounds what a cascade costs. What stands on a page that
//! others read as well they are told later (`spare`): while everybody learns of it there, messages that say the same take cores
//! from who has not learned yet.

use crate::circulant::{is_neighbour, neighbours};
use crate::plane::{Nanos, Outbox};
use crate::set::RankSet;
use crate::wire::Message;

/// What is known of failures, and who was told.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    me: u32,
    size: u32,
    /// In the order in which this process learned of them; only grows.
    order: Vec<u32>,
    dead: RankSet,
    /// Neighbours, and how many of `order` they have been told.
    told: Vec<(u32, u32)>,
    /// When the next notice may go out; what has to go out waits until then.
    quiet_until: Nanos,
    waiting: bool,
    /// Until then those who read the same page are not told; and whether one of them is still to be told.
    spared_until: Nanos,
    spared: bool,
    /// From whom the latest news came, for the order of sending.
    source: Option<u32>,
}

/// What is known and what each neighbour has still to be told; in which order it was learned makes no difference.
impl std::hash::Hash for Notices {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.me, self.size, &self.dead, self.quiet_until, self.waiting, self.source).hash(state);
        (self.spared_until, self.spared).hash(state);
        for (target, known) in &self.told {
            let news: RankSet = self.order[*known as usize..].iter().copied().collect();
            (target, news).hash(state);
        }
    }
}

impl Notices {
    pub fn new(me: u32, size: u32) -> Self {
        Notices {
            me,
            size,
            order: Vec::new(),
            dead: RankSet::new(),
            told: Vec::new(),
            quiet_until: 0,
            waiting: false,
            spared_until: 0,
            spared: false,
            source: None,
        }
    }

    /// The dead of the job.
    pub fn dead(&self) -> &RankSet {
        &self.dead
    }

    /// Learns of failures from `source` (`None`: for sure, here). Returns those that are new.
    pub fn learn(&mut self, processes: &[u32], source: Option<u32>, out: &mut Outbox) -> Vec<u32> {
        let told_all =
            |told: &(u32, u32)| Some(told.0) == source && told.1 as usize == self.order.len();
        let source_knows = self.told.iter().position(told_all);
        let new: Vec<u32> =
            processes.iter().copied().filter(|process| !self.dead.contains(*process)).collect();
        if new.is_empty() {
            return new;
        }
        // Should one of them be alive, it has to hear that it is excluded (law 4): its predecessors tell it.
        for process in &new {
            if is_neighbour(self.me, *process, self.size, &self.dead) {
                out.send(*process, &Message::Failed([*process].into_iter().collect()));
            }
        }
        for process in &new {
            self.dead.insert(*process);
            self.order.push(*process);
        }
        if let Some(at) = source_knows {
            self.told[at].1 = self.order.len() as u32;
        }
        self.source = source;
        self.waiting = true;
        self.spared_until = 0;
        new
    }

    /// What was learned last stands on a page: those who read the same are told no earlier than this.
    pub fn spare(&mut self, until: Nanos) {
        self.spared_until = until;
    }

    /// Tells the neighbours what they have not been told, if it is time. `readers` read the same page as this process.
    pub fn spread(&mut self, now: Nanos, gap: Nanos, readers: &RankSet, out: &mut Outbox) {
        let spares = now < self.spared_until;
        let any = self.waiting || self.spared && !spares;
        if !any || now < self.quiet_until {
            return;
        }
        (self.waiting, self.spared) = (false, false);
        self.quiet_until = now.saturating_add(gap);
        let all = self.order.len();
        let mut message: Option<(u32, Message)> = None;
        let targets = neighbours(self.me, self.source, self.size, &self.dead);
        let mut told = Vec::with_capacity(targets.len() + 1);
        // The source is left out of the targets, but may be a neighbour for later news.
        if let Some(source) = self.source
            && is_neighbour(self.me, source, self.size, &self.dead)
        {
            let knew = self.told.iter().find(|told| told.0 == source);
            told.push((source, knew.map_or(0, |told| told.1)));
        }
        told.extend(targets.iter().map(|target| {
            (*target, self.told.iter().find(|told| told.0 == *target).map_or(0, |told| told.1))
        }));
        for (target, known) in &mut told {
            if *known as usize == all {
                continue;
            }
            if spares && readers.contains(*target) {
                self.spared = true;
                continue;
            }
            if message.as_ref().is_none_or(|(from, _)| from != known) {
                let news = self.order[*known as usize..].iter().copied().collect();
                message = Some((*known, Message::Failed(news)));
            }
            if let Some((_, message)) = &message {
                out.send(*target, message);
            }
            *known = all as u32;
        }
        self.told = told;
    }

    /// When [`spread`](Self::spread) has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        match (self.waiting, self.spared) {
            (true, _) => Some(self.quiet_until),
            (false, true) => Some(self.quiet_until.max(self.spared_until)),
            (false, false) => None,
        }
    }

    /// Gives back memory that is not in use.
    pub fn trim(&mut self) {
        self.order.shrink_to_fit();
        self.told.shrink_to_fit();
    }
}
