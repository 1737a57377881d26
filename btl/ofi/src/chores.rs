//! What a rail does beside polling: answers, good-byes, backlogs, reads, clocks, and the end of what broke.
//!
//! All of it is skipped while nothing waits, which is the case in a ping-pong.

use crate::core::{Control, End, Seat};
use crate::endpoint::{Phase, Waiting};
use crate::lanes;
use crate::news::News;
use crate::provider::{Place, Verdict, judge};
use crate::rail::{Ofi, ROOM};
use crate::reads::Asked;
use crate::wire::{Kind, PREFIX, Prefix};
use ironweave_btl::{Cause, Fault, Peer, Sink};
use ironweave_ffi::ofi::{Errno, FiAddr};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Rounds between looks at the clock, while some clock runs.
const TICK: u32 = 32;
/// How often a HELLO is said again.
const GREET_AGAIN: Duration = Duration::from_millis(500);
/// How long after it was said a CLOSE is said again, and what is told to nobody's life is tried again. To a dead peer providers of sockets
/// connect anew each time, 25 us: done in each round, that made messages of the living six times as slow for the two seconds.
const SAY_AGAIN: Duration = Duration::from_millis(100);

impl Ofi {
    /// What is to be done beside polling.
    #[cold]
    pub(crate) fn chores<S: Sink>(&mut self, sink: &mut S) {
        for message in std::mem::take(&mut self.core.greetings) {
            self.greeted(&message, sink);
        }
        for (life, fault) in std::mem::take(&mut self.core.failing) {
            match self.core.live(life) {
                Some((peer, _)) if life != 0 => self.finish(peer, End::Fault(fault), sink),
                _ if fault.peer.is_none() => return self.lose(fault.cause, sink),
                _ => {}
            }
        }
        for (life, end) in std::mem::take(&mut self.core.ending) {
            if let Some((peer, _)) = self.core.live(life) {
                self.finish(peer, end, sink);
            }
        }
        for index in std::mem::take(&mut self.core.met) {
            self.fit_sockets(Peer(index));
        }
        self.tend_lanes();
        self.flush();
        if !(self.core.reads.is_idle() && self.core.wrong_reads.is_empty()) {
            self.read_on(sink);
        }
        self.ticks = self.ticks.wrapping_add(1);
        if !self.core.watched.is_empty() && self.ticks.is_multiple_of(TICK) {
            self.look_at_the_clock(Instant::now(), sink);
        }
        let Some(port) = self.port.as_mut() else { return };
        for slot in self.core.unused.drain(..) {
            port.give_back(slot);
        }
        for index in std::mem::take(&mut self.core.ended) {
            self.tidy(Peer(index));
        }
        self.forget_stale();
    }

    /// Takes addresses that are of no use any more out of the vector, which grew with every restart of a peer otherwise. What still
    /// goes there ends by chores, and then it is its turn.
    fn forget_stale(&mut self) {
        self.core.stale.append(&mut self.core.reads.lanes.left);
        let stale = std::mem::take(&mut self.core.stale);
        let (Some(port), true) = (self.port.as_mut(), self.provider.remove) else { return };
        for addr in stale {
            // One that is in the vector twice, because somebody is there again, loses one of two.
            let again = |seat: &Seat| seat.addr.as_ref().is_some_and(|(_, now)| *now == addr);
            if self.core.goes_to(addr) && !self.core.peers.iter().any(again) {
                self.core.stale.push(addr);
            } else if let Err(error) = port.remove(addr) {
                tracing::debug!(addr, %error, "the provider does not forget an address");
            }
        }
    }

    /// A peer that came up has a connection, or two. Where the provider peeks, what we connected is not yet as wide as what we
    /// accept.
    fn fit_sockets(&self, peer: Peer) {
        let place = self.core.peers.get(peer.index());
        let (Some(port), Some((name, _))) = (&self.port, place.and_then(|at| at.addr.as_ref()))
        else {
            return;
        };
        if self.provider.peeks {
            port.make_room(name, ROOM);
        }
        if self.provider.paced {
            lanes::unpace(port, port.name(), name);
        }
    }

    /// Takes up what peers tell of lanes, joins them, and tells of ours.
    pub(crate) fn tend_lanes(&mut self) {
        let Some(port) = self.port.as_mut() else { return };
        for (life, news) in std::mem::take(&mut self.core.lane_news) {
            if !self.core.is_live(life) {
                continue;
            }
            if !self.core.reads.heard(port, life, &news) {
                self.core.lane_news.push((life, news));
            } else if let News::Gone { next, .. } = news {
                self.core.heard_of_end(life, next);
            }
        }
        self.core.reads.tend_lanes(port);
        for life in std::mem::take(&mut self.core.reads.fenced) {
            self.core.lost_lane(life);
        }
        for (life, news) in std::mem::take(&mut self.core.reads.lanes.untold) {
            self.core.tell_news(life, &news);
        }
    }

