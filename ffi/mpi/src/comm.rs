//! Communicators as objects of C programs: what is behind an `MPI_Comm`, and the questions that need no communication (MPI 5.0,
//! §7.4).

use crate::attached::Attached;
use crate::attribute::Cache;
use crate::errhandler::Handler;
use crate::handle::Table;
use crate::info::Pairs;
use crate::partitioned::Numbers;
use crate::prelude::*;
use crate::request::Requests;
use crate::topology::Topology;
use ironweave::raw::Engine;
use ironweave_core::CommHandle;
use ironweave_pml::ob1::CommId;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What is behind a handle.
pub struct Comm {
    /// How the core knows it.
    pub core: CommHandle,
    /// How the PML knows it.
    pub p2p: CommId,
    /// This process's rank in the local group.
    pub rank: u32,
    /// Processes of the local group.
    pub size: u32,
    /// Processes of the remote group of an inter-communicator.
    pub remote: Option<u32>,
    /// The virtual topology (chapter 8), set once before the handle is given out.
    pub topology: OnceLock<Arc<Topology>>,
    state: Mutex<State>,
}

/// What changes while it lives.
pub struct State {
    /// What it does about errors.
    pub handler: Handler,
    /// Its name (§7.8).
    pub name: String,
    /// Cached attributes (§7.7).
    pub attributes: Cache,
    /// The buffer that the user attached for buffered sends.
    pub attached: Option<Attached>,
    /// Numbers of partitions that are sent over it.
    pub partitions: Numbers,
    /// Hints (§7.4.4).
    pub info: Option<Arc<Pairs>>,
}

impl Comm {
    /// The changing part. Hold it shortly, and never while a callback runs.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes that messages can go to.
    #[must_use]
    pub fn peers(&self) -> u32 {
        self.remote.unwrap_or(self.size)
    }

    /// What the core's communicator looks like from C, with the error handler of its parent.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the core has no such communicator.
    pub fn new(engine: &Engine, core: CommHandle, handler: Handler, name: &str) -> Result<Comm> {
        let state = State {
            handler,
            name: name.to_owned(),
            attributes: Cache::default(),
            attached: None,
            partitions: Numbers::default(),
            info: None,
        };
        Ok(Comm {
            core,
            p2p: engine.point_to_point(core)?,
            rank: engine.rank(core)?,
            size: engine.group(core)?.len(),
            remote: engine.remote_group(core)?.map(|remote| remote.len()),
            topology: OnceLock::new(),
            state: Mutex::new(state),
        })
    }
}

static WORLD: OnceLock<Comm> = OnceLock::new();
static MYSELF: OnceLock<Comm> = OnceLock::new();

/// The predefined ones as programs see them: from `MPI_Init` to `MPI_Finalize`.
static VISIBLE_WORLD: AtomicPtr<Comm> = AtomicPtr::new(null_mut());
static VISIBLE_SELF: AtomicPtr<Comm> = AtomicPtr::new(null_mut());

/// Communicators that users made.
pub static COMMS: Table<Box<Comm>> = Table::new();

/// The predefined ones come to be. Sessions stand on them; programs see them with a world only.
pub(crate) fn start(engine: &Engine) -> Result<()> {
    let world = Comm::new(engine, engine.world(), Handler::initial(), "MPI_COMM_WORLD")?;
    let myself = Comm::new(engine, engine.myself(), Handler::initial(), "MPI_COMM_SELF")?;
    // A process starts once.
    let _ = (WORLD.set(world), MYSELF.set(myself));
    Ok(())
}

/// Programs see the predefined ones, or do not any more.
pub(crate) fn show(visible: bool) {
    for (place, comm) in [(&VISIBLE_WORLD, &WORLD), (&VISIBLE_SELF, &MYSELF)] {
        let comm = comm.get().filter(|_| visible);
        place.store(comm.map_or(null_mut(), |comm| from_ref(comm).cast_mut()), Ordering::Release);
    }
}

/// All processes of the job, whether or not the program sees the world.
///
/// # Errors
/// `MPI_ERR_OTHER` before the job is joined.
pub(crate) fn everyone() -> Result<&'static Comm> {
    WORLD.get().ok_or_else(|| unknown(MPI_COMM_WORLD))
}

