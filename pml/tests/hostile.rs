//! A peer that sends anything at all: frames are refused or ignored and counted; nothing panics, no other's operation
//! is touched, nothing is written outside a buffer, and honest traffic with others goes on (law 9).

mod util;

use ironweave_btl::Peer;
use ironweave_pml::ob1::link::{Link, LinkHeader, Number, Piece, SplitHeader};
use ironweave_pml::ob1::wire::{
    self, Announce, Asked, Control, Dance, Envelope, Fin, Frag, Grant, Match, Nack, PieceOf,
    Restart, kinds,
};
use ironweave_pml::ob1::{Mode, Source, TagMatch};
use proptest::prelude::*;
use util::{Memory, Profile, World, pattern};
use zerocopy::IntoBytes;

#[derive(Clone, Debug)]
struct Hostile {
    header: Vec<u8>,
    payload: usize,
}

/// Small numbers where they may hit something: ranks, slots, generations, offsets near the buffers' ends.
fn word() -> impl Strategy<Value = u64> {
    let token = (0..4u64, 0..6u64).prop_map(|(slot, generation)| generation << 32 | slot);
    let edge = prop::sample::select(vec![0, 1, 4096, 50_000, 100_000, 1 << 56, u64::MAX]);
    prop_oneof![4 => token, 2 => 0..100_001u64, 1 => edge]
}

fn frames() -> impl Strategy<Value = Hostile> {
    let envelope = (0..3u16, 0..2u16, 0..6u16, 0..4u32, -1..3i32).prop_map(
        |(cid, epoch, seq, source, tag)| Envelope { cid, epoch, seq, source, tag, ready: false },
    );
    let status = prop::sample::select(vec![
        wire::WireStatus::Done,
        wire::WireStatus::Failed,
        wire::WireStatus::Revoked,
        wire::WireStatus::Lost,
        wire::WireStatus::Stale,
        wire::WireStatus::Interrupted,
        wire::WireStatus::Withdrawn,
    ]);
    let header =
        (0..15usize, envelope, [word(), word(), word(), word(), word()], status, any::<bool>())
            .prop_map(|(kind, envelope, [a, b, c, d, e], status, flag)| {
                let asked = Asked {
                    sender: a,
                    receiver: b,
                    offset: c,
                    length: d,
                    want: e,
                    round: (a % 3) as u16,
                    rail: (b % 3) as u16,
                    unread: flag,
                };
                let dance = Dance { sender: a, receiver: b, round: (c % 3) as u16 };
                match kind {
                    0 => Match::new(kinds::MATCH, envelope).as_bytes().to_vec(),
                    1 => Announce::new(kinds::RNDV, envelope, a, b).as_bytes().to_vec(),
                    2 => Announce::new(kinds::RGET, envelope, a, b).as_bytes().to_vec(),
                    3 => Announce::new(kinds::STREAM, envelope, a, b).as_bytes().to_vec(),
                    4 => Grant::new(if flag { kinds::ACK } else { kinds::PUT }, asked)
                        .as_bytes()
                        .to_vec(),
                    5 if flag => Frag::new(a, b, asked.round).as_bytes().to_vec(),
                    9 if flag => Restart::new(kinds::RNDVRESTARTNOTIFY, dance).as_bytes().to_vec(),
                    9 => Restart::new(kinds::RECVERRNOTIFY, dance).as_bytes().to_vec(),
                    10 if flag => Restart::new(kinds::RNDVRESTARTNACK, dance).as_bytes().to_vec(),
                    10 => Grant::new(kinds::RNDVRESTARTACK, asked).as_bytes().to_vec(),
                    11 => SplitHeader::new(Piece {
                        number: a as u32,
                        offset: b as u32,
                        total: c as u32,
                    })
                    .as_bytes()
                    .to_vec(),
                    12 => LinkHeader::new(match c % 5 {
                        0 => Link::Seen { ack: a as u32 },
                        1 => Link::Up { rail: a as u16, life: b as u32 },
                        2 => Link::Room { count: a as u32, full: b & 1 == 1, waits: b & 2 == 2 },
                        3 => Link::Ask,
                        _ => Link::Lost { id: a as u32, mine: d as u32, yours: e as u32 },
                    })
                    .as_bytes()
                    .to_vec(),
                    13 => Announce::withdraw(envelope, a).as_bytes().to_vec(),
                    5 => Frag::of_stream(a, b).as_bytes().to_vec(),
                    6 if flag => Fin::to_sender(a, status).as_bytes().to_vec(),
                    6 => Fin::to_receiver(a, b, c, asked.round, status).as_bytes().to_vec(),
                    8 => Control::new(PieceOf { offset: a, ack: b, limit: c, again: flag })
                        .as_bytes()
                        .to_vec(),
                    7 if flag => Nack::to_sender(a, status).as_bytes().to_vec(),
                    _ => Nack::to_receiver(a, status).as_bytes().to_vec(),
                }
            });
    let header = header.boxed();
    let garbage = proptest::collection::vec(any::<u8>(), 0..64);
    let payload = prop_oneof![Just(0), 1..200usize, 4000..4200usize, Just(60_000)];
    let numbered = (header.clone(), 0..6u32, 0..6u32, 0..4u8);
    let numbered = numbered.prop_map(|(mut header, number, ack, form)| {
        let number = Number::new(number, ack);
        header.extend_from_slice(if form == 0 { number.brief() } else { number.as_bytes() });
        header
    });
    (prop_oneof![6 => header, 4 => numbered, 1 => garbage], payload)
        .prop_map(|(header, payload)| Hostile { header, payload })
}

