//! One rank as its host sees it: its process, its PMI connection, its input and output. Reports what
//! the head should know into `up`; blocks on nothing; decides nothing about the job.

use super::messages::{CHUNK, Stream, Up};
use super::pollset::Wanted;
use super::spawn::{Process, Streams};
use crate::exit::{Ended, Stage};
use crate::liveness::FailedRank;
use crate::pmi::server::{Request, Server};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::os::fd::{AsFd, OwnedFd};

/// How often a rank's PMI socket is read in one turn: more than its buffer holds, so that all a dead
/// rank said is read, and few enough that one that never stops talking does not hold up the rest.
const PMI_READS: usize = 128;

/// A rank of this host.
#[derive(Debug)]
pub struct LocalRank {
    rank: u32,
    process: Option<Process>,
    stage: Stage,
    ended: bool,
    pmi: Option<Pmi>,
    outputs: [Option<OwnedFd>; 2],
    input: Option<OwnedFd>,
    unwritten: Vec<u8>,
    input_ends: bool,
}

#[derive(Debug)]
struct Pmi {
    socket: OwnedFd,
    server: Server,
}

impl LocalRank {
    /// A rank that has just been started, with our ends of its streams and of its PMI socket.
    pub fn new(
        rank: u32,
        process: Process,
        streams: Streams,
        socket: OwnedFd,
        server: Server,
    ) -> LocalRank {
        LocalRank {
            rank,
            process: Some(process),
            stage: Stage::Plain,
            ended: false,
            pmi: Some(Pmi { socket, server }),
            outputs: [Some(streams.out), Some(streams.err)],
            input: streams.input,
            unwritten: Vec::new(),
            input_ends: false,
        }
    }

