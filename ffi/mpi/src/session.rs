//! Sessions and process sets (MPI 5.0, §11.3): the library can be used without a world of its own, by several parts of a
//! program. A session joins the job if nobody has before; the job is left when neither the world nor a session needs it.
//!
//! There are two process sets: `mpi://WORLD` and `mpi://SELF`.

use crate::attached::{
    Attached, attach_to_session, detach_from_session, flush, held_of_session, iflush,
};
use crate::attribute;
use crate::construct::{Heritage, create};
use crate::errhandler::{self, Function, Handler, Kind};
use crate::error::{NewComm, NewSession, give_string};
use crate::group;
use crate::handle::Table;
use crate::info::{self, Pairs};
use crate::prelude::*;
use crate::{comm, environment};
use ironweave_core::Group;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

/// A session.
struct Session {
    state: Mutex<State>,
}

struct State {
    handler: Handler,
    hints: Pairs,
}

static SESSIONS: Table<Session> = Table::new();

fn lock(handle: MPI_Session) -> Result<MutexGuard<'static, State>> {
    let session = SESSIONS.get(handle.0).ok_or_else(|| match handle {
        MPI_SESSION_NULL => fail(MPI_ERR_SESSION, "the session is MPI_SESSION_NULL"),
        MPI_Session(word) => fail(MPI_ERR_SESSION, format!("{word:#x} is no session")),
    })?;
    Ok(session.state.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The error handler of a session.
pub fn handler(handle: MPI_Session) -> Option<Handler> {
    lock(handle).ok().map(|state| state.handler.clone())
}

/// The handle of a Fortran handle.
pub fn of_fortran(low: u32) -> Option<usize> {
    SESSIONS.of_fortran(low)
}

/// Sessions that are not finalized.
pub fn open() -> usize {
    SESSIONS.in_use()
}

/// The processes of a set.
fn members(name: &str) -> Result<Group> {
    let inside = process::enter()?;
    if name.eq_ignore_ascii_case(SETS[0]) {
        Ok(inside.engine.group(inside.engine.world())?.clone())
    } else if name.eq_ignore_ascii_case(SETS[1]) {
        Ok(inside.engine.group(inside.engine.myself())?.clone())
    } else {
        Err(fail(MPI_ERR_ARG, format!("there is no process set {name:?}; there are: {SETS:?}")))
    }
}

/// # Safety
/// A string that ends with a zero.
unsafe fn text(string: *const c_char) -> Result<String> {
    if string.is_null() {
        return Err(fail(MPI_ERR_ARG, "a name is a null pointer"));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}

/// A tag of `MPI_Comm_create_group` for a tag in words: different for different words, mostly; calls with the same group and a
/// clash would have to be under way at once to be confused.
fn number(tag: &str) -> c_int {
    let hash = tag.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    ((hash ^ hash >> 32) & 0x3fff_ffff) as c_int | 0x4000_0000
}

/// A communicator of a group, by its members alone.
fn from_group(group: &Group, tag: &str, handler: Handler, hints: MPI_Info) -> Result<MPI_Comm> {
    let info = info::hints(hints)?;
    let world = comm::everyone()?.core;
    let heritage = Heritage { info, ..Heritage::default() };
    let made = create(MPI_COMM_WORLD, heritage, |inside| {
        let now = inside.engine.now();
        inside.engine.icreate_group(world, group, number(tag), now)
    })?;
    if made != MPI_COMM_NULL {
        comm::get(made)?.state().handler = handler;
    }
    Ok(made)
}

/// The thread level that a session asks for.
fn thread_level(hints: &[(String, String)]) -> Result<c_int> {
    let wanted = hints.iter().find(|(key, _)| key == "thread_level");
    match wanted.map(|(_, level)| level.as_str()) {
        Some("MPI_THREAD_SINGLE") => Ok(MPI_THREAD_SINGLE),
        Some("MPI_THREAD_FUNNELED") => Ok(MPI_THREAD_FUNNELED),
        Some("MPI_THREAD_SERIALIZED") => Ok(MPI_THREAD_SERIALIZED),
        // Parts of a program do not know of each other: without a word, whatever they do is right (§11.3.1).
        None | Some("MPI_THREAD_MULTIPLE") => Ok(MPI_THREAD_MULTIPLE),
        Some(other) => {
            let text = format!("the hint thread_level is {other:?}, which is no thread level");
            Err(fail(MPI_ERR_INFO_VALUE, text))
        }
    }
}

/// The inter-communicator of two groups, led by these ranks of theirs.
fn between_groups(
    local: &Group,
    local_leader: c_int,
    remote: &Group,
    remote_leader: c_int,
    tag: &str,
    handler: Handler,
    info: MPI_Info,
) -> Result<MPI_Comm> {
    let leader = |group: &Group, rank: c_int, side: &str| {
        let found = u32::try_from(rank).ok().and_then(|rank| group.process(rank));
        let ranks = group.len();
        found.ok_or_else(|| {
            fail(MPI_ERR_RANK, format!("the {side} leader is {rank}, and there are {ranks} ranks"))
        })
    };
    leader(local, local_leader, "local")?;
    let other = leader(remote, remote_leader, "remote")?;
    let here = from_group(local, tag, handler, info)?;
    let (world, core) = (comm::everyone()?.core, comm::get(here)?.core);
    let made = create(here, Heritage::default(), |inside| {
        let now = inside.engine.now();
        let peer = Some((world, other));
        inside.engine.iintercomm_create(core, local_leader as u32, peer, number(tag), now)
    });
    crate::construct::release(here)?;
    made
}

mpi! {
    fn MPI_Session_init(info: MPI_Info, errhandler: NewSession, session: *mut MPI_Session) on errhandler {
        let handler = Handler::of(errhandler.0, Kind::Session)?;
        let hints = info::hints(info)?;
        let mut hints = hints.map_or_else(Vec::new, |hints| hints.as_ref().clone());
        let level = thread_level(&hints)?;
        environment::join(level)?;
        hints.retain(|(key, _)| key == "thread_level");
        if hints.is_empty() {
            hints.push(("thread_level".into(), environment::level_name().into()));
        } else {
            hints[0].1 = environment::level_name().into();
        }
        let made = SESSIONS.insert(Session { state: Mutex::new(State { handler, hints }) });
        // SAFETY: the caller's result.
        unsafe { session.write(MPI_Session(made)) };
        Ok(())
    }

    fn MPI_Session_finalize(session: *mut MPI_Session) on none {
        // SAFETY: the caller's handle.
        unsafe {
            drop(lock(*session)?);
            drop(detach_from_session(*session)?); // as if the user had (§3.6)
            SESSIONS.remove((*session).0);
            session.write(MPI_SESSION_NULL);
        }
        environment::leave_if_unused()
    }

    fn MPI_Session_get_num_psets(session: MPI_Session, _info: MPI_Info, npset_names: *mut c_int) on session {
        drop(lock(session)?);
        // SAFETY: the caller's result.
        unsafe { npset_names.write(SETS.len() as c_int) };
        Ok(())
    }

    fn MPI_Session_get_nth_pset(session: MPI_Session, _info: MPI_Info, n: c_int, pset_len: *mut c_int, pset_name: *mut c_char) on session {
        drop(lock(session)?);
        let name = usize::try_from(n).ok().and_then(|n| SETS.get(n));
        let name = name.ok_or_else(|| fail(MPI_ERR_ARG, format!("there is no process set number {n}")))?;
        // SAFETY: the caller's results.
        unsafe {
            if *pset_len > 0 {
                array("pset_name", pset_name, 1)?;
                give_string(name, pset_name, *pset_len as usize, std::ptr::null_mut());
            }
            pset_len.write(name.len() as c_int + 1);
        }
        Ok(())
    }

    fn MPI_Session_get_pset_info(session: MPI_Session, pset_name: *const c_char, info: *mut MPI_Info) on session {
        drop(lock(session)?);
        // SAFETY: the caller's string and result.
        unsafe {
            let size = members(&text(pset_name)?)?.len();
            info.write(info::adopt(vec![("mpi_size".into(), size.to_string())]));
        }
        Ok(())
    }

    fn MPI_Session_get_info(session: MPI_Session, info_used: *mut MPI_Info) on session {
        let hints = lock(session)?.hints.clone();
        // SAFETY: the caller's result.
        unsafe { info_used.write(info::adopt(hints)) };
        Ok(())
    }

    fn MPI_Group_from_session_pset(session: MPI_Session, pset_name: *const c_char, newgroup: *mut MPI_Group) on session {
        drop(lock(session)?);
        // SAFETY: the caller's string and result.
        unsafe { newgroup.write(group::adopt(members(&text(pset_name)?)?)) };
        Ok(())
    }

    fn MPI_Comm_create_from_group(group: MPI_Group, stringtag: *const c_char, info: MPI_Info, errhandler: NewComm, newcomm: *mut MPI_Comm) on errhandler {
        let handler = Handler::of(errhandler.0, Kind::Comm)?;
        let group = group::get(group)?;
        // SAFETY: the caller's string and result.
        unsafe { newcomm.write(from_group(&group, &text(stringtag)?, handler, info)?) };
        Ok(())
    }

    fn MPI_Intercomm_create_from_groups(local_group: MPI_Group, local_leader: c_int, remote_group: MPI_Group, remote_leader: c_int, stringtag: *const c_char, info: MPI_Info, errhandler: NewComm, newintercomm: *mut MPI_Comm) on errhandler {
        let handler = Handler::of(errhandler.0, Kind::Comm)?;
        let (local, remote) = (group::get(local_group)?, group::get(remote_group)?);
        // SAFETY: the caller's string and result.
        unsafe {
            let tag = text(stringtag)?;
            newintercomm.write(between_groups(&local, local_leader, &remote, remote_leader, &tag, handler, info)?);
        }
        Ok(())
    }

    fn MPI_Session_attach_buffer / MPI_Session_attach_buffer_c(session: MPI_Session, buffer: *mut c_void, size: Count) on session {
        drop(lock(session)?);
        attach_to_session(session, buffer as usize, size.wide())
    }

    fn MPI_Session_detach_buffer / MPI_Session_detach_buffer_c(session: MPI_Session, buffer_addr: *mut c_void, size: *mut Count) on session {
        drop(lock(session)?);
        let attached = detach_from_session(session)?;
        // SAFETY: the caller's results.
        unsafe { Attached::give(attached, buffer_addr, size) };
        Ok(())
    }

    fn MPI_Session_flush_buffer(session: MPI_Session) on session {
        drop(lock(session)?);
        flush(&held_of_session(session))
    }

    fn MPI_Session_iflush_buffer(session: MPI_Session, request: *mut MPI_Request) on session {
        drop(lock(session)?);
        // SAFETY: the caller's result.
        unsafe { request.write(iflush(held_of_session(session), MPI_COMM_SELF)?) };
        Ok(())
    }

    fn MPI_Session_create_errhandler(function: Function, errhandler: *mut MPI_Errhandler) on ever {
        // SAFETY: the caller's result.
        unsafe { errhandler.write(errhandler::create(Kind::Session, function)) };
        Ok(())
    }

    fn MPI_Session_set_errhandler(session: MPI_Session, errhandler: MPI_Errhandler) on session {
        let handler = Handler::of(errhandler, Kind::Session)?;
        lock(session)?.handler = handler;
        Ok(())
    }

    fn MPI_Session_get_errhandler(session: MPI_Session, errhandler: *mut MPI_Errhandler) on session {
        let handle = errhandler::handle_of(&lock(session)?.handler);
        // SAFETY: the caller's result.
        unsafe { errhandler.write(handle) };
        Ok(())
    }

    fn MPI_Session_call_errhandler(session: MPI_Session, errorcode: c_int) on none {
        drop(lock(session)?);
        let error = fail(errorcode, "called by the program");
        crate::error::raise("MPI_Session_call_errhandler", session.into(), error);
        Ok(())
    }
}

/// Attributes of `MPI_COMM_SELF` are deleted before anything else ends (§11.2.4).
pub fn clear_self() -> Result<()> {
    attribute::clear(MPI_COMM_SELF.0, comm::get(MPI_COMM_SELF)?)
}
