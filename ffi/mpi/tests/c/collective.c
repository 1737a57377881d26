/* Chapter 6: every collective, blocking, non-blocking and persistent, in place too, against what it has to give. */
#include "check.h"

enum { MOST = 64 };
static int in[MOST * MOST], out[MOST * MOST];
static COUNT counts[MOST];
static DISPL displs[MOST];

static void non_commutative(void *a, void *b, COUNT *n, MPI_Datatype *type) {
  /* 2 x 2 matrices of integers, row by row: b = a * b */
  (void)type;
  for (int i = 0; i + 3 < *n; i += 4) {
    int *x = (int *)a + i, *y = (int *)b + i, z[4];
    z[0] = x[0] * y[0] + x[1] * y[2];
    z[1] = x[0] * y[1] + x[1] * y[3];
    z[2] = x[2] * y[0] + x[3] * y[2];
    z[3] = x[2] * y[1] + x[3] * y[3];
    memcpy(y, z, sizeof z);
  }
}

static void finish_request(MPI_Request *request, int persistent) {
  if (persistent) {
    for (int i = 0; i < 2; i++) { OK(MPI_Start(request)); OK(MPI_Wait(request, MPI_STATUS_IGNORE)); }
    OK(MPI_Request_free(request));
  } else OK(MPI_Wait(request, MPI_STATUS_IGNORE));
}


