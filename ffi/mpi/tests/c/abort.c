/* Chapter 9: one rank aborts, the others wait for what never comes. */
#include "check.h"

int main(int argc, char **argv) {
  begin(&argc, &argv);
  if (rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 42);
  for (;;) MPI_Recv(&wrong, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
