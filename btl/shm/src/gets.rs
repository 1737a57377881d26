//! Gets: peers' memory read by single copy, at once or in turns; and our part of what peers read of ours. The copy itself, and what
//! it believes, is in `cma.rs`; how the two sides share it, in `assist.rs`.

use crate::cma::{self, Ended, Get, Key, Source, Step};
use crate::endpoint::{Endpoint, Outgoing, Phase, Session};
use crate::transport::Shm;
use crate::ways::Complaints;
use ironweave_btl::{
    Btl, Cause, EndpointState, Fault, Peer, Read, Refused, RmaDescriptor, RmaKind, Sink,
};
use std::time::Instant;

/// Pieces written for one peer before anything else is looked at.
const PIECES: usize = 4;

/// The other end of the connection to `peer`, while it is up.
fn session(endpoints: &[Endpoint], peer: Peer) -> Option<&Session> {
    match &endpoints.get(peer.index())?.phase {
        Phase::Up(session) => Some(session),
        _ => None,
    }
}

fn source<'a>(
    endpoints: &[Endpoint],
    tx: &'a [Option<Outgoing>],
    peer: Peer,
) -> Option<Source<'a>> {
    let outgoing = tx.get(peer.index())?.as_ref()?;
    Some((session(endpoints, peer)?.pid, &outgoing.outbox))
}

impl Shm {
    /// Takes a get, to be moved on by `progress`.
    pub(crate) fn begin_get(
        &mut self,
        descriptor: RmaDescriptor,
    ) -> Result<(), (Refused, RmaDescriptor)> {
        if !self.caps.get || self.get_refused || !matches!(descriptor.kind, RmaKind::Get(_)) {
            return Err((Refused::Unsupported, descriptor));
        }
        if self.state(descriptor.peer) != EndpointState::Up {
            return Err((self.refusal(descriptor.peer), descriptor));
        }
        match Get::new(descriptor) {
            Ok(get)
                if self.is_late(get.descriptor.peer, get.key(), get.descriptor.remote_offset) =>
            {
                return Err((Refused::Unsupported, get.descriptor));
            }
            Ok(get) => self.gets.push(get),
            Err((cause, descriptor)) => self.stillborn.push((descriptor, cause)),
        }
        self.counters.rma.add(1);
        Ok(())
    }

    /// A get within the call: nothing is done when others wait, or so much was read already that it has to wait for `progress`.
    pub(crate) fn get_at_once(&mut self, descriptor: &RmaDescriptor) -> Read {
        let RmaKind::Get(region) = &descriptor.kind else { return Read::Left };
        let (peer, len) = (descriptor.peer, region.len());
        if !self.caps.get
            || self.get_refused
            || !self.gets.is_empty()
            || len > cma::CHUNK.min(self.read_budget)
        {
            return Read::Left;
        }
        let Ok(key) = Key::decode(&descriptor.remote, descriptor.remote_offset, len) else {
            return Read::Left;
        };
        if self.is_late(peer, &key, descriptor.remote_offset) {
            return Read::Left;
        }
        let Shm { endpoints, tx, rx, registry, .. } = self;
        let (Some(source), Some(Some(incoming))) =
            (source(endpoints, tx, peer), rx.get_mut(peer.index()))
        else {
            return Read::Left;
        };
        self.read_budget -= len;
        self.counters.rma.add(1);
        incoming.asker.may_ask(!registry.lends_to(peer));
        if !incoming.asker.asks(len) {
            let ended = cma::read_whole(source, &key, descriptor.remote_offset, region);
            return Read::Over(self.believe(peer, ended));
        }
        let mut get = Get::shared(descriptor.handle(), key, &mut incoming.asker);
        // It may have to read again what the peer could not write.
        match get.advance(Some(source), &mut incoming.asker, &mut (2 * len)) {
            Step::Over => {
                let (_, ended) = get.end();
                Read::Over(self.believe(peer, ended))
            }
            Step::More | Step::Waits => {
                self.gets.push(get);
                Read::Begun
            }
        }
    }

    /// Whether this process has complained since its peer offered what is to be read: then fragments of it are quicker, unless some
    /// of it was read already.
    fn is_late(&self, peer: Peer, key: &Key, offset: u64) -> bool {
        let incoming = self.rx.get(peer.index()).and_then(Option::as_ref);
        let complaints =
            incoming.map_or(Complaints::default(), |rx| rx.reader.experience.complaints);
        offset == 0 && complaints.are_new(key.len(), key.heard)
    }