    /// Sends what waited: backlogs, the protocol's own messages, credits.
    pub(crate) fn flush(&mut self) {
        let Some(port) = self.port.as_mut() else { return };
        let mut troubles: Vec<(u64, Verdict)> = Vec::new();
        let peers = &mut self.core.peers;
        self.core.waiting.retain(|&index| {
            let Some(ep) = peers[index as usize].ep.as_deref_mut() else { return false };
            while let Some(Waiting { slot, len }) = ep.backlog.pop_front() {
                match port.send(slot, len, ep.to, ep.token) {
                    Ok(()) => {
                        ep.flying += 1;
                        ep.stuck = None;
                    }
                    Err((error, slot)) => {
                        ep.backlog.push_front(Waiting { slot, len });
                        troubles.push((ep.token, judge(Place::Call, error)));
                        return true;
                    }
                }
            }
            false
        });
        if !self.core.controls.is_empty() {
            self.flush_controls(&mut troubles);
        }
        let Some(port) = self.port.as_mut() else { return };
        let (peers, controls) = (&mut self.core.peers, &mut self.core.controls);
        let inject = port.info().inject_size();
        self.core.due.retain(|&index| {
            let Some(ep) = peers[index as usize].ep.as_deref_mut() else { return false };
            let credits = ep.take_owed();
            if credits == 0 {
                return false; // a frame took them along
            }
            let message = Prefix::new(Kind::Credit, 0, credits, ep.credits_out, ep.theirs);
            if inject < PREFIX {
                ep.credits_out = ep.credits_out.wrapping_add(1);
                let message = message.as_bytes().to_vec();
                let until = Instant::now() + Duration::from_secs(3600);
                controls.push_back(Control {
                    life: ep.token,
                    to: ep.to,
                    message,
                    until,
                    after: None,
                    again: 0,
                });
                return false;
            }
            match port.inject(ep.to, message.as_bytes()) {
                Ok(()) => {
                    ep.credits_out = ep.credits_out.wrapping_add(1);
                    false
                }
                Err(error) => {
                    ep.owe(credits);
                    troubles.push((ep.token, judge(Place::Call, error)));
                    true
                }
            }
        });
        for (life, verdict) in troubles {
            self.no_room(life, verdict);
        }
    }

    pub(crate) fn flush_controls(&mut self, troubles: &mut Vec<(u64, Verdict)>) {
        let now = Instant::now();
        let mut blocked: Vec<FiAddr> = Vec::new();
        for _ in 0..self.core.controls.len() {
            let Some(mut control) = self.core.controls.pop_front() else { break };
            if control.until < now || (control.life != 0 && !self.core.is_live(control.life)) {
                continue;
            }
            if blocked.contains(&control.to) || control.after.is_some_and(|after| now < after) {
                self.core.controls.push_back(control);
                continue;
            }
            match self.send_control(&control) {
                Ok(()) if control.again > 0 => {
                    control.again -= 1;
                    control.after = Some(now + SAY_AGAIN);
                    self.core.controls.push_back(control);
                }
                Ok(()) => {}
                Err(error) => {
                    let verdict = judge(Place::Call, error);
                    if verdict == Verdict::Later {
                        blocked.push(control.to);
                        if control.life == 0 {
                            control.after = Some(now + SAY_AGAIN);
                            self.core.counters.retried.add(1);
                        } else {
                            troubles.push((control.life, verdict));
                        }
                        self.core.controls.push_back(control);
                    } else if control.life != 0 {
                        troubles.push((control.life, verdict));
                    }
                }
            }
        }
    }

    pub(crate) fn send_control(&mut self, control: &Control) -> Result<(), Errno> {
        let port = self.port.as_mut().ok_or(Errno::NODEV)?;
        let Control { life, to, ref message, .. } = *control;
        if message.len() <= port.info().inject_size() {
            return port.inject(to, message);
        }
        let slot = port.buffer(message.len()).ok_or(Errno::AGAIN)?;
        port.bytes_mut(&slot)[..message.len()].copy_from_slice(message);
        match port.send(slot, message.len(), to, life) {
            Ok(()) => {
                if let Some((_, ep)) = self.core.live(life) {
                    ep.flying += 1;
                }
                Ok(())
            }
            Err((error, slot)) => {
                port.give_back(slot);
                Err(error)
            }
        }
    }

