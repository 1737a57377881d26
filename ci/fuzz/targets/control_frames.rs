//! The control plane under anything that a peer could send, frame after frame: no panic, nothing sent to nobody, and no
//! process holds itself for dead.
//!
//! Input: frames of the form (sender, length, bytes); a sender of 16 and more is a call of the program instead.
#![no_main]

use ironweave_ft::{CommKey, Contribution, Effect, FRAME_MAX, Group, Plane, PlaneConfig, Scope};
use libfuzzer_sys::fuzz_target;

const SIZE: u32 = 9;
const ME: u32 = 4;

fuzz_target!(|input: &[u8]| {
    let key = CommKey { cid: 1, epoch: 2 };
    let other = CommKey { cid: 2, epoch: 7 };
    let mut plane = Plane::new(ME, SIZE, PlaneConfig::default());
    plane.add_comm(key, Group::world(SIZE), 0);
    let (mut rest, mut now, mut seq, mut here) = (input, 0, 0, false);
    while let [who, length, tail @ ..] = rest {
        now += 1_000;
        let (bytes, tail) = tail.split_at((*length as usize).min(tail.len()));
        rest = tail;
        match who {
            16 => {
                let mine =
                    Contribution { flag: 5, highest: now, acknowledged: plane.dead().clone() };
                plane.agree(key, seq, mine, now);
                seq += 1;
            }
            17 => plane.failed(u32::from(*length) % ME, now),
            18 => {
                plane.revoke(key, Scope::Collectives, now);
            }
            19 if !here => {
                plane.add_comm(other, Group::new([8, 2, 4, 1].into()), now);
                here = true;
            }
            20 if here => {
                // Its name is never used again.
                plane.free_comm(other, now);
                plane.tick(now + (1 << 40));
                return;
            }
            _ => plane.receive(u32::from(*who), bytes, now),
        }
        plane.tick(now);
        while let Some(effect) = plane.poll_effect() {
            if let Effect::Send { to, bytes } = effect {
                assert!(to < SIZE && to != ME && bytes.len() <= FRAME_MAX);
            }
        }
        assert!(!plane.dead().contains(ME));
    }
});