    /// Its rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Its process's number, until that is given back.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Process::pid)
    }

    /// What this rank waits for; output only if it may be read.
    pub fn wanted(&self, may_read: bool) -> Wanted<'_> {
        let process = self.process.as_ref();
        let exit = process.map(|it| (it.as_fd(), (!self.ended).then_some(EventFlags::IN)));
        let pmi = self.pmi.as_ref().map(|pmi| {
            let out = if pmi.server.has_output() { EventFlags::OUT } else { EventFlags::empty() };
            (pmi.socket.as_fd(), Some(EventFlags::IN | out))
        });
        let read = may_read.then_some(EventFlags::IN);
        let [out, error] = &self.outputs;
        let [out, error] = [out, error].map(|fd| fd.as_ref().map(|fd| (fd.as_fd(), read)));
        let write = (!self.unwritten.is_empty()).then_some(EventFlags::OUT);
        let input = self.input.as_ref().map(|input| (input.as_fd(), write));
        [exit, pmi, out, error, input]
    }

    /// Looks whether the process has ended. Returns what the liveness page should tell, if it should.
    ///
    /// Every PMI line it sent is read first: its finalize may be the last of them.
    pub fn check_exit(&mut self, up: &mut Vec<Up>) -> Option<FailedRank> {
        let how = self.process.as_ref().filter(|_| !self.ended)?.ended()?;
        self.serve_pmi(up);
        self.ended = true;
        self.pmi = None;
        self.input = None;
        if (Ended { stage: self.stage, how }).is_failure() {
            // The rank is dead to the job: so is what it started (law 4).
            self.signal(Signal::KILL);
        }
        if self.rank == 0 {
            up.push(Up::StdinClosed);
        }
        up.push(Up::Ended { rank: self.rank, how });
        (self.stage != Stage::Finalized).then_some(FailedRank { rank: self.rank, how })
    }

    /// Reads what the rank says over PMI, answers, and reports what it asks of the job.
    pub fn serve_pmi(&mut self, up: &mut Vec<Up>) {
        let Some(pmi) = &mut self.pmi else { return };
        let mut requests = Vec::new();
        let mut buffer = [0u8; 4096];
        let mut open = true;
        for _ in 0..PMI_READS {
            match rustix::io::read(&pmi.socket, &mut buffer) {
                Ok(length) if length > 0 => pmi.server.feed(&buffer[..length], &mut requests),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => {
                    open = false;
                    break;
                }
            }
        }
        if !(flush(pmi) && open) {
            self.pmi = None;
        }
        for request in requests {
            match request {
                Request::Joined if self.stage == Stage::Plain => self.stage = Stage::Joined,
                Request::Finalized => self.stage = Stage::Finalized,
                _ => {}
            }
            up.push(Up::Request { rank: self.rank, request });
        }
    }

    /// Lets the rank's PMI server say something, and sends it.
    pub fn tell(&mut self, say: impl FnOnce(&mut Server)) {
        if let Some(pmi) = &mut self.pmi {
            say(&mut pmi.server);
            if !flush(pmi) {
                self.pmi = None;
            }
        }
    }

    /// Reads at most `credit` bytes of an output; returns how many.
    pub fn read_output(&mut self, which: usize, credit: usize, up: &mut Vec<Up>) -> usize {
        let Some(fd) = self.outputs[which].as_ref().filter(|_| credit > 0) else { return 0 };
        let mut data = vec![0u8; CHUNK.min(credit)];
        match rustix::io::read(fd, &mut data) {
            Ok(length) if length > 0 => {
                data.truncate(length);
                let stream = if which == 0 { Stream::Out } else { Stream::Err };
                up.push(Up::Output { rank: self.rank, stream, data });
                length
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(_) | Err(_) => {
                self.close_output(which, up);
                0
            }
        }
    }

    /// Closes our end of an output.
    pub fn close_output(&mut self, which: usize, up: &mut Vec<Up>) {
        if self.outputs[which].take().is_some() && self.is_silent() {
            up.push(Up::OutputEnd { rank: self.rank });
        }
    }

    /// Closes the outputs in which nothing waits to be read.
    pub fn close_idle_outputs(&mut self, up: &mut Vec<Up>) {
        for which in 0..2 {
            let waiting = |fd| rustix::io::ioctl_fionread(fd).unwrap_or(0);
            if self.outputs[which].as_ref().is_some_and(|fd| waiting(fd) == 0) {
                self.close_output(which, up);
            }
        }
    }

    /// Whether no more output can come.
    pub fn is_silent(&self) -> bool {
        self.outputs.iter().all(Option::is_none)
    }

    /// Takes input for the rank; reports when it can take more, or never will.
    pub fn take_input(&mut self, data: &[u8], up: &mut Vec<Up>) {
        if self.input.is_none() {
            up.push(Up::StdinClosed);
            return;
        }
        self.unwritten.extend_from_slice(data);
        self.write_input(up);
    }

    /// No more input comes: the rank sees its end after what it has not read yet.
    pub fn end_input(&mut self, up: &mut Vec<Up>) {
        self.input_ends = true;
        self.write_input(up);
    }

    /// Writes what input the rank has room for.
    pub fn write_input(&mut self, up: &mut Vec<Up>) {
        let Some(input) = &self.input else { return };
        let had = !self.unwritten.is_empty();
        while !self.unwritten.is_empty() {
            match rustix::io::write(input, &self.unwritten) {
                Ok(length) => drop(self.unwritten.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.unwritten.clear();
                    self.input = None;
                    up.push(Up::StdinClosed);
                    return;
                }
            }
        }
        if self.input_ends {
            self.input = None;
        } else if had {
            up.push(Up::StdinTaken);
        }
    }

    /// Signals the rank's process group.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal_group(signal);
        }
    }

    /// Gives up the process, which was ended; it is to be reaped.
    pub fn take_process(&mut self) -> Option<Process> {
        self.process.take()
    }
}

/// Sends what the server has to say; whether the connection is still there.
fn flush(pmi: &mut Pmi) -> bool {
    let out = pmi.server.output();
    while !out.is_empty() {
        match rustix::net::send(&pmi.socket, out, rustix::net::SendFlags::NOSIGNAL) {
            Ok(length) => drop(out.drain(..length)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            // The rank closed its end; what it said before is still to be read.
            Err(_) => {
                out.clear();
                return false;
            }
        }
    }
    true
}
