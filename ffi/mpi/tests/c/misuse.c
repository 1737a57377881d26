/* Arguments that are good in themselves, and wrong together or at this time: which error class comes back, and that nothing happens
 * to what was right. What a single argument can be wrong in is in arguments.h. */
#include "check.h"

static int data[16], more[16];
static int ours; /* other libraries take what is asked then as it is */

/* Buffers that overlap in part, and some that lie between each other and do not. */
static void overlapping(void) {
  MPI_Request request;
  MPI_Datatype column;
  int counts[1] = {1}, at[1] = {3};
  CLASS(MPI_Allgather(data + 1, 2, MPI_INT, data, 2, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Iallgather(data + 1, 2, MPI_INT, data, 2, MPI_INT, MPI_COMM_SELF, &request), MPI_ERR_BUFFER);
  CLASS(MPI_Allgatherv(data + 3, 1, MPI_INT, data, counts, at, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
  OK(MPI_Allgatherv(data + 2, 1, MPI_INT, data, counts, at, MPI_INT, MPI_COMM_SELF));
  CLASS(MPI_Allreduce(data, data + 3, 4, MPI_INT, MPI_SUM, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Gather(data, 4, MPI_INT, data + 1, 4, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Scatter(data + 2, 4, MPI_INT, data, 4, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Reduce_local(data, data + 1, 2, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
  OK(MPI_Allreduce(data, data + 4, 4, MPI_INT, MPI_SUM, MPI_COMM_SELF));
  OK(MPI_Type_vector(4, 1, 2, MPI_INT, &column));
  OK(MPI_Type_commit(&column));
  for (int i = 0; i < 16; i++) data[i] = i;
  OK(MPI_Allgather(data, 1, column, data + 1, 1, column, MPI_COMM_SELF));
  CHECK(data[1] == 0 && data[3] == 2 && data[7] == 6 && data[9] == 9);
  OK(MPI_Type_free(&column));
}

/* In place where it may not be, and one buffer twice. */
static void buffers(void) {
  MPI_Datatype derived;
  int counts[8] = {1, 1, 1, 1, 1, 1, 1, 1}, displs[8] = {0, 1, 2, 3, 4, 5, 6, 7}, position = 0;
  CLASS(MPI_Allreduce(data, data, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  CLASS(MPI_Allgather(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Alltoall(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Alltoallv(data, counts, displs, MPI_INT, MPI_IN_PLACE, counts, displs, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Allreduce(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Scan(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), MPI_ERR_BUFFER);
  CLASS(MPI_Reduce_local(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
  CLASS(MPI_Reduce_local(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
  if (ours) overlapping();
  if (ours) CLASS(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_BUFFER);
  /* no data, no buffer */
  OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_SELF));
  OK(MPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF));
  /* where addresses are absolute, none is no null pointer */
  MPI_Aint at;
  OK(MPI_Get_address(data, &at));
  OK(MPI_Type_create_hindexed_block(1, 2, &at, MPI_INT, &derived));
  OK(MPI_Type_commit(&derived));
  data[0] = 5, data[1] = 6;
  OK(MPI_Sendrecv(MPI_BOTTOM, 1, derived, 0, 1, more, 2, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE));
  CHECK(more[0] == 5 && more[1] == 6);
  memset(more, 0, sizeof more);
  OK(MPI_Pack(MPI_BOTTOM, 1, derived, more, sizeof more, &position, MPI_COMM_SELF));
  CHECK(position == 2 * (int)sizeof(int));
  OK(MPI_Type_free(&derived));
  position = 0;
  if (ours) CLASS(MPI_Pack(data, 4, MPI_INT, more, 3 * sizeof(int), &position, MPI_COMM_SELF), MPI_ERR_TRUNCATE);
}

/* Operations on data that they are not for. */
static void operations(void) {
  MPI_Datatype derived;
  double real[2] = {0};
  CLASS(MPI_Allreduce(real, more, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_SELF), MPI_ERR_OP);
  CLASS(MPI_Allreduce(data, more, 1, MPI_INT, MPI_MAXLOC, MPI_COMM_SELF), MPI_ERR_OP);
  CLASS(MPI_Reduce_local(real, more, 1, MPI_DOUBLE, MPI_BXOR), MPI_ERR_OP);
  OK(MPI_Type_contiguous(2, MPI_INT, &derived));
  OK(MPI_Type_commit(&derived));
  CLASS(MPI_Allreduce(data, more, 1, derived, MPI_SUM, MPI_COMM_SELF), MPI_ERR_OP);
  OK(MPI_Type_free(&derived));
}

/* What is predefined stays. */
static void permanent(void) {
  MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Datatype type = MPI_INT;
  MPI_Group group;
  int ranks[2] = {0, 0}, key = MPI_TAG_UB, value;
  CLASS(MPI_Comm_free(&comm), MPI_ERR_COMM);
  CLASS(MPI_Type_free(&type), MPI_ERR_TYPE);
  OK(MPI_Type_commit(&type));
  CLASS(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &value), MPI_ERR_KEYVAL);
  OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
  if (ours) CLASS(MPI_Group_incl(group, 2, ranks, &(MPI_Group){0}), MPI_ERR_RANK);
  OK(MPI_Group_free(&group));
}

/* Requests at the wrong time. */
static void requests(void) {
  MPI_Request request, active;
  MPI_Status status;
  int flag;
  OK(MPI_Recv_init(data, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request));
  OK(MPI_Wait(&request, &status)); /* inactive: over at once, with an empty status */
  CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
  OK(MPI_Start(&request));
  CLASS(MPI_Start(&request), MPI_ERR_REQUEST);
  OK(MPI_Send(more, 1, MPI_INT, 0, 1, MPI_COMM_SELF));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Request_free(&request));
  OK(MPI_Irecv(data, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &active));
  CLASS(MPI_Start(&active), MPI_ERR_REQUEST);
  OK(MPI_Cancel(&active));
  OK(MPI_Wait(&active, &status));
  OK(MPI_Test_cancelled(&status, &flag));
  CHECK(flag);
}

/* More than fits is an error of the receive, and the next message comes as ever. */
static void truncated(void) {
  MPI_Request request;
  MPI_Status status;
  OK(MPI_Isend(data, 4, MPI_INT, 0, 3, MPI_COMM_SELF, &request));
  CLASS(MPI_Recv(more, 2, MPI_INT, 0, 3, MPI_COMM_SELF, &status), MPI_ERR_TRUNCATE);
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Irecv(more, 1, MPI_INT, 0, 4, MPI_COMM_SELF, &request));
  OK(MPI_Send(data, 2, MPI_INT, 0, 4, MPI_COMM_SELF));
  CLASS(MPI_Waitall(1, &request, &status), MPI_ERR_IN_STATUS);
  MPI_Error_class(status.MPI_ERROR, &data[8]);
  CHECK(data[8] == MPI_ERR_TRUNCATE && request == MPI_REQUEST_NULL);
  data[0] = 77;
  OK(MPI_Sendrecv(data, 1, MPI_INT, 0, 5, more, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &status));
  CHECK(more[0] == 77);
}

static void topologies(void) {
  MPI_Comm grid;
  int dims[2] = {2, size + 1}, periods[2] = {0, 0}, coords[2] = {0, 0}, place;
  CLASS(MPI_Cart_rank(MPI_COMM_WORLD, coords, &place), MPI_ERR_TOPOLOGY);
  CLASS(MPI_Graphdims_get(MPI_COMM_WORLD, &place, dims + 1), MPI_ERR_TOPOLOGY);
  CLASS(MPI_Dist_graph_neighbors_count(MPI_COMM_WORLD, &place, &place, &place), MPI_ERR_TOPOLOGY);
  CLASS(MPI_Neighbor_allgather(data, 1, MPI_INT, more, 1, MPI_INT, MPI_COMM_WORLD), MPI_ERR_TOPOLOGY);
  dims[0] = 4, dims[1] = 0;
  CLASS(MPI_Dims_create(6, 2, dims), MPI_ERR_DIMS);
  dims[0] = 1, dims[1] = size;
  OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid));
  CLASS(MPI_Cart_shift(grid, 2, 1, &place, &place), MPI_ERR_ARG);
  coords[1] = size;
  CHECK(MPI_Cart_rank(grid, coords, &place) != MPI_SUCCESS);
  OK(MPI_Comm_free(&grid));
}

static void communicators(void) {
  MPI_Comm inter, made;
  MPI_Group group;
  int n;
  if (ours) CLASS(MPI_Comm_remote_size(MPI_COMM_WORLD, &n), MPI_ERR_COMM);
  if (ours) CLASS(MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &inter), MPI_ERR_COMM);
  OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
  if (ours && size > 1) CLASS(MPI_Comm_create_group(MPI_COMM_SELF, group, 1, &made), MPI_ERR_GROUP);
  OK(MPI_Group_free(&group));
}

/* Counts that no memory has. */
static void enormous(void) {
  const MPI_Count count = (MPI_Count)1 << 61;
  CLASS(MPI_Send_c(data, count, MPI_LONG_LONG, MPI_PROC_NULL, 1, MPI_COMM_SELF), MPI_ERR_COUNT);
  CLASS(MPI_Bcast_c(data, count, MPI_LONG_LONG, 0, MPI_COMM_SELF), MPI_ERR_COUNT);
  CLASS(MPI_Allreduce_c(data, more, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_SELF), MPI_ERR_COUNT);
  CLASS(MPI_Reduce_local_c(data, more, count, MPI_LONG_LONG, MPI_SUM), MPI_ERR_COUNT);
}

int main(int argc, char **argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  begin(&argc, &argv);
  MPI_Get_library_version(version, &length);
  ours = strstr(version, "Ironweave") != NULL;
  buffers();
  operations();
  permanent();
  requests();
  truncated();
  topologies();
  communicators();
  if (ours) enormous();
  if (ours && size > 1) { /* in place is the root's */
    CLASS(MPI_Reduce(rank ? MPI_IN_PLACE : data, more, 1, MPI_INT, MPI_SUM, rank ? 0 : 99, MPI_COMM_WORLD), rank ? MPI_ERR_BUFFER : MPI_ERR_ROOT);
    CLASS(MPI_Gather(rank ? MPI_IN_PLACE : data, 1, MPI_INT, more, 1, MPI_INT, rank ? 0 : -9, MPI_COMM_WORLD), rank ? MPI_ERR_BUFFER : MPI_ERR_ROOT);
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  length = 0;
  MPI_Allreduce(&wrong, &length, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  SAY("misuse: %d wrong", length);
  MPI_Finalize();
  return length != 0;
}
