//! Making and freeing communicators and inter-communicators (MPI 5.0, §7.4 and 7.6), their names and hints.
//!
//! All members get the new communicator, or all get an error, also when some die meanwhile; the new one has the error handler
//! of its parent.

use crate::attribute::{self, Cache};
use crate::error::give_string;
use crate::info::{self, Pairs};
use crate::prelude::*;
use crate::process::Inside;
use crate::request::Request;
use crate::topology::Topology;
use crate::{comm, errhandler, group};
use ironweave_core::{Attributes, CommComparison, CoreError, Output, TaskId};
use std::ffi::CStr;
use std::sync::Arc;

/// What a new communicator gets from its parent.
#[derive(Default)]
pub struct Heritage {
    /// Copied attributes.
    pub attributes: Cache,
    /// Hints.
    pub info: Option<Arc<Pairs>>,
    /// The virtual topology.
    pub topology: Option<Arc<Topology>>,
}

/// The handle of what a task made.
pub fn born(
    inside: &Inside,
    parent: MPI_Comm,
    output: Output,
    heritage: Heritage,
) -> Result<MPI_Comm> {
    let Output::Comm(Some(core)) = output else { return Ok(MPI_COMM_NULL) };
    let handler = errhandler::of(parent.into());
    let made = comm::adopt(&inside.engine, core, handler)?;
    let there = comm::get(made)?;
    if let Some(topology) = heritage.topology {
        // The handle is new.
        let _ = there.topology.set(topology);
    }
    let mut state = there.state();
    (state.attributes, state.info) = (heritage.attributes, heritage.info);
    Ok(made)
}

/// Runs a creation to its end.
pub fn create(
    parent: MPI_Comm,
    heritage: Heritage,
    begin: impl FnOnce(&mut Inside) -> std::result::Result<TaskId, CoreError>,
) -> Result<MPI_Comm> {
    let task = begin(&mut *process::enter()?)?;
    let mut heritage = Some(heritage);
    process::wait(|inside| {
        let ended = inside.engine.test(task)?;
        Some(
            ended.map_err(Fail::from).and_then(|output| {
                born(inside, parent, output, heritage.take().unwrap_or_default())
            }),
        )
    })
}

/// Begins a creation, and gives a request; the handle is written at its end.
///
/// # Safety
/// `newcomm` is valid until the request is over, `request` now.
pub unsafe fn icreate(
    parent: MPI_Comm,
    heritage: Heritage,
    newcomm: *mut MPI_Comm,
    request: *mut MPI_Request,
    begin: impl FnOnce(&mut Inside) -> std::result::Result<TaskId, CoreError>,
) -> Result<()> {
    let mut inside = process::enter()?;
    let task = begin(&mut inside)?;
    let newcomm = newcomm.expose_provenance();
    let land = move |inside: &mut Inside, output: Output| {
        let made = born(inside, parent, output, heritage)?;
        // SAFETY: the caller's, until the request is over.
        unsafe { std::ptr::with_exposed_provenance_mut::<MPI_Comm>(newcomm).write(made) };
        Ok(None)
    };
    let made = inside.requests.insert(parent, Request::Task(task, Box::new(land)));
    // SAFETY: this function's contract.
    unsafe { request.write(made) };
    Ok(())
}

/// A duplicate's heritage, and what the core has to be told of copying attributes: a copy function that refuses makes the
/// creation fail at all members.
type Copied = (Heritage, std::result::Result<Attributes, CoreError>, Option<Fail>);

fn copied(comm: MPI_Comm, info: Option<MPI_Info>) -> Result<Copied> {
    process::check()?;
    let there = comm::get(comm)?;
    let info = match info {
        Some(info) => info::hints(info)?,
        None => there.state().info.clone(),
    };
    Ok(match attribute::copied(comm.0, there) {
        Ok(attributes) => {
            let topology = there.topology.get().cloned();
            (Heritage { attributes, info, topology }, Ok(Attributes::default()), None)
        }
        Err(error) => {
            let refused = Err(CoreError::Callback(error.code()));
            (Heritage::default(), refused, Some(error))
        }
    })
}

fn dup(comm: MPI_Comm, info: Option<MPI_Info>) -> Result<MPI_Comm> {
    let there = comm::get(comm)?;
    let (heritage, attributes, refused) = copied(comm, info)?;
    let made = create(comm, heritage, |inside| {
        let now = inside.engine.now();
        inside.engine.idup(there.core, attributes, None, now)
    });
    match refused {
        Some(error) => Err(error),
        None => made,
    }
}

unsafe fn idup(
    comm: MPI_Comm,
    info: Option<MPI_Info>,
    newcomm: *mut MPI_Comm,
    request: *mut MPI_Request,
) -> Result<()> {
    let there = comm::get(comm)?;
    let (heritage, attributes, _) = copied(comm, info)?;
    // SAFETY: the caller's results.
    unsafe {
        icreate(comm, heritage, newcomm, request, |inside| {
            let now = inside.engine.now();
            inside.engine.idup(there.core, attributes, None, now)
        })
    }
}

