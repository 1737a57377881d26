//! The suite itself: transports that break one promise each must fail it, or a green suite means nothing.

use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Address, Btl, Caps, Counters, Descriptor, EndpointState, Fault, Landing, Peer, Refused,
    Residue, RmaDescriptor, Sink, Token,
};
use ironweave_btl_conformance::{Harness, Place, Run, Site, scenario};
use ironweave_btl_sim::{RailModel, SimBtl, SimFault, SimNet};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The promises that are broken here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    /// None: the control.
    Kept,
    /// A completion is swallowed (law 1).
    Completion,
    /// A frame comes twice (law 1).
    Once,
    /// Two frames change places (law 6).
    Order,
    /// A byte changes.
    Bytes,
    /// Memory is written after `landed` (law 2).
    HandsOff,
    /// `closed` is told twice.
    OneClosed,
    /// An endpoint that was invalidated goes on taking frames.
    Fence,
    /// The counters stay at zero.
    Counters,
}

/// A rail that breaks one promise, each time there is an occasion after the twentieth frame.
struct Broken {
    inner: SimBtl,
    promise: Promise,
    counters: Arc<Counters>,
    state: Tamper,
}

#[derive(Default)]
struct Tamper {
    frames: u32,
    kept: Option<(Peer, Vec<u8>, Vec<u8>)>,
    late: Option<RecvRegion>,
    swallowed: Vec<Descriptor>,
    invalidated: bool,
}

struct Between<'a, S: Sink> {
    sink: &'a mut S,
    promise: Promise,
    state: &'a mut Tamper,
}

impl<S: Sink> Sink for Between<'_, S> {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        self.state.frames += 1;
        let due = self.state.frames > 20;
        match self.promise {
            Promise::Once if due => self.sink.frame(from, header, payload),
            Promise::Order if due && self.state.kept.is_none() => {
                self.state.kept = Some((from, header.to_vec(), payload.to_vec()));
                return;
            }
            Promise::Bytes if due && !payload.is_empty() => {
                let mut payload = payload.to_vec();
                *payload.last_mut().expect("not empty") ^= 1;
                return self.sink.frame(from, header, &payload);
            }
            _ => {}
        }
        self.sink.frame(from, header, payload);
        if let Some((peer, header, payload)) = self.state.kept.take_if(|kept| kept.0 == from) {
            self.sink.frame(peer, &header, &payload);
        }
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        match self.promise {
            Promise::HandsOff => self.sink.landing(from, header, payload_len),
            // Frames are what is tampered with.
            _ => Landing::Buffered,
        }
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        self.state.late = (!region.is_empty()).then(|| region.part(0..1));
        self.sink.landed(from, region, token, outcome);
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        if self.promise == Promise::Completion && self.state.swallowed.is_empty() {
            return self.state.swallowed.push(descriptor);
        }
        self.sink.completed(descriptor, outcome);
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.sink.rma_completed(descriptor, outcome);
    }

    fn up(&mut self, peer: Peer) {
        self.sink.up(peer);
    }

    fn fault(&mut self, fault: Fault) {
        self.sink.fault(fault);
    }

    fn closed(&mut self, peer: Peer) {
        self.sink.closed(peer);
        if self.promise == Promise::OneClosed {
            self.sink.closed(peer);
        }
    }
}

impl Btl for Broken {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn address(&self) -> Address {
        self.inner.address()
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        self.inner.connect(peer, address)
    }

    fn state(&self, peer: Peer) -> EndpointState {
        self.inner.state(peer)
    }

    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        match self.inner.send_short(peer, header, payload) {
            Err(Refused::Closed) if self.promise == Promise::Fence && self.state.invalidated => {
                Ok(())
            }
            sent => sent,
        }
    }

    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        match self.inner.send_bcopy(peer, header, len, &mut pack) {
            Err(Refused::Closed) if self.promise == Promise::Fence && self.state.invalidated => {
                pack(0, &mut vec![0; len]);
                Ok(())
            }
            sent => sent,
        }
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        self.inner.send_zcopy(descriptor)
    }

    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        if let Some(region) = self.state.late.take() {
            region.write(0, &[0xEE]);
        }
        let mut between = Between { sink, promise: self.promise, state: &mut self.state };
        self.inner.progress(&mut between)
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.state.invalidated = true;
        let mut between = Between { sink, promise: self.promise, state: &mut self.state };
        self.inner.invalidate(peer, residue, &mut between);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        let mut between = Between { sink, promise: self.promise, state: &mut self.state };
        self.inner.exclude(peer, residue, &mut between);
    }

    fn unflushed(&self) -> usize {
        self.inner.unflushed()
    }

    fn depart(&mut self) {
        self.inner.depart();
    }

    fn counters(&self) -> Arc<Counters> {
        match self.promise {
            Promise::Counters => Arc::clone(&self.counters),
            _ => self.inner.counters(),
        }
    }

    fn dump(&self, _: &mut dyn std::fmt::Write) -> std::fmt::Result {
        Ok(()) // failures are expected here: less to print
    }
}

/// A promise as a type, for a harness has no values.
trait Breaks: 'static {
    const PROMISE: Promise;
}

struct Harnessed<P>(PhantomData<P>);

impl<P: Breaks> Harness for Harnessed<P> {
    type Btl = Broken;
    type World = SimNet;
    const PLACE: Place = Place::Together;

    fn world(site: &Site) -> SimNet {
        SimNet::new(site.seed)
    }

    fn open(net: &SimNet, site: &Site) -> Result<Broken, String> {
        Ok(Broken {
            inner: net.open(site.me, &RailModel::tcp()),
            promise: P::PROMISE,
            counters: Arc::default(),
            state: Tamper::default(),
        })
    }

    fn idle(net: &SimNet) -> bool {
        net.step()
    }

    fn kill(net: &SimNet, process: Peer) {
        net.fault(SimFault::Kill(process));
    }
}

/// Whether the two scenarios that ask most pass.
fn passes<P: Breaks>() -> bool {
    let run = Run::new(env!("CARGO_PKG_NAME"), concat!(module_path!(), "::oracle"));
    let traffic = || scenario::delivers_exactly_once_in_order::<Harnessed<P>>(&run).is_ok();
    let ending = || scenario::gives_everything_back_when_invalidated::<Harnessed<P>>(&run).is_ok();
    let passes =
        |scenario: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(scenario)).unwrap_or(false);
    // A lost completion is a hang in the first, which ends by an abort; it shows in the second at `closed`.
    (P::PROMISE == Promise::Completion || passes(&traffic)) && passes(&ending)
}

macro_rules! promises {
    ($($test:ident $name:ident $passes:literal)*) => {$(
        #[test]
        fn $test() {
            struct This;
            impl Breaks for This {
                const PROMISE: Promise = Promise::$name;
            }
            assert_eq!(passes::<This>(), $passes, "{:?}", Promise::$name);
        }
    )*};
}

promises! {
    who_keeps_every_promise_passes Kept true
    a_lost_completion_is_seen Completion false
    a_frame_that_comes_twice_is_seen Once false
    frames_out_of_order_are_seen Order false
    a_changed_byte_is_seen Bytes false
    a_late_write_is_seen HandsOff false
    a_second_closed_is_seen OneClosed false
    an_open_fence_is_seen Fence false
    counters_that_lie_are_seen Counters false
}
