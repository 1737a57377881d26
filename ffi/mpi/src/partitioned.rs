//! Partitioned communication (MPI 5.0, chapter 4): a message whose parts are given one by one, and match as one. It travels when
//! its last part is ready.
//!
//! Partitioned operations match each other only, by tags of their own, which a revoke reaches and the failure of a collective
//! does not.

use crate::prelude::*;
use crate::process::Inside;
use crate::request::{After, Ended, Operation, Request, unknown};
use crate::{comm, data, p2p};
use ironweave_coll::partitioned_tag;
use ironweave_pml::ob1::{Mode, Payload, ReqId, Source, Started, TagMatch};

/// Which side of it this is.
enum Side {
    /// What to send; which parts are ready in this run, and how many are not.
    Send { payload: Payload, ready: Vec<bool>, missing: usize },
    /// Where to receive: address, elements, datatype.
    Receive { buf: usize, count: i64, datatype: MPI_Datatype },
}

/// Where a run stands.
enum Run {
    /// Not started, or over.
    Idle,
    /// Parts are missing.
    Filling,
    /// The message is under way.
    UnderWay(ReqId),
    /// It is over, and nobody has asked.
    Over(Option<Ended>),
}

struct Partitioned {
    comm: &'static comm::Comm,
    /// `None`: `MPI_PROC_NULL`.
    peer: Option<u32>,
    tag: c_int,
    partitions: usize,
    side: Side,
    run: Run,
}

impl Partitioned {
    /// All parts are ready.
    fn send(&mut self, inside: &mut Inside) -> Result<()> {
        let (Side::Send { payload, .. }, Some(peer)) = (&self.side, self.peer) else {
            return Ok(());
        };
        let (p2p, tag) = (self.comm.p2p, self.tag);
        let sent =
            inside.engine.resolving(|pml| pml.send(p2p, Mode::Standard, payload, peer, tag))?;
        self.run = match sent {
            Started::Done => Run::Over(Some(Ended::well(MPI_Status::EMPTY))),
            Started::Pending(id) => Run::UnderWay(id),
        };
        Ok(())
    }

    fn advance(&mut self, inside: &mut Inside) {
        if let Run::UnderWay(id) = self.run
            && let Some(ended) = inside.engine.poll(id)
        {
            self.run = Run::Over(Some(Ended::of(ended.map(|status| *status))));
        }
    }

    fn part(&self, partition: c_int) -> Result<usize> {
        let part = usize::try_from(partition).ok().filter(|&part| part < self.partitions);
        part.ok_or_else(|| {
            fail(MPI_ERR_ARG, format!("partition {partition}, and there are {}", self.partitions))
        })
    }

    fn ready(&mut self, inside: &mut Inside, partition: c_int) -> Result<()> {
        let part = self.part(partition)?;
        let Side::Send { ready, missing, .. } = &mut self.side else {
            return Err(fail(MPI_ERR_REQUEST, "it is no partitioned send"));
        };
        if matches!(self.run, Run::Idle) {
            return Err(fail(MPI_ERR_REQUEST, "the partitioned send is not active"));
        }
        if std::mem::replace(&mut ready[part], true) {
            return Err(fail(MPI_ERR_ARG, format!("partition {partition} was ready before")));
        }
        *missing -= 1;
        if *missing == 0 && self.peer.is_some() { self.send(inside) } else { Ok(()) }
    }
}

