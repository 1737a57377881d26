/* MPI-4.1, 11.6.2: a thread may be cancelled while it executes no MPI call. One that is the only one of its program (MPI_THREAD_SINGLE) has nobody
   who could, which transports over C libraries make use of. Told which level to ask for (MPI_Init without), says for each moment whether it may be. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *now(void) {
  int state, type;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  pthread_setcanceltype(type, NULL);
  pthread_setcancelstate(state, NULL);
  if (state == PTHREAD_CANCEL_DISABLE) return "no";
  return type == PTHREAD_CANCEL_DEFERRED ? "yes" : "anywhere";
}

int main(int argc, char **argv) {
  const char *before = now();
  int provided, rank, other = 0;
  if (argc > 1) {
    int multiple = !strcmp(argv[1], "multiple");
    MPI_Init_thread(NULL, NULL, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
  } else {
    MPI_Init(NULL, NULL);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 0, &other, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  const char *inside = now();
  MPI_Finalize();
  if (other != 1 - rank) return 1;
  printf("cancelled: before %s, inside %s, after %s\n", before, inside, now());
  return 0;
}
