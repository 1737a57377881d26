//! What the processes of a simulation do: random sends, receives, probes and matched probes.

use super::oracle::{Fate, Message, Receive};
use super::{LONGEST, Open, Process, TAGS, Use, Verdict, What, World};
use ironweave_btl::Peer;
use ironweave_pml::ob1::{
    Buffer, CONTROL_MAX, CommId, Mode, Payload, PmlError, Source, Started, TagMatch,
};
use rand::{Rng, rngs::SmallRng};

impl World {
    /// Starts a random operation.
    pub(super) fn operate(&mut self, process: &mut Process) -> Verdict {
        let at = process.rng.random_range(0..process.comms.len());
        let (group, comm) = (process.comms[at].group, process.comms[at].id);
        match process.rng.random_range(0..100) {
            0..6 => self.send_control(process, group),
            6..46 => self.send(process, group, comm),
            46..88 => self.recv(process, group, comm),
            88..93 => self.probe(process, group, comm),
            93..97 => self.mprobe(process, group, comm),
            97..99 => {
                self.cancel_some(process, 100);
                self.cancel_sends(process, 20);
                Ok(())
            }
            _ => {
                process.engine.ack_failed(comm);
                Ok(())
            }
        }
    }

    fn knows_revoked(&self, process: &Process, comm: CommId) -> bool {
        process.engine.is_revoked(comm)
    }

    /// A message of the control plane to somebody.
    fn send_control(&mut self, process: &mut Process, group: usize) -> Verdict {
        let members = &self.plan.groups[group];
        let to = members[process.rng.random_range(0..members.len())];
        if !process.engine.knows_peer(Peer(to))
            && process.engine.add_peer(Peer(to), &self.addresses[to as usize]).is_err()
        {
            return Ok(()); // the next send will say whether that is right
        }
        let len = match process.rng.random_range(0..10) {
            0 => process.rng.random_range(0..=CONTROL_MAX),
            _ => process.rng.random_range(0..100),
        };
        let bytes: Vec<u8> = (0..len).map(|_| process.rng.random()).collect();
        let sent = process.engine.send_control(Peer(to), &bytes);
        sent.map_err(|error| format!("a control message to {to} was refused: {error}"))?;
        self.controls.entry((process.me, to)).or_default().push_back(bytes);
        Ok(())
    }

    fn length(&self, rng: &mut SmallRng) -> usize {
        match rng.random_range(0..100) {
            0..60 => rng.random_range(0..200),
            60..97 => self.plan.borders[rng.random_range(0..self.plan.borders.len())],
            _ => rng.random_range(0..LONGEST),
        }
    }

    /// Memory for a request: one piece, or a few.
    fn memory(process: &mut Process, len: usize) -> Use {
        if process.rng.random_range(0..8) != 0 {
            return Use::One(process.arena.take(len));
        }
        let (mut a, mut b) = (process.rng.random_range(0..=len), process.rng.random_range(0..=len));
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        Use::List([a, b - a, len - b].map(|len| process.arena.take(len)).to_vec())
    }

    fn send(&mut self, process: &mut Process, group: usize, comm: CommId) -> Verdict {
        let members = &self.plan.groups[group];
        let dest = process.rng.random_range(0..members.len());
        let to = members[dest];
        let len = self.length(&mut process.rng);
        let mode = match process.rng.random_range(0..10) {
            // No process knows here that a receive is posted: none promises it.
            0..7 => Mode::Standard,
            7..9 => Mode::Synchronous,
            _ => Mode::Buffered,
        };
        let tag = process.rng.random_range(0..TAGS);
        if !process.engine.knows_peer(Peer(to))
            && let Err(error) = process.engine.add_peer(Peer(to), &self.addresses[to as usize])
        {
            let dead = self.is_dead[to as usize] || self.are_apart(process.me, to);
            return if dead { Ok(()) } else { Err(format!("no way to {to}: {error}")) };
        }
        let message = Message {
            comm: group as u16,
            from: process.me,
            to,
            tag,
            len: len as u32,
            number: self.oracle.next_number(to, process.me, group as u16),
            synchronous: mode == Mode::Synchronous,
            sent: false,
            revoked: false,
            cancelling: false,
            withdrawn: false,
            taken_by: None,
        };
        let bytes = self.oracle.content(&message);
        let memory = Self::memory(process, len);
        let mut start = 0;
        for &piece in memory.pieces() {
            process.arena.write(piece, &bytes[start..start + piece.len as usize]);
            start += piece.len as usize;
        }
        let payload = match &memory {
            Use::One(piece) => Payload::from(process.arena.source(*piece)),
            Use::List(pieces) => {
                Payload::List(pieces.iter().map(|&piece| process.arena.source(piece)).collect())
            }
        };
        if self.knows_revoked(process, comm) {
            let refused = process.engine.send(comm, mode, &payload, dest as u32, tag);
            self.retire(process, &memory);
            return match refused {
                Err(PmlError::Revoked) => Ok(()),
                other => Err(format!("a send on a revoked communicator: {other:?}")),
            };
        }
        let number = self.oracle.send(message);
        if process.rng.random_range(0..8) == 0 {
            let request = process.engine.send_init(comm, mode, payload, dest as u32, tag);
            let request = request.map_err(|error| format!("send_init: {error}"))?;
            process.engine.start(request).map_err(|error| format!("start: {error}"))?;
            let what = What::Send { message: number, cancelled: false };
            process.open.push(Open { request, memory, what, group, persistent: true });
            return Ok(());
        }
        match process.engine.send(comm, mode, &payload, dest as u32, tag) {
            Ok(Started::Done) => {
                self.oracle.messages[number as usize].sent = true;
                self.retire(process, &memory);
                Ok(())
            }
            Ok(Started::Pending(request)) => {
                let what = What::Send { message: number, cancelled: false };
                process.open.push(Open { request, memory, what, group, persistent: false });
                Ok(())
            }
            Err(error) => Err(format!("a send to {to} was refused: {error}")),
        }
    }

