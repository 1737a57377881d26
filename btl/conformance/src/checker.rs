//! The oracle: a sink that holds every report against the contract and against what was handed down.
//!
//! It never panics while a transport runs; what is wrong is noted and the stage fails the test with all of it.
//! Carries out laws 1 (exactly once), 2 (hands off) and 6 (order, per rail) for one process.

use crate::loan::Loan;
use crate::pattern::{self, Label};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Cause, Descriptor, EndpointState, Fault, Landing, Peer, RmaDescriptor, RmaKind, Scope, Sink,
    Token,
};
use rand::{Rng, rngs::SmallRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of returned buffers that are watched for late writes; the oldest go first.
const GRAVEYARD_BYTES: usize = 24 << 20;
/// Violations kept: after the first few the rest says nothing new.
const VIOLATIONS_MAX: usize = 20;

/// What is out with the transport.
#[derive(Debug)]
pub(crate) struct Out {
    pub peer: u32,
    pub life: u32,
    pub what: What,
    pub loans: Vec<Loan>,
}

#[derive(Debug)]
pub(crate) enum What {
    Send,
    Put,
    /// The pattern expected on success: key and offset into it.
    Get {
        key: u64,
        offset: usize,
    },
    Land(Label),
    /// A number is to come.
    Change,
}

/// What was told about one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerLog {
    /// `connect` was called, or `up` came, and `closed` did not yet.
    pub open: bool,
    pub up: bool,
    /// Faults of scope rail or peer in this life.
    pub faults_now: u64,
    /// Ends of this endpoint so far: the number of its life.
    pub closed: u32,
    pub ups: u64,
    pub faults: u64,
    /// `closed` came without a fault before it.
    pub quiet_ends: u64,
    /// The peer's life whose frames arrive, the next number expected, and numbers seen beyond it.
    their_life: Option<(u32, u32)>,
    next: u64,
    beyond: BTreeSet<u64>,
    asked: Option<u64>,
    pub frames: u64,
    pub bytes: u64,
    /// Next number to send in this life, and lives so far.
    pub sent: u64,
    pub sent_total: u64,
    pub state: Option<EndpointState>,
    state_life: u32,
    /// It may be dead: proof of that is no lie.
    pub may_die: bool,
}

pub(crate) struct Checker {
    pub me: u32,
    pub seed: u64,
    pub ordered: bool,
    pub rng: SmallRng,
    pub peers: BTreeMap<u32, PeerLog>,
    pub out: BTreeMap<u64, Out>,
    next_token: u64,
    graveyard: VecDeque<(Vec<Loan>, &'static str)>,
    graveyard_bytes: usize,
    pub violations: Vec<String>,
    /// How often, of a thousand, a landing gets a region.
    pub direct: u32,
    pub completed_ok: u64,
    pub completed_err: u64,
    pub landed_ok: u64,
    pub landed_err: u64,
    pub rma_ok: u64,
    pub rma_err: u64,
    /// What atomic operations brought.
    pub fetched: Vec<u64>,
    /// How the last access failed.
    pub rma_fault: Option<Fault>,
    pub faults: u64,
    /// What was told last of an endpoint or the rail, for the dump.
    pub last_fault: Option<Fault>,
    pub reports: u64,
}

impl Checker {
    pub(crate) fn new(me: u32, seed: u64, ordered: bool, rng: SmallRng) -> Self {
        Checker {
            me,
            seed,
            ordered,
            rng,
            peers: BTreeMap::new(),
            out: BTreeMap::new(),
            next_token: 1,
            graveyard: VecDeque::new(),
            graveyard_bytes: 0,
            violations: Vec::new(),
            direct: 500,
            completed_ok: 0,
            completed_err: 0,
            landed_ok: 0,
            landed_err: 0,
            rma_ok: 0,
            rma_err: 0,
            fetched: Vec::new(),
            rma_fault: None,
            faults: 0,
            last_fault: None,
            reports: 0,
        }
    }

