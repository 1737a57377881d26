//! One conformance suite that every byte transport must pass.
//!
//! A transport's crate names how it is opened and gets a test for each promise of the contract:
//!
//! ```ignore
//! // btl/foo/tests/conformance.rs
//! struct Foo;
//!
//! impl ironweave_btl_conformance::Harness for Foo {
//!     type Btl = FooBtl;
//!     type World = ();
//!     const PLACE: Place = Place::Processes;
//!     fn world(_: &Site) {}
//!     fn open((): &(), site: &Site) -> Result<FooBtl, String> {
//!         FooBtl::open(site.me, &site.job, &site.secret).map_err(|error| error.to_string())
//!     }
//! }
//!
//! ironweave_btl_conformance::suite!(Foo);
//! ```
//!
//! Peers are real processes ([`Place::Processes`]): the test binary started again, told what to do over a socket
//! pair, and killed by SIGKILL. Transports that live in one process ([`Place::Together`], [`Place::Alone`]) run
//! the same scenarios there. Every frame proves itself by its label and pattern, every buffer is scribbled over the
//! moment it comes back, and an oracle holds each report against the contract.
//!
//! Seeds are fresh in each run; a failure prints the command that replays it (`IRONWEAVE_SEED`). A test that hangs
//! for `IRONWEAVE_WATCHDOG` seconds (60; frames that come and go begin them again) prints the state of all processes and aborts. A test that cannot
//! run prints `SKIP name: reason`.

mod checker;
mod child;
mod command;
mod leftovers;
mod loan;
mod node;
mod own_memory;
mod pattern;
mod run;
#[doc(hidden)]
pub mod scenario;
mod stage;

pub use own_memory::own_shared_memory;
pub use run::Run;

use ironweave_btl::{Address, Btl, Peer};
use std::path::PathBuf;

/// Where the processes of a stage are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In processes of their own.
    Processes,
    /// All in the test's process and thread, sharing a [`Harness::World`].
    Together,
    /// There is one process, and it is its own peer.
    Alone,
}

/// What a process needs to know to open a transport.
#[derive(Clone, Debug)]
pub struct Site {
    /// Who it is.
    pub me: Peer,
    /// How many processes there are.
    pub processes: u32,
    /// A name that no other stage has, of letters, digits and dashes.
    pub job: String,
    /// The job secret.
    pub secret: [u8; 32],
    /// A directory for files; removed at the end.
    pub scratch: PathBuf,
    /// The seed of this run.
    pub seed: u64,
}

/// The answer of [`Harness::inject`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injected {
    /// Something was sent.
    Done,
    /// This transport has no way in for strangers.
    Unsupported,
}

/// How a transport is opened and mistreated.
pub trait Harness: Sized + 'static {
    /// The transport.
    type Btl: Btl;
    /// What processes in one place share; `()` otherwise.
    type World;

    /// Where processes are.
    const PLACE: Place;

    /// Prepares the test's process, before it starts others: what it sets is theirs, too.
    ///
    /// # Errors
    /// Why that cannot be done on this machine: the test is skipped by that name.
    fn prepare() -> Result<(), String> {
        Ok(())
    }

    /// Makes what processes share.
    fn world(site: &Site) -> Self::World;

    /// Opens the transport in this process.
    ///
    /// # Errors
    /// Why it cannot run on this machine: the test is skipped by that name.
    fn open(world: &Self::World, site: &Site) -> Result<Self::Btl, String>;

    /// All processes in one place are idle: lets (virtual) time pass. `false` when nothing is left to happen.
    fn idle(world: &Self::World) -> bool {
        let _ = world;
        false
    }

    /// Kills a process in one place.
    fn kill(world: &Self::World, process: Peer) {
        let _ = (world, process);
    }

    /// Plays a stranger or a broken peer to the process at `address`: wrong greetings, random bytes, lies about
    /// lengths, by `round`. Runs in another process than the one at `address`.
    fn inject(site: &Site, address: &Address, round: u64) -> Injected {
        let _ = (site, address, round);
        Injected::Unsupported
    }

    /// How many peers one process is given in the test with many.
    fn many() -> u32 {
        1000
    }

    /// Why what is below the transport cannot pass a test of the suite, by the test's name: it is skipped, and says so.
    fn cannot(test: &str) -> Option<&'static str> {
        let _ = test;
        None
    }

    /// Whether a harness injects errors into single operations, so that success cannot be expected of each.
    fn injects_errors() -> bool {
        false
    }
}

/// Makes the suite's tests for a [`Harness`] in the current module.
#[macro_export]
macro_rules! suite {
    ($harness:ty) => {
        $crate::suite!(@tests $harness,
            connects_once_and_reports_up
            refuses_what_it_cannot_take
            delivers_exactly_once_in_order
            carries_every_size
            runs_out_of_room_and_recovers
            is_silent_only_where_nothing_is_here
            survives_the_death_of_a_peer
            survives_a_peer_killed_while_packing
            gives_everything_back_when_invalidated
            ends_in_time_when_the_peer_is_stopped
            comes_back_after_invalidation
            excludes_for_good
            departs_quietly
            shows_a_crash
            moves_registered_memory
            changes_numbers_in_one_step
            serves_many_peers
            turns_strangers_away
            sleeps_and_wakes
            leaves_nothing_behind
        );
    };
    (@tests $harness:ty, $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let run = $crate::Run::new(
                    env!("CARGO_PKG_NAME"),
                    concat!(module_path!(), "::", stringify!($name)),
                );
                run.start::<$harness>($crate::scenario::$name::<$harness>);
            }
        )*
    };
}
