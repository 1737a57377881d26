//! Collective communication: blocking, non-blocking and persistent (MPI 5.0, chapter 6).
//!
//! Arguments become a [`Prepared`](run::Prepared) call of `ironweave_coll` ([`prepare`]), in bytes; the three forms differ in how it
//! is run ([`run`]). Plain arguments have a short cut ([`soon`]). A failure ends every member's call; the schedule's messages are over before the caller hears of it.

pub mod argument;
mod neighbor;
pub mod prepare;
pub mod run;
pub mod side;
pub mod soon;

use crate::prelude::*;
use argument::{Operands, mixed, uniform, varying};

/// A collective in its three forms, of both widths; `or` is its short cut.
macro_rules! collective {
    ($(
        $blocking:ident / $blocking_c:ident, $immediate:ident / $immediate_c:ident, $init:ident / $init_c:ident
        ($($arg:ident: $ty:ty),* $(,)?) = |$there:ident| $prepare:expr $(, or $soon:expr)?;
    )*) => {$(
        mpi! {
            fn $blocking / $blocking_c($($arg: $ty,)* comm: MPI_Comm) on comm $(first {
                // SAFETY: the caller's buffers, given back before this returns.
                $crate::collective::soon::blocking(comm, move |$there| unsafe { $soon })
            })? {
                // SAFETY: the caller's buffers, given back before this returns.
                $crate::collective::run::blocking(comm, move |$there| unsafe { $prepare })
            }

            fn $immediate / $immediate_c($($arg: $ty,)* comm: MPI_Comm, request: *mut MPI_Request) on comm $(first {
                // SAFETY: the caller's buffers, which are the library's until the request is over, and result.
                if request.is_null() { None } else { unsafe { $crate::collective::soon::immediate(comm, move |$there| $soon).map(|made| made.map(|made| request.write(made))) } }
            })? {
                // SAFETY: the caller's buffers, which are the library's until the request is over, and result.
                unsafe { $crate::collective::run::immediate(comm, move |$there| $prepare, request) }
            }

            fn $init / $init_c($($arg: $ty,)* comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
                // SAFETY: the caller's buffers and arrays, which are the library's while the request is active, and result.
                unsafe { $crate::collective::run::persistent(comm, move |$there| $prepare, request) }
            }
        }
    )*};
}

