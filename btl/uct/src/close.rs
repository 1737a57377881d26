//! How lives end: everything of them comes back, then `closed`, once; the other side is told if it can be.

use crate::core::{End, Parting};
use crate::endpoint::Phase;
use crate::rail::Uct;
use crate::wire::{Kind, word};
use ironweave_btl::{Cause, Fault, Peer, Sink};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long something is tried to be told to a peer that is over with, and how long its lines may take to drain.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(10);

impl Uct {
    /// Ends a life. Nothing when there is none.
    ///
    /// What the library has of the user's is taken out of its hands first ([`Uct::fence`]), if need be in later calls; all else is
    /// its own copy, so the endpoint is fenced by being out of its seat. Its lines stay open until what was sent is out, since a stream that is
    /// cut in the middle of a message would take the other direction with it.
    #[cold]
    pub(crate) fn end<S: Sink>(&mut self, peer: Peer, end: End, sink: &mut S) {
        let Some(seat) = self.core.seats.get_mut(peer.index()) else { return };
        let Some(mut ep) = seat.ep.take() else { return };
        seat.over = seat.heard; // a greeting that comes again begins nothing
        let before = self.core.controls.len();
        self.core.controls.retain(|control| control.life != ep.token);
        let purged = before - self.core.controls.len();
        self.core.counters.purged.add(purged as u64);
        let since = if let Phase::Ending(since) = ep.phase { Some(since) } else { None };
        let Some(useful) = self.fence(ep.token, (ep.lines.main, ep.lines.reach), since) else {
            ep.phase = Phase::Ending(since.unwrap_or_else(Instant::now));
            if self.core.ending.iter().all(|(life, _)| *life != ep.token) {
                self.core.ending.push((ep.token, end));
            }
            self.core.seat(peer).ep = Some(ep);
            return;
        };
        let reach = ep.lines.reach.take();
        if let Some(port) = self.port.as_mut() {
            let cut = (!useful).then_some(ep.lines.main);
            reach.into_iter().chain(cut).for_each(|line| port.close(line));
        }
        let (moves, sends) = self.tasks.cancel(ep.token, self.port.as_mut());
        let mut words = VecDeque::new();
        let line = if ep.joined && useful { ep.lines.main } else { ep.lines.for_letters() };
        let mut say =
            |kind| words.push_back((line, word(kind, 0, ep.theirs).to_le_bytes().to_vec()));
        let to_itself = peer.0 == self.core.who.me;
        match &end {
            _ if ep.theirs == 0 || to_itself => {}
            End::Quiet(owed) => {
                if *owed {
                    say(Kind::ByeAck);
                }
            }
            End::Fault(Fault { cause: Cause::Finalized, .. }) => {}
            End::Fault(_) | End::Invalidated => say(Kind::Close),
        }
        let until = Instant::now() + LAST_WORDS;
        self.core.partings.push(Parting { life: ep.token, lines: ep.lines, words, until });
        if !ep.known {
            return;
        }
        let why = match &end {
            End::Fault(fault) => fault.clone(),
            End::Invalidated => Fault::operation(peer, Cause::Invalidated),
            End::Quiet(_) => Fault::rail(peer, Cause::Finalized),
        };
        if let End::Fault(fault) = end {
            self.core.counters.faults.add(1);
            self.core.reports += 1;
            sink.fault(fault);
        }
        self.tend_tasks(sink); // what was over before
        self.core.counters.purged.add((moves.len() + sends.len()) as u64);
        self.core.reports += moves.len() + sends.len();
        moves.into_iter().for_each(|descriptor| sink.rma_completed(descriptor, Err(why.clone())));
        sends.into_iter().for_each(|descriptor| sink.completed(descriptor, Err(why.clone())));
        self.core.reports += 1;
        sink.closed(peer);
    }

    /// Goes on with last words, and closes lines that are done with.
    pub(crate) fn part(&mut self, now: Instant) {
        let Some(port) = self.port.as_mut() else {
            self.core.partings.clear();
            return;
        };
        let cut = std::mem::take(&mut self.core.cut);
        self.core.partings.retain_mut(|parting| {
            let mut over = now >= parting.until || cut.contains(&parting.life) && parting.life != 0;
            while !over && let Some((line, message)) = parting.words.front() {
                match crate::rail::send_message(port, *line, message) {
                    Ok(()) => {
                        parting.words.pop_front();
                    }
                    Err(crate::verdict::Verdict::Later) => return true,
                    Err(_) => over = true,
                }
            }
            let lines = [Some(parting.lines.main), parting.lines.letters];
            let drained = lines.iter().flatten().all(|&line| port.is_flushed(line));
            if over || drained {
                lines.into_iter().flatten().for_each(|line| port.close(line));
            }
            !(over || drained)
        });
    }
}
