//! What a rail does beside polling: ends, greetings, its own messages, clocks. Skipped while nothing waits, which is the
//! case in a ping-pong; the clock is looked at every so many polls.

use crate::core::{Control, End};
use crate::endpoint::Phase;
use crate::rail::{Uct, send_message};
use crate::verdict::{Verdict, judge};
use crate::wire::Kind;
use ironweave_btl::{Cause, Fault, Peer, Sink};
use std::time::{Duration, Instant};

/// How often a HELLO is said again.
const GREET_AGAIN: Duration = Duration::from_millis(500);
/// How often the library's asynchronous work is done.
const TEND: Duration = Duration::from_millis(1);

impl Uct {
    /// What is to be done beside polling.
    #[cold]
    pub(crate) fn chores<S: Sink>(&mut self, sink: &mut S) {
        for life in std::mem::take(&mut self.core.risen) {
            if let Some((peer, _)) = self.core.live(life) {
                self.core.reports += 1;
                sink.up(peer);
            }
        }
        if self.queues && !self.core.ending.is_empty() {
            // What a peer wrote before its end is whole in its queue, which goes with the endpoint.
            for _ in 0..64 {
                if self.poll(sink) == 0 {
                    break;
                }
            }
        }
        self.tend_tasks(sink);
        for (life, end) in std::mem::take(&mut self.core.ending) {
            if let Some((peer, _)) = self.core.live(life) {
                self.end(peer, end, sink);
            }
        }
        for (peer, message) in std::mem::take(&mut self.core.welcomes) {
            self.welcomed(peer, &message, sink);
        }
        for message in std::mem::take(&mut self.core.greetings) {
            self.greeted(&message, sink);
        }
        self.flush();
        if !(self.core.partings.is_empty() && self.core.cut.is_empty()) {
            self.part(Instant::now());
        }
    }

    /// Sends the protocol's own messages, as far as there is room.
    pub(crate) fn flush(&mut self) {
        let Some(port) = self.port.as_mut() else { return };
        let mut blocked: Vec<u64> = Vec::new();
        for _ in 0..self.core.controls.len() {
            let Some(control) = self.core.controls.pop_front() else { break };
            let Control { life, letter, ref message } = control;
            let Some((peer, ep)) = self.core.live(life) else { continue };
            let line = if letter { ep.lines.for_letters() } else { ep.lines.main };
            if blocked.contains(&life) {
                self.core.controls.push_back(control);
                continue;
            }
            match send_message(port, line, message) {
                Ok(()) => ep.stuck = None,
                Err(Verdict::Later) => {
                    ep.stuck.get_or_insert_with(Instant::now);
                    blocked.push(life);
                    self.core.counters.retried.add(1);
                    self.core.controls.push_back(control);
                }
                Err(Verdict::Rail(cause)) => {
                    self.core.ending.push((life, End::Fault(Fault::rail(peer, cause))));
                }
            }
        }
    }

    /// Looks at the clock, and does what it is time for.
    #[cold]
    pub(crate) fn tick<S: Sink>(&mut self, sink: &mut S) {
        if self.queues
            && let Some(port) = self.port.as_mut()
        {
            // Greetings only: they may wait for the clock.
            let core = &mut self.core;
            port.glance(self.main, |event| core.event(event, sink));
        }
        let now = Instant::now();
        if now - self.tended >= TEND {
            self.tended = now;
            if let Some(port) = self.port.as_mut() {
                port.tend();
            }
            self.look_at_the_clock(now, sink);
        }
        if now - self.checked >= self.config.check {
            self.checked = now;
            self.check();
        }
    }

    /// Asks the library whether peers are there.
    fn check(&mut self) {
        let Some(port) = self.port.as_ref() else { return };
        let mut lost = Vec::new();
        for (index, seat) in self.core.seats.iter().enumerate() {
            let Some(ep) = &seat.ep else { continue };
            let own = index == self.core.who.me as usize;
            // Before the welcome is there nobody may answer on the other's main line yet.
            let line = match ep.phase {
                _ if own => continue,
                Phase::Up => ep.lines.main,
                Phase::Dialing | Phase::Answering => ep.lines.for_letters(),
                Phase::Ending(_) => continue,
            };
            if let Err(status) = port.check(line)
                && let Verdict::Rail(cause) = judge(status)
            {
                lost.push((ep.token, End::Fault(Fault::rail(Peer(index as u32), cause))));
            }
        }
        self.core.ending.extend(lost);
    }

    /// Ends what took too long.
    fn look_at_the_clock<S: Sink>(&mut self, now: Instant, sink: &mut S) {
        let (connect, silence) = (self.config.connect_timeout, self.config.peer_timeout);
        for life in std::mem::take(&mut self.core.watched) {
            let waits = self.core.controls.iter().any(|control| control.life == life);
            let Some((peer, ep)) = self.core.live(life) else { continue };
            if let Phase::Ending(_) = ep.phase {
                continue; // it has its own
            }
            let again = ep.phase == Phase::Dialing && !waits && now - ep.greeted >= GREET_AGAIN;
            if again {
                ep.greeted = now;
            }
            let late = ep.phase != Phase::Up && now - ep.since >= connect;
            let silent = !silence.is_zero() && ep.stuck.is_some_and(|since| now - since >= silence);
            let watched = ep.phase != Phase::Up || ep.stuck.is_some();
            if late || silent {
                // A suspect, and no more: it may be busy with something else (law 3).
                self.end(peer, End::Fault(Fault::peer(peer, Cause::TimedOut)), sink);
            } else if watched {
                self.core.watched.push(life);
            }
            if again && !late {
                self.core.counters.retried.add(1);
                self.greet(peer, Kind::Hello);
            }
        }
    }
}
