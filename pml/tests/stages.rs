//! Revocation and death × every stage of every protocol, at both ends (laws 1, 2, 4 and 5; seed 000, "Supporting the Revoke
//! operation", and seed 003 §17.6).
//!
//! The table [`STAGES`] says how far a message is; what must come of it follows from four facts that stand there. In each
//! cell: both requests end as they must, once; memory that was given back is written by nobody; all frames come again, also
//! into the communicator's next life, and change nothing; nothing is held or lent any more; the living go on talking.
//!
//! `STAGES_CELL=text` runs the cells whose name contains the text.

mod stages {
    pub mod world;
    use super::util;
}
mod util;

use ironweave_btl_sim::RailModel;
use ironweave_pml::ob1::wire::kinds::{ACK, FIN, FRAG, MATCH, PUT, RGET, RNDV, STREAM};
use ironweave_pml::ob1::{Mode, PmlError, Source};
use stages::world::{BYSTANDER, Outcome, PENDING, RECEIVER, SENDER, When, World};
use std::panic::AssertUnwindSafe;

/// The rails that a protocol needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// Copies only, never lost.
    Memory,
    /// Out of and into user memory.
    Sockets,
    /// Into user memory wherever possible.
    Landing,
    /// The receiver reads.
    Get,
    /// The sender writes.
    Put,
    /// Two of `Sockets`.
    Striped,
}

impl Over {
    fn models(self) -> Vec<RailModel> {
        let mut model = match self {
            Over::Memory => RailModel::shm(),
            Over::Sockets | Over::Landing | Over::Striped => RailModel::tcp(),
            Over::Get | Over::Put => RailModel::verbs(),
        }
        .calm();
        model.landing = if self == Over::Landing { 1000 } else { 0 };
        let caps = &mut model.caps;
        match self {
            Over::Memory => {
                (caps.lossless, caps.max_zcopy) = (true, 0);
                (caps.max_bcopy, caps.eager_limit, caps.fragment) = (4 << 10, 16 << 10, 4 << 10);
            }
            Over::Get => caps.put = false,
            Over::Put => caps.get = false,
            Over::Sockets | Over::Landing | Over::Striped => caps.fragment = 16 << 10,
        }
        match self {
            Over::Striped => vec![model.clone(), model],
            _ => vec![model],
        }
    }
}

/// When the receive is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receive {
    /// Before the send.
    Posted,
    /// Before the send, from anybody.
    Wild,
    /// After all that happens.
    Later,
    /// The message is taken by `mprobe` when the stage is reached, and received after all that happens.
    Claimed,
}

/// Where the bytes of the message are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Data {
    /// With the sender, who has not sent.
    Unsent,
    /// Some of them, or what tells that they are there, on the way or still with the sender.
    Sender,
    /// The last of them are on the way: with the sender's death they come or are lost.
    OnTheWay,
    /// With the receiver.
    Here,
}

/// A stage of a message.
struct Stage {
    name: &'static str,
    over: Over,
    len: usize,
    mode: Mode,
    receive: Receive,
    when: When,
    /// The receiver has found the message.
    matched: bool,
    data: Data,
}

#[allow(clippy::too_many_arguments)] // a row of the table
const fn stage(
    name: &'static str,
    over: Over,
    len: usize,
    mode: Mode,
    receive: Receive,
    when: When,
    matched: bool,
    data: Data,
) -> Stage {
    Stage { name, over, len, mode, receive, when, matched, data }
}

const SHORT: usize = 100;
/// An eager message of several frames over `Memory`, a zero-copy one over `Sockets`.
const EAGER: usize = 12 << 10;
const LONG: usize = 300_000;

/// A frame of this kind is on its way to the receiver, or to the sender.
const fn sent(kind: u8, n: usize) -> When {
    When::Sent(SENDER, kind, n)
}
const fn answered(kind: u8) -> When {
    When::Sent(RECEIVER, kind, 1)
}
/// It has come.
const fn came(kind: u8, n: usize) -> When {
    When::Came(RECEIVER, kind, n)
}
const fn back(kind: u8) -> When {
    When::Came(SENDER, kind, 1)
}