    /// Goes on with reads.
    pub(crate) fn read_on<S: Sink>(&mut self, sink: &mut S) {
        for (descriptor, cause) in std::mem::take(&mut self.core.wrong_reads) {
            self.core.reports += 1;
            let fault = Fault::operation(descriptor.peer, cause);
            sink.rma_completed(descriptor, Err(fault));
        }
        while let Some(descriptor) = self.core.reads.take_empty() {
            self.core.reports += 1;
            sink.rma_completed(descriptor, Ok(()));
        }
        self.ask_for_reads();
    }

    /// Asks peers for what reads wait for.
    pub(crate) fn ask_for_reads(&mut self) {
        let Some(port) = self.port.as_mut() else { return };
        let Asked { troubles, void } = self.core.reads.pump(port, self.read_piece);
        self.core.wrong_reads.extend(void);
        for (life, verdict) in troubles {
            self.no_room(life, verdict);
        }
    }

    /// Ends what took too long.
    pub(crate) fn look_at_the_clock<S: Sink>(&mut self, now: Instant, sink: &mut S) {
        let (connect, silence) = (self.config.connect_timeout, self.config.peer_timeout);
        for life in std::mem::take(&mut self.core.watched) {
            let Some((peer, ep)) = self.core.live(life) else { continue };
            let mut again = ep.phase == Phase::Dialing && now - ep.greeted >= GREET_AGAIN;
            if again {
                ep.greeted = now;
            }
            let late = ep.phase != Phase::Up && now - ep.since >= connect;
            let silent = !silence.is_zero() && ep.stuck.is_some_and(|since| now - since >= silence);
            let watched = ep.phase != Phase::Up || ep.stuck.is_some();
            again &= !late && !self.core.controls.iter().any(|control| control.life == life);
            if late || silent {
                // A suspect, and no more: it may be busy with something else (law 3).
                self.finish(peer, End::Fault(Fault::peer(peer, Cause::TimedOut)), sink);
            } else if watched {
                self.core.watched.push(life);
            }
            if again {
                self.core.counters.retried.add(1);
                let name = self.blob.name.clone();
                self.core.greet(peer, Kind::Hello, &name);
            }
        }
        self.core.watched.sort_unstable();
        self.core.watched.dedup();
    }

    /// After a life: what a process that is gone left behind.
    pub(crate) fn tidy(&mut self, peer: Peer) {
        let place = &mut self.core.peers[peer.index()];
        // Of a peer on another host it says nothing, and does no harm.
        let gone = place.pid != 0 && is_gone(place.pid);
        if !gone || place.ep.is_some() {
            return; // or it began another life meanwhile
        }
        let Some((name, addr)) = place.addr.take() else { return };
        if self.provider.files
            && let Ok(name) = std::str::from_utf8(&name)
        {
            let file = name.trim_end_matches('\0').rsplit("//").next().unwrap_or_default();
            if !file.is_empty() && !file.contains('/') {
                let _ = std::fs::remove_file(format!("/dev/shm/{file}")); // most often it is gone
            }
        }
        self.core.stale.push(addr);
    }

    /// Ends a life: fence, then purge. When the provider does not let go of user memory, later.
    #[cold]
    pub(crate) fn finish<S: Sink>(&mut self, peer: Peer, end: End, sink: &mut S) {
        let life = self.core.endpoint(peer).map(|ep| ep.token);
        if let (Some(life), Some(port)) = (life, self.port.as_mut())
            && !self.core.reads.fence(port, life)
        {
            self.core.ending.push((life, end));
            return;
        }
        self.core.end(peer, end, sink);
    }

    /// The whole rail is lost.
    #[cold]
    pub(crate) fn lose<S: Sink>(&mut self, cause: Cause, sink: &mut S) {
        if let Some(port) = self.port.as_mut()
            && !self.core.reads.fence_all(port)
        {
            // Not before all memory is out of its reach.
            self.core.failing.push((0, Fault::device(cause)));
            return;
        }
        self.core.counters.faults.add(1);
        self.core.reports += 1;
        sink.fault(Fault::device(cause.clone()));
        for index in 0..self.core.peers.len() {
            let peer = Peer(index as u32);
            self.core.end(peer, End::Fault(Fault::rail(peer, cause.clone())), sink);
        }
        self.core.controls.clear();
        self.core.unused.clear(); // they end with the port
        self.port = None;
    }
}

/// Whether there is no process of that number on this host.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}
