//! One process of a stage: a transport, its oracle, and the traffic it was told to make.
//!
//! The same code runs in the test's process and in the forked peers. It never waits: a stage steps it.

use crate::checker::{Checker, Out, What};
use crate::command::{Answer, Change, Command, Flood, Status, tier};
use crate::loan::Loan;
use crate::pattern;
use crate::{Harness, Injected, Site};
use ironweave_btl::{
    Atomic, Btl, Caps, Descriptor, EndpointState, Header, Peer, Refused, RemoteKey, Residue,
    RmaDescriptor, RmaKind, Sink, TINY_MAX, Tiny,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::VecDeque;
use std::fmt::Write;

/// Sends tried in one step for one job.
const BURST: usize = 8;
/// Bytes of payload out with a transport in zero-copy sends: tests must not eat the machine.
const OUT_BYTES: usize = 32 << 20;

/// Frames that are still to be sent.
#[derive(Debug)]
enum Job {
    Flood { flood: Flood, sent: u64 },
    Sweep { to: u32, tier: u8, lens: VecDeque<usize> },
}

impl Job {
    fn peer(&self) -> u32 {
        match self {
            Job::Flood { flood, .. } => flood.to,
            Job::Sweep { to, .. } => *to,
        }
    }

    fn left(&self) -> u64 {
        match self {
            Job::Flood { flood, sent } => flood.frames - sent,
            Job::Sweep { lens, .. } => lens.len() as u64,
        }
    }
}

/// What is registered for peers.
struct Registration {
    key: RemoteKey,
    loan: Loan,
    source: bool,
}

pub(crate) struct Node<H: Harness> {
    site: Site,
    btl: Option<H::Btl>,
    pub check: Checker,
    jobs: Vec<Job>,
    /// The frame that was refused for want of room, to be sent next: tier and length.
    pending: Vec<(u32, u8, usize)>,
    frozen: bool,
    leaving: bool,
    rng: SmallRng,
    registration: Option<Registration>,
    /// Atomic operations that are to be begun.
    changes: Vec<Change>,
}

/// The key of registered pattern bytes.
pub(crate) fn source_key(seed: u64, owner: u32) -> u64 {
    pattern::mix(seed ^ 0x5eed ^ u64::from(owner))
}

impl<H: Harness> Node<H> {
    /// Opens the transport; the error says why it cannot run here.
    pub(crate) fn open(world: &H::World, site: Site) -> Result<Self, String> {
        let btl = H::open(world, &site)?;
        let mut rng = SmallRng::seed_from_u64(site.seed ^ u64::from(site.me.0) << 40);
        let check =
            Checker::new(site.me.0, site.seed, btl.caps().ordered, SmallRng::from_rng(&mut rng));
        Ok(Node {
            site,
            btl: Some(btl),
            check,
            jobs: Vec::new(),
            pending: Vec::new(),
            frozen: false,
            leaving: false,
            rng,
            registration: None,
            changes: Vec::new(),
        })
    }

    pub(crate) fn btl(&mut self) -> &mut H::Btl {
        self.btl.as_mut().expect("the transport was not dropped yet")
    }

    pub(crate) fn caps(&mut self) -> Caps {
        self.btl().caps().clone()
    }

    /// Sends and makes progress; `true` when something happened.
    pub(crate) fn step(&mut self) -> bool {
        if self.frozen || self.btl.is_none() {
            return false;
        }
        let mut busy = self.pump() | self.change();
        busy |= match self.rng.random_range(0..8) {
            0 | 1 => self.take_tiny(),
            2 => self.take_next(),
            _ => false,
        };
        busy |= self.progress();
        if self.leaving && self.jobs.is_empty() && self.btl().unflushed() == 0 {
            // What is out now will not come back: its frames were flushed, or its peer is gone.
            self.btl().depart();
            self.drop_transport();
            busy = true;
        }
        busy
    }

    /// Takes frames by the short cut: where the next one of a peer has the brief header, some length will do.
    fn take_tiny(&mut self) -> bool {
        let peers: Vec<u32> = self.check.peers.keys().copied().collect();
        let Some(&peer) = peers.get(self.rng.random_range(0..peers.len().max(1))) else {
            return false;
        };
        let mut busy = false;
        let mut len = 0;
        while len <= TINY_MAX {
            let Some(header) = self.check.next_from(peer, len).brief(self.check.seed) else {
                return busy;
            };
            let mut into = Loan::blank(self.rng.random_range(0..=TINY_MAX));
            let region = into.lend_target();
            let answer = match self.btl().take_tiny(Peer(peer), 0, header, &region) {
                Tiny::Unable => self.btl().take_expected(Peer(peer), 0, header, &region),
                answer => answer,
            };
            into.returned();
            match answer {
                Tiny::Taken(taken) => {
                    if taken != len || taken > into.len() {
                        self.check.wrong(format!("{taken} bytes taken of a frame with {len}"));
                        return true;
                    }
                    let header = header.map(u64::to_ne_bytes);
                    let header = header.as_flattened();
                    self.check.frame(Peer(peer), header, &into.bytes()[..len]);
                    if into.disturbed(len).is_some() {
                        self.check.wrong(format!("bytes beyond {len} were written"));
                    }
                    (busy, len) = (true, 0);
                }
                Tiny::Left if into.disturbed(0).is_some() => {
                    self.check.wrong(String::from("a frame that was not taken was written"));
                    return true;
                }
                Tiny::Left => len += 1,
                Tiny::Unable => return busy,
            }
        }
        busy
    }

    /// Takes frames by the other one: the next of a peer is shown, and taken or left.
    fn take_next(&mut self) -> bool {
        let peers: Vec<u32> = self.check.peers.keys().copied().collect();
        let Some(&peer) = peers.get(self.rng.random_range(0..peers.len().max(1))) else {
            return false;
        };
        let mut busy = false;
        loop {
            let (wanted, turns) = (self.rng.random_range(0..4) > 0, self.rng.random_range(0..3));
            let mut shown = None;
            let taken = self.btl().take_next(Peer(peer), turns, |header, payload| {
                shown = Some((header.to_vec(), payload.to_vec()));
                wanted
            });
            match shown {
                Some((header, payload)) if taken && wanted => {
                    self.check.frame(Peer(peer), &header, &payload);
                    busy = true;
                }
                _ if taken => {
                    self.check.wrong(String::from("a frame was taken that nobody wanted"));
                    return true;
                }
                Some(_) if wanted => {
                    self.check.wrong(String::from("a frame that was taken is said to be left"));
                    return true;
                }
                _ => return busy,
            }
        }
    }

    /// One `progress`, with the states looked at before and after.
    pub(crate) fn progress(&mut self) -> bool {
        self.observe();
        let before = self.check.reports;
        let btl = self.btl.as_mut().expect("only a node with a transport makes progress");
        let reports = btl.progress(&mut self.check);
        let told = self.check.reports - before;
        if reports == 0 && told != 0 {
            self.check.wrong(format!("progress said 0 reports and made {told}"));
        }
        self.observe();
        told != 0 || reports != 0
    }

    pub(crate) fn observe(&mut self) {
        let Some(btl) = &self.btl else {
            return;
        };
        // With thousands of peers the states of a few are looked at each time.
        let peers = self.check.peers.len();
        let skip = if peers > 16 { self.rng.random_range(0..peers) } else { 0 };
        let some: Vec<u32> = self.check.peers.keys().copied().skip(skip).take(16).collect();
        for peer in some {
            let state = btl.state(Peer(peer));
            self.check.observe(peer, state);
        }
    }

    /// Hands down what the jobs want to send and there is room for.
    fn pump(&mut self) -> bool {
        let mut busy = false;
        for at in (0..self.jobs.len()).rev() {
            for _ in 0..BURST {
                match self.push_one(at) {
                    Ok(()) => busy = true,
                    Err(Refused::NoRoom | Refused::Connecting) => break,
                    Err(Refused::Closed) => {
                        // The endpoint ended: the rest of this traffic goes nowhere.
                        self.jobs.swap_remove(at);
                        break;
                    }
                    Err(refused) => {
                        self.check
                            .wrong(format!("a frame within the limits was refused: {refused}"));
                        self.jobs.swap_remove(at);
                        break;
                    }
                }
                if self.jobs[at].left() == 0 {
                    self.jobs.swap_remove(at);
                    break;
                }
            }
        }
        busy
    }

    /// Sends the next frame of a job.
    fn push_one(&mut self, at: usize) -> Result<(), Refused> {
        let peer = self.jobs[at].peer();
        // A refused frame is tried again as it was.
        let waiting = self.pending.iter().position(|(to, ..)| *to == peer);
        let (tier, len) = match waiting {
            Some(waiting) => {
                let (_, tier, len) = self.pending.swap_remove(waiting);
                (tier, len)
            }
            None => self.choose(at),
        };
        let die = match &self.jobs[at] {
            Job::Flood { flood, sent } => flood.die_at == Some(*sent),
            Job::Sweep { .. } => false,
        };
        let sent = self.send(peer, tier, len, die);
        match sent {
            Ok(()) => match &mut self.jobs[at] {
                Job::Flood { sent, .. } => *sent += 1,
                Job::Sweep { lens, .. } => {
                    lens.pop_front();
                }
            },
            Err(Refused::NoRoom | Refused::Connecting) => self.pending.push((peer, tier, len)),
            Err(_) => {}
        }
        sent
    }

    /// Tier and length of a job's next frame.
    fn choose(&mut self, at: usize) -> (u8, usize) {
        let caps = self.caps();
        match &self.jobs[at] {
            Job::Sweep { tier, lens, .. } => {
                (*tier, *lens.front().expect("a job without frames was removed"))
            }
            Job::Flood { flood, sent } => {
                let flood = *flood;
                if flood.die_at == Some(*sent) {
                    return (tier::BCOPY, flood.longest.clamp(1, caps.max_bcopy));
                }
                let tiers: Vec<u8> = [tier::SHORT, tier::BCOPY, tier::ZCOPY]
                    .into_iter()
                    .filter(|tier| flood.tiers & tier != 0 && longest(&caps, *tier) > 0)
                    .collect();
                // A tier that the transport does not have is replaced by one that all have.
                let tier = match tiers.len() {
                    0 => tier::BCOPY,
                    some => tiers[self.rng.random_range(0..some)],
                };
                // Small lengths are as likely as long ones.
                let bits = self.rng.random_range(0..=usize::BITS - flood.longest.leading_zeros());
                let len = self.rng.random_range(0..=(1usize << bits) - 1).min(flood.longest);
                (tier, len.min(longest(&caps, tier)))
            }
        }
    }

    /// Sends one labelled frame; with `die`, kills this process half-way through packing it.
    pub(crate) fn send(
        &mut self,
        peer: u32,
        tier: u8,
        len: usize,
        die: bool,
    ) -> Result<(), Refused> {
        let label = self.check.next_label(peer, len);
        let key = label.key(self.check.seed);
        let (header, header_len) = label.encode(self.check.seed);
        let header = &header[..header_len];
        let btl = self.btl.as_mut().expect("only a node with a transport sends");
        let known_closed = !self.check.peers.get(&peer).is_some_and(|log| log.open);
        let sent = match tier {
            tier::SHORT => {
                let mut payload = vec![0; len];
                pattern::fill(key, 0, &mut payload);
                // With the brief header, if it fits, by the short cut, if there is one and it can be taken.
                let brief = label.brief(self.check.seed).filter(|_| self.rng.random());
                match brief {
                    Some(brief) if btl.send_tiny(Peer(peer), brief, &payload) => Ok(()),
                    Some(brief) => {
                        let header = brief.map(u64::to_ne_bytes);
                        btl.send_short(Peer(peer), header.as_flattened(), &payload)
                    }
                    None => btl.send_short(Peer(peer), header, &payload),
                }
            }
            tier::BCOPY => {
                let mut packed = 0;
                let mut calls = 0;
                let mut jumped = false;
                let sent = btl.send_bcopy(Peer(peer), header, len, |offset, piece| {
                    calls += 1;
                    jumped |= offset != packed;
                    packed = offset + piece.len();
                    if die {
                        let half = piece.len() / 2;
                        pattern::fill(key, offset, &mut piece[..half]);
                        crate::child::die();
                    }
                    pattern::fill(key, offset, piece);
                });
                let covered = packed == len && (calls > 0 || len == 0) && !jumped;
                if sent.is_ok() && !covered {
                    self.check.wrong(format!(
                        "{len} bytes were packed by {calls} calls up to {packed}, jumped: {jumped}"
                    ));
                }
                if sent.is_err() && calls != 0 {
                    self.check.wrong(String::from("a refused frame was packed"));
                }
                sent
            }
            _ => self.send_zcopy(peer, key, header_len, &label, len),
        };
        if sent.is_ok() {
            self.check.count_sent(peer);
        }
        if sent == Err(Refused::NoRoom) && known_closed {
            self.check.wrong(format!("NoRoom for {peer}, which is known to be closed"));
        }
        sent
    }

    fn send_zcopy(
        &mut self,
        peer: u32,
        key: u64,
        header_len: usize,
        label: &pattern::Label,
        len: usize,
    ) -> Result<(), Refused> {
        let out_bytes: usize =
            self.check.out.values().flat_map(|out| &out.loans).map(Loan::len).sum();
        if out_bytes > 0 && out_bytes + len > OUT_BYTES {
            return Err(Refused::NoRoom);
        }
        // One, two or three regions.
        let mut cuts = [0, len, self.rng.random_range(0..=len), self.rng.random_range(0..=len)];
        cuts.sort_unstable();
        let cuts: &[usize] = match self.rng.random_range(1..=3) {
            1 => &[0, len],
            2 => &[cuts[0], cuts[1], cuts[3]],
            _ => &cuts,
        };
        let mut loans: Vec<Loan> =
            cuts.windows(2).map(|pair| Loan::patterned(key, pair[0], pair[1] - pair[0])).collect();
        let payload = loans.iter_mut().map(Loan::lend_source).collect();
        let token = self.check.token();
        let (header, _) = label.encode(self.check.seed);
        let header = Header::new(&header[..header_len]);
        let descriptor = Descriptor { peer: Peer(peer), header, payload, token };
        let starts: Vec<_> = descriptor.payload.iter().map(|region| region.as_ptr()).collect();
        match self.btl().send_zcopy(descriptor) {
            Ok(()) => {
                let out = Out { peer, life: label.life, what: What::Send, loans };
                self.check.out.insert(token.0, out);
                Ok(())
            }
            Err((refused, descriptor)) => {
                let same = descriptor.token == token
                    && descriptor.peer == Peer(peer)
                    && descriptor.header.as_bytes() == header.as_bytes()
                    && descriptor.payload.iter().map(|region| region.as_ptr()).eq(starts);
                if !same {
                    self.check.wrong(format!("refused {token:?} was given back changed"));
                }
                drop(descriptor);
                loans.iter_mut().for_each(Loan::returned);
                Err(refused)
            }
        }
    }

    /// Puts or gets `len` bytes at `offset` of memory that `peer` registered.
    pub(crate) fn rma(
        &mut self,
        peer: u32,
        remote: RemoteKey,
        put: bool,
        pattern_key: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), Refused> {
        let mut loan =
            if put { Loan::patterned(pattern_key, offset, len) } else { Loan::blank(len) };
        let (kind, what) = if put {
            (RmaKind::Put(loan.lend_source()), What::Put)
        } else {
            (RmaKind::Get(loan.lend_target()), What::Get { key: pattern_key, offset })
        };
        let token = self.check.token();
        let descriptor =
            RmaDescriptor { peer: Peer(peer), kind, remote, remote_offset: offset as u64, token };
        let life = self.check.log(peer).closed;
        match self.btl().rma(descriptor) {
            Ok(()) => {
                self.check.out.insert(token.0, Out { peer, life, what, loans: vec![loan] });
                Ok(())
            }
            Err((refused, descriptor)) => {
                let _ = descriptor;
                loan.returned();
                Err(refused)
            }
        }
    }

    /// Begins atomic operations, as far as there is room.
    fn change(&mut self) -> bool {
        let mut busy = false;
        for mut change in std::mem::take(&mut self.changes) {
            while change.times > 0 {
                match self.change_once(&change) {
                    Ok(()) => change.times -= 1,
                    Err(Refused::NoRoom | Refused::Connecting) => {
                        self.changes.push(change);
                        break;
                    }
                    Err(Refused::Closed) => break, // the rest goes nowhere
                    Err(refused) => {
                        self.check.wrong(format!("an atomic operation was refused: {refused}"));
                        break;
                    }
                }
                busy = true;
            }
        }
        busy
    }

    /// Begins one, now.
    pub(crate) fn change_once(&mut self, change: &Change) -> Result<(), Refused> {
        let mut loan = Loan::blank(Atomic::BYTES);
        let kind = RmaKind::Atomic(change.what, loan.lend_target());
        let (peer, token) = (Peer(change.at), self.check.token());
        let (remote, remote_offset) = (change.key, change.offset);
        let life = self.check.log(change.at).closed;
        match self.btl().rma(RmaDescriptor { peer, kind, remote, remote_offset, token }) {
            Ok(()) => {
                let out = Out { peer: change.at, life, what: What::Change, loans: vec![loan] };
                self.check.out.insert(token.0, out);
                Ok(())
            }
            Err((refused, descriptor)) => {
                let same = descriptor.token == token
                    && matches!(descriptor.kind, RmaKind::Atomic(what, _) if what == change.what);
                if !same {
                    self.check.wrong(format!("refused {token:?} was given back changed"));
                }
                loan.returned();
                Err(refused)
            }
        }
    }

    pub(crate) fn invalidate(&mut self, peer: u32, residue: Residue, exclude: bool) {
        self.observe();
        let was_open = self.check.log(peer).open;
        let (closed, reports) = (self.check.log(peer).closed, self.check.reports);
        let btl = self.btl.as_mut().expect("only a node with a transport invalidates");
        if exclude {
            btl.exclude(Peer(peer), residue, &mut self.check);
        } else {
            btl.invalidate(Peer(peer), residue, &mut self.check);
        }
        let state = btl.state(Peer(peer));
        if !was_open && (self.check.log(peer).closed, self.check.reports) != (closed, reports) {
            self.check.wrong(format!("invalidating closed {peer} made reports"));
        }
        if was_open && !matches!(state, EndpointState::Failing | EndpointState::Closed) {
            self.check.wrong(format!("invalidated {peer} is {state:?}"));
        }
        self.observe();
    }

    /// Drops the transport; what was out with it is over without a report.
    fn drop_transport(&mut self) {
        self.check_counters();
        self.btl = None;
        if let Some(registration) = &mut self.registration {
            registration.loan.returned();
        }
        self.registration = None;
        self.jobs.clear();
        self.changes.clear();
        for (_, out) in std::mem::take(&mut self.check.out) {
            self.check.bury(out.loans, "transport");
        }
        self.check.check_graveyard();
    }

    /// Counters say what happened.
    pub(crate) fn check_counters(&mut self) {
        let Some(btl) = &self.btl else {
            return;
        };
        let counters = btl.counters();
        let check = &mut self.check;
        let sent: u64 = check.peers.values().map(|log| log.sent_total).sum();
        let (frames, bytes) = (check.frames(), check.bytes());
        let (landed_err, errors) = (check.landed_err, check.completed_err + check.rma_err);
        let faults = check.faults;
        let mut say = |name: &str, is: u64, least: u64, most: u64| {
            if is < least || is > most {
                check.wrong(format!("counter {name} is {is}, not {least} to {most}"));
            }
        };
        say("frames_sent", counters.frames_sent.get(), sent, sent);
        say("frames_received", counters.frames_received.get(), frames, frames + landed_err);
        if landed_err == 0 {
            say("bytes_received", counters.bytes_received.get(), bytes, bytes);
        }
        say("faults", counters.faults.get(), faults, faults);
        say("purged", counters.purged.get(), u64::from(errors > 0), u64::MAX);
    }

    pub(crate) fn status(&mut self) -> Status {
        self.check_counters();
        let gone = self.btl.is_none();
        let logs = || self.check.peers.values();
        Status {
            frames_received: self.check.frames(),
            frames_sent: logs().map(|log| log.sent_total).sum(),
            bytes_received: self.check.bytes(),
            outstanding: self.check.out.len() as u64,
            to_send: self.jobs.iter().map(Job::left).sum::<u64>()
                + self.changes.iter().map(|change| change.times).sum::<u64>(),
            open: logs().filter(|log| log.open).count() as u64,
            up: logs().filter(|log| log.up).count() as u64,
            closed: logs().map(|log| u64::from(log.closed)).sum(),
            faults: logs().map(|log| log.faults).sum(),
            gone,
            violations: self.check.violations.clone(),
        }
    }

    pub(crate) fn dump(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "process {}: frozen {}, leaving {}, jobs {:?}, {} operations out, {} reports",
            self.site.me.0,
            self.frozen,
            self.leaving,
            self.jobs,
            self.check.out.len(),
            self.check.reports
        );
        if let Some(fault) = &self.check.last_fault {
            let _ = writeln!(out, "  the last fault: {fault}");
        }
        for (peer, log) in self.check.peers.iter().take(40) {
            let _ = writeln!(out, "  {peer}: {log:?}");
        }
        match &self.btl {
            Some(btl) => {
                let _ = btl.dump(&mut out);
                let _ = writeln!(out, "  counters {:?}", btl.counters().rows());
            }
            None => out.push_str("  transport dropped\n"),
        }
        out
    }

    /// Does what a stage says.
    pub(crate) fn execute(&mut self, command: Command) -> Answer {
        if self.btl.is_none()
            && !matches!(command, Command::Status | Command::Inspect | Command::Dump)
        {
            return Answer::Refused(String::from("the transport was dropped"));
        }
        match command {
            Command::Connect(peer, address) => {
                self.check.connecting(peer);
                let was = self.btl().state(Peer(peer));
                if let Err(fault) = self.btl().connect(Peer(peer), &address) {
                    self.check.log(peer).open = was != EndpointState::Closed;
                    return Answer::Refused(fault.to_string());
                }
            }
            Command::Flood(flood) => {
                if flood.frames > 0 {
                    self.jobs.push(Job::Flood { flood, sent: 0 });
                }
            }
            Command::Sweep(to, longest_message, tier) => {
                let lens = sweep(longest_message, longest(&self.caps(), tier));
                self.jobs.push(Job::Sweep { to, tier, lens });
            }
            Command::Freeze(frozen) => self.frozen = frozen,
            Command::Invalidate(peer, residue) => self.invalidate(peer, residue, false),
            Command::Exclude(peer, residue) => self.invalidate(peer, residue, true),
            Command::Depart => self.leaving = true,
            Command::Drop => self.drop_transport(),
            Command::MayDie(peer) => self.check.log(peer).may_die = true,
            Command::Register(source, len) => return self.register(source, len),
            Command::Deregister(expected) => self.deregister(expected),
            Command::Change(change) => self.changes.push(change),
            Command::Fetched => {
                let fetched = std::mem::take(&mut self.check.fetched);
                let words: Vec<String> = fetched.iter().map(u64::to_string).collect();
                return Answer::Text(words.join(" "));
            }
            Command::Inject(address, round) => {
                return match H::inject(&self.site, &address, round) {
                    Injected::Done => Answer::Done,
                    Injected::Unsupported => Answer::Refused(String::from("nothing to inject")),
                };
            }
            Command::Direct(often) => self.check.direct = often,
            Command::Status => return Answer::Status(self.status()),
            Command::Inspect => {
                self.check.check_graveyard();
                return Answer::Status(self.status());
            }
            Command::Dump => return Answer::Text(self.dump()),
            Command::Address => return Answer::Address(self.btl().address()),
        }
        Answer::Done
    }

    fn register(&mut self, source: bool, len: usize) -> Answer {
        let mut loan = if source {
            Loan::patterned(source_key(self.site.seed, self.site.me.0), 0, len)
        } else {
            Loan::blank(len)
        };
        let key = if source {
            self.btl().register_source(Peer(0), &loan.lend_source())
        } else {
            self.btl().register_target(&loan.lend_target())
        };
        match key {
            Ok(key) => {
                self.registration = Some(Registration { key, loan, source });
                Answer::Key(key.as_bytes().to_vec())
            }
            Err(refused) => Answer::Refused(refused.to_string()),
        }
    }

    fn deregister(&mut self, expected: Option<u64>) {
        let Some(mut registration) = self.registration.take() else {
            return;
        };
        self.btl().deregister(&registration.key);
        registration.loan.returned();
        if let Some(key) = expected
            && !registration.source
            && let Some(at) = pattern::mismatch(key, 0, registration.loan.bytes())
        {
            self.check.wrong(format!("byte {at} of what was put here is wrong"));
        }
        self.check.bury(vec![registration.loan], "registration");
    }
}

/// The longest payload of a test frame on a tier.
pub(crate) fn longest(caps: &Caps, tier: u8) -> usize {
    match tier {
        tier::SHORT => caps.max_short.saturating_sub(ironweave_btl::HEADER_MAX),
        tier::BCOPY => caps.max_bcopy,
        _ => caps.max_zcopy,
    }
}

/// Frame lengths for messages of zero bytes, one byte, and every power of two and its neighbours, each split as a
/// protocol above would split it.
fn sweep(longest_message: usize, limit: usize) -> VecDeque<usize> {
    let powers = (0..usize::BITS).map(|bit| 1usize << bit);
    let mut messages: Vec<usize> = powers
        .take_while(|&power| power <= longest_message)
        .flat_map(|power| [power - 1, power, power + 1])
        .collect();
    messages.dedup();
    let mut lens = VecDeque::new();
    for message in messages {
        let mut left = message;
        while left > limit {
            lens.push_back(limit);
            left -= limit;
        }
        lens.push_back(left);
    }
    lens
}