#[rustfmt::skip]
const STAGES: &[Stage] = {
    use {Data::*, Mode::*, Over::*, Receive::*, When::*};
    &[
        stage("posted", Sockets, SHORT, Standard, Posted, AtOnce, false, Unsent),
        stage("posted, any source", Memory, SHORT, Standard, Wild, AtOnce, false, Unsent),
        // One frame.
        stage("MATCH on its way", Memory, SHORT, Standard, Posted, sent(MATCH, 1), false, OnTheWay),
        stage("MATCH on its way", Sockets, SHORT, Standard, Posted, sent(MATCH, 1), false, OnTheWay),
        stage("MATCH on its way, ready", Sockets, SHORT, Ready, Posted, sent(MATCH, 1), false, OnTheWay),
        stage("MATCH on its way, buffered", Sockets, SHORT, Buffered, Wild, sent(MATCH, 1), false, OnTheWay),
        stage("MATCH out of user memory on its way", Sockets, EAGER, Standard, Posted, sent(MATCH, 1), false, OnTheWay),
        stage("MATCH lands", Landing, EAGER, Standard, Posted, sent(MATCH, 1), false, OnTheWay),
        stage("unexpected eager", Memory, SHORT, Standard, Later, came(MATCH, 1), false, Here),
        stage("unexpected eager", Sockets, SHORT, Standard, Later, came(MATCH, 1), false, Here),
        stage("unexpected eager, buffered", Sockets, EAGER, Buffered, Later, came(MATCH, 1), false, Here),
        stage("unexpected eager at rest", Landing, EAGER, Standard, Later, AtRest, false, Here),
        stage("mprobe'd eager", Memory, SHORT, Standard, Claimed, came(MATCH, 1), true, Here),
        stage("mprobe'd eager", Sockets, EAGER, Standard, Claimed, came(MATCH, 1), true, Here),
        // Several frames without an answer.
        stage("STREAM on its way", Memory, EAGER, Standard, Posted, sent(STREAM, 1), false, OnTheWay),
        stage("STREAM begun", Memory, EAGER, Standard, Posted, came(STREAM, 1), true, OnTheWay),
        stage("unexpected STREAM begun", Memory, EAGER, Standard, Later, came(STREAM, 1), false, OnTheWay),
        stage("unexpected STREAM", Memory, EAGER, Standard, Later, came(FRAG, 2), false, Here),
        stage("mprobe'd STREAM", Memory, EAGER, Standard, Claimed, came(FRAG, 2), true, Here),
        // RNDV, ACK, FRAG.
        stage("RNDV on its way", Memory, LONG, Standard, Posted, sent(RNDV, 1), false, Sender),
        stage("RNDV on its way", Sockets, LONG, Standard, Wild, sent(RNDV, 1), false, Sender),
        stage("unexpected RNDV", Memory, LONG, Standard, Later, came(RNDV, 1), false, Sender),
        stage("unexpected RNDV", Sockets, LONG, Standard, Later, came(RNDV, 1), false, Sender),
        stage("unexpected RNDV, buffered", Sockets, LONG, Buffered, Later, AtRest, false, Sender),
        stage("unexpected RNDV, synchronous", Memory, SHORT, Synchronous, Later, came(RNDV, 1), false, Here),
        stage("unexpected RNDV, synchronous", Sockets, SHORT, Synchronous, Later, came(RNDV, 1), false, Here),
        stage("mprobe'd RNDV", Memory, LONG, Standard, Claimed, came(RNDV, 1), true, Sender),
        stage("mprobe'd RNDV", Sockets, LONG, Standard, Claimed, came(RNDV, 1), true, Sender),
        stage("mprobe'd RNDV, synchronous", Sockets, SHORT, Synchronous, Claimed, came(RNDV, 1), true, Here),
        stage("ACK on its way", Memory, LONG, Standard, Posted, answered(ACK), true, Sender),
        stage("ACK on its way", Sockets, LONG, Standard, Posted, answered(ACK), true, Sender),
        stage("ACK on its way, buffered", Sockets, LONG, Buffered, Posted, answered(ACK), true, Sender),
        stage("ACK on its way, synchronous", Sockets, SHORT, Synchronous, Posted, answered(ACK), true, Here),
        stage("ACK has come", Striped, LONG, Standard, Posted, back(ACK), true, Sender),
        stage("FRAG pipeline begins", Memory, LONG, Standard, Posted, sent(FRAG, 1), true, Sender),
        stage("FRAG pipeline", Memory, LONG, Standard, Posted, came(FRAG, 20), true, Sender),
        stage("FRAG pipeline begins", Sockets, LONG, Standard, Posted, sent(FRAG, 1), true, Sender),
        stage("FRAG pipeline", Sockets, LONG, Standard, Posted, came(FRAG, 4), true, OnTheWay),
        stage("FRAG pipeline", Landing, LONG, Standard, Posted, came(FRAG, 4), true, OnTheWay),
        stage("FRAG pipeline", Striped, LONG, Synchronous, Posted, came(FRAG, 6), true, OnTheWay),
        stage("FRAG pipeline, buffered", Sockets, LONG, Buffered, Posted, came(FRAG, 4), true, OnTheWay),
        stage("FIN of fragments on its way", Sockets, LONG, Standard, Posted, answered(FIN), true, Here),
        stage("FIN of fragments on its way", Striped, LONG, Standard, Posted, answered(FIN), true, Here),
        // RGET, read, FIN.
        stage("RGET on its way", Get, LONG, Standard, Posted, sent(RGET, 1), false, Sender),
        stage("RGET offered", Get, LONG, Standard, Later, came(RGET, 1), false, Sender),
        stage("mprobe'd RGET", Get, LONG, Standard, Claimed, came(RGET, 1), true, Sender),
        stage("read in flight", Get, LONG, Standard, Posted, Access(RECEIVER), true, OnTheWay),
        stage("FIN of a read in flight", Get, LONG, Standard, Posted, answered(FIN), true, Here),
        // RNDV, PUT, write, FIN.
        stage("unexpected RNDV before PUT", Put, LONG, Standard, Later, came(RNDV, 1), false, Sender),
        stage("PUT on its way", Put, LONG, Standard, Posted, answered(PUT), true, Sender),
        stage("PUT has come", Put, LONG, Standard, Wild, back(PUT), true, OnTheWay),
        stage("write in flight", Put, LONG, Standard, Posted, Access(SENDER), true, OnTheWay),
        stage("FIN of a write in flight", Put, LONG, Standard, Posted, sent(FIN, 1), true, OnTheWay),
        stage("FIN of a write in flight, buffered", Put, LONG, Buffered, Posted, sent(FIN, 1), true, OnTheWay),
    ]
};

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// The receiver revokes the communicator, and much later the sender.
    ReceiverRevokes,
    /// The other way round; a late receive comes between the two.
    SenderRevokes,
    BothRevoke,
    /// It is told of at once.
    SenderDies,
    /// It is told of when all came to rest.
    SenderDiesUnseen,
    ReceiverDies,
    ReceiverDiesUnseen,
    /// The receiver revokes, and the sender dies before it hears of that.
    RevokedByReceiverThenSenderDies,
    /// Another process dies.
    BystanderDies,
}

