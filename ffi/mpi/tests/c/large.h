/* With -DLARGE a program of this folder calls the large-count form of every function that has one and that it uses: counts
 * are then COUNT, which is MPI_Count, and displacements DISPL, which is MPI_Aint; int without it. */
#ifndef LARGE_H
#define LARGE_H

#ifdef LARGE
typedef MPI_Count COUNT;
typedef MPI_Aint DISPL;
#define MPI_Bsend MPI_Bsend_c
#define MPI_Bsend_init MPI_Bsend_init_c
#define MPI_Buffer_attach MPI_Buffer_attach_c
#define MPI_Buffer_detach MPI_Buffer_detach_c
#define MPI_Comm_attach_buffer MPI_Comm_attach_buffer_c
#define MPI_Comm_detach_buffer MPI_Comm_detach_buffer_c
#define MPI_Get_count MPI_Get_count_c
#define MPI_Ibsend MPI_Ibsend_c
#define MPI_Imrecv MPI_Imrecv_c
#define MPI_Irecv MPI_Irecv_c
#define MPI_Irsend MPI_Irsend_c
#define MPI_Isend MPI_Isend_c
#define MPI_Isendrecv MPI_Isendrecv_c
#define MPI_Isendrecv_replace MPI_Isendrecv_replace_c
#define MPI_Issend MPI_Issend_c
#define MPI_Mrecv MPI_Mrecv_c
#define MPI_Recv MPI_Recv_c
#define MPI_Recv_init MPI_Recv_init_c
#define MPI_Rsend MPI_Rsend_c
#define MPI_Rsend_init MPI_Rsend_init_c
#define MPI_Send MPI_Send_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Sendrecv_replace MPI_Sendrecv_replace_c
#define MPI_Session_attach_buffer MPI_Session_attach_buffer_c
#define MPI_Session_detach_buffer MPI_Session_detach_buffer_c
#define MPI_Ssend MPI_Ssend_c
#define MPI_Ssend_init MPI_Ssend_init_c
#define MPI_Allgather MPI_Allgather_c
#define MPI_Iallgather MPI_Iallgather_c
#define MPI_Allgather_init MPI_Allgather_init_c
#define MPI_Allgatherv MPI_Allgatherv_c
#define MPI_Iallgatherv MPI_Iallgatherv_c
#define MPI_Allgatherv_init MPI_Allgatherv_init_c
#define MPI_Allreduce MPI_Allreduce_c
#define MPI_Iallreduce MPI_Iallreduce_c
#define MPI_Allreduce_init MPI_Allreduce_init_c
#define MPI_Alltoall MPI_Alltoall_c
#define MPI_Ialltoall MPI_Ialltoall_c
#define MPI_Alltoall_init MPI_Alltoall_init_c
#define MPI_Alltoallv MPI_Alltoallv_c
#define MPI_Ialltoallv MPI_Ialltoallv_c
#define MPI_Alltoallv_init MPI_Alltoallv_init_c
#define MPI_Alltoallw MPI_Alltoallw_c
#define MPI_Ialltoallw MPI_Ialltoallw_c
#define MPI_Alltoallw_init MPI_Alltoallw_init_c
#define MPI_Bcast MPI_Bcast_c
#define MPI_Ibcast MPI_Ibcast_c
#define MPI_Bcast_init MPI_Bcast_init_c
#define MPI_Exscan MPI_Exscan_c
#define MPI_Iexscan MPI_Iexscan_c
#define MPI_Exscan_init MPI_Exscan_init_c
#define MPI_Gather MPI_Gather_c
#define MPI_Igather MPI_Igather_c
#define MPI_Gather_init MPI_Gather_init_c
#define MPI_Gatherv MPI_Gatherv_c
#define MPI_Igatherv MPI_Igatherv_c
#define MPI_Gatherv_init MPI_Gatherv_init_c
#define MPI_Reduce MPI_Reduce_c
#define MPI_Ireduce MPI_Ireduce_c
#define MPI_Reduce_init MPI_Reduce_init_c
#define MPI_Reduce_scatter MPI_Reduce_scatter_c
#define MPI_Ireduce_scatter MPI_Ireduce_scatter_c
#define MPI_Reduce_scatter_init MPI_Reduce_scatter_init_c
#define MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c
#define MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c
#define MPI_Reduce_scatter_block_init MPI_Reduce_scatter_block_init_c
#define MPI_Scan MPI_Scan_c
#define MPI_Iscan MPI_Iscan_c
#define MPI_Scan_init MPI_Scan_init_c
#define MPI_Scatter MPI_Scatter_c
#define MPI_Iscatter MPI_Iscatter_c
#define MPI_Scatter_init MPI_Scatter_init_c
#define MPI_Scatterv MPI_Scatterv_c
#define MPI_Iscatterv MPI_Iscatterv_c
#define MPI_Scatterv_init MPI_Scatterv_init_c
#define MPI_Neighbor_allgather MPI_Neighbor_allgather_c
#define MPI_Ineighbor_allgather MPI_Ineighbor_allgather_c
#define MPI_Neighbor_allgather_init MPI_Neighbor_allgather_init_c
#define MPI_Neighbor_allgatherv MPI_Neighbor_allgatherv_c
#define MPI_Ineighbor_allgatherv MPI_Ineighbor_allgatherv_c
#define MPI_Neighbor_allgatherv_init MPI_Neighbor_allgatherv_init_c
#define MPI_Neighbor_alltoall MPI_Neighbor_alltoall_c
#define MPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c
#define MPI_Neighbor_alltoall_init MPI_Neighbor_alltoall_init_c
#define MPI_Neighbor_alltoallv MPI_Neighbor_alltoallv_c
#define MPI_Ineighbor_alltoallv MPI_Ineighbor_alltoallv_c
#define MPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallv_init_c
#define MPI_Neighbor_alltoallw MPI_Neighbor_alltoallw_c
#define MPI_Ineighbor_alltoallw MPI_Ineighbor_alltoallw_c
#define MPI_Neighbor_alltoallw_init MPI_Neighbor_alltoallw_init_c
#define MPI_Op_create MPI_Op_create_c
#define MPI_Reduce_local MPI_Reduce_local_c
#else
typedef int COUNT;
typedef int DISPL;
#endif

#endif
