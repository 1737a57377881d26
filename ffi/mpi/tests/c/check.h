/* What the programs of this folder have in common: each tests a chapter of the standard, on any library with the standard ABI.
 *
 * SAY prints a line at rank 0: what is printed has to be the same with every library. CHECK counts what is wrong at any rank,
 * and tells where; `finish` makes the count the exit code. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "large.h"

static int rank, size;
static _Atomic int checks, wrong; /* threads count, too */

#define CHECK(what) do { \
    checks++; \
    if (!(what)) { wrong++; printf("rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #what); fflush(stdout); } \
  } while (0)
#define CLASS(call, class) do { \
    int code_ = (call), class_ = -1; \
    MPI_Error_class(code_, &class_); \
    checks++; \
    if (class_ != (class)) { wrong++; printf("rank %d: %s:%d: %s: class %d, not %s\n", rank, __FILE__, __LINE__, #call, class_, #class); fflush(stdout); } \
  } while (0)
#define OK(call) CLASS(call, MPI_SUCCESS)
#define SAY(...) do { if (rank == 0) { printf(__VA_ARGS__); printf("\n"); fflush(stdout); } } while (0)

static inline void begin(int *argc, char ***argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static inline int finish(const char *name) {
  int mine = wrong, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  SAY("%s: %d checks at rank 0, %d wrong", name, checks, all);
  MPI_Finalize();
  return all != 0;
}

#endif