const EVENTS: [Event; 9] = [
    Event::ReceiverRevokes,
    Event::SenderRevokes,
    Event::BothRevoke,
    Event::SenderDies,
    Event::SenderDiesUnseen,
    Event::ReceiverDies,
    Event::ReceiverDiesUnseen,
    Event::RevokedByReceiverThenSenderDies,
    Event::BystanderDies,
];

const REVOKED: Outcome = Err(PmlError::Revoked);

impl Stage {
    /// Whether the send ends only when the receiver has answered.
    fn waits(&self) -> bool {
        let eager = self.over.models()[0].caps.eager_limit;
        self.mode == Mode::Synchronous || self.mode != Mode::Buffered && self.len > eager
    }

    /// What the receive may end with.
    fn received(&self, event: Event) -> Vec<Outcome> {
        let failed = |rank| Err(PmlError::ProcFailed { rank });
        let unmatched = !self.matched;
        match event {
            Event::ReceiverRevokes | Event::BothRevoke if unmatched => vec![REVOKED],
            Event::ReceiverRevokes | Event::BothRevoke => vec![Ok(())],
            // Nothing is sent on it any more.
            Event::SenderRevokes if self.data == Data::Unsent => vec![REVOKED],
            Event::SenderRevokes => vec![Ok(())],
            Event::RevokedByReceiverThenSenderDies if unmatched => vec![REVOKED],
            Event::SenderDies
            | Event::SenderDiesUnseen
            | Event::RevokedByReceiverThenSenderDies => {
                // Nobody told whose message a receive from anybody waits for.
                let wild = self.receive == Receive::Wild && unmatched;
                let lost = if wild { PENDING } else { failed(SENDER) };
                match self.data {
                    // What the receiver has in full is delivered.
                    Data::Here => vec![Ok(())],
                    Data::OnTheWay => vec![Ok(()), lost],
                    Data::Sender if wild => vec![lost, failed(SENDER)],
                    Data::Sender | Data::Unsent => vec![lost],
                }
            }
            Event::ReceiverDies | Event::ReceiverDiesUnseen => Vec::new(),
            Event::BystanderDies if self.receive == Receive::Wild && unmatched => {
                vec![Ok(()), PENDING]
            }
            Event::BystanderDies => vec![Ok(())],
        }
    }

