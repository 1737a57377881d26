//! What is encoded is decoded; nothing else is.

use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn envelopes() -> impl Strategy<Value = Envelope> {
    any::<(u16, u16, u16, u32, i32, bool)>().prop_map(|(cid, epoch, seq, source, tag, ready)| {
        Envelope { cid, epoch, seq, source, tag, ready }
    })
}

proptest! {
    #[test]
    fn what_is_made_is_read(
        envelope in envelopes(),
        words in any::<[u64; 5]>(),
        status in prop::sample::select(vec![WireStatus::NotReady, WireStatus::Failed, WireStatus::Revoked, WireStatus::Lost, WireStatus::Stale, WireStatus::Interrupted]),
    ) {
        let [sender, receiver, a, b, c] = words.map(|word| word >> 8);
        let [offset, length, want] = { let mut three = [a, b, c].map(|w| w >> 2); three.sort_unstable(); three };
        let length = length - offset;
        let header = Match::new(kinds::MATCH, envelope);
        prop_assert_eq!(decode(header.as_bytes(), 8), Ok(Frame::Match(envelope)));
        let header = Announce::new(kinds::RNDV, envelope, want, sender);
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::Rndv { envelope, length: want, sender }));
        let header = Announce::withdraw(envelope, sender);
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::Withdraw { envelope, sender }));
        prop_assert!(decode(header.as_bytes(), 1).is_err());
        let nack = Nack::to_sender(sender, WireStatus::Withdrawn);
        prop_assert_eq!(decode(nack.as_bytes(), 0), Ok(Frame::NackSender { sender, status: WireStatus::Withdrawn }));
        prop_assert!(decode(Nack::to_receiver(receiver, WireStatus::Withdrawn).as_bytes(), 0).is_err());
        prop_assert!(decode(Fin::to_sender(sender, WireStatus::Withdrawn).as_bytes(), 0).is_err());
        let header = Announce::new(kinds::RGET, envelope, want, sender);
        prop_assert_eq!(decode(header.as_bytes(), 9), Ok(Frame::Rget { envelope, length: want, sender }));
        let short = want % (STREAM_MAX + 1);
        let header = Announce::new(kinds::STREAM, envelope, short, sender);
        let stream = Frame::Stream { envelope, length: short, stream: sender };
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(stream));
        let (round, rail) = (envelope.seq, envelope.cid);
        let unread = envelope.ready;
        let asked = Asked { sender, receiver, offset, length, want, round, rail, unread };
        let dance = Dance { sender, receiver, round };
        prop_assert_eq!(decode(Grant::new(kinds::RNDVRESTARTACK, asked).as_bytes(), 0), Ok(Frame::RestartAck(asked)));
        let header = Restart::new(kinds::RNDVRESTARTNOTIFY, dance);
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::RestartNotify(dance)));
        let header = Restart::new(kinds::RECVERRNOTIFY, dance);
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::RecvError(dance)));
        let header = Restart::new(kinds::RNDVRESTARTNACK, dance);
        prop_assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::RestartNack(dance)));
        prop_assert_eq!(decode(Grant::new(kinds::ACK, asked).as_bytes(), 0), Ok(Frame::Ack(asked)));
        prop_assert_eq!(decode(Grant::new(kinds::PUT, asked).as_bytes(), 8), Ok(Frame::Put(asked)));
        prop_assert_eq!(decode(Frag::new(receiver, offset, round).as_bytes(), 5), Ok(Frame::Frag { receiver, offset, round }));
        let stream = Frag::of_stream(sender, offset);
        prop_assert_eq!(decode(stream.as_bytes(), 5), Ok(Frame::StreamFrag { stream: sender, offset }));
        let fin = Fin::to_sender(sender, status);
        prop_assert_eq!(decode(fin.as_bytes(), 0), Ok(Frame::ReadDone { sender, status }));
        let fin = Fin::to_receiver(receiver, offset, length, round, status);
        prop_assert_eq!(decode(fin.as_bytes(), 0), Ok(Frame::WriteDone { receiver, offset, length, round, status }));
        let piece = PieceOf { offset, ack: offset, limit: want, again: envelope.ready };
        prop_assert_eq!(decode(Control::new(piece).as_bytes(), 5), Ok(Frame::Control(piece)));
        let nack = Nack::to_sender(sender, status);
        prop_assert_eq!(decode(nack.as_bytes(), 0), Ok(Frame::NackSender { sender, status }));
        let nack = Nack::to_receiver(receiver, status);
        prop_assert_eq!(decode(nack.as_bytes(), 0), Ok(Frame::NackReceiver { receiver, status }));
    }

    #[test]
    fn anything_is_refused_or_sound(
        kind in 0..16u8,
        mut header in proptest::collection::vec(any::<u8>(), 0..64),
        payload in 0..100_000usize,
    ) {
        if let Some(first) = header.first_mut() {
            *first = VERSION << 4 | kind;
        }
        match decode(&header, payload) {
            Ok(Frame::Rndv { length, .. } | Frame::Stream { length, .. }) => {
                prop_assert!(payload as u64 <= length && length <= LENGTH_MAX);
            }
            Ok(Frame::Ack(asked) | Frame::Put(asked)) => {
                prop_assert!(asked.offset + asked.length <= asked.want && asked.want <= LENGTH_MAX);
            }
            Ok(Frame::Frag { offset, .. } | Frame::StreamFrag { offset, .. }) => {
                prop_assert!(offset + payload as u64 <= LENGTH_MAX);
            }
            Ok(Frame::Control(piece)) => {
                prop_assert!(piece.offset + payload as u64 <= LENGTH_MAX && piece.ack <= piece.limit);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

#[test]
fn other_versions_are_refused() {
    for kind in [0x01, 0x21, 0xFF] {
        let envelope = Envelope { cid: 0, epoch: 0, seq: 0, source: 0, tag: 0, ready: false };
        let header = Match::new(kind, envelope);
        assert_eq!(decode(header.as_bytes(), 0), Err("kind or version"));
    }
}