collective! {
    MPI_Bcast / MPI_Bcast_c, MPI_Ibcast / MPI_Ibcast_c, MPI_Bcast_init / MPI_Bcast_init_c
    (buffer: *mut c_void, count: Count, datatype: MPI_Datatype, root: c_int)
    = |there| prepare::bcast(there, uniform(buffer, count, datatype), root),
    or soon::bcast(there, buffer, count.wide(), datatype, root);

    MPI_Gather / MPI_Gather_c, MPI_Igather / MPI_Igather_c, MPI_Gather_init / MPI_Gather_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype, root: c_int)
    = |there| prepare::gather(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype), root);

    MPI_Gatherv / MPI_Gatherv_c, MPI_Igatherv / MPI_Igatherv_c, MPI_Gatherv_init / MPI_Gatherv_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, displs: *const Displ, recvtype: MPI_Datatype, root: c_int)
    = |there| prepare::gatherv(there, uniform(sendbuf, sendcount, sendtype), varying(recvbuf, recvcounts, displs, recvtype), root);

    MPI_Scatter / MPI_Scatter_c, MPI_Iscatter / MPI_Iscatter_c, MPI_Scatter_init / MPI_Scatter_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype, root: c_int)
    = |there| prepare::scatter(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype), root);

    MPI_Scatterv / MPI_Scatterv_c, MPI_Iscatterv / MPI_Iscatterv_c, MPI_Scatterv_init / MPI_Scatterv_init_c
    (sendbuf: *const c_void, sendcounts: *const Count, displs: *const Displ, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype, root: c_int)
    = |there| prepare::scatterv(there, varying(sendbuf, sendcounts, displs, sendtype), uniform(recvbuf, recvcount, recvtype), root);

    MPI_Allgather / MPI_Allgather_c, MPI_Iallgather / MPI_Iallgather_c, MPI_Allgather_init / MPI_Allgather_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype)
    = |there| prepare::allgather(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype)),
    or soon::allgather(there, sendbuf, sendcount.wide(), sendtype, recvbuf, recvcount.wide(), recvtype);

    MPI_Allgatherv / MPI_Allgatherv_c, MPI_Iallgatherv / MPI_Iallgatherv_c, MPI_Allgatherv_init / MPI_Allgatherv_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, displs: *const Displ, recvtype: MPI_Datatype)
    = |there| prepare::allgatherv(there, uniform(sendbuf, sendcount, sendtype), varying(recvbuf, recvcounts, displs, recvtype));

    MPI_Alltoall / MPI_Alltoall_c, MPI_Ialltoall / MPI_Ialltoall_c, MPI_Alltoall_init / MPI_Alltoall_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype)
    = |there| prepare::alltoall(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype)),
    or soon::alltoall(there, sendbuf, sendcount.wide(), sendtype, recvbuf, recvcount.wide(), recvtype);

    MPI_Alltoallv / MPI_Alltoallv_c, MPI_Ialltoallv / MPI_Ialltoallv_c, MPI_Alltoallv_init / MPI_Alltoallv_init_c
    (sendbuf: *const c_void, sendcounts: *const Count, sdispls: *const Displ, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, rdispls: *const Displ, recvtype: MPI_Datatype)
    = |there| prepare::alltoallv(there, varying(sendbuf, sendcounts, sdispls, sendtype), varying(recvbuf, recvcounts, rdispls, recvtype));

    MPI_Alltoallw / MPI_Alltoallw_c, MPI_Ialltoallw / MPI_Ialltoallw_c, MPI_Alltoallw_init / MPI_Alltoallw_init_c
    (sendbuf: *const c_void, sendcounts: *const Count, sdispls: *const Displ, sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, rdispls: *const Displ, recvtypes: *const MPI_Datatype)
    = |there| prepare::alltoallv(there, mixed(sendbuf, sendcounts, sdispls, sendtypes), mixed(recvbuf, recvcounts, rdispls, recvtypes));

    MPI_Reduce / MPI_Reduce_c, MPI_Ireduce / MPI_Ireduce_c, MPI_Reduce_init / MPI_Reduce_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, count: Count, datatype: MPI_Datatype, op: MPI_Op, root: c_int)
    = |there| prepare::reduce(there, Operands { sendbuf, recvbuf, datatype, op }, count.wide(), root),
    or soon::reduce(there, sendbuf, recvbuf, count.wide(), datatype, op, root);

    MPI_Allreduce / MPI_Allreduce_c, MPI_Iallreduce / MPI_Iallreduce_c, MPI_Allreduce_init / MPI_Allreduce_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, count: Count, datatype: MPI_Datatype, op: MPI_Op)
    = |there| prepare::allreduce(there, Operands { sendbuf, recvbuf, datatype, op }, count.wide()),
    or soon::allreduce(there, sendbuf, recvbuf, count.wide(), datatype, op);

    MPI_Reduce_scatter / MPI_Reduce_scatter_c, MPI_Ireduce_scatter / MPI_Ireduce_scatter_c, MPI_Reduce_scatter_init / MPI_Reduce_scatter_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const Count, datatype: MPI_Datatype, op: MPI_Op)
    = |there| prepare::reduce_scatter(there, Operands { sendbuf, recvbuf, datatype, op }, recvcounts.into());

    MPI_Reduce_scatter_block / MPI_Reduce_scatter_block_c, MPI_Ireduce_scatter_block / MPI_Ireduce_scatter_block_c, MPI_Reduce_scatter_block_init / MPI_Reduce_scatter_block_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: Count, datatype: MPI_Datatype, op: MPI_Op)
    = |there| prepare::reduce_scatter_block(there, Operands { sendbuf, recvbuf, datatype, op }, recvcount.wide());

    MPI_Scan / MPI_Scan_c, MPI_Iscan / MPI_Iscan_c, MPI_Scan_init / MPI_Scan_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, count: Count, datatype: MPI_Datatype, op: MPI_Op)
    = |there| prepare::scan(there, Operands { sendbuf, recvbuf, datatype, op }, count.wide(), false);

    MPI_Exscan / MPI_Exscan_c, MPI_Iexscan / MPI_Iexscan_c, MPI_Exscan_init / MPI_Exscan_init_c
    (sendbuf: *const c_void, recvbuf: *mut c_void, count: Count, datatype: MPI_Datatype, op: MPI_Op)
    = |there| prepare::scan(there, Operands { sendbuf, recvbuf, datatype, op }, count.wide(), true);
}