    /// What the send may end with, if it was over or not when it happened.
    fn sends(&self, event: Event, over: bool) -> Vec<Outcome> {
        match event {
            _ if over => vec![Ok(())],
            Event::ReceiverRevokes | Event::BothRevoke if !self.matched && self.waits() => {
                vec![REVOKED]
            }
            Event::ReceiverDies | Event::ReceiverDiesUnseen => {
                let failed = Err(PmlError::ProcFailed { rank: RECEIVER });
                let known = self.data == Data::Here || !self.waits();
                if known { vec![Ok(()), failed] } else { vec![failed] }
            }
            _ => vec![Ok(())],
        }
    }
}

struct Cell<'a> {
    name: String,
    stage: &'a Stage,
    event: Event,
    persistent: bool,
    world: World,
    /// Indices of the two operations.
    sent: Option<usize>,
    received: Option<usize>,
}

impl Cell<'_> {
    fn run(mut self) {
        let Stage { len, mode, receive, when, data, .. } = *self.stage;
        let persistent = self.persistent;
        match receive {
            Receive::Posted => self.post(Source::Rank(SENDER)),
            Receive::Wild => self.post(Source::Any),
            Receive::Later | Receive::Claimed => {}
        }
        if data != Data::Unsent {
            self.sent = Some(self.world.send(SENDER, RECEIVER, mode, len, persistent));
        }
        self.world.reach(when);
        let claimed = (receive == Receive::Claimed).then(|| self.world.claim(RECEIVER));
        let was_over = self.sent.is_some_and(|sent| self.world.is_over(sent));
        self.happen();
        let receiver_lives = self.world.engines[RECEIVER as usize].is_some();
        if receiver_lives {
            if let Some(message) = claimed {
                self.received = Some(self.world.receive_claimed(RECEIVER, message, len));
            } else if receive == Receive::Later {
                self.post(Source::Rank(SENDER));
            }
        }
        self.world.settle();
        if self.event == Event::SenderRevokes {
            self.world.revoke(RECEIVER);
        }
        if self.event == Event::ReceiverRevokes {
            self.world.revoke(SENDER);
        }
        self.world.settle();
        self.judge(was_over);
        self.aftermath();
    }

    fn post(&mut self, from: Source) {
        let (len, persistent) = (self.stage.len, self.persistent);
        self.received = Some(self.world.receive(RECEIVER, from, len, persistent));
    }

    fn happen(&mut self) {
        let world = &mut self.world;
        let death = |world: &mut World, victim, seen: bool| {
            world.kill(victim);
            if !seen {
                world.settle();
            }
            world.tell(victim);
        };
        match self.event {
            Event::ReceiverRevokes => world.revoke(RECEIVER),
            Event::SenderRevokes => world.revoke(SENDER),
            Event::BothRevoke => {
                world.revoke(RECEIVER);
                world.revoke(SENDER);
            }
            Event::SenderDies => death(world, SENDER, true),
            Event::SenderDiesUnseen => death(world, SENDER, false),
            Event::ReceiverDies => death(world, RECEIVER, true),
            Event::ReceiverDiesUnseen => death(world, RECEIVER, false),
            Event::RevokedByReceiverThenSenderDies => {
                world.revoke(RECEIVER);
                death(world, SENDER, true);
            }
            Event::BystanderDies => death(world, BYSTANDER, true),
        }
    }

    /// Both ends ended as they must.
    fn judge(&mut self, was_over: bool) {
        let (stage, event, name) = (self.stage, self.event, &self.name);
        let lives = |at: u32| self.world.engines[at as usize].is_some();
        let outcome = |of: Option<usize>| of.and_then(|of| self.world.done[of].outcome.clone());
        if lives(RECEIVER) && !(stage.data == Data::Unsent && event == Event::BystanderDies) {
            let (got, may) = (outcome(self.received), stage.received(event));
            let is_right = got.as_ref().is_some_and(|got| may.contains(got));
            assert!(is_right, "{name}: received {got:?}, not {may:?}\n{}", self.world.dump());
        }
        if lives(SENDER) && stage.data != Data::Unsent {
            let (got, may) = (outcome(self.sent), stage.sends(event, was_over));
            let is_right = got.as_ref().is_some_and(|got| may.contains(got));
            assert!(is_right, "{name}: sent {got:?}, not {may:?}\n{}", self.world.dump());
        }
    }

    /// Late frames change nothing, nothing is left, and life goes on.
    fn aftermath(&mut self) {
        let world = &mut self.world;
        world.end_pending();
        world.check_rest("after the end");
        world.replay();
        world.check_rest("after late frames");
        for (at, victim) in [
            (Event::SenderDies, SENDER),
            (Event::ReceiverDies, RECEIVER),
            (Event::BystanderDies, BYSTANDER),
        ] {
            if self.event == at {
                world.forge(victim);
            }
        }
        world.check_survivors(&[8, 40_000]);
        world.renew();
        world.check_rest("after the communicator's next life");
    }
}

