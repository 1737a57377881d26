/* ULFM: a member dies; the others learn of it, revoke, agree, shrink and go on. Ours only: the standard has no such functions yet. */
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>

/* On the revoked communicator: what MPI 4.1 voted in by its names there, the first names, and what does not block. */
static void old_names(MPI_Comm world) {
  MPI_Comm smaller;
  MPI_Group failed;
  MPI_Request request;
  int n, acked, revoked, flag = 3;
  OK(MPI_Comm_revoke(world)); /* once more changes nothing */
  OK(MPI_Comm_is_revoked(world, &revoked));
  CHECK(revoked);
  OK(MPI_Comm_get_failed(world, &failed));
  OK(MPI_Group_size(failed, &n));
  CHECK(n == 1);
  OK(MPI_Group_free(&failed));
  OK(MPI_Comm_ack_failed(world, n, &acked));
  CHECK(acked == 1);
  OK(MPIX_Comm_failure_ack(world));
  OK(MPIX_Comm_iagree(world, &flag, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(flag == 3);
  OK(MPIX_Comm_ishrink(world, &smaller, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == size - 1);
  OK(MPI_Barrier(smaller));
  OK(MPI_Comm_free(&smaller));
}

static int told;

static void tells(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  MPI_Error_class(*code, &told);
}

/* Requests end by the error handler of their communicator, also when that was freed meanwhile, as libraries do that replace a
   broken communicator by a new one. */
static void freed_before_its_requests(int revokes) {
  MPI_Comm comm;
  MPI_Errhandler mine;
  MPI_Request request;
  int two[2] = {1, 2}, in, class = revokes ? MPIX_ERR_REVOKED : MPI_ERR_TRUNCATE;
  OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
  OK(MPI_Comm_create_errhandler(tells, &mine));
  OK(MPI_Comm_set_errhandler(comm, mine));
  OK(MPI_Errhandler_free(&mine));
  OK(MPI_Irecv(&in, 1, MPI_INT, 0, 1, comm, &request));
  if (revokes) OK(MPIX_Comm_revoke(comm));
  else OK(MPI_Send(two, 2, MPI_INT, 0, 1, comm));
  OK(MPI_Comm_free(&comm));
  CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), class);
  CHECK(told == class);
}

enum { PARTS = 3, PART = 40000, LONG = 500000 };
static int partitions[PARTS * PART], long_out[LONG];
static char buffer[sizeof long_out + MPI_BSEND_OVERHEAD];
static MPI_Request incomplete;

/* The last rank has sent one part of a message to each other when it dies, and never receives what others have sent from a buffer. */
static void unfinished_before_death(MPI_Comm comm) {
  int parts = 0, flag, n;
  if (rank == size - 1) {
    MPI_Request sends[16];
    for (n = 0; n < rank; n++) {
      OK(MPI_Psend_init(partitions, PARTS, PART, MPI_INT, n, 6, comm, MPI_INFO_NULL, &sends[n]));
      OK(MPI_Start(&sends[n]));
      OK(MPI_Pready(1, sends[n]));
    }
    /* they have arrived */
    for (n = 0; n < rank; n++) OK(MPI_Recv(&flag, 1, MPI_INT, n, 7, comm, MPI_STATUS_IGNORE));
    return;
  }
  OK(MPI_Precv_init(partitions, PARTS, PART, MPI_INT, size - 1, 6, comm, MPI_INFO_NULL, &incomplete));
  OK(MPI_Start(&incomplete));
  while (!parts) OK(MPI_Parrived(incomplete, 1, &parts));
  OK(MPI_Parrived(incomplete, 0, &flag));
  CHECK(!flag);
  OK(MPI_Send(&parts, 1, MPI_INT, size - 1, 7, comm));
  OK(MPI_Buffer_attach(buffer, sizeof buffer));
  OK(MPI_Bsend(long_out, LONG, MPI_INT, size - 1, 8, comm));
}

/* Both end when it has died: nobody waits for parts that never come, or for a buffer that nobody empties. */
static void unfinished_after_death(void) {
  void *detached;
  int length;
  CLASS(MPI_Wait(&incomplete, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
  CHECK(incomplete != MPI_REQUEST_NULL);
  CHECK(MPI_Start(&incomplete) != MPI_SUCCESS || MPI_Wait(&incomplete, MPI_STATUS_IGNORE) != MPI_SUCCESS);
  OK(MPI_Request_free(&incomplete));
  OK(MPI_Buffer_detach(&detached, &length));
  CHECK(detached == buffer);
}

/* A revocation ends both sides of what is ready in part. */
static void revoked_parts(void) {
  MPI_Comm comm;
  MPI_Request sends, receives;
  OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
  OK(MPI_Psend_init(partitions, PARTS, PART, MPI_INT, 0, 6, comm, MPI_INFO_NULL, &sends));
  OK(MPI_Precv_init(partitions, PARTS, PART, MPI_INT, 0, 6, comm, MPI_INFO_NULL, &receives));
  OK(MPI_Start(&sends));
  OK(MPI_Start(&receives));
  OK(MPIX_Comm_revoke(comm));
  CLASS(MPI_Pready(0, sends), MPIX_ERR_REVOKED);
  CLASS(MPI_Wait(&receives, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
  CLASS(MPI_Start(&receives), MPIX_ERR_REVOKED);
  OK(MPI_Request_free(&sends));
  OK(MPI_Request_free(&receives));
  OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm world, smaller;
  MPI_Group failed;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  int *tolerant, flag, code, class, n, acked, in = 0, out = 1, living = size - 1, revoked;
  freed_before_its_requests(0);
  freed_before_its_requests(1);
  OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &tolerant, &flag));
  CHECK(flag && *tolerant == 1);
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  revoked_parts();
  unfinished_before_death(world);
  OK(MPI_Barrier(world));
  /* it dies when all others are through the barrier */
  if (rank == size - 1) {
    for (n = 0; n < living; n++) OK(MPI_Recv(&in, 1, MPI_INT, n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    raise(SIGKILL);
  }
  MPI_Send(&out, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD);
  /* directed: the error names the class; a request among others ends, and the rest is pending or over */
  MPI_Irecv(&in, 1, MPI_INT, size - 1, 1, world, &requests[0]);
  MPI_Irecv(&in, 1, MPI_INT, rank, 2, world, &requests[1]);
  code = MPI_Waitall(2, requests, statuses);
  CHECK(code == MPI_ERR_IN_STATUS);
  MPI_Error_class(statuses[0].MPI_ERROR, &class);
  CHECK(class == MPIX_ERR_PROC_FAILED);
  CHECK(statuses[1].MPI_ERROR == MPI_ERR_PENDING);
  unfinished_after_death();
  /* any source: pending until the failure is acknowledged */
  code = MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 3, world, &statuses[0]);
  MPI_Error_class(code, &class);
  CHECK(class == MPIX_ERR_PROC_FAILED);
  OK(MPIX_Comm_get_failed(world, &failed));
  OK(MPI_Group_size(failed, &n));
  CHECK(n == 1);
  OK(MPI_Group_free(&failed));
  OK(MPIX_Comm_ack_failed(world, n, &acked));
  CHECK(acked == 1);
  OK(MPIX_Comm_failure_get_acked(world, &failed));
  OK(MPI_Group_free(&failed));
  /* everybody has acknowledged: the agreement has no error */
  OK(MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % living, 4, &in, 1, MPI_INT, (rank + living - 1) % living, 4, world, &statuses[0]));
  flag = 6 | 1 << rank;
  OK(MPIX_Comm_agree(world, &flag));
  CHECK(flag == (living > 1 ? 6 : 7));
  if (rank == 0) OK(MPIX_Comm_revoke(world));
  do code = MPI_Barrier(world); while (code == MPI_SUCCESS);
  for (revoked = 0; !revoked;) OK(MPIX_Comm_is_revoked(world, &revoked));
  CHECK(MPI_Send(&out, 1, MPI_INT, 0, 5, world) == MPIX_ERR_REVOKED);
  old_names(world);
  OK(MPIX_Comm_shrink(world, &smaller));
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == living);
  OK(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, smaller));
  CHECK(in == living);
  MPI_Allreduce(&wrong, &in, 1, MPI_INT, MPI_SUM, smaller);
  SAY("ulfm: %d wrong", in);
  MPI_Comm_free(&smaller);
  MPI_Comm_free(&world);
  MPI_Finalize();
  return in != 0;
}
