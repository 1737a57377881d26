//! A few lines about everything that is under way, for watchdogs and bug reports. Reads only.

use super::engine::Engine;
use std::fmt;

impl Engine {
    pub fn dump(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(
            out,
            "ob1: {} receives, {} sends, {} messages unexpected, {:?}",
            self.recvs.used(),
            self.sends.used(),
            self.messages.used(),
            self.stats
        )?;
        for (_, comm) in self.comms.iter() {
            let (cid, epoch, queues) = (comm.cid, comm.epoch, &comm.queues);
            let (posted, kept) = (queues.posted(), queues.unexpected());
            let (parked, revoked) = (comm.parked.len(), comm.interruption);
            writeln!(
                out,
                "  comm {cid}.{epoch}: {posted} posted, {kept} unexpected, {parked} parked, interrupted: {revoked:?}"
            )?;
        }
        for (peer, state) in self.peers.iter().filter(|(_, state)| !state.rails.is_empty()) {
            let (life, lane) = (state.life, state.lane);
            let (outbox, pending) = (state.outbox.len(), state.pending.len());
            let unseen = state.journal.as_ref().map_or(0, |journal| journal.unseen());
            let (flows, reads, rails) = (state.flows.len(), state.reads.len(), &state.rails);
            writeln!(
                out,
                "  {peer}: {life:?}, lane {lane:?}, outbox {outbox}, pending {pending}, flows {flows}, reads {reads}, unseen {unseen}, {rails:?}"
            )?;
        }
        for (slot, r) in self.recvs.iter() {
            let (state, source, tag, peer) = (r.state, r.source, r.tag, r.peer);
            let (received, want, held) = (r.received, r.want, r.held);
            writeln!(
                out,
                "  receive {slot}: {state:?} from {source:?} tag {tag:?}, {peer}, {received}/{want} bytes, {held} held"
            )?;
        }
        for (slot, s) in self.sends.iter() {
            let (state, mode, peer, tag) = (s.state, s.mode, s.peer, s.envelope.tag);
            let (sent, length, held) = (s.sent, s.length, s.held);
            writeln!(
                out,
                "  send {slot}: {state:?} {mode:?} to {peer} tag {tag}, {sent}/{length} bytes, {held} held"
            )?;
        }
        Ok(())
    }
}
