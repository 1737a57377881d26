/* Chapter 8: grids, graphs, distributed graphs, and collectives on neighbors. */
#include "check.h"

static void dims(void) {
  int cases[][3] = {{6, 2, 0}, {7, 2, 0}, {12, 3, 0}, {16, 3, 0}, {24, 2, 4}, {1, 3, 0}, {60, 3, 0}};
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    int d[3] = {cases[i][2], 0, 0};
    OK(MPI_Dims_create(cases[i][0], cases[i][1], d));
    SAY("%d nodes: %d %d %d", cases[i][0], d[0], d[1], cases[i][1] > 2 ? d[2] : 0);
  }
}

static void grids(void) {
  int d[2] = {0, 0}, periods[2] = {1, 0}, coords[2], got[2], rings[2], r, n, kind, from, to, in[4], out[4], keep[2] = {0, 1}, i;
  MPI_Comm cart, row, dup;
  MPI_Request request;
  OK(MPI_Dims_create(size, 2, d));
  OK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, periods, 0, &cart));
  OK(MPI_Cart_map(MPI_COMM_WORLD, 2, d, periods, &n));
  CHECK(n >= 0 && n < size);
  OK(MPI_Topo_test(cart, &kind));
  CHECK(kind == MPI_CART);
  OK(MPI_Cartdim_get(cart, &n));
  CHECK(n == 2);
  OK(MPI_Cart_get(cart, 2, got, rings, coords));
  CHECK(got[0] == d[0] && got[1] == d[1] && rings[0] && !rings[1]);
  OK(MPI_Cart_rank(cart, coords, &r));
  CHECK(r == rank);
  OK(MPI_Cart_coords(cart, rank, 2, got));
  CHECK(got[0] == coords[0] && got[1] == coords[1]);
  for (i = 0; i < 4; i++) { in[i] = -9; out[i] = 10 * rank + i; }
  OK(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, cart));
  for (i = 0; i < 2; i++) {
    OK(MPI_Cart_shift(cart, i, 1, &from, &to));
    /* what comes from before was sent after, and the other way round */
    CHECK(in[2 * i] == (from == MPI_PROC_NULL ? -9 : 10 * from + 2 * i + 1));
    CHECK(in[2 * i + 1] == (to == MPI_PROC_NULL ? -9 : 10 * to + 2 * i));
  }
  OK(MPI_Ineighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, cart, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Cart_shift(cart, 0, 1, &from, &to));
  CHECK(in[0] == from && in[1] == to);
  OK(MPI_Neighbor_allgather_init(&rank, 1, MPI_INT, in, 1, MPI_INT, cart, MPI_INFO_NULL, &request));
  for (i = 0; i < 2; i++) { in[0] = -1; OK(MPI_Start(&request)); OK(MPI_Wait(&request, MPI_STATUS_IGNORE)); CHECK(in[0] == from); }
  OK(MPI_Request_free(&request));
  OK(MPI_Cart_sub(cart, keep, &row));
  OK(MPI_Comm_size(row, &n));
  CHECK(n == d[1]);
  OK(MPI_Comm_dup(cart, &dup));
  OK(MPI_Topo_test(dup, &kind));
  CHECK(kind == MPI_CART);
  OK(MPI_Comm_free(&dup));
  OK(MPI_Comm_free(&row));
  OK(MPI_Comm_free(&cart));
  d[0] = size + 1; d[1] = 1;
  CHECK(MPI_Cart_create(MPI_COMM_WORLD, 2, d, periods, 0, &cart) != MPI_SUCCESS);
  CLASS(MPI_Cartdim_get(MPI_COMM_WORLD, &n), MPI_ERR_TOPOLOGY);
}

static void graphs(void) {
  /* a ring as a graph: each process has the one before and the one after */
  int index[64], edges[128], i, n, e, list[2], kind, in[2], out[2] = {100 + rank, 200 + rank};
  int before = (rank + size - 1) % size, after = (rank + 1) % size, weights[2], degrees[2], weighted;
  MPI_Comm graph, dist;
  for (i = 0; i < size; i++) {
    index[i] = 2 * i + 2;
    edges[2 * i] = (i + size - 1) % size;
    edges[2 * i + 1] = (i + 1) % size;
  }
  OK(MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph));
  OK(MPI_Graphdims_get(graph, &n, &e));
  CHECK(n == size && e == 2 * size);
  OK(MPI_Graph_neighbors_count(graph, rank, &n));
  CHECK(n == 2);
  { int index_[64], edges_[128];
    OK(MPI_Graph_get(graph, size, 2 * size, index_, edges_));
    CHECK(!memcmp(index, index_, size * sizeof *index) && !memcmp(edges, edges_, 2 * size * sizeof *edges)); }
  OK(MPI_Graph_map(MPI_COMM_WORLD, size, index, edges, &n));
  CHECK(n >= 0 && n < size);
  OK(MPI_Graph_neighbors(graph, rank, 2, list));
  CHECK(list[0] == before && list[1] == after);
  OK(MPI_Comm_free(&graph));
  list[0] = before;
  weights[0] = 5;
  OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, weights, 1, &after, weights, MPI_INFO_NULL, 0, &dist));
  OK(MPI_Topo_test(dist, &kind));
  CHECK(kind == MPI_DIST_GRAPH);
  OK(MPI_Dist_graph_neighbors_count(dist, &n, &e, &weighted));
  CHECK(n == 1 && e == 1 && weighted);
  OK(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, dist));
  CHECK(in[0] == 100 + before);
  OK(MPI_Comm_free(&dist));
  /* rank 0 gives all edges */
  for (i = 0; i < size; i++) { index[i] = i; edges[i] = (i + 1) % size; }
  { int ones[64]; for (i = 0; i < size; i++) ones[i] = 1;
    OK(MPI_Dist_graph_create(MPI_COMM_WORLD, rank == 0 ? size : 0, index, ones, edges, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &dist)); }
  OK(MPI_Dist_graph_neighbors_count(dist, &degrees[0], &degrees[1], &weighted));
  CHECK(degrees[0] == 1 && degrees[1] == 1 && !weighted);
  OK(MPI_Dist_graph_neighbors(dist, 1, &list[0], MPI_UNWEIGHTED, 1, &list[1], MPI_UNWEIGHTED));
  CHECK(list[0] == before && list[1] == after);
  OK(MPI_Neighbor_allgather(out, 2, MPI_INT, in, 2, MPI_INT, dist));
  CHECK(in[0] == 100 + before && in[1] == 200 + before);
  OK(MPI_Comm_free(&dist));
}