static void all(int form) {
  int i, j, n = size;
  for (i = 0; i < MOST; i++) in[i] = rank == n - 1 ? 3 * i : -1;
  { MPI_Request r; if (form == 0) OK(MPI_Bcast(in, MOST, MPI_INT, n - 1, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ibcast(in, MOST, MPI_INT, n - 1, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Bcast_init(in, MOST, MPI_INT, n - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < MOST; i++) CHECK(in[i] == 3 * i);

  in[0] = rank; in[1] = 100 + rank;
  memset(out, -1, sizeof out);
  { MPI_Request r; if (form == 0) OK(MPI_Gather(in, 2, MPI_INT, out, 2, MPI_INT, 0, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Igather(in, 2, MPI_INT, out, 2, MPI_INT, 0, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Gather_init(in, 2, MPI_INT, out, 2, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < n && rank == 0; i++) CHECK(out[2 * i] == i && out[2 * i + 1] == 100 + i);

  for (i = 0, j = 0; i < n; j += i + 1, i++) { counts[i] = i + 1; displs[i] = j; }
  for (i = 0; i <= rank; i++) in[i] = 10 * rank + i;
  memset(out, -1, sizeof out);
  { MPI_Request r; if (form == 0) OK(MPI_Gatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, n - 1, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Igatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, n - 1, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Gatherv_init(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, n - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < n && rank == n - 1; i++) for (j = 0; j <= i; j++) CHECK(out[displs[i] + j] == 10 * i + j);

  memset(in, -1, sizeof in);
  { MPI_Request r; if (form == 0) OK(MPI_Scatterv(out, counts, displs, MPI_INT, in, rank + 1, MPI_INT, n - 1, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iscatterv(out, counts, displs, MPI_INT, in, rank + 1, MPI_INT, n - 1, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Scatterv_init(out, counts, displs, MPI_INT, in, rank + 1, MPI_INT, n - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i <= rank; i++) CHECK(in[i] == 10 * rank + i);

  for (i = 0; i < n; i++) out[i] = 7 * i;
  { MPI_Request r; if (form == 0) OK(MPI_Scatter(out, 1, MPI_INT, in, 1, MPI_INT, 0, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iscatter(out, 1, MPI_INT, in, 1, MPI_INT, 0, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Scatter_init(out, 1, MPI_INT, in, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  CHECK(in[0] == 7 * rank);

  in[0] = rank * rank;
  { MPI_Request r; if (form == 0) OK(MPI_Allgather(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iallgather(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Allgather_init(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < n; i++) CHECK(out[i] == i * i);

  for (i = 0; i <= rank; i++) in[i] = 10 * rank + i;
  { MPI_Request r; if (form == 0) OK(MPI_Allgatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iallgatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Allgatherv_init(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < n; i++) for (j = 0; j <= i; j++) CHECK(out[displs[i] + j] == 10 * i + j);

  for (i = 0; i < n; i++) in[i] = 100 * rank + i;
  { MPI_Request r; if (form == 0) OK(MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ialltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Alltoall_init(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  for (i = 0; i < n; i++) CHECK(out[i] == 100 * i + rank);

  { COUNT ones[MOST]; DISPL at[MOST], bytes[MOST]; MPI_Datatype types[MOST]; MPI_Request r;
    for (i = 0; i < n; i++) { ones[i] = 1; at[i] = n - 1 - i; bytes[i] = 4 * at[i]; types[i] = MPI_INT; in[at[i]] = 100 * rank + i; }
    if (form == 0) OK(MPI_Alltoallv(in, ones, at, MPI_INT, out, ones, at, MPI_INT, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ialltoallv(in, ones, at, MPI_INT, out, ones, at, MPI_INT, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Alltoallv_init(in, ones, at, MPI_INT, out, ones, at, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); }
    for (i = 0; i < n; i++) CHECK(out[at[i]] == 100 * i + rank);
    memset(out, -1, sizeof out);
    if (form == 0) OK(MPI_Alltoallw(in, ones, bytes, types, out, ones, bytes, types, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ialltoallw(in, ones, bytes, types, out, ones, bytes, types, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Alltoallw_init(in, ones, bytes, types, out, ones, bytes, types, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); }
    for (i = 0; i < n; i++) CHECK(out[at[i]] == 100 * i + rank); }

  in[0] = rank + 1; in[1] = -rank;
  { MPI_Request r; if (form == 0) OK(MPI_Reduce(in, out, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ireduce(in, out, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Reduce_init(in, out, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  if (rank == 0) CHECK(out[0] == n * (n + 1) / 2 && out[1] == -n * (n - 1) / 2);

  { MPI_Request r; if (form == 0) OK(MPI_Allreduce(in, out, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iallreduce(in, out, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Allreduce_init(in, out, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  CHECK(out[0] == n && out[1] == 0);

  for (i = 0; i < MOST * n; i++) in[i] = rank + i;
  for (i = 0, j = 0; i < n; i++) { counts[i] = i + 1; j += i + 1; }
  { MPI_Request r; int before = rank * (rank + 1) / 2; if (form == 0) OK(MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ireduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Reduce_scatter_init(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); }
    for (i = 0; i <= rank; i++) CHECK(out[i] == n * (n - 1) / 2 + n * (before + i)); }
  { MPI_Request r; if (form == 0) OK(MPI_Reduce_scatter_block(in, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ireduce_scatter_block(in, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Reduce_scatter_block_init(in, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); }
    for (i = 0; i < 2; i++) CHECK(out[i] == n * (n - 1) / 2 + n * (2 * rank + i)); }

  in[0] = rank + 1;
  { MPI_Request r; if (form == 0) OK(MPI_Scan(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iscan(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Scan_init(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  CHECK(out[0] == (rank + 1) * (rank + 2) / 2);
  out[0] = -9;
  { MPI_Request r; if (form == 0) OK(MPI_Exscan(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Iexscan(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Exscan_init(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
  CHECK(rank == 0 || out[0] == rank * (rank + 1) / 2);

  { MPI_Request r; if (form == 0) OK(MPI_Barrier(MPI_COMM_WORLD)); else if (form == 1) { OK(MPI_Ibarrier(MPI_COMM_WORLD, &r)); finish_request(&r, 0); } else { OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &r)); finish_request(&r, 1); } }
}

static void in_place(void) {
  int i, n = size;
  for (i = 0; i < n; i++) out[i] = i == rank ? 5 * rank : -1;
  OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 1, MPI_INT, MPI_COMM_WORLD));
  for (i = 0; i < n; i++) CHECK(out[i] == 5 * i);
  out[0] = rank;
  OK(MPI_Allreduce(MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(out[0] == n * (n - 1) / 2);
  in[0] = out[0] = rank + 1;
  OK(MPI_Reduce(rank == 0 ? MPI_IN_PLACE : in, rank == 0 ? out : NULL, 1, MPI_INT, MPI_PROD, 0, MPI_COMM_WORLD));
  for (i = 1, in[1] = 1; i <= n; i++) in[1] *= i;
  if (rank == 0) CHECK(out[0] == in[1]);
  for (i = 0; i < n; i++) out[i] = 100 * rank + i;
  OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 1, MPI_INT, MPI_COMM_WORLD));
  for (i = 0; i < n; i++) CHECK(out[i] == 100 * i + rank);
  out[0] = rank + 1;
  OK(MPI_Scan(MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(out[0] == (rank + 1) * (rank + 2) / 2);
}

static void operations(void) {
  struct { double value; int index; } pair = {(rank * 7) % 5, rank}, least;
  struct { long double value; int index; } wide = {-rank, rank}, most;
  long double lin = rank + 0.5L, lout = 0;
  double _Complex z, product;
  _Bool flag = rank != 1, both;
  int matrix[4] = {1, rank + 1, 0, 1}, result[4], i, commutes;
  float real = rank;
  unsigned char bits = (unsigned char)(1 << (rank % 8)), any;
  MPI_Op op;
  OK(MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
  SAY("minloc %g at %d", least.value, least.index);
  OK(MPI_Allreduce(&wide, &most, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
  CHECK(most.value == 0 && most.index == 0);
  OK(MPI_Allreduce(&lin, &lout, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  SAY("long double sum %Lg", lout);
  memcpy(&z, (double[2]){1, rank % 2}, sizeof z);
  OK(MPI_Allreduce(&z, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD));
  SAY("complex product %g %g", ((double *)&product)[0], ((double *)&product)[1]);
  OK(MPI_Allreduce(&flag, &both, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD));
  CHECK(both == (size < 2));
  OK(MPI_Allreduce(&bits, &any, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
  SAY("bits %d", any);
  OK(MPI_Op_create(non_commutative, 0, &op));
  OK(MPI_Op_commutative(op, &commutes));
  CHECK(!commutes);
  OK(MPI_Allreduce(matrix, result, 4, MPI_INT, op, MPI_COMM_WORLD));
  for (i = 0; i < size; i++) commutes += i + 1;
  CHECK(result[0] == 1 && result[1] == commutes && result[2] == 0 && result[3] == 1);
  OK(MPI_Reduce_local(matrix, result, 4, MPI_INT, op));
  OK(MPI_Op_free(&op));
  CHECK(op == MPI_OP_NULL);
  in[0] = 4; out[0] = 5;
  OK(MPI_Reduce_local(in, out, 1, MPI_INT, MPI_SUM));
  CHECK(out[0] == 9);
  CLASS(MPI_Allreduce(&real, &lout, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD), MPI_ERR_OP);
  CLASS(MPI_Allreduce(&real, &lout, 1, MPI_FLOAT, MPI_OP_NULL, MPI_COMM_WORLD), MPI_ERR_OP);
  CLASS(MPI_Bcast(in, 1, MPI_INT, size, MPI_COMM_WORLD), MPI_ERR_ROOT);
  CLASS(MPI_Bcast(in, -1, MPI_INT, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
}

/* Datatypes chosen by precision and range are reduced like those with a name. */
static void chosen(void) {
  MPI_Datatype real, whole;
  double out = rank + 0.5, sum = 0;
  int mine = rank + 3, least = 0;
  OK(MPI_Type_create_f90_real(12, 200, &real));
  OK(MPI_Type_create_f90_integer(8, &whole));
  OK(MPI_Allreduce(&out, &sum, 1, real, MPI_SUM, MPI_COMM_WORLD));
  CHECK(sum == size * (size - 1) / 2 + 0.5 * size);
  OK(MPI_Allreduce(&mine, &least, 1, whole, MPI_MIN, MPI_COMM_WORLD));
  CHECK(least == 3);
}

/* Erroneous, and done: all receive into one place. */
static void overlapping(void) {
  COUNT counts[16];
  DISPL zeros[16] = {0};
  int out[2] = {7, 8}, in[2] = {0, 0};
  for (int i = 0; i < size; i++) counts[i] = 2;
  OK(MPI_Alltoallv(out, counts, zeros, MPI_INT, in, counts, zeros, MPI_INT, MPI_COMM_WORLD));
  CHECK(in[0] == 7 && in[1] == 8);
}

static void between_groups(void) {
  MPI_Comm half, inter;
  int mine = rank < size / 2 ? 0 : 1, here, there, local, i;
  if (size < 2) return;
  OK(MPI_Comm_split(MPI_COMM_WORLD, mine, rank, &half));
  OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, mine ? 0 : size / 2, 5, &inter));
  OK(MPI_Comm_size(inter, &here));
  OK(MPI_Comm_remote_size(inter, &there));
  OK(MPI_Comm_rank(inter, &local));
  CHECK(here + there == size);
  in[0] = mine == 0 && local == 0 ? 42 : -1;
  OK(MPI_Bcast(in, 1, MPI_INT, mine == 0 ? (local == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, inter));
  CHECK(in[0] == (mine == 1 || local == 0 ? 42 : -1));
  in[0] = rank;
  OK(MPI_Allgather(in, 1, MPI_INT, out, 1, MPI_INT, inter));
  for (i = 0; i < there; i++) CHECK(out[i] == (mine ? i : size / 2 + i));
  in[0] = 1;
  OK(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, inter));
  CHECK(out[0] == there);
  OK(MPI_Barrier(inter));
  OK(MPI_Comm_free(&inter));
  OK(MPI_Comm_free(&half));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  for (int form = 0; form < 3; form++) all(form);
  in_place();
  operations();
  chosen();
  overlapping();
  between_groups();
  return finish("collectives");
}
