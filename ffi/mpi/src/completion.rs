//! Waiting for requests and testing them, one, any, some and all (MPI 5.0, §3.7.3 and 3.7.5).
//!
//! When an operation among several ends because of a failure or a revocation, the call does not wait for the others, which may
//! depend on it: they are told as `MPI_ERR_PENDING` (seed 000, "wait synchronization"). Callbacks that an ending calls for run
//! with the engine free.

use crate::prelude::*;
use crate::process::Inside;
use crate::request::{self, After, Ended, Glance, Polled, Seen};
use crate::status;
use ironweave_pml::ob1::Status;

/// Runs what an ending has to run outside.
fn outside(mut ended: Ended) -> (MPI_Status, Result<()>) {
    let after: Option<After> = ended.after.take();
    if let Some(after) = after {
        let answer = after(&mut ended.status);
        ended.result = ended.result.and(answer);
    }
    (ended.status, ended.result)
}

/// Waits for one request. `None`: it was inactive.
fn wait_one(handle: &mut MPI_Request) -> Result<Option<Ended>> {
    if *handle == MPI_REQUEST_NULL {
        return Ok(None);
    }
    process::wait(|inside| match request::poll(inside, handle) {
        Ok(Polled::Pending) => None,
        Ok(Polled::Inactive) => Some(Ok(None)),
        Ok(Polled::Ended(ended)) => Some(Ok(Some(ended))),
        Err(error) => Some(Err(error)),
    })
}

/// Where several requests stand.
struct Several<'a> {
    handles: &'a mut [MPI_Request],
    statuses: *mut MPI_Status,
    /// Endings that have something to do outside, and where.
    after: Vec<(usize, Ended)>,
}

impl Several<'_> {
    /// # Safety
    /// As many handles and, unless they are ignored, statuses.
    unsafe fn new<'a>(
        count: c_int,
        requests: *mut MPI_Request,
        statuses: *mut MPI_Status,
    ) -> Result<Several<'a>> {
        let count = crate::count::count("count", count)?;
        array("array_of_requests", requests, count)?;
        let handles = match count {
            0 => &mut [],
            // SAFETY: this function's contract.
            _ => unsafe { std::slice::from_raw_parts_mut(requests, count) },
        };
        Ok(Several { handles, statuses, after: Vec::new() })
    }

    /// The status of one that went well.
    #[inline(always)]
    fn give_well(&self, at: usize, status: Status) {
        if !self.statuses.is_null() {
            // SAFETY: by the promise to `new`.
            unsafe { self.statuses.add(at).write(status.into()) };
        }
    }

    fn give(&self, at: usize, status: MPI_Status, error: c_int) {
        if !self.statuses.is_null() {
            // SAFETY: by the promise to `new`.
            unsafe { *self.statuses.add(at) = MPI_Status { MPI_ERROR: error, ..status } };
        }
    }
}

/// The first error, told once.
#[derive(Default)]
struct Errors {
    on: Option<Fail>,
}

impl Errors {
    fn note(&mut self, result: Result<()>) -> c_int {
        match result {
            Ok(()) => MPI_SUCCESS,
            Err(error) => {
                let code = error.code();
                self.on.get_or_insert(error);
                code
            }
        }
    }

    /// As calls on several requests answer.
    fn in_status(self) -> Result<()> {
        match self.on {
            None => Ok(()),
            Some(error) => Err(error.answering(MPI_ERR_IN_STATUS)),
        }
    }
}

