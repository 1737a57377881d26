//! The laws, held against what happened: after each step, at each completion, and in the end; and what is told of a run.

use super::*;

impl World {
    /// Law 2, after each step of this process: nobody else can write its memory unseen by it for long.
    pub(super) fn check_memory(&self, me: u32) -> Verdict {
        let Some(process) = &self.processes[me as usize] else { return Ok(()) };
        match process.arena.disturbed() {
            Some((chunk, at)) => {
                Err(format!("memory was written that no request uses: chunk {chunk}, byte {at}"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn complete(
        &mut self,
        process: &mut Process,
        open: Open,
        completion: Completion,
    ) -> Verdict {
        let Completion { status, result } = completion;
        let revoked = self.revoked[open.group];
        let lost = |error: &PmlError| match error {
            PmlError::Unreachable(peer) => self.are_apart(process.me, peer.0),
            PmlError::Revoked => revoked,
            _ => false,
        };
        let members = &self.plan.groups[open.group];
        if let Err(PmlError::ProcFailed { rank }) = result {
            let failed = members[rank as usize];
            if !self.is_dead[failed as usize] && !self.are_apart(process.me, failed) {
                return Err(format!("rank {rank}, process {failed}, is said to have failed"));
            }
        }
        match open.what {
            What::Send { message, cancelled } => {
                let to = self.oracle.messages[message as usize].to;
                match result {
                    Ok(()) if status.is_cancelled() => {
                        if !cancelled {
                            return Err(String::from("a send was cancelled by nobody"));
                        }
                        self.oracle.withdrawn(message)?;
                    }
                    Ok(()) => self.oracle.messages[message as usize].sent = true,
                    Err(PmlError::ProcFailed { rank }) if members[rank as usize] == to => {}
                    Err(PmlError::Revoked) if revoked => {
                        self.oracle.revoked(message)?;
                    }
                    Err(error) if lost(&error) => {}
                    other => return Err(format!("a send to {to} ended with {other:?}")),
                }
            }
            What::Recv { receive, capacity, blocking, cancelled } => {
                let posted = &self.oracle.receives[receive as usize];
                let whole = match result {
                    Ok(()) if status.is_cancelled() => {
                        if !cancelled {
                            return Err(String::from("cancelled by nobody"));
                        }
                        None
                    }
                    Ok(()) => Some(status.bytes),
                    Err(PmlError::Truncated { sent, capacity: said }) => {
                        if said as usize != capacity || sent as usize <= capacity {
                            return Err(format!("{sent} bytes truncated to {said} of {capacity}"));
                        }
                        Some(sent as usize)
                    }
                    Err(PmlError::ProcFailed { rank }) => {
                        let failed = members[rank as usize];
                        let mine = posted.from.map_or(blocking, |from| from == failed);
                        // A wildcard receive that had matched ends with its sender, too.
                        if !mine && posted.from.is_some() {
                            return Err(format!(
                                "a receive from {:?} ended with {failed}",
                                posted.from
                            ));
                        }
                        self.oracle.ended(receive, Fate::Failed)?;
                        self.retire(process, &open.memory);
                        return Ok(());
                    }
                    Err(error) if lost(&error) => {
                        self.oracle.ended(receive, Fate::Failed)?;
                        self.retire(process, &open.memory);
                        return Ok(());
                    }
                    other => return Err(format!("a receive ended with {other:?}")),
                };
                match whole {
                    None => self.oracle.ended(receive, Fate::Cancelled)?,
                    Some(len) => self.took(process, &open, receive, status, len)?,
                }
            }
        }
        self.retire(process, &open.memory);
        Ok(())
    }

    pub(super) fn took(
        &mut self,
        process: &mut Process,
        open: &Open,
        receive: ReceiveNumber,
        status: Status,
        len: usize,
    ) -> Verdict {
        let Some(&from) = self.plan.groups[open.group].get(status.source as usize) else {
            return Err(format!("received from rank {}", status.source));
        };
        let mut bytes = Vec::with_capacity(status.bytes);
        for &piece in open.memory.pieces() {
            process.arena.with(piece, |piece| bytes.extend_from_slice(piece));
        }
        bytes.truncate(len);
        self.oracle.took(receive, from, status.tag, &bytes, len)
    }

    pub(super) fn judge(&mut self) -> Verdict {
        for process in self.processes.iter().flatten() {
            if let Some(open) = process.open.first() {
                let with = match open.what {
                    What::Send { message, .. } => {
                        format!("{:?}", self.oracle.messages[message as usize])
                    }
                    What::Recv { receive, .. } => {
                        format!("{:?}", self.oracle.receives[receive as usize])
                    }
                };
                return Err(format!(
                    "process {} has {} requests that never end; the first: {with}",
                    process.me,
                    process.open.len()
                ));
            }
            let out = self.net.outstanding(Peer(process.me));
            let registered = self.net.registrations(Peer(process.me));
            if out + registered > 0 {
                return Err(format!(
                    "process {} left {out} operations and {registered} registrations",
                    process.me
                ));
            }
            let stats = process.engine.stats();
            let odd = !self.plan.errors && stats.malformed > 0;
            if odd || stats.overflowed > 0 {
                return Err(format!("process {} says {stats:?}", process.me));
            }
        }
        let alive = |process: u32| !self.is_dead[process as usize];
        let apart = |a: u32, b: u32| self.are_apart(a, b);
        for (&(from, to), left) in &self.controls {
            if !left.is_empty() && alive(from) && alive(to) && !apart(from, to) {
                return Err(format!("{} control messages of {from} to {to} are lost", left.len()));
            }
        }
        let revoked = |group: u16| self.revoked[usize::from(group)];
        self.oracle.judge(alive, apart, revoked)?;
        match self.oracle.unmatched_synchronous(alive, apart) {
            Some(message) => Err(format!("{message:?} is complete, but nobody received it")),
            None => Ok(()),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let fates = |fate: Fate| self.oracle.receives.iter().filter(|r| r.fate == fate).count();
        Summary {
            events: self.net.events(),
            messages: self.oracle.messages.len(),
            receives: self.oracle.receives.len(),
            failed: fates(Fate::Failed),
            cancelled: fates(Fate::Cancelled),
            withdrawn: self.oracle.messages.iter().filter(|m| m.withdrawn).count(),
            killed: self.dead.len(),
            revoked: self.revoked.iter().filter(|revoked| **revoked).count(),
            controls: self.controls_taken,
            restarts: self.stats(|stats| stats.restarts),
            stale: self.stats(|stats| stats.stale),
            duplicates: self.stats(|stats| stats.duplicates),
            nacks: self.stats(|stats| stats.nacks_sent),
            unasked: self.stats(|stats| stats.unasked),
            healed: self.stats(|stats| stats.healed),
            parted: self.apart.len(),
            virtual_ns: self.net.now_ns(),
        }
    }

    pub(super) fn stats(&self, of: impl Fn(Stats) -> u64) -> u64 {
        self.processes.iter().flatten().map(|process| of(process.engine.stats())).sum()
    }

    pub(super) fn dump(&self) -> String {
        let mut out = format!("dead: {:?}\n{:?}\n", self.dead, self.plan.rails);
        let _ = self.net.dump(&mut out);
        for process in
            self.processes.iter().flatten().filter(|process| !process.open.is_empty()).take(3)
        {
            let _ = writeln!(out, "process {}, knows of {:?}:", process.me, process.known_dead);
            let _ = process.engine.dump(&mut out);
        }
        out.truncate(60_000);
        out
    }
}