    fn recv(&mut self, process: &mut Process, group: usize, comm: CommId) -> Verdict {
        let members = &self.plan.groups[group];
        let rank = process.rng.random_range(0..members.len());
        let (source, from) = match process.rng.random_range(0..3) {
            0 => (Source::Any, None),
            _ => (Source::Rank(rank as u32), Some(members[rank])),
        };
        let (tag, wanted) = match process.rng.random_range(0..3) {
            0 => (TagMatch::Any, None),
            _ => {
                let tag = process.rng.random_range(0..TAGS);
                (TagMatch::Tag(tag), Some(tag))
            }
        };
        let capacity = match process.rng.random_range(0..10) {
            0 => self.length(&mut process.rng),
            _ => LONGEST,
        };
        let blocking = process.rng.random_range(0..5) == 0;
        let memory = Self::memory(process, capacity);
        let into = Self::buffer(process, &memory);
        let revoked = self.knows_revoked(process, comm);
        let persistent = !blocking && !revoked && process.rng.random_range(0..8) == 0;
        let posted = if blocking {
            process.engine.recv_blocking(comm, into, source, tag)
        } else if persistent {
            let request = process.engine.recv_init(comm, into, source, tag);
            request.and_then(|request| process.engine.start(request).map(|()| request))
        } else {
            process.engine.recv(comm, into, source, tag)
        };
        let request = match posted {
            Err(PmlError::Revoked) if revoked => {
                self.retire(process, &memory);
                return Ok(());
            }
            Ok(_) if revoked => return Err(String::from("posted on a revoked communicator")),
            posted => posted.map_err(|error| format!("a receive was refused: {error}"))?,
        };
        let receive =
            Receive { comm: group as u16, at: process.me, from, tag: wanted, fate: Fate::Open };
        let receive = self.oracle.post(receive);
        let what = What::Recv { receive, capacity, blocking, cancelled: false };
        process.open.push(Open { request, memory, what, group, persistent });
        Ok(())
    }

    fn buffer(process: &Process, memory: &Use) -> Buffer {
        match memory {
            Use::One(piece) => Buffer::from(process.arena.target(*piece)),
            Use::List(pieces) => {
                Buffer::List(pieces.iter().map(|&piece| process.arena.target(piece)).collect())
            }
        }
    }

    fn probe(&mut self, process: &mut Process, group: usize, comm: CommId) -> Verdict {
        match process.engine.probe(comm, Source::Any, TagMatch::Any) {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let from = self.plan.groups[group][status.source as usize];
                let there = self.oracle.messages.iter().any(|m| {
                    m.taken_by.is_none()
                        && (m.comm, m.from, m.to) == (group as u16, from, process.me)
                        && (m.tag, m.len as usize) == (status.tag, status.bytes)
                });
                if there { Ok(()) } else { Err(format!("probed {status:?}, which nobody sent")) }
            }
            Err(error) => self.probe_failed(process, group, &error),
        }
    }

    fn probe_failed(&self, process: &Process, group: usize, error: &PmlError) -> Verdict {
        let members = &self.plan.groups[group];
        match error {
            PmlError::ProcFailed { rank }
                if process.known_dead.contains(&members[*rank as usize]) =>
            {
                Ok(())
            }
            PmlError::Revoked if self.revoked[group] => Ok(()),
            other => Err(format!("a probe ended with {other}")),
        }
    }

    /// Takes a message out of the queues and receives it.
    pub(super) fn mprobe(&mut self, process: &mut Process, group: usize, comm: CommId) -> Verdict {
        match process.engine.mprobe(comm, Source::Any, TagMatch::Any) {
            Ok(None) => Ok(()),
            Ok(Some((message, status))) => {
                let capacity = status.bytes;
                let memory = Self::memory(process, capacity);
                let into = Self::buffer(process, &memory);
                let request = process.engine.mrecv(message, into);
                let request = request.map_err(|error| format!("mrecv was refused: {error}"))?;
                let receive = Receive {
                    comm: group as u16,
                    at: process.me,
                    from: Some(self.plan.groups[group][status.source as usize]),
                    tag: Some(status.tag),
                    fate: Fate::Open,
                };
                let receive = self.oracle.post(receive);
                let what = What::Recv { receive, capacity, blocking: false, cancelled: false };
                process.open.push(Open { request, memory, what, group, persistent: false });
                Ok(())
            }
            Err(error) => self.probe_failed(process, group, &error),
        }
    }
}