/// Frees a communicator.
pub fn release(handle: MPI_Comm) -> Result<()> {
    if matches!(handle, MPI_COMM_WORLD | MPI_COMM_SELF) {
        return Err(fail(MPI_ERR_COMM, "predefined communicators cannot be freed"));
    }
    let there = comm::get(handle)?;
    attribute::clear(handle.0, there)?;
    let mut inside = process::enter()?;
    inside.engine.free(there.core)?;
    comm::keep_handler(&inside.requests, handle, there);
    comm::COMMS.remove(handle.0);
    Ok(())
}

fn split_type(comm: MPI_Comm, split_type: c_int, key: c_int, shared: bool) -> Result<MPI_Comm> {
    let there = comm::get(comm)?;
    let taking_part = match split_type {
        MPI_COMM_TYPE_SHARED => true,
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED if shared => true,
        MPI_UNDEFINED => false,
        // Nothing below a host is told apart, and no resource is named: nobody gets a communicator (§7.4.2).
        MPI_COMM_TYPE_HW_UNGUIDED | MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => {
            create(comm, Heritage::default(), |inside| {
                let now = inside.engine.now();
                inside.engine.isplit(there.core, None, key, now)
            })?;
            return Ok(MPI_COMM_NULL);
        }
        _ => return Err(fail(MPI_ERR_ARG, format!("{split_type} is no split type"))),
    };
    create(comm, Heritage::default(), |inside| {
        let now = inside.engine.now();
        inside.engine.isplit_shared(there.core, taking_part, key, now)
    })
}

/// What a creation from a group can have against its arguments: that the group is not of the communicator's processes.
fn not_within(error: Fail) -> Fail {
    if error.code() == MPI_ERR_ARG { error.recoded(MPI_ERR_GROUP) } else { error }
}

