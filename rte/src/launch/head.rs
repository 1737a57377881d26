//! The head of a job: who has joined, finalized, failed; the key-value space; the barrier; the
//! exit code. A pure machine: events in, orders out; no clock, no descriptor, no process.
//!
//! The barrier completes over the living: a rank that ended or finalized is not waited for. An end
//! before finalize is published to every host at once (law 4); it ends the job only with
//! `--kill-on-failure`. A rank that the others accuse of silence is a failure from then on, and its
//! host ends it; one that has finalized is not.

use super::messages::Down;
use crate::directory::{FATE_KEY, Fate, LEFT_KEY, Look, STARVED_KEY, Seen};
use crate::exit::{self, Ended, Stage};
use crate::liveness::{FailedRank, How};
use crate::pmi::server::Request;
use crate::pmi::wire::write_ranks;
use std::collections::HashMap;

/// Whom an order is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// This host.
    Node(usize),
    /// Every host that is still there.
    All,
}

/// Orders to hosts, in order.
pub type Orders = Vec<(To, Down)>;

#[derive(Debug)]
struct Rank {
    node: usize,
    stage: Stage,
    in_barrier: bool,
    /// Declared failed by the others; its end is still to come.
    fenced: bool,
    ended: Option<How>,
    /// What it asked last of the host of a silent rank.
    look: Option<(Look, Seen)>,
}

impl Rank {
    /// Whether it is still a member of the job.
    fn counts(&self) -> bool {
        self.ended.is_none() && !self.fenced
    }
}

/// The job as its head knows it.
#[derive(Debug)]
pub struct Head {
    ranks: Vec<Rank>,
    kvs: HashMap<String, String>,
    abort: Option<i32>,
    given_up: Option<u8>,
    kill_on_failure: bool,
    terminating: bool,
    finishing: bool,
    notes: Vec<String>,
}

impl Head {
    /// A job with `counts[node]` ranks on each host in turn.
    pub fn new(counts: &[u32], kvs: HashMap<String, String>, kill_on_failure: bool) -> Head {
        let ranks = counts.iter().enumerate().flat_map(|(node, &count)| {
            (0..count).map(move |_| Rank {
                node,
                stage: Stage::Plain,
                in_barrier: false,
                fenced: false,
                ended: None,
                look: None,
            })
        });
        Head {
            ranks: ranks.collect(),
            kvs,
            abort: None,
            given_up: None,
            kill_on_failure,
            terminating: false,
            finishing: false,
            notes: Vec::new(),
        }
    }