#[test]
fn every_stage_ends_as_it_must_at_both_ends() {
    let filter = std::env::var("STAGES_CELL").unwrap_or_default();
    let (mut cells, mut wrong) = (0, Vec::new());
    for (number, stage) in (0..).zip(STAGES) {
        for event in EVENTS {
            for persistent in [false, true] {
                let kind = if persistent { "persistent" } else { "once" };
                let name = format!("{} over {:?}, {kind}, {event:?}", stage.name, stage.over);
                if !name.contains(&filter) {
                    continue;
                }
                let world = World::new(&name, number, &stage.over.models());
                let (sent, received) = (None, None);
                let what = name.clone();
                let cell = Cell { name, stage, event, persistent, world, sent, received };
                // Law 3: a panic is a broken law like any other.
                if std::panic::catch_unwind(AssertUnwindSafe(|| cell.run())).is_err() {
                    wrong.push(what);
                }
                cells += 1;
            }
        }
    }
    println!("{cells} cells");
    assert!(wrong.is_empty(), "{} cells are wrong: {wrong:#?}", wrong.len());
}

/// A process's messages to itself, whose stages are counted in turns.
#[test]
fn messages_to_oneself_end_as_they_must() {
    use Receive::{Claimed, Later, Posted, Wild};
    let lens = [SHORT, 100_000, 2_100_000];
    let modes = [Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready];
    for receive in [Posted, Wild, Later, Claimed] {
        for (len, mode) in lens.iter().flat_map(|&len| modes.map(|mode| (len, mode))) {
            let early = matches!(receive, Posted | Wild);
            if mode == Mode::Ready && !early || mode != Mode::Standard && len > 200_000 {
                continue;
            }
            for turns in 0..6 {
                for event in [Event::BothRevoke, Event::BystanderDies] {
                    for persistent in [false, true] {
                        let name = format!(
                            "to oneself: {receive:?}, {mode:?}, {len} bytes, {turns} turns, \
                             persistent {persistent}, {event:?}"
                        );
                        to_oneself(&name, receive, mode, len, turns, event, persistent);
                    }
                }
            }
        }
    }
}

fn to_oneself(
    name: &str,
    receive: Receive,
    mode: Mode,
    len: usize,
    turns: usize,
    event: Event,
    persistent: bool,
) {
    let mut world = World::new(name, 1, &Over::Memory.models());
    let from = if receive == Receive::Wild { Source::Any } else { Source::Rank(SENDER) };
    let early = matches!(receive, Receive::Posted | Receive::Wild);
    let mut received = early.then(|| world.receive(SENDER, from, len, persistent));
    let sent = world.send(SENDER, SENDER, mode, len, persistent);
    world.turns(turns);
    let claimed = if receive == Receive::Claimed { world.look_for(SENDER) } else { None };
    let was_over = world.is_over(sent);
    match event {
        Event::BothRevoke => world.revoke(SENDER),
        _ => {
            world.kill(BYSTANDER);
            world.tell(BYSTANDER);
        }
    }
    if let Some(message) = claimed {
        received = Some(world.receive_claimed(SENDER, message, len));
    } else if !early {
        received = Some(world.receive(SENDER, from, len, persistent));
    }
    world.settle();
    let outcome = |of: usize| world.done[of].outcome.clone();
    let (sent, received) = (outcome(sent), received.and_then(outcome));
    let revoked = event == Event::BothRevoke;
    match (&sent, &received) {
        (Some(Ok(())), Some(Ok(()))) => {}
        (Some(REVOKED), Some(REVOKED)) if revoked => {}
        // It was over before: the message is dropped.
        (Some(Ok(())), Some(REVOKED)) if revoked && (was_over || mode == Mode::Buffered) => {}
        (Some(Ok(())), Some(REVOKED)) if revoked && mode != Mode::Synchronous && len == SHORT => {}
        (Some(Ok(())), Some(PENDING)) if !revoked && receive == Receive::Wild => {}
        other => panic!("{name}: {other:?}\n{}", world.dump()),
    }
    world.end_pending();
    world.check_rest("after the end");
    world.check_survivors(&[8]);
}