    pub(crate) fn wrong(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("process {}: {what}", self.me));
        }
    }

    pub(crate) fn log(&mut self, peer: u32) -> &mut PeerLog {
        self.peers.entry(peer).or_default()
    }

    pub(crate) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Operations out with `peer`.
    pub(crate) fn outstanding(&self, peer: u32) -> usize {
        self.out.values().filter(|out| out.peer == peer).count()
    }

    pub(crate) fn frames(&self) -> u64 {
        self.peers.values().map(|log| log.frames).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.peers.values().map(|log| log.bytes).sum()
    }

    pub(crate) fn connecting(&mut self, peer: u32) {
        self.log(peer).open = true;
    }

    /// Looks at the state of an endpoint between two calls: only steps along the arrows.
    pub(crate) fn observe(&mut self, peer: u32, now: EndpointState) {
        use EndpointState::{Closed, Connecting, Failing, Up};
        let log = self.log(peer);
        let before = log.state.replace(now);
        let ended = std::mem::replace(&mut log.state_life, log.closed) != log.closed;
        let (open, up, faulted) = (log.open, log.up, log.faults_now > 0);
        let rank = |state| match state {
            Connecting => 0,
            Up => 1,
            Failing => 2,
            Closed => 3,
        };
        let Some(before) = before else {
            return;
        };
        if before != Closed && !ended && (now == Closed || rank(now) < rank(before)) {
            self.wrong(format!("state of {peer} went {before:?} → {now:?} without `closed`"));
        }
        if open && now == Closed {
            self.wrong(format!("state of {peer} is Closed before `closed` was told"));
        }
        if !open && matches!(now, Failing) {
            self.wrong(format!("state of {peer} is Failing after `closed` was told"));
        }
        if up && now == Connecting {
            self.wrong(format!("state of {peer} is Connecting after `up` was told"));
        }
        if faulted && open && matches!(now, Connecting | Up) {
            self.wrong(format!("state of {peer} is {now:?} after its fault was told"));
        }
    }

    /// A frame was taken for `peer`: its label was used.
    pub(crate) fn next_label(&mut self, peer: u32, len: usize) -> Label {
        let me = self.me;
        let log = self.log(peer);
        Label { from: me, to: peer, life: log.closed, number: log.sent, len: len as u64 }
    }

    /// The label of the next frame from `peer`, if that has `len` bytes and its sender is in the life that it was in.
    pub(crate) fn next_from(&mut self, peer: u32, len: usize) -> Label {
        let me = self.me;
        let log = self.log(peer);
        let life = log.their_life.map_or(0, |(life, _)| life);
        Label { from: peer, to: me, life, number: log.next, len: len as u64 }
    }

    pub(crate) fn count_sent(&mut self, peer: u32) {
        let log = self.log(peer);
        log.sent += 1;
        log.sent_total += 1;
    }

    /// Holds a header against what may come from `from`; `None` when it is wrong. `begins` counts it.
    fn sight(&mut self, from: Peer, header: &[u8], len: usize, counts: bool) -> Option<Label> {
        let label = match Label::decode(header, self.seed) {
            Ok(label) => label,
            Err(what) => {
                self.wrong(format!("{what} from {from}: {header:02x?}"));
                return None;
            }
        };
        let me = self.me;
        if label.from != from.0 || label.to != me || label.len != len as u64 {
            self.wrong(format!("{label:?} with {len} bytes came from {from}"));
            return None;
        }
        let ordered = self.ordered;
        let log = self.log(from.0);
        let mut problem = None;
        if !log.up {
            problem = Some("outside of `up` and `closed`");
        }
        match log.their_life {
            Some((life, _)) if label.life < life => problem = Some("of an earlier life"),
            Some((life, closed)) if label.life > life && log.closed == closed => {
                problem = Some("of a new life although the old one was not closed here");
            }
            Some((life, _)) if label.life == life => {}
            _ => {
                log.their_life = Some((label.life, log.closed));
                log.next = 0;
                log.beyond.clear();
                log.asked = None;
            }
        }
        if counts {
            if label.number < log.next || log.beyond.contains(&label.number) {
                problem = Some("twice");
            } else if ordered && label.number != log.next {
                problem = Some("out of order");
            }
            log.beyond.insert(label.number);
            while log.beyond.remove(&log.next) {
                log.next += 1;
            }
        } else if log.asked.is_some_and(|asked| ordered && label.number <= asked) {
            problem = Some("asked about twice or out of order");
        } else {
            log.asked = Some(label.number);
        }
        let next = log.next;
        if let Some(problem) = problem {
            self.wrong(format!("{label:?} from {from} {problem} (next is {next})"));
        }
        Some(label)
    }

    fn count_received(&mut self, from: Peer, len: usize) {
        let log = self.log(from.0);
        log.frames += 1;
        log.bytes += len as u64;
    }

    /// Buffers that came back: nobody may touch them any more.
    pub(crate) fn bury(&mut self, mut loans: Vec<Loan>, what: &'static str) {
        for loan in &mut loans {
            loan.returned();
            loan.scribble();
            self.graveyard_bytes += loan.len();
        }
        self.graveyard.push_back((loans, what));
        while self.graveyard_bytes > GRAVEYARD_BYTES {
            let (loans, what) = self.graveyard.pop_front().expect("bytes are in some grave");
            self.graveyard_bytes -= loans.iter().map(Loan::len).sum::<usize>();
            self.inspect(&loans, what);
        }
    }

    fn inspect(&mut self, loans: &[Loan], what: &'static str) {
        for loan in loans {
            if let Some(at) = loan.disturbed(0) {
                self.wrong(format!(
                    "byte {at} of {} was written after its {what} was over",
                    loan.len()
                ));
            }
        }
    }

    /// Looks at every watched buffer.
    pub(crate) fn check_graveyard(&mut self) {
        for (loans, what) in std::mem::take(&mut self.graveyard) {
            self.inspect(&loans, what);
            self.graveyard.push_back((loans, what));
        }
    }

    /// Takes an operation back; `None` when it was not out.
    fn take_back(&mut self, peer: Peer, token: Token, name: &str) -> Option<Out> {
        self.reports += 1;
        let Some(out) = self.out.remove(&token.0) else {
            self.wrong(format!("{name} {token:?} with {peer} came back but was not out"));
            return None;
        };
        let log = self.log(peer.0);
        let (open, life) = (log.open, log.closed);
        if out.peer != peer.0 || out.life != life || !open {
            self.wrong(format!(
                "{name} {token:?} of life {} with {} came back as of {peer} in life {life}, open: {open}",
                out.life, out.peer
            ));
        }
        Some(out)
    }

    fn judge(&mut self, peer: Peer, outcome: &Result<(), Fault>) {
        if let Err(fault) = outcome {
            if fault.peer.is_some_and(|other| other != peer) {
                self.wrong(format!("an operation with {peer} came back with {fault}"));
            }
            self.judge_proof(fault);
        }
    }

    fn judge_proof(&mut self, fault: &Fault) {
        if fault.is_proof() && !fault.peer.is_some_and(|peer| self.log(peer.0).may_die) {
            self.wrong(format!("{fault}, but it lives"));
        }
    }
}