    /// What to make of the end of a get.
    fn believe(&mut self, peer: Peer, ended: Ended) -> Result<(), Fault> {
        let Ended { mut outcome, len, of, at, took } = ended;
        // The identifier may name another process by now: then what was read is not believed.
        if session(&self.endpoints, peer).is_some_and(|session| !session.is_the_same(at)) {
            outcome = Err(Cause::ProcessGone);
        }
        match &outcome {
            Err(Cause::ProcessGone) => {
                self.broken.push((peer, Fault::peer(peer, Cause::ProcessGone)));
                self.urgent = true;
            }
            Err(Cause::Os { errno: libc::EPERM | libc::ENOSYS | libc::EACCES, .. }) => {
                tracing::info!(%peer, "the kernel refuses single copy; going on without");
                self.get_refused = true;
            }
            Ok(()) => {
                if let Some(Some(incoming)) = self.rx.get_mut(peer.index())
                    && incoming.reader.experience.hear(of, len, took)
                {
                    tracing::debug!(%peer, of, len, took, "single copy takes too long");
                    incoming.reader.tell_experience();
                }
            }
            Err(_) => {}
        }
        outcome.map_err(|cause| Fault::operation(peer, cause))
    }

    /// Moves gets on.
    #[cold]
    pub(crate) fn progress_gets<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = self.report_stillborn(sink);
        let mut budget = cma::BUDGET;
        loop {
            let Shm { gets, endpoints, tx, rx, registry, .. } = self;
            let ended = gets.next(|get| {
                let peer = get.descriptor.peer;
                match rx.get_mut(peer.index()) {
                    Some(Some(incoming)) => {
                        incoming.asker.may_ask(!registry.lends_to(peer));
                        get.advance(source(endpoints, tx, peer), &mut incoming.asker, &mut budget)
                    }
                    // It was to be purged with the endpoint.
                    _ => Step::Waits,
                }
            });
            let Some(get) = ended else { return reports };
            let (descriptor, ended) = get.end();
            let outcome = self.believe(descriptor.peer, ended);
            reports += 1;
            sink.rma_completed(descriptor, outcome);
        }
    }

    /// Does our part of what peers read of our memory. How many of them there was something to do for.
    #[cold]
    pub(crate) fn assist_all(&mut self) -> usize {
        let (mut index, mut assisted) = (0, 0);
        while let Some(peer) = self.registry.reader(index) {
            assisted += usize::from(self.assist_one(peer));
            index += 1;
        }
        assisted
    }

    /// Does our part of what `peer` reads of our memory; whether there was something to do.
    pub(crate) fn assist_one(&mut self, peer: Peer) -> bool {
        let Shm { endpoints, tx, registry, .. } = self;
        let Some(Some(outgoing)) = tx.get_mut(peer.index()) else { return false };
        let mut assisted = false;
        for _ in 0..PIECES {
            let Some(task) = outgoing.helper.take() else { break };
            assisted = true;
            // Nobody else has the identifier as long as the process lives, or was seen to a moment ago.
            let session = session(endpoints, peer).filter(|it| it.is_the_same(Instant::now()));
            let written = match (session, registry.part(peer, &task)) {
                (Some(session), Some(part)) => {
                    cma::write(session.pid, task.grant.target + task.bytes.start, &part)
                        .map_err(|errno| tracing::debug!(%peer, %errno, "cannot write for a peer"))
                }
                _ => Err(()),
            };
            self.counters.assisted.add(u64::from(written.is_ok()));
            outgoing.helper.finish(&task, written.is_ok());
        }
        assisted
    }

    /// Gives back gets that could not begin.
    pub(crate) fn report_stillborn<S: Sink>(&mut self, sink: &mut S) -> usize {
        let stillborn = std::mem::take(&mut self.stillborn);
        let reports = stillborn.len();
        for (descriptor, cause) in stillborn {
            self.counters.rejected.add(1);
            let fault = Fault::operation(descriptor.peer, cause);
            sink.rma_completed(descriptor, Err(fault));
        }
        reports
    }
}