mpi! {
    fn MPI_Wait(request: *mut MPI_Request, out: *mut MPI_Status) on none {
        // SAFETY: the caller's handle and status.
        unsafe {
            let mut inside = process::enter()?;
            if let Glance::Over(ended) = request::glance(&mut inside, &mut *request) {
                inside.engine.listen();
                status::give(|| ended.into(), out);
                return Ok(());
            }
            drop(inside);
            match wait_one(&mut *request)? {
                None => status::give(|| MPI_Status::EMPTY, out),
                Some(ended) => {
                    let (told, result) = outside(ended);
                    status::give(|| told, out);
                    result?;
                }
            }
        }
        Ok(())
    }

    fn MPI_Test(request: *mut MPI_Request, flag: *mut c_int, out: *mut MPI_Status) on none {
        // SAFETY: the caller's handle.
        let handle = unsafe { &mut *request };
        let mut inside = process::enter()?;
        let mut polled = request::poll(&mut inside, handle)?;
        if let Polled::Pending = polled {
            inside.progress();
            polled = request::poll(&mut inside, handle)?;
        }
        drop(inside);
        let (over, told, result) = match polled {
            Polled::Pending => (false, MPI_Status::EMPTY, Ok(())),
            Polled::Inactive => (true, MPI_Status::EMPTY, Ok(())),
            Polled::Ended(ended) => {
                let (told, result) = outside(ended);
                (true, told, result)
            }
        };
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(over));
            if over {
                status::give(|| told, out);
            }
        }
        result
    }

    fn MPI_Waitall(count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays.
        let mut several = unsafe { Several::new(count, requests, statuses)? };
        wait_all(&mut several)
    }

    fn MPI_Testall(count: c_int, requests: *mut MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays.
        let mut several = unsafe { Several::new(count, requests, statuses)? };
        let all = test_all(&mut several)?;
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(all.is_some())) };
        all.map_or(Ok(()), |progress| tell_rest(progress, &mut several))
    }

    fn MPI_Waitany(count: c_int, requests: *mut MPI_Request, index: *mut c_int, out: *mut MPI_Status) on none {
        // SAFETY: the caller's array.
        let several = unsafe { Several::new(count, requests, std::ptr::null_mut())? };
        let found = process::wait(|inside| any(inside, several.handles).transpose())?;
        // SAFETY: the caller's results.
        unsafe { give_any(found, index, out) }
    }

    fn MPI_Testany(count: c_int, requests: *mut MPI_Request, index: *mut c_int, flag: *mut c_int, out: *mut MPI_Status) on none {
        // SAFETY: the caller's array.
        let several = unsafe { Several::new(count, requests, std::ptr::null_mut())? };
        let mut inside = process::enter()?;
        let mut found = any(&mut inside, several.handles)?;
        if found.is_none() {
            inside.progress();
            found = any(&mut inside, several.handles)?;
        }
        drop(inside);
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(found.is_some()));
            match found {
                Some(found) => give_any(found, index, out),
                None => {
                    index.write(MPI_UNDEFINED);
                    Ok(())
                }
            }
        }
    }

    fn MPI_Request_get_status_all(count: c_int, requests: *const MPI_Request, flag: *mut c_int, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays; the handles stay as they are.
        let several = unsafe { Several::new(count, requests.cast_mut(), statuses)? };
        let seen = seen(&several)?;
        let all = seen.iter().all(Option::is_some);
        for (at, told) in seen.into_iter().flatten().enumerate().take_while(|_| all) {
            several.give(at, told, MPI_SUCCESS);
        }
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(all)) };
        Ok(())
    }

    fn MPI_Request_get_status_any(count: c_int, requests: *const MPI_Request, index: *mut c_int, flag: *mut c_int, out: *mut MPI_Status) on none {
        // SAFETY: the caller's array; the handles stay as they are.
        let several = unsafe { Several::new(count, requests.cast_mut(), std::ptr::null_mut())? };
        let none_active = several.handles.iter().all(|handle| *handle == MPI_REQUEST_NULL);
        let seen = seen(&several)?;
        let active = |at: &usize| several.handles[*at] != MPI_REQUEST_NULL;
        let found = (0..seen.len()).filter(active).find_map(|at| Some((at, seen[at]?)));
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(found.is_some() || none_active));
            index.write(found.map_or(MPI_UNDEFINED, |(at, _)| at as c_int));
            match found {
                Some((_, told)) => status::give(|| told, out),
                // All of an empty status: its error too (§3.7.3).
                None if none_active && !out.is_null() => out.write(MPI_Status::EMPTY),
                None => {}
            }
        }
        Ok(())
    }

    fn MPI_Request_get_status_some(incount: c_int, requests: *const MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays; the handles stay as they are.
        let several = unsafe { Several::new(incount, requests.cast_mut(), statuses)? };
        let none_active = several.handles.iter().all(|handle| *handle == MPI_REQUEST_NULL);
        let mut found = 0;
        for (at, told) in seen(&several)?.into_iter().enumerate() {
            if let (Some(told), false) = (told, several.handles[at] == MPI_REQUEST_NULL) {
                // SAFETY: the caller's result.
                unsafe { indices.add(found).write(at as c_int) };
                several.give(found, told, MPI_SUCCESS);
                found += 1;
            }
        }
        // SAFETY: the caller's result.
        unsafe { outcount.write(if none_active { MPI_UNDEFINED } else { found as c_int }) };
        Ok(())
    }

    fn MPI_Waitsome(incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays.
        let mut several = unsafe { Several::new(incount, requests, statuses)? };
        let found = process::wait(|inside| match some(inside, &mut several) {
            Ok(found) if found.as_ref().is_some_and(Vec::is_empty) => None,
            other => Some(other),
        })?;
        // SAFETY: the caller's results.
        unsafe { give_some(&several, found, outcount, indices) }
    }

    fn MPI_Testsome(incount: c_int, requests: *mut MPI_Request, outcount: *mut c_int, indices: *mut c_int, statuses: *mut MPI_Status) on none {
        // SAFETY: the caller's arrays.
        let mut several = unsafe { Several::new(incount, requests, statuses)? };
        let mut inside = process::enter()?;
        let mut found = some(&mut inside, &mut several)?;
        if found.as_ref().is_some_and(Vec::is_empty) {
            inside.progress();
            found = some(&mut inside, &mut several)?;
        }
        drop(inside);
        // SAFETY: the caller's results.
        unsafe { give_some(&several, found, outcount, indices) }
    }
}