/* Every neighborhood collective in three forms (blocking, non-blocking, persistent), on a ring where both neighbors get
 * blocks of different lengths: one number to the one before, two to the one after. */
static void of_three_forms(void) {
  int before = (rank + size - 1) % size, after = (rank + 1) % size, i;
  int from[2] = {before, after}, to[2] = {before, after}, all = 1;
  int out[3] = {10 * rank, 10 * rank + 1, 10 * rank + 2}, in[6];
  COUNT one[2] = {1, 1}, sent[2] = {1, 2}, came[2] = {2, 1};
  DISPL next[2] = {0, 1}, gaps[2] = {3, 0}, sent_at[2] = {0, 1}, came_at[2] = {1, 0};
  MPI_Aint sent_bytes[2] = {0, sizeof(int)}, came_bytes[2] = {sizeof(int), 0};
  MPI_Datatype types[2] = {MPI_INT, MPI_INT};
  MPI_Comm ring;
  MPI_Request r;
  if (size < 3) all = 0; /* both neighbors are one process: its two messages are told apart by their order alone */
  OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring));
#define FORMS(name, iname, ...) do { \
    memset(in, -1, sizeof in); \
    if (form == 0) OK(MPI_##name(__VA_ARGS__, ring)); \
    else if (form == 1) { OK(MPI_##iname(__VA_ARGS__, ring, &r)); OK(MPI_Wait(&r, MPI_STATUS_IGNORE)); } \
    else { \
      OK(MPI_##name##_init(__VA_ARGS__, ring, MPI_INFO_NULL, &r)); \
      for (i = 0; i < 2; i++) { OK(MPI_Start(&r)); OK(MPI_Wait(&r, MPI_STATUS_IGNORE)); } \
      OK(MPI_Request_free(&r)); \
    } \
  } while (0)
  for (int form = 0; form < 3; form++) {
    FORMS(Neighbor_allgather, Ineighbor_allgather, out, 1, MPI_INT, in, 1, MPI_INT);
    CHECK(in[0] == 10 * before && in[1] == 10 * after);
    FORMS(Neighbor_allgatherv, Ineighbor_allgatherv, out, 1, MPI_INT, in, one, gaps, MPI_INT);
    CHECK(in[3] == 10 * before && in[0] == 10 * after && in[1] == -1);
    if (!all) continue;
    FORMS(Neighbor_alltoall, Ineighbor_alltoall, out, 1, MPI_INT, in, 1, MPI_INT);
    CHECK(in[0] == 10 * before + 1 && in[1] == 10 * after);
    FORMS(Neighbor_alltoallv, Ineighbor_alltoallv, out, one, next, MPI_INT, in, one, gaps, MPI_INT);
    CHECK(in[3] == 10 * before + 1 && in[0] == 10 * after);
    FORMS(Neighbor_alltoallv, Ineighbor_alltoallv, out, sent, sent_at, MPI_INT, in, came, came_at, MPI_INT);
    CHECK(in[1] == 10 * before + 1 && in[2] == 10 * before + 2 && in[0] == 10 * after);
    FORMS(Neighbor_alltoallw, Ineighbor_alltoallw, out, sent, sent_bytes, types, in, came, came_bytes, types);
    CHECK(in[1] == 10 * before + 1 && in[2] == 10 * before + 2 && in[0] == 10 * after);
    MPI_Aint sent_where[2], came_where[2];
    for (i = 0; i < 2; i++) {
      OK(MPI_Get_address((char *)out + sent_bytes[i], &sent_where[i]));
      OK(MPI_Get_address((char *)in + came_bytes[i], &came_where[i]));
    }
    FORMS(Neighbor_alltoallw, Ineighbor_alltoallw, MPI_BOTTOM, sent, sent_where, types, MPI_BOTTOM, came, came_where, types);
    CHECK(in[1] == 10 * before + 1 && in[2] == 10 * before + 2 && in[0] == 10 * after);
  }
  OK(MPI_Comm_free(&ring));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  dims();
  grids();
  graphs();
  of_three_forms();
  return finish("topologies");
}
