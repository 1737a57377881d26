/* Chapters 7, 9 and 10: groups, communicators, attributes, names, info, error handlers, error classes. */
#include "check.h"

static int copied, deleted, handled, handled_code;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
  (void)comm, (void)keyval;
  copied++;
  *(void **)out = (char *)in + *(int *)extra;
  *flag = 1;
  return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  deleted++;
  return MPI_SUCCESS;
}

static int refuse(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
  (void)comm, (void)keyval, (void)extra, (void)in, (void)out, (void)flag;
  return MPI_ERR_OTHER;
}

static void handler(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  handled++;
  handled_code = *code;
}

static void groups(void) {
  MPI_Group world, even, odd, all, none_, range;
  int list[64], there[64], n = 0, i, result, mine, ranges[1][3] = {{0, size - 1, 2}};
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  for (i = 0; i < size; i += 2) list[n++] = i;
  OK(MPI_Group_incl(world, n, list, &even));
  OK(MPI_Group_excl(world, n, list, &odd));
  OK(MPI_Group_range_incl(world, 1, ranges, &range));
  OK(MPI_Group_compare(even, range, &result));
  CHECK(result == MPI_IDENT);
  OK(MPI_Group_union(even, odd, &all));
  OK(MPI_Group_compare(all, world, &result));
  CHECK(result == (size < 3 ? MPI_IDENT : MPI_SIMILAR));
  OK(MPI_Group_intersection(even, odd, &none_));
  CHECK(none_ == MPI_GROUP_EMPTY);
  OK(MPI_Group_rank(odd, &mine));
  CHECK(mine == (rank % 2 ? rank / 2 : MPI_UNDEFINED));
  for (i = 0; i < size; i++) list[i] = i;
  OK(MPI_Group_translate_ranks(world, size, list, even, there));
  for (i = 0; i < size; i++) CHECK(there[i] == (i % 2 ? MPI_UNDEFINED : i / 2));
  OK(MPI_Group_difference(world, even, &none_));
  OK(MPI_Group_compare(none_, odd, &result));
  CHECK(result == MPI_IDENT);
  list[0] = size;
  CLASS(MPI_Group_incl(world, 1, list, &all), MPI_ERR_RANK);
  CLASS(MPI_Group_size(MPI_GROUP_NULL, &n), MPI_ERR_GROUP);
  OK(MPI_Group_free(&even));
  CHECK(even == MPI_GROUP_NULL);
  OK(MPI_Group_free(&world));
}

static void communicators(void) {
  MPI_Comm dup, part, some, shared;
  MPI_Group world, group;
  MPI_Request request;
  int result, n, r, list[64], i;
  char name[MPI_MAX_OBJECT_NAME];
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
  OK(MPI_Comm_compare(dup, MPI_COMM_WORLD, &result));
  CHECK(result == MPI_CONGRUENT);
  OK(MPI_Comm_set_name(dup, "a duplicate"));
  OK(MPI_Comm_get_name(dup, name, &n));
  SAY("name %s of %d", name, n);
  OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &n));
  SAY("name %s of %d", name, n);
  OK(MPI_Comm_split(dup, rank % 2, -rank, &part));
  OK(MPI_Comm_rank(part, &r));
  OK(MPI_Comm_size(part, &n));
  CHECK(n == (size + 1 - rank % 2) / 2 && r == n - 1 - rank / 2);
  OK(MPI_Comm_free(&part));
  CHECK(part == MPI_COMM_NULL);
  OK(MPI_Comm_split(dup, rank == 0 ? MPI_UNDEFINED : 1, 0, &part));
  CHECK((part == MPI_COMM_NULL) == (rank == 0));
  if (part != MPI_COMM_NULL) OK(MPI_Comm_free(&part));
  OK(MPI_Comm_split_type(dup, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
  OK(MPI_Comm_size(shared, &n));
  CHECK(n == size);
  OK(MPI_Comm_disconnect(&shared));
  OK(MPI_Comm_group(dup, &world));
  for (i = 0; i < size; i++) list[i] = size - 1 - i;
  OK(MPI_Group_incl(world, size, list, &group));
  OK(MPI_Comm_create(dup, group, &some));
  OK(MPI_Comm_rank(some, &r));
  CHECK(r == size - 1 - rank);
  OK(MPI_Comm_compare(some, dup, &result));
  CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
  OK(MPI_Comm_free(&some));
  OK(MPI_Comm_create_group(dup, group, 3, &some));
  OK(MPI_Comm_free(&some));
  OK(MPI_Comm_create_from_group(group, "tests/objects", MPI_INFO_NULL, MPI_ERRORS_RETURN, &some));
  OK(MPI_Comm_rank(some, &r));
  CHECK(r == size - 1 - rank);
  OK(MPI_Comm_free(&some));
  OK(MPI_Comm_idup(dup, &some, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Comm_size(some, &n));
  CHECK(n == size);
  OK(MPI_Comm_free(&some));
  OK(MPI_Group_free(&group));
  OK(MPI_Group_free(&world));
  OK(MPI_Comm_free(&dup));
  CLASS(MPI_Comm_size(MPI_COMM_NULL, &n), MPI_ERR_COMM);
}

static void attributes(void) {
  MPI_Comm dup;
  int keyval, refusing, flag, extra = 3, *value;
  char *found;
  static char spot[8];
  OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
  CHECK(flag && *value >= 32767);
  OK(MPI_Comm_create_keyval(copy, delete, &keyval, &extra));
  OK(MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &found, &flag));
  CHECK(!flag);
  OK(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, spot));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
  OK(MPI_Comm_get_attr(dup, keyval, &found, &flag));
  CHECK(flag && found == spot + 3 && copied == 1);
  OK(MPI_Comm_set_attr(dup, keyval, spot));
  CHECK(deleted == 1);
  OK(MPI_Comm_free(&dup));
  CHECK(deleted == 2);
  OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval));
  CHECK(deleted == 3);
  OK(MPI_Comm_free_keyval(&keyval));
  CHECK(keyval == MPI_KEYVAL_INVALID);
  OK(MPI_Comm_create_keyval(refuse, MPI_COMM_NULL_DELETE_FN, &refusing, NULL));
  OK(MPI_Comm_set_attr(MPI_COMM_WORLD, refusing, NULL));
  CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &dup) != MPI_SUCCESS);
  OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, refusing));
  OK(MPI_Comm_free_keyval(&refusing));
  OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL));
  OK(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, spot + 1));
  OK(MPI_Comm_dup(MPI_COMM_SELF, &dup));
  OK(MPI_Comm_get_attr(dup, keyval, &found, &flag));
  CHECK(flag && found == spot + 1);
  OK(MPI_Comm_free(&dup));
  /* a key that was freed is one for as long as attributes have it */
  int freed = keyval;
  OK(MPI_Comm_free_keyval(&freed));
  CHECK(freed == MPI_KEYVAL_INVALID);
  OK(MPI_Comm_get_attr(MPI_COMM_SELF, keyval, &found, &flag));
  CHECK(flag && found == spot + 1);
  OK(MPI_Comm_delete_attr(MPI_COMM_SELF, keyval));
}