fn run(profile: Profile, frames: &[Hostile]) {
    let mut world = World::new(3, &[profile]);
    // Receives and sends of every kind are open with the attacker, process 2, and with an honest one, 1.
    let guarded = Memory::of(vec![0xEE; 100_064]);
    let part = || guarded.region().part(32..100_032).into();
    let comm = world.comms[0];
    for tag in [0, 1] {
        let posted = world.engines[0].recv(comm, part(), Source::Rank(2), TagMatch::Tag(tag));
        posted.expect("right");
    }
    let honest = Memory::zeroed(100_000);
    let request = world.recv(0, &honest, Source::Rank(1), TagMatch::Any);
    for len in [8, 100_000] {
        let data = Memory::of(pattern(len, 5));
        let _ = world.send(0, 2, Mode::Synchronous, &data, 1);
    }
    let data = Memory::of(pattern(100_000, 1));
    let sent = world.send(1, 0, Mode::Synchronous, &data, 1);
    for frame in frames {
        world.fabric.inject(0, Peer(2), Peer(0), &frame.header, &vec![0x55; frame.payload]);
        world.engines[0].progress();
    }
    assert_eq!(world.finish(0, request).result, Ok(()));
    assert_eq!(world.finish_send(1, sent), Ok(()));
    assert!(honest.bytes() == pattern(100_000, 1), "an honest message was changed");
    let guarded = guarded.bytes();
    let outside = guarded[..32].iter().chain(&guarded[100_032..]);
    assert!(outside.copied().all(|byte| byte == 0xEE), "written outside the buffer");
    world.engines[0].proc_failed(Peer(2));
    world.settle();
    assert_eq!(world.fabric.registered_by(Peer(0)), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn hostile_frames_over_copies(frames in proptest::collection::vec(frames(), 1..40)) {
        run(Profile::copied(), &frames);
    }

    #[test]
    fn hostile_frames_over_zero_copy(frames in proptest::collection::vec(frames(), 1..40)) {
        run(Profile::zcopy(), &frames);
    }

    #[test]
    fn hostile_frames_over_reads(frames in proptest::collection::vec(frames(), 1..40)) {
        run(Profile { refuse_rma: true, ..Profile::get() }, &frames);
    }

    #[test]
    fn hostile_frames_over_writes(frames in proptest::collection::vec(frames(), 1..40)) {
        run(Profile { refuse_rma: true, ..Profile::put() }, &frames);
    }
}
