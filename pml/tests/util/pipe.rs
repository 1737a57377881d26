//! The leanest transport there is: two processes in one thread, frames as bytes in a vector that is reused. What is
//! measured over it is the engine.
#![allow(dead_code)]

use ironweave_btl::{
    Address, Btl, Caps, Counters, Descriptor, EndpointState, FailureReport, Fault, Peer, Refused,
    Residue, Sink,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

type Bytes = Rc<RefCell<Vec<u8>>>;

/// One end.
pub struct Pipe {
    caps: Caps,
    me: Peer,
    other: Peer,
    state: EndpointState,
    announce: bool,
    out: Bytes,
    input: Bytes,
    draining: Vec<u8>,
    counters: Arc<Counters>,
}

/// Both ends, of processes 0 and 1.
pub fn pair(lossless: bool) -> (Pipe, Pipe) {
    let (a, b) = (Bytes::default(), Bytes::default());
    (Pipe::new(0, a.clone(), b.clone(), lossless), Pipe::new(1, b, a, lossless))
}

/// Bytes that may wait.
const ROOM: usize = 64 << 10;

impl Pipe {
    fn new(me: u32, out: Bytes, input: Bytes, lossless: bool) -> Self {
        out.borrow_mut().reserve(2 * ROOM);
        let caps = Caps {
            name: "pipe",
            device: String::from("pipe"),
            max_short: 4096,
            max_bcopy: 8192,
            max_zcopy: 0,
            zcopy_from: ironweave_btl::ZCOPY_FROM,
            eager_limit: 16 << 10,
            posted_limit: 16 << 10,
            rndv_eager_limit: 8192,
            fragment: 8192,
            put: false,
            get: false,
            atomics: false,
            read_from: usize::MAX,
            ordered: true,
            lossless,
            latency_ns: 1,
            bandwidth_mbs: 50_000,
            exclusivity: 1,
            failure_report: FailureReport::Prompt,
        };
        Pipe {
            caps,
            me: Peer(me),
            other: Peer(1 - me),
            state: EndpointState::Closed,
            announce: false,
            out,
            input,
            draining: Vec::with_capacity(2 * ROOM),
            counters: Arc::default(),
        }
    }
}

impl Btl for Pipe {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address { component: "pipe".into(), rail: 0, bytes: Vec::new() }
    }

    fn connect(&mut self, _: Peer, _: &Address) -> Result<(), Fault> {
        (self.state, self.announce) = (EndpointState::Up, true);
        Ok(())
    }

    fn state(&self, peer: Peer) -> EndpointState {
        if peer == self.other { self.state } else { EndpointState::Closed }
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        self.send_bcopy(peer, header, payload.len(), |at, piece| {
            piece.copy_from_slice(&payload[at..at + piece.len()]);
        })
    }

    #[inline]
    fn send_bcopy<P>(
        &mut self,
        _: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        let mut out = self.out.borrow_mut();
        if out.len() >= ROOM {
            return Err(Refused::NoRoom);
        }
        out.extend_from_slice(&((header.len() << 32 | len) as u64).to_le_bytes());
        out.extend_from_slice(header);
        let start = out.len();
        out.resize(start + len, 0);
        pack(0, &mut out[start..]);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        Err((Refused::Unsupported, descriptor))
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        if std::mem::take(&mut self.announce) {
            sink.up(self.other);
        }
        {
            let mut input = self.input.borrow_mut();
            if input.is_empty() {
                return 0;
            }
            std::mem::swap(&mut *input, &mut self.draining);
        }
        let (mut rest, mut reports) = (self.draining.as_slice(), 0);
        while let Some((word, after)) = rest.split_first_chunk() {
            let word = u64::from_le_bytes(*word) as usize;
            let (header, after) = after.split_at(word >> 32);
            let (payload, after) = after.split_at(word & 0xffff_ffff);
            sink.frame(self.other, header, payload);
            (rest, reports) = (after, reports + 1);
        }
        self.draining.clear();
        reports
    }

    fn take_next<F>(&mut self, _: Peer, _: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let mut input = self.input.borrow_mut();
        let Some((word, after)) = input.split_first_chunk() else { return false };
        let word = u64::from_le_bytes(*word) as usize;
        let (header, after) = after.split_at(word >> 32);
        let payload = &after[..word & 0xffff_ffff];
        let len = size_of::<u64>() + header.len() + payload.len();
        let taken = take(header, payload);
        if taken {
            input.drain(..len);
        }
        taken
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, _: Residue, sink: &mut S) {
        if peer == self.other && self.state != EndpointState::Closed {
            self.state = EndpointState::Closed;
            sink.closed(peer);
        }
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.invalidate(peer, residue, sink);
    }

    fn depart(&mut self) {}

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(out, "pipe of {}", self.me)
    }
}

use ironweave_pml::ob1::{CommId, CommSpec, Config, Ob1};

/// Two connected engines and their communicator.
pub fn engines() -> [(Ob1<Pipe>, CommId); 2] {
    engines_over(true)
}

/// The same, over a transport that can be lost, or cannot.
pub fn engines_over(lossless: bool) -> [(Ob1<Pipe>, CommId); 2] {
    let (a, b) = pair(lossless);
    let mut engines = [(0, a), (1, b)].map(|(rank, pipe)| {
        let mut engine = Ob1::new(Config::new(Peer(rank)));
        let address = pipe.address();
        engine.add_btl(pipe);
        engine.add_peer(Peer(1 - rank), &[address]).expect("a pipe reaches its end");
        let group = vec![Peer(0), Peer(1)];
        let comm = engine.add_comm(CommSpec::intra(0, 0, rank, group)).expect("the first");
        (engine, comm)
    });
    for _ in 0..2 {
        for (engine, _) in &mut engines {
            engine.progress();
        }
    }
    engines
}
