//! The world: a process's membership of its job, from `init` to `finalize`.

use crate::engine::Engine;
use crate::threading::{Handle, Multiple, Single, Threading};
use crate::{Comm, Result, properties};
use ironweave_core::ErrorHandler;
use std::fmt;

/// This process's membership of the job it was started in.
///
/// Under `ironweave run`, or any launcher that speaks PMI-1, it is one rank of the job; without a launcher it is a job
/// of one. A process that ends in any way without [`finalize`](World::finalize) has failed, for the others and for the
/// launcher: so does one that returns early with an error, which leaves them a failure to recover from and not a hang.
/// So has one that drops its world and lives on: it is silent from then on, is found like a process that hangs (within
/// `ft_detector_timeout`; without a detector nobody finds it), and is ended by our launcher.
///
/// ```
/// let world = ironweave::World::init()?;
/// let comm = world.comm();
/// println!("rank {} of {}", comm.rank(), comm.size());
/// world.finalize()?;
/// # Ok::<(), ironweave::Error>(())
/// ```
pub struct World<T: Threading = Single> {
    comm: Comm<T>,
}

impl World<Single> {
    /// Joins the job, for use by one thread (`MPI_THREAD_SINGLE`): no lock on any path.
    ///
    /// Blocks until every living process of the job came here.
    ///
    /// # Errors
    /// [`Error::Rte`](crate::Error) when the launcher or a parameter is at fault, [`Error::Transport`](crate::Error)
    /// when a selected transport cannot be opened.
    pub fn init() -> Result<World<Single>> {
        let world: World<Single> = World::start()?;
        world.comm.handle().with(|engine| {
            engine.assume_single_thread();
            Ok(())
        })?;
        Ok(world)
    }
}

impl World<Multiple> {
    /// As [`World::init`], for use by any number of threads (`MPI_THREAD_MULTIPLE`).
    ///
    /// ```
    /// let world = ironweave::World::init_multiple()?;
    /// std::thread::scope(|threads| {
    ///     for tag in 0..4 {
    ///         let comm = world.comm();
    ///         threads.spawn(move || {
    ///             let me = comm.rank();
    ///             let mut got = [0u64];
    ///             comm.sendrecv(&[u64::from(tag as u32)], me, tag, &mut got, me, tag)?;
    ///             assert_eq!(got, [tag as u64]);
    ///             Ok::<(), ironweave::Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::init`].
    pub fn init_multiple() -> Result<World<Multiple>> {
        World::start()
    }
}

impl<T: Threading> World<T> {
    fn start() -> Result<World<T>> {
        let mut engine = Engine::start()?;
        let world = engine.world();
        // A Rust program has results to look at.
        engine.set_errhandler(world, ErrorHandler::Return)?;
        Ok(World { comm: Comm::new(T::Handle::new(engine), world, false)? })
    }

    /// The communicator of all processes of the job (`MPI_COMM_WORLD`).
    #[must_use]
    pub fn comm(&self) -> Comm<T> {
        self.comm.clone()
    }

    /// This process's rank in the world.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// How many processes the job was started with. Failures do not change it.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// The processes known to have failed, by rank in the world, in the order in which this process learned of them.
    /// Looks for news first; does not block.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error).
    pub fn failed(&self) -> Result<Vec<u32>> {
        self.comm.handle().with(|engine| {
            engine.progress();
            Ok(engine.failures.since(0).map(|failed| failed.process).collect())
        })
    }

    /// Ends the whole job with `code` (`MPI_Abort`): only on the user's own request (law 3).
    pub fn abort(&self, code: i32) -> ! {
        // Poisoned or not, this process ends, and the launcher is told if it can be.
        let _: Result<()> = self.comm.handle().with(|engine| engine.job.abort(code));
        std::process::exit(code)
    }

    /// A few lines about every endpoint, queue and request, for people who look for the cause of a hang.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error).
    pub fn dump(&self) -> Result<String> {
        self.comm.handle().with(|engine| {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = engine.dump(&mut text);
            Ok(text)
        })
    }

    /// Leaves the job (`MPI_Finalize`): waits until all living processes have called it and what this one sent is out of its
    /// hands (never for a dead process), says good-bye, and tells the launcher that its exit is no failure (seed 003
    /// §17.5.2). Communicators are of no use afterwards.
    ///
    /// # Errors
    /// [`Error::Rte`](crate::Error) when the launcher is gone, [`Error::Poisoned`](crate::Error).
    pub fn finalize(self) -> Result<()> {
        properties::clear(self.comm.handle(), self.comm.core());
        self.comm.handle().with(Engine::finalize)
    }
}

impl<T: Threading> Drop for World<T> {
    fn drop(&mut self) {
        let unfinished = self.comm.handle().with(|engine| Ok(!engine.is_finalized()));
        if unfinished == Ok(true) && !std::thread::panicking() {
            tracing::warn!(
                "a world is dropped that was not finalized: for the others this process has failed"
            );
        }
    }
}

impl<T: Threading> fmt::Debug for World<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(rank {} of {})", self.rank(), self.size())
    }
}