/// A handle for a communicator of the core's.
///
/// # Errors
/// As [`Comm::new`].
pub fn adopt(engine: &Engine, core: CommHandle, handler: Handler) -> Result<MPI_Comm> {
    let comm = Comm::new(engine, core, handler, "")?;
    Ok(MPI_Comm(COMMS.insert(Box::new(comm))))
}

/// The communicator behind a handle.
///
/// # Errors
/// `MPI_ERR_COMM`; `MPI_ERR_OTHER` before initialization.
#[inline(always)]
pub fn get(handle: MPI_Comm) -> Result<&'static Comm> {
    find(handle).ok_or_else(|| unknown(handle))
}

/// The communicator behind a handle, if there is one.
#[inline(always)]
#[must_use]
pub fn find(handle: MPI_Comm) -> Option<&'static Comm> {
    // SAFETY: null, or a static that stays.
    let visible = |place: &AtomicPtr<Comm>| unsafe { place.load(Ordering::Acquire).as_ref() };
    match handle {
        MPI_COMM_WORLD => visible(&VISIBLE_WORLD),
        MPI_COMM_SELF => visible(&VISIBLE_SELF),
        MPI_Comm(word) => COMMS.get(word).map(|comm| &**comm),
    }
}

/// Error handlers of communicators that were freed with requests under way: these still end by them (§7.4.3).
static FREED: Mutex<Vec<(MPI_Comm, Handler)>> = Mutex::new(Vec::new());

/// A communicator is about to be freed: its error handler stays for as long as its requests do.
pub(crate) fn keep_handler(requests: &Requests, handle: MPI_Comm, there: &Comm) {
    let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    freed.retain(|(of, _)| requests.any_of(*of));
    if requests.any_of(handle) {
        freed.push((handle, there.state().handler.clone()));
    }
}

/// The error handler of a communicator, also of one that was freed while requests of it were under way.
pub(crate) fn handler(handle: MPI_Comm) -> Option<Handler> {
    if let Some(there) = find(handle) {
        return Some(there.state().handler.clone());
    }
    let freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    freed.iter().find(|(of, _)| *of == handle).map(|(_, handler)| handler.clone())
}

#[cold]
fn unknown(handle: MPI_Comm) -> Fail {
    if let Err(error) = process::check() {
        return error;
    }
    let text = match handle {
        MPI_COMM_NULL => "the communicator is MPI_COMM_NULL".into(),
        MPI_COMM_WORLD | MPI_COMM_SELF => {
            "predefined communicators are there from MPI_Init to MPI_Finalize only".into()
        }
        MPI_Comm(word) => format!("{word:#x} is no communicator"),
    };
    fail(MPI_ERR_COMM, text)
}

/// A communicator, for messages to people.
#[must_use]
pub fn describe(handle: MPI_Comm) -> String {
    match get(handle) {
        Ok(there) if !there.state().name.is_empty() => there.state().name.clone(),
        _ => format!("communicator {:#x}", handle.0),
    }
}

mpi! {
    fn MPI_Comm_size(comm: MPI_Comm, size: *mut c_int) on comm {
        process::check()?;
        // SAFETY: the caller's result.
        unsafe { size.write(get(comm)?.size as c_int) };
        Ok(())
    }

    fn MPI_Comm_rank(comm: MPI_Comm, rank: *mut c_int) on comm {
        process::check()?;
        // SAFETY: the caller's result.
        unsafe { rank.write(get(comm)?.rank as c_int) };
        Ok(())
    }

    fn MPI_Comm_remote_size(comm: MPI_Comm, size: *mut c_int) on comm {
        process::check()?;
        let remote = get(comm)?.remote;
        let remote = remote.ok_or_else(|| fail(MPI_ERR_COMM, "it is no inter-communicator"))?;
        // SAFETY: the caller's result.
        unsafe { size.write(remote as c_int) };
        Ok(())
    }

    fn MPI_Comm_test_inter(comm: MPI_Comm, flag: *mut c_int) on comm {
        process::check()?;
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(get(comm)?.remote.is_some())) };
        Ok(())
    }
}