/// How far a call has come that waits for all of several requests.
#[derive(Default)]
struct Progress {
    /// All before it are over, or were never active.
    first: usize,
    /// Those behind it that are over, too; empty while there are none.
    over: Vec<bool>,
    errors: Errors,
    /// An interruption was seen, and all others were looked at since.
    last: bool,
    rounds: u32,
}

impl Progress {
    fn is_over(&self, at: usize) -> bool {
        at < self.first || self.over.get(at).is_some_and(|over| *over)
    }

    fn set_over(&mut self, at: usize, count: usize) {
        if at == self.first {
            self.first += 1;
        } else {
            self.over.resize(count, false);
            self.over[at] = true;
        }
    }

    /// One round; `true` when there is nothing to wait for any more.
    #[inline]
    fn round(&mut self, inside: &mut Inside, several: &mut Several<'_>) -> Result<bool> {
        // In order, mostly: what follows is looked at when this is over, and now and then for interruptions.
        self.rounds = self.rounds.wrapping_add(1);
        let all = self.errors.on.is_some() || self.rounds.is_multiple_of(64);
        let before = self.first;
        match self.sweep(inside, several) {
            Glance::Over(_) => Ok(true),
            Glance::Pending if !all => Ok(false),
            _ => self.look(inside, several, all, before),
        }
    }

    /// Ends those that went well, from the first on; answers what the next one is, which has not.
    #[inline(always)]
    fn sweep(&mut self, inside: &mut Inside, several: &mut Several<'_>) -> Glance {
        while let Some(handle) = several.handles.get_mut(self.first) {
            if self.over.get(self.first).is_none_or(|over| !over) {
                match request::glance(inside, handle) {
                    Glance::Over(status) => several.give_well(self.first, status),
                    other => return other,
                }
            }
            self.first += 1;
        }
        Glance::Over(Status::EMPTY)
    }

    /// The whole round, for everything that is not usual. `before`: the first when the round began.
    #[cold]
    #[inline(never)]
    fn look(
        &mut self,
        inside: &mut Inside,
        several: &mut Several<'_>,
        all: bool,
        before: usize,
    ) -> Result<bool> {
        let count = several.handles.len();
        let (mut active, mut ended_now) = (false, self.first > before);
        for at in self.first..count {
            if self.is_over(at) {
                continue;
            }
            match request::poll(inside, &mut several.handles[at])? {
                Polled::Pending if !all => return Ok(false),
                Polled::Pending => active = true,
                Polled::Inactive => {
                    self.set_over(at, count);
                    several.give(at, MPI_Status::EMPTY, MPI_SUCCESS);
                }
                Polled::Ended(ended) => {
                    ended_now = true;
                    self.set_over(at, count);
                    if ended.after.is_some() {
                        several.after.push((at, ended));
                    } else {
                        let code = self.errors.note(ended.result);
                        several.give(at, ended.status, code);
                    }
                }
            }
        }
        // Those that the same cause ends may need another look.
        let interrupted = self.errors.on.as_ref().is_some_and(Fail::is_interruption);
        let give_up = interrupted && self.last && !ended_now;
        self.last = interrupted && !ended_now;
        Ok(!active || give_up)
    }
}

