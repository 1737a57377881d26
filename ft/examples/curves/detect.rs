//! The detector's part of the curves: a process dies, its observer on the heartbeat ring hears nothing more and declares it,
//! and the notice travels. Every process of the ring is simulated, with the defaults of `ft_detector_period` and
//! `ft_detector_timeout`; whoever asks the launcher about an accused process is answered at once.

use super::measure::{Cost, MODEL};
use super::wire::{What, Wire};
use ironweave_ft::Frame;
use ironweave_ft::detector::{Config, Detector, Effect, Event, Message};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const CONFIG: Config =
    Config { period: 250_000_000, timeout: 3_000_000_000, probe_timeout: 1_000_000_000 };

/// From the declaration until all know: notices, and their acknowledgements.
pub const DETECT: &str = "detect";
/// From the death on; what is sent is the heartbeats of one period. Not drawn: the time is the timeout.
pub const SILENCE: &str = "detect, from the death on";

/// What is counted while it runs.
struct Ring {
    detectors: Vec<Detector>,
    wire: Wire<u32>,
    random: SmallRng,
    dead: u32,
    died: u64,
    /// When each is to be called again, or nothing.
    alarms: Vec<u64>,
    declared: Option<u64>,
    /// How many do not know yet, and when the last one learned.
    missing: u32,
    last: u64,
    beats: [u64; 2],
    notices: [u64; 2],
}

impl Ring {
    fn effects(&mut self, me: u32, now: u64) {
        let at = me as usize;
        while let Some(effect) = self.detectors[at].poll_effect() {
            match effect {
                Effect::Send { to, message } => self.send(me, to, &message, now),
                Effect::Accused(process) => {
                    let verdict = Event::Verdict { process, failed: true };
                    self.detectors[at].handle(verdict, now);
                }
                Effect::Declared(process) | Effect::Told(process) => {
                    assert_eq!(process, self.dead, "only the dead are found");
                    self.declared.get_or_insert(now);
                    self.missing -= 1;
                    self.last = now;
                }
                other => panic!("{me}: {other:?}"),
            }
        }
        if let Some(deadline) = self.detectors[at].next_deadline()
            && deadline < self.alarms[at]
        {
            self.alarms[at] = deadline;
            self.wire.at(deadline.max(now + 1), me);
        }
    }

    fn send(&mut self, me: u32, to: u32, message: &Message, now: u64) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let count = match message {
            Message::Notice { .. } | Message::Ack { .. } => &mut self.notices,
            // One period, before anything happens.
            Message::Beat { .. } if (CONFIG.period..2 * CONFIG.period).contains(&now) => {
                &mut self.beats
            }
            _ => &mut [0; 2],
        };
        count[0] += 1;
        count[1] += bytes.len() as u64;
        let lives = to != self.dead || now < self.died;
        self.wire.send(me, to, Frame::from_slice(&bytes), &mut self.random, |_, _| lives);
    }
}

/// Both curves for a job of so many.
pub fn measure(ranks: u32) -> [Cost; 2] {
    let mut random = SmallRng::seed_from_u64(0);
    // They did not start together: each beats at a time of its own.
    let starts: Vec<u64> = (0..ranks).map(|_| random.random_range(0..CONFIG.period)).collect();
    let detectors = (0..ranks).map(|me| Detector::new(me, ranks, CONFIG, starts[me as usize]));
    let mut ring = Ring {
        detectors: detectors.collect(),
        wire: Wire::new(MODEL, ranks),
        random,
        dead: ranks / 2,
        died: 2 * CONFIG.period + CONFIG.period / 2,
        alarms: vec![u64::MAX; ranks as usize],
        declared: None,
        missing: ranks - 1,
        last: 0,
        beats: [0; 2],
        notices: [0; 2],
    };
    for me in 0..ranks {
        ring.alarms[me as usize] = starts[me as usize];
        ring.wire.at(starts[me as usize], me);
    }
    while let Some((time, what)) = ring.wire.next() {
        // All know, and the last acknowledgements are in.
        if ring.missing == 0 && time > ring.last + 1_000_000 {
            break;
        }
        let me = match &what {
            What::Arrive { to, .. } => *to,
            What::Other(me) => *me,
        };
        if me == ring.dead && time >= ring.died {
            continue;
        }
        let arrival = matches!(what, What::Arrive { .. });
        let now = ring.wire.attend(me, time, arrival);
        match what {
            What::Arrive { from, frame, .. } => {
                let message = Message::decode(&frame, ranks).expect("whole and unchanged");
                ring.detectors[me as usize].handle(Event::Message { from, message }, now);
            }
            What::Other(_) => {
                ring.alarms[me as usize] = u64::MAX;
                ring.detectors[me as usize].tick(now);
            }
        }
        ring.effects(me, now);
    }
    assert_eq!(ring.missing, 0, "all have to know");
    let declared = ring.declared.expect("somebody declared it");
    let cost = |name, [messages, bytes]: [u64; 2], ns| Cost { name, ranks, messages, bytes, ns };
    [
        cost(DETECT, ring.notices, ring.last - declared),
        cost(SILENCE, ring.beats, ring.last - ring.died),
    ]
}