mpi! {
    fn MPI_Comm_compare(comm1: MPI_Comm, comm2: MPI_Comm, result: *mut c_int) on comm1 {
        let (one, other) = (comm::get(comm1)?, comm::get(comm2)?);
        let how = match process::enter()?.engine.compare(one.core, other.core)? {
            CommComparison::Identical => MPI_IDENT,
            CommComparison::Congruent => MPI_CONGRUENT,
            CommComparison::Similar => MPI_SIMILAR,
            CommComparison::Unequal => MPI_UNEQUAL,
        };
        // SAFETY: the caller's result.
        unsafe { result.write(how) };
        Ok(())
    }

    fn MPI_Comm_dup(comm: MPI_Comm, newcomm: *mut MPI_Comm) on comm {
        // SAFETY: the caller's result.
        unsafe { newcomm.write(dup(comm, None)?) };
        Ok(())
    }

    fn MPI_Comm_dup_with_info(comm: MPI_Comm, info: MPI_Info, newcomm: *mut MPI_Comm) on comm {
        // SAFETY: the caller's result.
        unsafe { newcomm.write(dup(comm, Some(info))?) };
        Ok(())
    }

    fn MPI_Comm_idup(comm: MPI_Comm, newcomm: *mut MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's results.
        unsafe { idup(comm, None, newcomm, request) }
    }

    fn MPI_Comm_idup_with_info(comm: MPI_Comm, info: MPI_Info, newcomm: *mut MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's results.
        unsafe { idup(comm, Some(info), newcomm, request) }
    }

    fn MPI_Comm_split(comm: MPI_Comm, color: c_int, key: c_int, newcomm: *mut MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let colour = match u32::try_from(color) {
            Ok(colour) => Some(colour),
            Err(_) if color == MPI_UNDEFINED => None,
            Err(_) => return Err(fail(MPI_ERR_ARG, format!("the colour is {color}, which is negative"))),
        };
        let made = create(comm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.isplit(there.core, colour, key, now)
        })?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }

    fn MPI_Comm_split_type(comm: MPI_Comm, split_type: c_int, key: c_int, info: MPI_Info, newcomm: *mut MPI_Comm) on comm {
        let hints = info::hints(info)?;
        // The one resource that is named: hosts (§7.4.2).
        let wanted = ("mpi_hw_resource_type".to_owned(), "mpi_shared_memory".to_owned());
        let shared = hints.is_some_and(|hints| hints.contains(&wanted));
        let made = self::split_type(comm, split_type, key, shared)?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }

    fn MPI_Comm_create(comm: MPI_Comm, group: MPI_Group, newcomm: *mut MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let group = group::get(group)?;
        let made = create(comm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.icreate(there.core, &group, now)
        });
        let made = made.map_err(not_within)?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }

    fn MPI_Comm_create_group(comm: MPI_Comm, group: MPI_Group, tag: c_int, newcomm: *mut MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let group = group::get(group)?;
        if tag < 0 {
            return Err(fail(MPI_ERR_TAG, format!("the tag is {tag}, which is negative")));
        }
        let made = create(comm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.icreate_group(there.core, &group, tag, now)
        });
        let made = made.map_err(not_within)?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }

    fn MPI_Intercomm_create(local_comm: MPI_Comm, local_leader: c_int, peer_comm: MPI_Comm, remote_leader: c_int, tag: c_int, newintercomm: *mut MPI_Comm) on local_comm {
        let there = comm::get(local_comm)?;
        let leader = u32::try_from(local_leader).ok().filter(|&leader| leader < there.size);
        let leader = leader.ok_or_else(|| {
            fail(MPI_ERR_RANK, format!("the local leader is {local_leader}, and there are {} ranks", there.size))
        })?;
        if tag < 0 {
            return Err(fail(MPI_ERR_TAG, format!("the tag is {tag}, which is negative")));
        }
        let peer = if there.rank == leader {
            let bridge = comm::get(peer_comm)?;
            let remote = u32::try_from(remote_leader).ok().filter(|&rank| rank < bridge.peers());
            let remote = remote.ok_or_else(|| {
                let peers = bridge.peers();
                fail(MPI_ERR_RANK, format!("the remote leader is {remote_leader}, and there are {peers} ranks"))
            })?;
            Some((bridge.core, remote))
        } else {
            None
        };
        let made = create(local_comm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.iintercomm_create(there.core, leader, peer, tag, now)
        })?;
        // SAFETY: the caller's result.
        unsafe { newintercomm.write(made) };
        Ok(())
    }

    fn MPI_Intercomm_merge(intercomm: MPI_Comm, high: c_int, newintracomm: *mut MPI_Comm) on intercomm {
        let there = comm::get(intercomm)?;
        if there.remote.is_none() {
            return Err(fail(MPI_ERR_COMM, "it is no inter-communicator"));
        }
        let made = create(intercomm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.imerge(there.core, high != 0, now)
        })?;
        // SAFETY: the caller's result.
        unsafe { newintracomm.write(made) };
        Ok(())
    }

    fn MPI_Comm_free(comm: *mut MPI_Comm) on none {
        // SAFETY: the caller's handle.
        unsafe {
            release(*comm).map_err(|error| error.on(*comm))?;
            comm.write(MPI_COMM_NULL);
        }
        Ok(())
    }

    fn MPI_Comm_disconnect(comm: *mut MPI_Comm) on none {
        // SAFETY: the caller's handle.
        unsafe {
            disconnect(*comm).map_err(|error| error.on(*comm))?;
            comm.write(MPI_COMM_NULL);
        }
        Ok(())
    }

    fn MPI_Comm_set_name(comm: MPI_Comm, comm_name: *const c_char) on comm {
        // SAFETY: the caller's string.
        let name = unsafe { CStr::from_ptr(comm_name) }.to_string_lossy().into_owned();
        if name.len() >= MPI_MAX_OBJECT_NAME as usize {
            let text = format!("a name of {} characters: {} are allowed", name.len(), MPI_MAX_OBJECT_NAME - 1);
            return Err(fail(MPI_ERR_ARG, text));
        }
        comm::get(comm)?.state().name = name;
        Ok(())
    }

    fn MPI_Comm_get_name(comm: MPI_Comm, comm_name: *mut c_char, resultlen: *mut c_int) on comm {
        let name = match comm {
            MPI_COMM_NULL => "MPI_COMM_NULL".into(),
            _ => comm::get(comm)?.state().name.clone(),
        };
        // SAFETY: the caller's results, as long as the standard says.
        unsafe { give_string(&name, comm_name, MPI_MAX_OBJECT_NAME as usize, resultlen) };
        Ok(())
    }

    fn MPI_Comm_set_info(comm: MPI_Comm, info: MPI_Info) on comm {
        let hints = info::hints(info)?;
        info::update(&mut comm::get(comm)?.state().info, hints);
        Ok(())
    }

    fn MPI_Comm_get_info(comm: MPI_Comm, info_used: *mut MPI_Info) on comm {
        let hints = comm::get(comm)?.state().info.clone();
        let pairs = hints.map_or_else(Vec::new, |hints| hints.as_ref().clone());
        // SAFETY: the caller's result.
        unsafe { info_used.write(info::adopt(pairs)) };
        Ok(())
    }
}

/// Waits for what is under way on the communicator, and frees it (§11.10.4).
fn disconnect(handle: MPI_Comm) -> Result<()> {
    let there = comm::get(handle)?;
    process::wait(|inside| (inside.engine.pml.open_requests(there.p2p) == 0).then_some(Ok(())))?;
    release(handle)
}