static void infos(void) {
  MPI_Info info, other;
  char key[MPI_MAX_INFO_KEY], value[64];
  int n, flag, length = sizeof value;
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "first", "1"));
  OK(MPI_Info_set(info, "second", "zwei"));
  OK(MPI_Info_set(info, "first", "eins"));
  OK(MPI_Info_get_nkeys(info, &n));
  CHECK(n == 2);
  OK(MPI_Info_get_nthkey(info, 0, key));
  SAY("key %s", key);
  OK(MPI_Info_get_string(info, "first", &length, value, &flag));
  CHECK(flag && length == 5 && !strcmp(value, "eins"));
  length = 3;
  OK(MPI_Info_get_string(info, "second", &length, value, &flag));
  CHECK(flag && length == 5 && !strcmp(value, "zw"));
  OK(MPI_Info_dup(info, &other));
  OK(MPI_Info_delete(info, "second"));
  CLASS(MPI_Info_delete(info, "second"), MPI_ERR_INFO_NOKEY);
  OK(MPI_Info_get_nkeys(other, &n));
  CHECK(n == 2);
  OK(MPI_Info_free(&info));
  CHECK(info == MPI_INFO_NULL);
  OK(MPI_Info_free(&other));
  CHECK(MPI_Info_set(MPI_INFO_NULL, "a", "b") != MPI_SUCCESS);
}

static void errors(void) {
  MPI_Errhandler mine, found;
  MPI_Comm dup;
  int class, code, length, n, x = 0;
  char text[MPI_MAX_ERROR_STRING];
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
  OK(MPI_Comm_get_errhandler(dup, &found));
  CHECK(found == MPI_ERRORS_RETURN);
  OK(MPI_Comm_create_errhandler(handler, &mine));
  OK(MPI_Comm_set_errhandler(dup, mine));
  OK(MPI_Errhandler_free(&mine));
  CHECK(mine == MPI_ERRHANDLER_NULL);
  MPI_Send(&x, 1, MPI_INT, size, 0, dup); /* what it answers after a handler of the user's differs */
  MPI_Error_class(handled_code, &class);
  CHECK(handled == 1 && class == MPI_ERR_RANK);
  OK(MPI_Comm_call_errhandler(dup, MPI_ERR_OTHER));
  CHECK(handled == 2);
  OK(MPI_Comm_get_errhandler(dup, &found));
  OK(MPI_Errhandler_free(&found));
  OK(MPI_Comm_free(&dup));
  OK(MPI_Add_error_class(&class));
  CHECK(class > MPI_ERR_LASTCODE);
  OK(MPI_Add_error_code(class, &code));
  OK(MPI_Add_error_string(code, "of our own"));
  OK(MPI_Error_string(code, text, &length));
  CHECK(!strcmp(text, "of our own") && length == 10);
  OK(MPI_Error_class(code, &x));
  CHECK(x == class);
  OK(MPI_Remove_error_string(code));
  OK(MPI_Remove_error_code(code));
  OK(MPI_Remove_error_class(class));
  for (n = 0; n < 100000; n++) { /* takes no more and more time */
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Remove_error_code(code);
    MPI_Remove_error_class(class);
  }
}

/* Results that are nowhere are told. */
static void nowhere(void) {
  MPI_Group group;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
  CLASS(MPI_Comm_size(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_rank(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_group(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_dup(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_split(MPI_COMM_WORLD, 0, 0, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_create(MPI_COMM_WORLD, group, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_get_info(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
  CLASS(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, NULL), MPI_ERR_ARG);
  OK(MPI_Group_free(&group));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  groups();
  communicators();
  attributes();
  infos();
  errors();
  nowhere();
  return finish("objects");
}