impl Operation for Partitioned {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        self.advance(inside);
        let Run::Over(ended) = &mut self.run else { return None };
        let ended = ended.take();
        self.run = Run::Idle;
        ended
    }

    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        let partitions = self.partitions;
        match &mut self.side {
            Side::Send { ready, missing, .. } => {
                ready.fill(false);
                *missing = partitions;
                self.run = Run::Filling;
                if partitions == 0 {
                    self.send(inside)?;
                }
            }
            Side::Receive { buf, count, datatype } => {
                let Some(peer) = self.peer else {
                    self.run = Run::Over(Some(Ended::well(MPI_Status::NO_PROC)));
                    return Ok(());
                };
                let buf = std::ptr::with_exposed_provenance_mut(*buf);
                // SAFETY: the caller's buffer, which is the library's while the request is active.
                let into = unsafe { data::buffer(buf, *count, *datatype)? };
                let (source, tag) = (Source::Rank(peer), TagMatch::Tag(self.tag));
                let id = inside.engine.pml.recv(self.comm.p2p, into, source, tag)?;
                self.run = Run::UnderWay(id);
            }
        }
        if self.peer.is_none() {
            self.run = Run::Over(Some(Ended::well(MPI_Status::EMPTY)));
        }
        Ok(())
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn free(self: Box<Self>, inside: &mut Inside) -> Result<Option<After>> {
        if let Run::UnderWay(id) = self.run {
            inside.engine.pml.request_free(id);
        }
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Elements of all partitions.
fn total(partitions: c_int, count: MPI_Count) -> Result<(usize, i64)> {
    let n = crate::count::count("partitions", partitions)
        .map_err(|error| error.recoded(MPI_ERR_ARG))?;
    if count < 0 {
        return Err(fail(MPI_ERR_COUNT, format!("count is {count}, which is negative")));
    }
    let all = count.checked_mul(i64::from(partitions));
    Ok((n, all.ok_or_else(|| fail(MPI_ERR_COUNT, "the counts overflow"))?))
}

fn peer(rank: c_int, there: &comm::Comm) -> Result<Option<u32>> {
    match u32::try_from(rank) {
        Ok(rank) if rank < there.peers() => Ok(Some(rank)),
        Err(_) if rank == MPI_PROC_NULL => Ok(None),
        _ => Err(p2p::wrong_rank("other rank", rank, there)),
    }
}

fn tag(tag: c_int) -> Result<c_int> {
    match p2p::matching(tag)? {
        TagMatch::Tag(tag) => Ok(partitioned_tag(tag)),
        TagMatch::Any => Err(fail(MPI_ERR_TAG, "partitioned operations need a tag")),
    }
}

/// Runs `with` on a partitioned request.
fn find<R>(
    handle: MPI_Request,
    with: impl FnOnce(&mut Partitioned, &mut Inside) -> Result<R>,
) -> Result<R> {
    let mut inside = process::enter()?;
    if handle == MPI_REQUEST_NULL {
        return Err(unknown(handle));
    }
    let (place, comm) = inside.requests.get(handle)?;
    let mut request = std::mem::replace(place, Request::Out);
    let answer = match &mut request {
        Request::Other(operation, _) => match operation.as_any().downcast_mut::<Partitioned>() {
            Some(found) => with(found, &mut inside),
            None => Err(fail(MPI_ERR_REQUEST, "it is no partitioned request")),
        },
        _ => Err(fail(MPI_ERR_REQUEST, "it is no partitioned request")),
    };
    *inside.requests.get(handle)?.0 = request;
    answer.map_err(|error| error.on(comm))
}

fn insert(comm: MPI_Comm, made: Partitioned, request: *mut MPI_Request) -> Result<()> {
    let made = process::enter()?.requests.insert(comm, Request::Other(Box::new(made), false));
    // SAFETY: the caller's result.
    unsafe { request.write(made) };
    Ok(())
}

mpi! {
    fn MPI_Psend_init(buf: *const c_void, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let (n, all) = total(partitions, count)?;
        // SAFETY: the caller's buffer, which is the library's while the request is active.
        let payload = unsafe { data::payload(buf, all, datatype)? };
        let side = Side::Send { payload, ready: vec![false; n], missing: n };
        let (peer, tag) = (peer(dest, there)?, self::tag(tag)?);
        insert(comm, Partitioned { comm: there, peer, tag, partitions: n, side, run: Run::Idle }, request)
    }

    fn MPI_Precv_init(buf: *mut c_void, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let (n, all) = total(partitions, count)?;
        data::describe(buf, all, datatype)?;
        let side = Side::Receive { buf: buf.expose_provenance(), count: all, datatype };
        let (peer, tag) = (peer(source, there)?, self::tag(tag)?);
        insert(comm, Partitioned { comm: there, peer, tag, partitions: n, side, run: Run::Idle }, request)
    }

    fn MPI_Pready(partition: c_int, request: MPI_Request) on none {
        find(request, |found, inside| found.ready(inside, partition))
    }

    fn MPI_Pready_range(partition_low: c_int, partition_high: c_int, request: MPI_Request) on none {
        find(request, |found, inside| {
            (partition_low..=partition_high).try_for_each(|partition| found.ready(inside, partition))
        })
    }

    fn MPI_Pready_list(length: c_int, partitions: *const c_int, request: MPI_Request) on none {
        let n = crate::count::count("length", length).map_err(|error| error.recoded(MPI_ERR_ARG))?;
        find(request, |found, inside| {
            // SAFETY: the caller's array.
            (0..n).try_for_each(|at| found.ready(inside, unsafe { *partitions.add(at) }))
        })
    }

    fn MPI_Parrived(request: MPI_Request, partition: c_int, flag: *mut c_int) on none {
        let arrived = find(request, |found, inside| {
            found.part(partition)?;
            if matches!(found.side, Side::Send { .. }) {
                return Err(fail(MPI_ERR_REQUEST, "it is no partitioned receive"));
            }
            if matches!(found.run, Run::UnderWay(_)) {
                inside.engine.progress();
                found.advance(inside);
            }
            // Before and after a run nothing is missing (§4.2.2).
            Ok(matches!(found.run, Run::Idle | Run::Over(_)))
        })?;
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(arrived)) };
        Ok(())
    }
}