    /// What happened that a person should read, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether every rank has ended.
    pub fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.ended.is_some())
    }

    /// The job's exit code, once it is over.
    pub fn exit_code(&self) -> u8 {
        if let Some(code) = self.given_up {
            return code;
        }
        let ended = |rank: &Rank| Some(Ended { stage: rank.stage, how: rank.ended? });
        let ranks: Vec<Ended> = self.ranks.iter().filter_map(ended).collect();
        exit::code(&ranks, self.abort)
    }

    /// A rank of host `node` asks something of the job. A host speaks for its own ranks only.
    pub fn request(&mut self, node: usize, rank: u32, request: Request, orders: &mut Orders) {
        let Some(state) = self.rank_on(node, rank).filter(|state| state.counts()) else {
            return;
        };
        match request {
            Request::Joined => {
                if state.stage == Stage::Plain {
                    state.stage = Stage::Joined;
                }
            }
            Request::Put { key, value } => {
                self.kvs.insert(key, value);
            }
            Request::Get { key } => {
                let about = |prefix| key.strip_prefix(prefix).and_then(|rank| rank.parse().ok());
                let look = key.strip_prefix(STARVED_KEY).and_then(Look::parse);
                let value = match (about(FATE_KEY), about(LEFT_KEY), look) {
                    (Some(accused), ..) => self.fate(accused, orders),
                    (None, Some(rank), _) => self.has_left(rank),
                    (None, None, Some(look)) => self.look(rank, look, orders),
                    (None, None, None) => self.kvs.get(&key).cloned(),
                };
                orders.push((To::Node(node), Down::GetReply { rank, value }));
            }
            Request::Barrier => {
                state.in_barrier = true;
                self.check_barrier(orders);
            }
            Request::Finalized => {
                state.stage = Stage::Finalized;
                self.check_barrier(orders);
            }
            Request::Abort { code, ranks: None } => {
                self.abort = Some(code);
                self.notes.push(format!("rank {rank} aborts the job with code {code}"));
                self.terminate(orders);
            }
            Request::Abort { code, ranks: Some(ranks) } => {
                self.abort_some(rank, code, &ranks, orders)
            }
        }
    }

    /// A rank aborts some; itself it ends by itself.
    fn abort_some(&mut self, by: u32, code: i32, ranks: &[u32], orders: &mut Orders) {
        self.abort = Some(code);
        let list = write_ranks(ranks);
        self.notes.push(format!("rank {by} aborts ranks {list} with code {code}"));
        for &rank in ranks.iter().filter(|rank| **rank != by) {
            let state = self.ranks.get(rank as usize);
            if state.is_some_and(|state| state.counts() && state.stage != Stage::Finalized) {
                self.fence(rank, How::Aborted(exit::code_of_abort(code)), orders);
            }
        }
        self.check_barrier(orders);
    }

    /// A rank is a failure from now on, for all, and its host ends it.
    fn fence(&mut self, rank: u32, how: How, orders: &mut Orders) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        state.fenced = true;
        // In this order: who reads that it failed can rely on it that it does nothing any more (law 4).
        orders.push((To::Node(state.node), Down::Fence { rank }));
        orders.push((To::All, Down::Failed(FailedRank { rank, how })));
    }

    /// A rank's process is gone.
    pub fn ended(&mut self, node: usize, rank: u32, how: How, orders: &mut Orders) {
        let Some(state) = self.rank_on(node, rank).filter(|state| state.ended.is_none()) else {
            return;
        };
        state.ended = Some(how);
        let ended = Ended { stage: state.stage, how };
        if ended.stage != Stage::Finalized {
            // Also the clean exit of a program that never joined: nobody need wait for it.
            orders.push((To::All, Down::Failed(FailedRank { rank, how })));
        }
        let told = state.fenced;
        if ended.is_failure() && !self.terminating {
            let after = if self.kill_on_failure { "ending the job" } else { "the job goes on" };
            let unsaid = match (ended.stage, how) {
                (Stage::Joined, How::Exit(_)) => " without finalize",
                _ => "",
            };
            match self.ranks.len() {
                _ if told => {}
                1 => self.notes.push(format!("rank {rank}: {how}{unsaid}")),
                _ => self.notes.push(format!("rank {rank}: {how}{unsaid}; {after}")),
            }
            if self.kill_on_failure {
                self.terminate(orders);
            }
        }
        self.check_barrier(orders);
        if self.is_over() && !self.finishing {
            self.finishing = true;
            orders.push((To::All, Down::Finish));
        }
    }

    /// Whether a rank has finalized.
    fn has_left(&self, rank: u32) -> Option<String> {
        let state = self.ranks.get(rank as usize)?;
        (state.stage == Stage::Finalized).then(|| Fate::Left.word().to_owned())
    }

    /// A rank asks whether a silent one is kept from its core: only that one's host can see it.
    fn look(&mut self, by: u32, look: Look, orders: &mut Orders) -> Option<String> {
        let node = self.ranks.get(look.rank as usize).filter(|state| state.counts())?.node;
        let asked = &mut self.ranks[by as usize].look;
        let seen = match asked {
            Some((known, seen)) if *known == look => *seen,
            _ => {
                let Look { process, number, .. } = look;
                orders.push((To::Node(node), Down::Look { by, number, process }));
                *asked = Some((look, Seen::Asked));
                Seen::Asked
            }
        };
        Some(seen.word().to_owned())
    }

    /// A host has looked at a process for the rank `by`.
    pub fn looked(&mut self, node: usize, by: u32, number: u32, starved: bool) {
        let Some((look, _)) = self.ranks.get(by as usize).and_then(|state| state.look) else {
            return;
        };
        if look.number == number && self.rank_on(node, look.rank).is_some() {
            let seen = if starved { Seen::Starved } else { Seen::Not };
            self.ranks[by as usize].look = Some((look, seen));
        }
    }

    /// A rank is accused of being silent: what is known of it. One that should be speaking is a
    /// failure from now on, for all, and its host ends it.
    fn fate(&mut self, rank: u32, orders: &mut Orders) -> Option<String> {
        let state = self.ranks.get(rank as usize)?;
        let fate = match state.stage {
            Stage::Finalized => Fate::Left,
            Stage::Plain | Stage::Joined => Fate::Failed,
        };
        if fate == Fate::Failed && state.counts() {
            self.fence(rank, How::Fenced, orders);
            self.notes.push(format!("rank {rank}: {}; it is being ended", How::Fenced));
            self.check_barrier(orders);
        }
        Some(fate.word().to_owned())
    }

    /// The connection to a host is lost: its ranks are gone, for good (law 4).
    pub fn node_lost(&mut self, node: usize, orders: &mut Orders) {
        let lost: Vec<u32> = (0..self.ranks.len())
            .filter(|index| self.ranks[*index].node == node && self.ranks[*index].ended.is_none())
            .map(|index| index as u32)
            .collect();
        for rank in lost {
            self.ended(node, rank, How::HostLost, orders);
        }
    }

    /// A host could not start its ranks, or the job's time is over: the job ends with `code`.
    pub fn give_up(&mut self, why: String, code: u8, orders: &mut Orders) {
        if self.given_up.is_none() {
            self.given_up = Some(code);
            self.notes.push(why);
        }
        self.terminate(orders);
    }

    /// Ends the job, once.
    pub fn terminate(&mut self, orders: &mut Orders) {
        if !std::mem::replace(&mut self.terminating, true) {
            orders.push((To::All, Down::Terminate));
        }
    }

    fn rank_on(&mut self, node: usize, rank: u32) -> Option<&mut Rank> {
        self.ranks.get_mut(rank as usize).filter(|state| state.node == node)
    }

    fn check_barrier(&mut self, orders: &mut Orders) {
        let waited_for = |rank: &&Rank| rank.counts() && rank.stage != Stage::Finalized;
        let mut entered = 0;
        for rank in self.ranks.iter().filter(waited_for) {
            if !rank.in_barrier {
                return;
            }
            entered += 1;
        }
        if entered > 0 {
            self.ranks.iter_mut().for_each(|rank| rank.in_barrier = false);
            orders.push((To::All, Down::BarrierOut));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(counts: &[u32], kill_on_failure: bool) -> Head {
        let mut head = Head::new(counts, HashMap::new(), kill_on_failure);
        let mut orders = Orders::new();
        let mut rank = 0;
        for (node, &count) in counts.iter().enumerate() {
            for _ in 0..count {
                head.request(node, rank, Request::Joined, &mut orders);
                rank += 1;
            }
        }
        assert!(orders.is_empty());
        head
    }

    fn names(orders: &Orders) -> Vec<String> {
        let name = |down: &Down| format!("{down:?}").split([' ', '(']).next().unwrap().to_owned();
        orders.iter().map(|(_, down)| name(down)).collect()
    }

    #[test]
    fn the_barrier_completes_over_the_living() {
        let mut head = job(&[2, 1], false);
        let mut orders = Orders::new();
        head.request(0, 0, Request::Barrier, &mut orders);
        head.request(1, 2, Request::Barrier, &mut orders);
        assert!(orders.is_empty());
        head.ended(0, 1, How::Signal(9), &mut orders);
        assert_eq!(names(&orders), ["Failed", "BarrierOut"]);
        orders.clear();
        head.request(0, 0, Request::Barrier, &mut orders);
        assert!(orders.is_empty(), "the second barrier is a new one");
        head.request(1, 2, Request::Finalized, &mut orders);
        assert_eq!(names(&orders), ["BarrierOut"]);
    }

    #[test]
    fn a_failure_is_published_once_and_the_job_goes_on() {
        let mut head = job(&[3], false);
        let mut orders = Orders::new();
        head.ended(0, 1, How::Signal(9), &mut orders);
        head.ended(0, 1, How::Exit(0), &mut orders);
        assert_eq!(names(&orders), ["Failed"]);
        orders.clear();
        for rank in [0, 2] {
            head.request(0, rank, Request::Finalized, &mut orders);
            head.ended(0, rank, How::Exit(rank as u8), &mut orders);
        }
        assert_eq!(names(&orders), ["Finish"]);
        assert_eq!(head.exit_code(), 0);
    }

    #[test]
    fn kill_on_failure_and_abort_end_the_job_once() {
        let mut head = job(&[3], true);
        let mut orders = Orders::new();
        head.ended(0, 1, How::Signal(11), &mut orders);
        head.ended(0, 2, How::Signal(15), &mut orders);
        assert_eq!(names(&orders), ["Failed", "Terminate", "Failed"]);
        let mut head = job(&[2], false);
        orders.clear();
        head.request(0, 1, Request::Abort { code: 7, ranks: None }, &mut orders);
        head.request(0, 0, Request::Abort { code: 9, ranks: None }, &mut orders);
        assert_eq!(names(&orders), ["Terminate"]);
        head.ended(0, 0, How::Signal(15), &mut orders);
        head.ended(0, 1, How::Exit(7), &mut orders);
        assert_eq!(head.exit_code(), 9, "the last abort's code");
    }

    #[test]
    fn an_abort_of_some_is_a_failure_of_theirs_and_the_job_goes_on() {
        let mut head = job(&[2, 2], false);
        let mut orders = Orders::new();
        head.request(1, 3, Request::Finalized, &mut orders);
        head.request(0, 0, Request::Barrier, &mut orders);
        let some = Request::Abort { code: 8, ranks: Some(vec![1, 2, 3]) };
        head.request(0, 1, some, &mut orders);
        assert_eq!(
            names(&orders),
            ["Fence", "Failed"],
            "itself and who has finalized are left out"
        );
        assert!(matches!(orders[0], (To::Node(1), Down::Fence { rank: 2 })));
        let failed = FailedRank { rank: 2, how: How::Aborted(8) };
        assert!(matches!(orders[1], (To::All, Down::Failed(f)) if f == failed));
        assert_eq!(head.take_notes(), ["rank 1 aborts ranks 1-3 with code 8"]);
        orders.clear();
        head.ended(0, 1, How::Exit(8), &mut orders);
        head.ended(1, 2, How::Signal(9), &mut orders);
        assert_eq!(names(&orders), ["Failed", "BarrierOut", "Failed"]);
        head.take_notes();
        head.ended(0, 0, How::Exit(3), &mut orders);
        head.ended(1, 3, How::Exit(5), &mut orders);
        assert_eq!(head.exit_code(), 5, "who finalized counts first");
        let mut head = job(&[2], true);
        orders.clear();
        head.request(0, 0, Request::Abort { code: 8, ranks: Some(vec![0]) }, &mut orders);
        head.ended(0, 0, How::Exit(8), &mut orders);
        assert_eq!(names(&orders), ["Failed", "Terminate"], "a failure as others");
        head.ended(0, 1, How::Signal(15), &mut orders);
        assert_eq!(head.exit_code(), 8);
    }

    #[test]
    fn a_lost_host_takes_its_ranks_with_it_but_not_those_that_had_ended() {
        let mut head = job(&[1, 2], false);
        let mut orders = Orders::new();
        head.request(1, 1, Request::Finalized, &mut orders);
        head.ended(1, 1, How::Exit(0), &mut orders);
        head.node_lost(1, &mut orders);
        let failed = FailedRank { rank: 2, how: How::HostLost };
        assert!(matches!(orders[..], [(To::All, Down::Failed(f))] if f == failed));
    }

    #[test]
    fn who_is_accused_fails_once_unless_it_finalized() {
        let mut head = job(&[2, 2], false);
        let mut orders = Orders::new();
        let accuse = |rank: u32| Request::Get { key: format!("{FATE_KEY}{rank}") };
        let answer = |orders: &Orders| match orders.last() {
            Some((To::Node(0), Down::GetReply { rank: 0, value })) => value.clone(),
            _ => panic!("no answer: {orders:?}"),
        };
        head.request(0, 0, accuse(3), &mut orders);
        assert_eq!(names(&orders), ["Fence", "Failed", "GetReply"]);
        assert!(matches!(orders[0], (To::Node(1), Down::Fence { rank: 3 })));
        assert_eq!(answer(&orders).as_deref(), Some(Fate::Failed.word()));
        orders.clear();
        head.request(0, 0, accuse(3), &mut orders);
        assert_eq!(names(&orders), ["GetReply"], "once is enough");
        orders.clear();
        head.request(1, 3, accuse(0), &mut orders);
        assert!(orders.is_empty(), "it has no word any more");
        let has_left = |rank: u32| Request::Get { key: format!("{LEFT_KEY}{rank}") };
        head.request(0, 0, has_left(2), &mut orders);
        assert_eq!(names(&orders), ["GetReply"], "only a question");
        assert_eq!(answer(&orders), None);
        orders.clear();
        head.request(1, 2, Request::Finalized, &mut orders);
        head.request(0, 0, has_left(2), &mut orders);
        assert_eq!(answer(&orders).as_deref(), Some(Fate::Left.word()));
        head.request(0, 0, accuse(2), &mut orders);
        assert_eq!(answer(&orders).as_deref(), Some(Fate::Left.word()));
        orders.clear();
        head.request(0, 0, accuse(99), &mut orders);
        assert_eq!(answer(&orders), None);
        orders.clear();
        // The barrier does not wait for it, and its end is no news but for the count.
        head.request(0, 0, Request::Barrier, &mut orders);
        head.request(0, 1, Request::Barrier, &mut orders);
        assert_eq!(names(&orders), ["BarrierOut"]);
        head.take_notes();
        head.ended(1, 3, How::Signal(9), &mut orders);
        assert!(head.take_notes().is_empty());
    }

    #[test]
    fn a_host_is_asked_whether_a_rank_of_it_is_starved() {
        let mut head = job(&[1, 2], false);
        let mut orders = Orders::new();
        let ask = |head: &mut Head, text: &str| {
            let mut orders = Orders::new();
            let key = format!("{STARVED_KEY}{text}");
            head.request(0, 0, Request::Get { key }, &mut orders);
            let Some((To::Node(0), Down::GetReply { rank: 0, value })) = orders.pop() else {
                panic!("no answer: {orders:?}");
            };
            let looks = orders.into_iter().map(|(to, down)| match down {
                Down::Look { by: 0, number, process } => (to, number, process.process),
                other => panic!("{other:?}"),
            });
            (value, looks.collect::<Vec<_>>())
        };
        let word = |seen: Seen| Some(seen.word().to_owned());
        let first = (To::Node(1), 7, 4711);
        assert_eq!(ask(&mut head, "2-4711-99-7"), (word(Seen::Asked), vec![first]));
        assert_eq!(ask(&mut head, "2-4711-99-7"), (word(Seen::Asked), vec![]), "once");
        head.looked(1, 0, 6, true);
        head.looked(0, 0, 7, true);
        head.looked(1, 2, 7, true);
        head.looked(1, 99, 7, true);
        assert_eq!(ask(&mut head, "2-4711-99-7").0, word(Seen::Asked), "not what was asked");
        head.looked(1, 0, 7, true);
        assert_eq!(ask(&mut head, "2-4711-99-7"), (word(Seen::Starved), vec![]));
        // The next question is a new one, which no late answer meets.
        assert_eq!(ask(&mut head, "2-4711-99-8").1.len(), 1);
        head.looked(1, 0, 7, true);
        assert_eq!(ask(&mut head, "2-4711-99-8").0, word(Seen::Asked));
        head.looked(1, 0, 8, false);
        assert_eq!(ask(&mut head, "2-4711-99-8").0, word(Seen::Not));
        for nobody in ["9-4711-99-9", "2-4711-99", "x"] {
            assert_eq!(ask(&mut head, nobody), (None, vec![]), "{nobody}");
        }
        head.ended(1, 2, How::Signal(9), &mut orders);
        assert_eq!(ask(&mut head, "2-4711-99-9"), (None, vec![]), "it has ended");
    }

    #[test]
    fn a_host_speaks_for_its_own_ranks_only() {
        let mut head = job(&[1, 1], false);
        let mut orders = Orders::new();
        head.ended(0, 1, How::Exit(0), &mut orders);
        head.request(1, 0, Request::Abort { code: 1, ranks: None }, &mut orders);
        head.ended(1, 7, How::Exit(0), &mut orders);
        assert!(orders.is_empty());
    }

    #[test]
    fn keys_are_found_and_missing_ones_told() {
        let mut head = job(&[1], false);
        let mut orders = Orders::new();
        let put = Request::Put { key: "k".into(), value: "v".into() };
        head.request(0, 0, put, &mut orders);
        for (key, expected) in [("k", Some("v".to_owned())), ("x", None)] {
            orders.clear();
            head.request(0, 0, Request::Get { key: key.into() }, &mut orders);
            assert!(
                matches!(&orders[..], [(To::Node(0), Down::GetReply { value, .. })] if *value == expected)
            );
        }
    }
}