/// Waits for all, then tells.
fn wait_all(several: &mut Several<'_>) -> Result<()> {
    let mut progress = Progress::default();
    let mut inside = process::enter()?;
    inside.engine.listen();
    if let Glance::Over(_) = progress.sweep(&mut inside, several) {
        return Ok(());
    }
    drop(inside);
    process::wait(|inside| match progress.round(inside, several) {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    })?;
    if progress.first == several.handles.len()
        && several.after.is_empty()
        && progress.errors.on.is_none()
    {
        return Ok(());
    }
    tell_rest(progress, several)
}

/// What is left to do outside, and the answer.
#[cold]
fn tell_rest(mut progress: Progress, several: &mut Several<'_>) -> Result<()> {
    for (at, ended) in std::mem::take(&mut several.after) {
        let (told, result) = outside(ended);
        let code = progress.errors.note(result);
        several.give(at, told, code);
    }
    for at in progress.first..several.handles.len() {
        if !progress.is_over(at) {
            several.give(at, MPI_Status::EMPTY, MPI_ERR_PENDING);
        }
    }
    progress.errors.in_status()
}

/// The statuses of those that are over, without ending them.
fn seen(several: &Several<'_>) -> Result<Vec<Option<MPI_Status>>> {
    let mut inside = process::enter()?;
    inside.progress();
    several.handles.iter().map(|handle| request::peek(&mut inside, *handle)).collect()
}

/// Ends all, if they are over or one was interrupted; else none. In one visit: what was seen is still so when it is told.
fn test_all(several: &mut Several<'_>) -> Result<Option<Progress>> {
    let mut inside = process::enter()?;
    if !would_end(&mut inside, several)? {
        inside.progress();
        if !would_end(&mut inside, several)? {
            return Ok(None);
        }
    }
    let mut progress = Progress::default();
    while !progress.look(&mut inside, several, true, progress.first)? {}
    Ok(Some(progress))
}

/// Whether all are over, or one was interrupted.
fn would_end(inside: &mut Inside, several: &Several<'_>) -> Result<bool> {
    let mut all = true;
    for handle in several.handles.iter() {
        match request::look(inside, *handle)? {
            Seen::Interrupted(_) => return Ok(true),
            Seen::Over(_) => {}
            Seen::Pending => all = false,
        }
    }
    Ok(all)
}

/// `Some(None)`: none is active.
type Any = Option<(usize, Ended)>;

/// The first that is over.
fn any(inside: &mut Inside, handles: &mut [MPI_Request]) -> Result<Option<Any>> {
    let mut active = false;
    for (at, handle) in handles.iter_mut().enumerate() {
        match request::poll(inside, handle)? {
            Polled::Inactive => {}
            Polled::Pending => active = true,
            Polled::Ended(ended) => return Ok(Some(Some((at, ended)))),
        }
    }
    Ok(if active { None } else { Some(None) })
}

unsafe fn give_any(found: Any, index: *mut c_int, out: *mut MPI_Status) -> Result<()> {
    // SAFETY: the caller's results.
    unsafe {
        match found {
            None => {
                index.write(MPI_UNDEFINED);
                status::give(|| MPI_Status::EMPTY, out);
                Ok(())
            }
            Some((at, ended)) => {
                let (told, result) = outside(ended);
                index.write(at as c_int);
                status::give(|| told, out);
                result
            }
        }
    }
}

/// All that are over; `None`: none is active.
fn some(inside: &mut Inside, several: &mut Several<'_>) -> Result<Option<Vec<(usize, Ended)>>> {
    let mut active = false;
    let mut found = Vec::new();
    for (at, handle) in several.handles.iter_mut().enumerate() {
        match request::poll(inside, handle)? {
            Polled::Inactive => {}
            Polled::Pending => active = true,
            Polled::Ended(ended) => found.push((at, ended)),
        }
    }
    Ok(if active || !found.is_empty() { Some(found) } else { None })
}

unsafe fn give_some(
    several: &Several<'_>,
    found: Option<Vec<(usize, Ended)>>,
    outcount: *mut c_int,
    indices: *mut c_int,
) -> Result<()> {
    let mut errors = Errors::default();
    // SAFETY: the caller's results.
    unsafe {
        let Some(found) = found else {
            outcount.write(MPI_UNDEFINED);
            return Ok(());
        };
        outcount.write(found.len() as c_int);
        for (place, (at, ended)) in found.into_iter().enumerate() {
            let (told, result) = outside(ended);
            indices.add(place).write(at as c_int);
            several.give(place, told, errors.note(result));
        }
    }
    errors.in_status()
}
