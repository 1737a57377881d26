//! Simulated byte transport in virtual time, and the chaos wrapper that injects faults into any transport.
//!
//! [`SimNet`] is a whole cluster in one thread: any number of processes, each with any number of rails
//! ([`SimBtl`]), a virtual clock and a seeded event queue. Two runs with the same seed and the same calls do
//! the same thing, event by event. It knows no wall time, no thread, and iterates over nothing unordered.
//!
//! ```
//! use ironweave_btl::{Btl, Descriptor, Fault, Peer, RmaDescriptor, Sink};
//! use ironweave_btl_sim::{RailModel, SimNet};
//!
//! #[derive(Default)]
//! struct Log(Vec<String>);
//! impl Sink for Log {
//!     fn frame(&mut self, from: Peer, _: &[u8], payload: &[u8]) {
//!         self.0.push(format!("{from} says {}", String::from_utf8_lossy(payload)));
//!     }
//!     fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
//!     fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
//!     fn up(&mut self, peer: Peer) {
//!         self.0.push(format!("{peer} is up"));
//!     }
//!     fn fault(&mut self, _: Fault) {}
//!     fn closed(&mut self, _: Peer) {}
//! }
//!
//! let net = SimNet::new(7);
//! let model = RailModel::tcp();
//! let mut rails = [net.open(Peer(0), &model), net.open(Peer(1), &model)];
//! let mut logs = [Log::default(), Log::default()];
//! let address = rails[1].address();
//! rails[0].connect(Peer(1), &address).unwrap();
//! // `next_ready` lets virtual time run until some process has something to do.
//! while let Some(process) = net.next_ready() {
//!     rails[process.index()].progress(&mut logs[process.index()]);
//! }
//! rails[0].send_short(Peer(1), b"h", b"hello").unwrap();
//! while let Some(process) = net.next_ready() {
//!     rails[process.index()].progress(&mut logs[process.index()]);
//! }
//! assert_eq!(logs[1].0, ["peer 0 is up", "peer 0 says hello"]);
//! ```

mod chaos;
mod model;
mod net;
mod queue;
mod rail;
mod sim;

pub use chaos::{Chaos, ChaosPlan};
pub use model::{Death, RailModel};
pub use net::{SimFault, SimNet};
pub use rail::{Passage, Rail, Watch};
pub use sim::SimBtl;
