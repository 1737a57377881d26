/* Chapters 7 and 11: hints of communicators, ranges of groups, inter-communicators made from groups and merged. */
#include "check.h"

/* Whether a communicator has this hint. */
static int tells(MPI_Comm comm, const char *key, const char *value) {
  MPI_Info used;
  char text[16];
  int length = sizeof text, there;
  OK(MPI_Comm_get_info(comm, &used));
  OK(MPI_Info_get_string(used, key, &length, text, &there));
  OK(MPI_Info_free(&used));
  return there && strcmp(text, value) == 0;
}

static void hints(void) {
  MPI_Info info, used;
  MPI_Comm dup, later;
  MPI_Request request;
  int n;
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
  OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &dup));
  OK(MPI_Comm_get_info(dup, &used));
  OK(MPI_Info_get_nkeys(used, &n));
  CHECK(n >= 0);
  OK(MPI_Info_free(&used));
  OK(MPI_Info_delete(info, "mpi_assert_no_any_tag"));
  OK(MPI_Info_set(info, "mpi_assert_exact_length", "true"));
  OK(MPI_Comm_set_info(dup, info));
  CHECK(tells(dup, "mpi_assert_exact_length", "true"));
  CHECK(tells(dup, "mpi_assert_no_any_tag", "true")); /* what is not given stays */
  OK(MPI_Info_set(info, "mpi_assert_exact_length", "false"));
  OK(MPI_Comm_set_info(dup, info));
  CHECK(tells(dup, "mpi_assert_exact_length", "false"));
  OK(MPI_Comm_idup_with_info(dup, info, &later, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Comm_compare(dup, later, &n));
  CHECK(n == MPI_CONGRUENT);
  OK(MPI_Comm_free(&later));
  OK(MPI_Comm_free(&dup));
  OK(MPI_Info_free(&info));
}

static void ranges(void) {
  MPI_Group world, most, low_is_wrong;
  int first[1][3] = {{0, 0, 1}}, n, low[1][3] = {{0, size, 1}};
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  OK(MPI_Group_range_excl(world, 1, first, &most));
  OK(MPI_Group_size(most, &n));
  CHECK(n == size - 1);
  OK(MPI_Group_rank(most, &n));
  CHECK(n == (rank ? rank - 1 : MPI_UNDEFINED));
  CHECK(MPI_Group_range_excl(world, 1, low, &low_is_wrong) != MPI_SUCCESS);
  OK(MPI_Group_free(&world));
}

static void two_sides(void) {
  MPI_Group world, sides[2], remote;
  MPI_Comm inter, merged;
  int middle = size / 2, side = rank >= middle, flag, n, r, ends[2][1][3] = {{{0, middle - 1, 1}}, {{middle, size - 1, 1}}}, sum;
  OK(MPI_Comm_test_inter(MPI_COMM_WORLD, &flag));
  CHECK(!flag);
  if (size < 2) return;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  for (int i = 0; i < 2; i++) OK(MPI_Group_range_incl(world, 1, ends[i], &sides[i]));
  OK(MPI_Intercomm_create_from_groups(sides[side], 0, sides[!side], 0, "tests/between", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter));
  OK(MPI_Comm_test_inter(inter, &flag));
  CHECK(flag);
  OK(MPI_Comm_remote_group(inter, &remote));
  OK(MPI_Group_compare(remote, sides[!side], &n));
  CHECK(n == MPI_IDENT);
  OK(MPI_Intercomm_merge(inter, !side, &merged));
  OK(MPI_Comm_rank(merged, &r));
  OK(MPI_Comm_size(merged, &n));
  /* the upper side asked to be first */
  CHECK(n == size && r == (side ? rank - middle : size - middle + rank));
  OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged));
  CHECK(sum == size * (size - 1) / 2);
  OK(MPI_Comm_free(&merged));
  OK(MPI_Comm_free(&inter));
  OK(MPI_Group_free(&remote));
  OK(MPI_Group_free(&world));
  for (int i = 0; i < 2; i++) OK(MPI_Group_free(&sides[i]));
}

/* Names that MPI 2.0 and 4.1 deprecated. */
static int copied, deleted;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
  (void)comm, (void)keyval, (void)extra;
  copied++;
  *(void **)out = in;
  *flag = 1;
  return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  deleted++;
  return MPI_SUCCESS;
}

static void deprecated(void) {
  MPI_Comm dup;
  MPI_Info info;
  int keyval, flag, length;
  char *found, value[16];
  static char spot;
  OK(MPI_Keyval_create(copy, delete, &keyval, NULL));
  OK(MPI_Attr_put(MPI_COMM_WORLD, keyval, &spot));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
  OK(MPI_Attr_get(dup, keyval, &found, &flag));
  CHECK(flag && found == &spot && copied == 1);
  OK(MPI_Comm_free(&dup));
  OK(MPI_Attr_delete(MPI_COMM_WORLD, keyval));
  CHECK(deleted == 2);
  OK(MPI_Keyval_free(&keyval));
  CHECK(keyval == MPI_KEYVAL_INVALID);
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "key", "value"));
  OK(MPI_Info_get_valuelen(info, "key", &length, &flag));
  CHECK(flag && length == 5);
  OK(MPI_Info_get(info, "key", sizeof value - 1, value, &flag));
  CHECK(flag && !strcmp(value, "value"));
  OK(MPI_Info_get(info, "none", sizeof value - 1, value, &flag));
  CHECK(!flag);
  OK(MPI_Info_free(&info));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  hints();
  ranges();
  two_sides();
  deprecated();
  return finish("between");
}
