//! Communicators from communicators (MPI standard 5.0, chapter 7). All these calls are collective. All members get the new
//! communicator, or all get an error, whoever dies meanwhile.

use crate::engine::Engine;
use crate::threading::{Handle, Threading};
use crate::{Comm, Error, Result};
use ironweave_core::{CommHandle, CoreError, Group, Output, TaskId};
use ironweave_ft::Nanos;

impl<T: Threading> Comm<T> {
    /// Runs an operation that makes a communicator; `None` where this process is not a member of it.
    pub(crate) fn create(
        &self,
        begin: impl FnOnce(&mut Engine, CommHandle, Nanos) -> std::result::Result<TaskId, CoreError>,
    ) -> Result<Option<Comm<T>>> {
        let task = self.handle().with(|engine| {
            let now = engine.now();
            Ok(begin(engine, self.core(), now)?)
        });
        let made = task.and_then(|task| self.handle().complete(task));
        match self.raise("the creation of a communicator", made)? {
            Output::Comm(Some(comm)) => Comm::new(self.handle().clone(), comm, true).map(Some),
            Output::Comm(None) => Ok(None),
            other => unreachable!("a communicator was asked for, not {other:?}"),
        }
    }

    /// A communicator of the same processes, with messages of its own (`MPI_Comm_dup`).
    ///
    /// # Errors
    /// [`Error::ProcFailed`] when a member has failed, [`Error::Revoked`].
    pub fn dup(&self) -> Result<Comm<T>> {
        // Callbacks decide what is copied, outside of the engine.
        let table = self.handle().with(|engine| Ok(engine.attributes(self.core())?.clone()))?;
        let copied = table.copied(self.core());
        let made = self.create(|engine, comm, now| engine.idup(comm, copied, None, now))?;
        Ok(made.expect("a duplicate has all members"))
    }

    /// A communicator for each colour, with ranks in the order of `key`, equal keys in the order of ranks here; `None` for
    /// members without a colour (`MPI_Comm_split`).
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// let pairs = comm.split(Some(comm.rank() / 2), 0)?.expect("there is a colour");
    /// assert!(pairs.size() <= 2);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Comm<T>>> {
        self.create(|engine, comm, now| engine.isplit(comm, colour, key, now))
    }

    /// A communicator for each host, whose members share memory (`MPI_Comm_split_type`, `MPI_COMM_TYPE_SHARED`).
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split_shared(&self, key: i32) -> Result<Comm<T>> {
        let made = self.create(|engine, comm, now| engine.isplit_shared(comm, true, key, now))?;
        Ok(made.expect("each process runs on some host"))
    }

    /// A communicator of these ranks, in this order; `None` for the others (`MPI_Comm_create`). All members of this
    /// communicator call it, with the same ranks.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`Error::Argument`] for ranks that are not here, or twice.
    pub fn create_from(&self, ranks: &[u32]) -> Result<Option<Comm<T>>> {
        self.create(|engine, comm, now| {
            let group = engine.group(comm)?.incl(ranks)?;
            engine.icreate(comm, &group, now)
        })
    }

    /// As [`create_from`](Self::create_from), but only the ranks in the list call it (`MPI_Comm_create_group`). Calls under way at
    /// once have different tags.
    ///
    /// # Errors
    /// As `create_from`.
    pub fn create_group(&self, ranks: &[u32], tag: i32) -> Result<Comm<T>> {
        let made = self.create(|engine, comm, now| {
            let group = engine.group(comm)?.incl(ranks)?;
            engine.icreate_group(comm, &group, tag, now)
        })?;
        made.ok_or_else(|| Error::Argument("the caller is not one of the ranks".into()))
    }

    /// An inter-communicator of this communicator and another one (`MPI_Intercomm_create`): ranks of sends and receives on it are
    /// those of the other side. Collective over both. All members here name the same `leader` and `tag`; the leader also gives
    /// a communicator in which it reaches the other leader, and that one's rank there. While it runs, no other collective of
    /// this communicator may begin.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`Error::Argument`] for wrong arguments.
    pub fn intercomm(
        &self,
        leader: u32,
        bridge: Option<(&Comm<T>, u32)>,
        tag: i32,
    ) -> Result<Comm<T>> {
        let peer = bridge.map(|(comm, rank)| (comm.core(), rank));
        let made = self
            .create(|engine, comm, now| engine.iintercomm_create(comm, leader, peer, tag, now))?;
        Ok(made.expect("all of both sides are members"))
    }

    /// Makes one communicator of both sides of an inter-communicator (`MPI_Intercomm_merge`); the side that says `high` comes
    /// last.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`Error::Argument`] when it is no inter-communicator.
    pub fn merge(&self, high: bool) -> Result<Comm<T>> {
        let made = self.create(|engine, comm, now| engine.imerge(comm, high, now))?;
        Ok(made.expect("all of both sides are members"))
    }

    /// Whether it is an inter-communicator (`MPI_Comm_test_inter`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn is_inter(&self) -> Result<bool> {
        self.handle().with(|engine| Ok(engine.remote_group(self.core())?.is_some()))
    }

    /// The processes of this communicator by their ranks in the world, in order of rank (`MPI_Comm_group`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn processes(&self) -> Result<Vec<u32>> {
        self.handle().with(|engine| Ok(Group::iter(engine.group(self.core())?).collect()))
    }
}
