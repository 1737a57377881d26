/* Ranks 1 and 3 of five end by an abort of their communicator, rank 3 without its doing; the others see two failures and go on.
 * `abort_some abort|handler|between`. */
#include "check.h"
#include <mpi-ext.h>

int main(int argc, char **argv) {
  MPI_Comm half, both, rest;
  MPI_Group group, left;
  int x = 0, odd, who[2] = {1, 3};
  begin(&argc, &argv);
  const char *how = argc > 1 ? argv[1] : "abort";
  odd = rank % 2;
  if (!strcmp(how, "between")) {
    /* one of them on each side */
    MPI_Comm_split(MPI_COMM_WORLD, odd ? rank : MPI_UNDEFINED, 0, &half);
    if (odd) MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 4 - rank, 1, &both);
  } else {
    MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half);
    both = half;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 3) for (;;) MPI_Recv(&x, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1 && !strcmp(how, "handler")) {
    MPI_Errhandler none_;
    MPI_Comm_set_errhandler(both, MPI_ERRORS_ABORT);
    MPI_Comm_get_errhandler(both, &none_);
    CHECK(none_ == MPI_ERRORS_ABORT);
    MPI_Comm_call_errhandler(both, 7);
  }
  if (rank == 1) MPI_Abort(both, 7);

  for (int i = 0; i < 2; i++) CLASS(MPI_Recv(&x, 1, MPI_INT, who[i], 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
  OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
  OK(MPI_Group_excl(group, 2, who, &left));
  OK(MPI_Comm_create_group(MPI_COMM_WORLD, left, 1, &rest));
  OK(MPI_Allreduce(&(int){1}, &x, 1, MPI_INT, MPI_SUM, rest));
  CHECK(x == 3);
  printf("went on: %d wrong\n", wrong);
  OK(MPI_Comm_free(&rest));
  OK(MPI_Group_free(&left));
  OK(MPI_Group_free(&group));
  MPI_Finalize();
  return wrong != 0;
}
