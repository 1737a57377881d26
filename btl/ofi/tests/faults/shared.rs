//! Providers within a host, each in a /dev/shm of its own.

use super::*;
use ironweave_btl_conformance::own_shared_memory;

const WAYS: [(&str, &str, &str); 3] =
    [("shm_1_17", DEBIAN, "shm"), ("shm_1_22", V1_22, "shm"), ("sm2_1_22", V1_22, "sm2")];

/// Several peers send as much as their windows let them, again and again, to one that looks now and then: all receives are used
/// up in one look of the provider, and more messages wait for the next than it has entries for. (With buffers for many messages
/// 1.17's shm, which takes an entry for each to post, has none left then, for good; `MultiRecv`.)
#[test]
fn more_wait_than_the_provider_has_entries_for() {
    const SENDERS: u32 = 4;
    let test = "more_wait_than_the_provider_has_entries_for";
    each_of(&WAYS, test, |way| {
        if let Err(why) = own_shared_memory() {
            return println!("SKIP ofi/{}/{test}: {why}", way.0);
        }
        let here = |config: &mut OfiConfig| {
            (config.domains, config.refused_too) = (Vec::new(), true);
            config.peer_timeout = Duration::ZERO;
        };
        let Some(mut reader) = Node::open_with(test, way, 0, here) else { return };
        let address = reader.btl.address();
        let mut senders = Vec::new();
        for me in 1..=SENDERS {
            let Some(mut sender) = Node::open_with(test, way, me, here) else { return };
            sender.btl.connect(Peer(0), &address).expect("the address is reachable");
            senders.push(sender);
        }
        until("all to be up", || {
            let _: usize = senders.iter_mut().map(Node::turn).sum();
            reader.turn();
            reader.seen.up == SENDERS && senders.iter().all(|sender| sender.seen.up == 1)
        });
        let mut sent = vec![0_u32; senders.len()];
        for _ in 0..200 {
            for (sender, sent) in senders.iter_mut().zip(&mut sent) {
                // A hundred attempts at a time: with more, the first would leave no room to the others.
                for _ in 0..100 {
                    let frame = |_: usize, piece: &mut [u8]| piece.fill(*sent as u8);
                    match sender.btl.send_bcopy(Peer(0), &sent.to_le_bytes(), 1000, frame) {
                        Ok(()) => *sent += 1,
                        Err(refused) => assert_eq!(refused, Refused::NoRoom),
                    }
                    sender.turn();
                }
            }
            reader.turn();
            assert_eq!(reader.seen.faults, [], "{}", way.0);
        }
        until("all frames", || {
            let _: usize = senders.iter_mut().map(Node::turn).sum();
            reader.turn();
            assert_eq!(reader.seen.faults, [], "{}", way.0);
            reader.seen.frames.len() == sent.iter().sum::<u32>() as usize
        });
        assert!(sent.iter().sum::<u32>() > 4000, "{sent:?} frames");
        let mut next = vec![0_u32; senders.len()];
        for (from, frame) in reader.seen.from.iter().zip(&reader.seen.frames) {
            let number = &mut next[from.index() - 1];
            assert!(frame.len() == 1000 && frame.iter().all(|&byte| byte == *number as u8));
            *number += 1;
        }
        assert_eq!(next, sent);
        for sender in &mut senders {
            assert_eq!(sender.seen.faults, [], "{}", way.0);
        }
    });
}