impl Sink for Checker {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        self.reports += 1;
        if let Some(label) = self.sight(from, header, payload.len(), true) {
            self.count_received(from, payload.len());
            if let Some(at) = pattern::mismatch(label.key(self.seed), 0, payload) {
                self.wrong(format!("byte {at} of {label:?} is wrong"));
            }
        }
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        let direct = self.rng.random_range(0..1000) < self.direct;
        let Some(label) = self.sight(from, header, payload_len, direct) else {
            return Landing::Buffered;
        };
        if !direct {
            return Landing::Buffered;
        }
        // Longer than asked for: what lies behind must stay as it is.
        let mut loan = Loan::blank(payload_len + self.rng.random_range(0..70));
        let region = loan.lend_target();
        let token = self.token();
        let life = self.log(from.0).closed;
        let out = Out { peer: from.0, life, what: What::Land(label), loans: vec![loan] };
        self.out.insert(token.0, out);
        Landing::Direct { region, token }
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        self.judge(from, &outcome);
        let Some(mut out) = self.take_back(from, token, "landing") else {
            return;
        };
        let _ = region;
        let What::Land(label) = out.what else {
            self.wrong(format!("{token:?} came back as a landing"));
            return;
        };
        let len = label.len as usize;
        out.loans[0].returned();
        let mut problems = Vec::new();
        if let Some(at) = out.loans[0].disturbed(len) {
            problems.push(format!("landing {label:?} wrote byte {at}"));
        }
        match outcome {
            Ok(()) => {
                self.landed_ok += 1;
                self.count_received(from, len);
                let bytes = &out.loans[0].bytes()[..len];
                if let Some(at) = pattern::mismatch(label.key(self.seed), 0, bytes) {
                    problems.push(format!("byte {at} of landed {label:?} is wrong"));
                }
            }
            Err(_) => self.landed_err += 1,
        }
        for problem in problems {
            self.wrong(problem);
        }
        self.bury(out.loans, "landing");
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        let (peer, token) = (descriptor.peer, descriptor.token);
        self.judge(peer, &outcome);
        let Some(out) = self.take_back(peer, token, "send") else {
            return;
        };
        let lens = descriptor.payload.iter().map(|region| region.len());
        if !matches!(out.what, What::Send) || !lens.eq(out.loans.iter().map(Loan::len)) {
            self.wrong(format!("the descriptor of {token:?} came back changed"));
        }
        drop(descriptor);
        match outcome {
            Ok(()) => self.completed_ok += 1,
            Err(_) => self.completed_err += 1,
        }
        self.bury(out.loans, "send");
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        let (peer, token) = (descriptor.peer, descriptor.token);
        self.judge(peer, &outcome);
        let Some(mut out) = self.take_back(peer, token, "remote access") else {
            return;
        };
        let same = match (&out.what, &descriptor.kind) {
            (What::Put, RmaKind::Put(region)) => region.len() == out.loans[0].len(),
            (What::Get { .. }, RmaKind::Get(region)) => region.len() == out.loans[0].len(),
            (What::Change, RmaKind::Atomic(_, region)) => region.len() == out.loans[0].len(),
            _ => false,
        };
        if !same {
            self.wrong(format!("the descriptor of {token:?} came back changed"));
        }
        let _ = descriptor;
        out.loans[0].returned();
        match outcome {
            Ok(()) => {
                self.rma_ok += 1;
                if let What::Get { key, offset } = out.what
                    && let Some(at) = pattern::mismatch(key, offset, out.loans[0].bytes())
                {
                    self.wrong(format!("byte {at} of what {token:?} got is wrong"));
                }
                if let (What::Change, Ok(number)) = (&out.what, out.loans[0].bytes().try_into()) {
                    self.fetched.push(u64::from_ne_bytes(number));
                }
            }
            // Wrong in itself: the transport has purged nothing.
            Err(Fault { cause: Cause::Malformed(_), .. }) if matches!(out.what, What::Change) => {}
            Err(fault) => {
                self.rma_err += 1;
                self.rma_fault = Some(fault);
            }
        }
        self.bury(out.loans, "remote access");
    }

    fn up(&mut self, peer: Peer) {
        self.reports += 1;
        let log = self.log(peer.0);
        if log.up {
            self.wrong(format!("`up` twice for {peer}"));
            return;
        }
        log.open = true;
        log.up = true;
        log.ups += 1;
    }

    fn fault(&mut self, fault: Fault) {
        self.reports += 1;
        self.faults += 1;
        self.judge_proof(&fault);
        match (fault.peer, fault.scope) {
            (Some(peer), Scope::Rail | Scope::Peer) => {
                let log = self.log(peer.0);
                log.faults += 1;
                log.faults_now += 1;
                if !log.open {
                    self.wrong(format!("{fault} for an endpoint that is closed"));
                }
            }
            (Some(peer), Scope::Operation) => {
                self.wrong(format!("{fault} with {peer} was told without an operation"));
            }
            (None, _) => {}
        }
        self.last_fault = Some(fault);
    }

    fn closed(&mut self, peer: Peer) {
        self.reports += 1;
        let life = self.log(peer.0).closed;
        if !self.log(peer.0).open {
            self.wrong(format!("`closed` for {peer}, which is closed"));
        }
        let left: Vec<u64> = self
            .out
            .iter()
            .filter(|(_, out)| out.peer == peer.0 && out.life == life)
            .map(|(&token, _)| token)
            .collect();
        if !left.is_empty() {
            self.wrong(format!("`closed` for {peer} while {left:?} are out"));
        }
        let log = self.log(peer.0);
        log.quiet_ends += u64::from(log.faults_now == 0);
        log.faults_now = 0;
        log.open = false;
        log.up = false;
        log.closed += 1;
        log.sent = 0;
    }
}
