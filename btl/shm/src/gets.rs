//! Gets: peers' memory read by single copy, at once or in turns. The copy itself, and what it believes, is in `cma.rs`.

use crate::cma::{self, Ended, Get, Key};
use crate::endpoint::{Endpoint, Outgoing, Phase, Session};
use crate::inbox::Inbox;
use crate::transport::Shm;
use crate::ways::Complaints;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Btl, Cause, EndpointState, Fault, Peer, Refused, RemoteKey, RmaDescriptor, RmaKind, Sink,
};
use rustix::process::Pid;

/// The other end of the connection to `peer`, while it is up.
fn session(endpoints: &[Endpoint], peer: Peer) -> Option<&Session> {
    match &endpoints.get(peer.index())?.phase {
        Phase::Up(session) => Some(session),
        _ => None,
    }
}

/// Whose memory is read, and the inbox that says what of it may be.
fn source<'a>(
    endpoints: &[Endpoint],
    tx: &'a [Option<Outgoing>],
    peer: Peer,
) -> Option<(Pid, &'a Inbox)> {
    let outgoing = tx.get(peer.index())?.as_ref()?;
    Some((session(endpoints, peer)?.pid, &outgoing.outbox))
}

impl Shm {
    /// Takes a get, to be moved on by `progress`.
    pub(crate) fn begin_get(
        &mut self,
        descriptor: RmaDescriptor,
    ) -> Result<(), (Refused, RmaDescriptor)> {
        if !self.caps.get || self.get_refused || matches!(descriptor.kind, RmaKind::Put(_)) {
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

    /// A get within the call: `None` when others wait, or so much was read already that it has to wait for `progress`.
    pub(crate) fn get_at_once(
        &mut self,
        peer: Peer,
        remote: &RemoteKey,
        offset: u64,
        region: &RecvRegion,
    ) -> Option<Result<(), Fault>> {
        let len = region.len();
        if !self.caps.get || self.get_refused || !self.gets.is_empty() || len > cma::CHUNK {
            return None;
        }
        let key = Key::decode(remote, offset, len).ok()?;
        if self.is_late(peer, &key, offset) {
            return None;
        }
        let source = source(&self.endpoints, &self.tx, peer)?;
        self.read_budget = self.read_budget.checked_sub(len)?;
        self.counters.rma.add(1);
        let ended = cma::read_whole(source, &key, offset, region);
        Some(self.believe(peer, ended))
    }

    /// Whether this process has complained since its peer offered what is to be read: then fragments of it are quicker, unless some
    /// of it was read already.
    fn is_late(&self, peer: Peer, key: &Key, offset: u64) -> bool {
        let incoming = self.rx.get(peer.index()).and_then(Option::as_ref);
        let complaints =
            incoming.map_or(Complaints::default(), |rx| rx.reader.experience.complaints);
        offset == 0 && complaints.about(key.len()) != key.heard
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
                    incoming.reader.complain();
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
            let Shm { gets, endpoints, tx, .. } = self;
            let ended = gets.next(|peer| source(endpoints, tx, peer), &mut budget);
            let Some((descriptor, ended)) = ended else { return reports };
            let outcome = self.believe(descriptor.peer, ended);
            reports += 1;
            sink.rma_completed(descriptor, outcome);
        }
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