collective! {
    MPI_Neighbor_allgather / MPI_Neighbor_allgather_c, MPI_Ineighbor_allgather / MPI_Ineighbor_allgather_c, MPI_Neighbor_allgather_init / MPI_Neighbor_allgather_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype)
    = |there| neighbor::allgather(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype));

    MPI_Neighbor_allgatherv / MPI_Neighbor_allgatherv_c, MPI_Ineighbor_allgatherv / MPI_Ineighbor_allgatherv_c, MPI_Neighbor_allgatherv_init / MPI_Neighbor_allgatherv_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, displs: *const Displ, recvtype: MPI_Datatype)
    = |there| neighbor::allgatherv(there, uniform(sendbuf, sendcount, sendtype), varying(recvbuf, recvcounts, displs, recvtype));

    MPI_Neighbor_alltoall / MPI_Neighbor_alltoall_c, MPI_Ineighbor_alltoall / MPI_Ineighbor_alltoall_c, MPI_Neighbor_alltoall_init / MPI_Neighbor_alltoall_init_c
    (sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype)
    = |there| neighbor::alltoall(there, uniform(sendbuf, sendcount, sendtype), uniform(recvbuf, recvcount, recvtype));

    MPI_Neighbor_alltoallv / MPI_Neighbor_alltoallv_c, MPI_Ineighbor_alltoallv / MPI_Ineighbor_alltoallv_c, MPI_Neighbor_alltoallv_init / MPI_Neighbor_alltoallv_init_c
    (sendbuf: *const c_void, sendcounts: *const Count, sdispls: *const Displ, sendtype: MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, rdispls: *const Displ, recvtype: MPI_Datatype)
    = |there| neighbor::alltoallv(there, varying(sendbuf, sendcounts, sdispls, sendtype), varying(recvbuf, recvcounts, rdispls, recvtype));

    MPI_Neighbor_alltoallw / MPI_Neighbor_alltoallw_c, MPI_Ineighbor_alltoallw / MPI_Ineighbor_alltoallw_c, MPI_Neighbor_alltoallw_init / MPI_Neighbor_alltoallw_init_c
    (sendbuf: *const c_void, sendcounts: *const Count, sdispls: *const MPI_Aint, sendtypes: *const MPI_Datatype, recvbuf: *mut c_void, recvcounts: *const Count, rdispls: *const MPI_Aint, recvtypes: *const MPI_Datatype)
    = |there| neighbor::alltoallv(there, mixed(sendbuf, sendcounts, sdispls, sendtypes), mixed(recvbuf, recvcounts, rdispls, recvtypes));
}

mpi! {
    fn MPI_Barrier(comm: MPI_Comm) on comm first { soon::blocking(comm, |_| soon::barrier()) } {
        run::blocking(comm, |_| Ok(prepare::barrier()))
    }

    fn MPI_Ibarrier(comm: MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's result.
        unsafe { run::immediate(comm, |_| Ok(prepare::barrier()), request) }
    }

    fn MPI_Barrier_init(comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's result.
        unsafe { run::persistent(comm, |_| Ok(prepare::barrier()), request) }
    }
}
