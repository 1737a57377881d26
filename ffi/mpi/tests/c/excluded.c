/* A process stops inside of a collective, and the others exclude it: they go on without it; when it runs again, every call of its
 * own has an error, or (errors being fatal) it ends, alone. `excluded blocking|nonblocking|fatal [FILE]`: with FILE, the others go
 * on until it is there. Ours only: the standard has no such functions yet. */
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1, N = 64 };

static int stop_now;

/* The operation that everybody runs inside of the collective. */
static void sum(void *in, void *inout, int *length, MPI_Datatype *type) {
  (void)type;
  for (int i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
  if (stop_now) {
    stop_now = 0;
    printf("stopping\n");
    fflush(stdout);
    raise(SIGSTOP);
  }
}

static int reduce(int nonblocking, MPI_Op op, MPI_Comm comm) {
  int out[N], in[N], i, code;
  MPI_Request request;
  for (i = 0; i < N; i++) out[i] = i + rank, in[i] = -1;
  if (!nonblocking) code = MPI_Allreduce(out, in, N, MPI_INT, op, comm);
  else {
    code = MPI_Iallreduce(out, in, N, MPI_INT, op, comm, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  for (i = 0; i < N && code == MPI_SUCCESS; i++) CHECK(in[i] == size * i + size * (size - 1) / 2);
  return code;
}

static void victim(MPI_Comm world, int class) {
  int x = 0, me = -1;
  MPI_Comm other;
  MPI_Request request;
  CHECK(class == MPIX_ERR_PROC_FAILED);
  CLASS(MPI_Barrier(world), MPIX_ERR_PROC_FAILED);
  CLASS(MPI_Send(&x, 1, MPI_INT, 0, 1, MPI_COMM_WORLD), MPIX_ERR_PROC_FAILED);
  CLASS(MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
  if (MPI_Irecv(&x, 1, MPI_INT, 0, 1, world, &request) == MPI_SUCCESS) CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
  CLASS(MPI_Comm_dup(world, &other), MPIX_ERR_PROC_FAILED);
  CLASS(MPIX_Comm_shrink(world, &other), MPIX_ERR_PROC_FAILED);
  CLASS(MPIX_Comm_agree(world, &x), MPIX_ERR_PROC_FAILED);
  OK(MPI_Comm_rank(world, &me)); /* local calls are as ever */
  CHECK(me == VICTIM);
  printf("excluded: %d wrong\n", wrong);
  MPI_Finalize();
  exit(wrong != 0);
}

static void survivor(MPI_Comm world, int class, const char *file) {
  MPI_Comm smaller;
  int over, all, n;
  CHECK(class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED);
  OK(MPIX_Comm_revoke(world));
  printf("learned\n");
  fflush(stdout);
  OK(MPIX_Comm_shrink(world, &smaller));
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == size - 1);
  do {
    over = !file || access(file, F_OK) == 0;
    OK(MPI_Allreduce(&over, &all, 1, MPI_INT, MPI_MIN, smaller));
  } while (!all && !wrong);
  printf("went on: %d wrong\n", wrong);
  MPI_Comm_free(&smaller);
  MPI_Comm_free(&world);
  MPI_Finalize();
  exit(wrong != 0);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  const char *mode = argc > 1 ? argv[1] : "blocking", *file = argc > 2 ? argv[2] : NULL;
  MPI_Comm world;
  MPI_Op op;
  int code, class;
  OK(MPI_Op_create(sum, 1, &op));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  for (int round = 0; (code = reduce(!strcmp(mode, "nonblocking"), op, world)) == MPI_SUCCESS; round++) {
    if (round == 3 && rank == VICTIM) {
      stop_now = 1;
      if (!strcmp(mode, "fatal")) OK(MPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL));
    }
  }
  MPI_Error_class(code, &class);
  if (rank == VICTIM) victim(world, class);
  survivor(world, class, file);
}
