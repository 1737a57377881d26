/* Chapters 4, 11, 13 and 15: partitioned messages, sessions, generalized requests, the tool interface. */
#include "check.h"

static int queried, freed, cancelled;

static int query(void *extra, MPI_Status *status) {
  queried++;
  MPI_Status_set_elements(status, MPI_INT, 3);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = *(int *)extra;
  status->MPI_TAG = 9;
  return MPI_SUCCESS;
}

static int release(void *extra) {
  (void)extra;
  freed++;
  return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
  (void)extra;
  cancelled += 1 + complete;
  return MPI_SUCCESS;
}

static void partitioned(void) {
  enum { PARTS = 4, COUNT = 10 };
  int out[PARTS * COUNT], in[PARTS * COUNT], i, flag, list[2] = {1, 0};
  MPI_Request request;
  if (rank > 1) return;
  for (int round = 0; round < 2; round++) {
    if (rank == 0) {
      if (round == 0) OK(MPI_Psend_init(out, PARTS, COUNT, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
      OK(MPI_Start(&request));
      for (i = 0; i < PARTS * COUNT; i++) out[i] = 1000 * round + i;
      OK(MPI_Pready(3, request));
      OK(MPI_Pready_list(2, list, request));
      OK(MPI_Pready_range(2, 2, request));
    } else {
      if (round == 0) OK(MPI_Precv_init(in, PARTS, COUNT, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
      OK(MPI_Start(&request));
      for (flag = 0; !flag;) OK(MPI_Parrived(request, 2, &flag));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (i = 0; i < PARTS * COUNT && rank == 1; i++) CHECK(in[i] == 1000 * round + i);
  }
  OK(MPI_Request_free(&request));
}

/* Both sides have partitions of their own, ready in any order; what is no partition is refused. */
static void shapes(void) {
  enum { ALL = 48 };
  int shapes[4][2] = {{4, 2}, {2, 8}, {1, 16}, {16, 1}}, out[ALL], in[ALL] = {0}, i, flag;
  MPI_Request request;
  if (rank > 1) return;
  for (int shape = 0; shape < 4; shape++) {
    int parts = shapes[shape][rank], each = ALL / parts;
    if (rank == 0) {
      OK(MPI_Psend_init(out, parts, each, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
      CHECK(MPI_Pready(0, request) != MPI_SUCCESS); /* not active yet */
      OK(MPI_Start(&request));
      CHECK(MPI_Pready(parts, request) != MPI_SUCCESS);
      CHECK(MPI_Pready(-1, request) != MPI_SUCCESS);
      for (int part = parts - 1; part >= 0; part--) {
        for (i = part * each; i < (part + 1) * each; i++) out[i] = 100 * shape + i;
        OK(MPI_Pready(part, request));
      }
    } else {
      OK(MPI_Precv_init(in, parts, each, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
      OK(MPI_Start(&request));
      CHECK(MPI_Parrived(request, parts, &flag) != MPI_SUCCESS);
      for (flag = 0; !flag;) OK(MPI_Parrived(request, parts - 1, &flag));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (i = 0; i < ALL && rank == 1; i++) CHECK(in[i] == 100 * shape + i);
    OK(MPI_Request_free(&request));
  }
}

/* Both sides meet in the order of their initializations, whatever the order of starts. */
static void order(void) {
  enum { ALL = 3, PARTS = 4, COUNT = 1000 };
  static int data[ALL][PARTS * COUNT];
  MPI_Request requests[ALL];
  int starts[ALL] = {2, 0, 1};
  if (rank > 1) return;
  for (int i = 0; i < ALL; i++) {
    if (rank == 0) OK(MPI_Psend_init(data[i], PARTS, COUNT, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
    else OK(MPI_Precv_init(data[i], PARTS, COUNT, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
  }
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < ALL; i++) {
      int at = rank == 0 ? starts[i] : i;
      OK(MPI_Start(&requests[at]));
      if (rank == 1) continue;
      for (int k = 0; k < PARTS * COUNT; k++) data[at][k] = 100 * at + round;
      OK(MPI_Pready_range(0, PARTS - 1, requests[at]));
    }
    OK(MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < ALL && rank == 1; i++)
      for (int k = 0; k < PARTS * COUNT; k += 999) CHECK(data[i][k] == 100 * i + round);
  }
  for (int i = 0; i < ALL; i++) OK(MPI_Request_free(&requests[i]));
}

static void sessions(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  MPI_Info info;
  int n, length = 64, flag, world = 0, self = 0, i;
  char name[64];
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n));
  for (i = 0; i < n; i++) {
    length = sizeof name;
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
    world += !strcmp(name, "mpi://WORLD");
    self += !strcmp(name, "mpi://SELF");
  }
  CHECK(world == 1 && self == 1);
  OK(MPI_Session_get_pset_info(session, "mpi://WORLD", &info));
  length = sizeof name;
  OK(MPI_Info_get_string(info, "mpi_size", &length, name, &flag));
  CHECK(flag && atoi(name) == size);
  OK(MPI_Info_free(&info));
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  OK(MPI_Comm_create_from_group(group, "tests/parts", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
  n = rank;
  OK(MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, comm));
  CHECK(n == size * (size - 1) / 2);
  OK(MPI_Comm_free(&comm));
  OK(MPI_Group_free(&group));
  CHECK(MPI_Group_from_session_pset(session, "no such set", &group) != MPI_SUCCESS);
  OK(MPI_Session_finalize(&session));
  CHECK(session == MPI_SESSION_NULL);
}

static void generalized(void) {
  MPI_Request request;
  MPI_Status status;
  int extra = 7, flag = 1, count;
  OK(MPI_Grequest_start(query, release, cancel, &extra, &request));
  OK(MPI_Test(&request, &flag, &status));
  CHECK(!flag);
  OK(MPI_Cancel(&request));
  CHECK(cancelled == 1);
  OK(MPI_Grequest_complete(request));
  OK(MPI_Wait(&request, &status));
  OK(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(queried == 1 && freed == 1 && count == 3 && status.MPI_SOURCE == 7 && status.MPI_TAG == 9);
  CHECK(request == MPI_REQUEST_NULL);
}

static void tools(void) {
  int provided, n, i, length, verbosity, bind, scope, count, index;
  char name[256], text[4096];
  MPI_Datatype type;
  MPI_T_cvar_handle handle;
  CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
  CHECK(MPI_T_cvar_get_num(&n) == MPI_SUCCESS && n > 0);
  for (i = 0; i < n; i++) {
    int described = sizeof text;
    length = sizeof name;
    CHECK(MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, NULL, text, &described, &bind, &scope) == MPI_SUCCESS);
    CHECK(length == (int)strlen(name) + 1);
    if (bind == MPI_T_BIND_NO_OBJECT) {
      CHECK(MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS && index == i);
      CHECK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count) == MPI_SUCCESS && count >= 1);
      if (type != MPI_CHAR || count <= (int)sizeof text) CHECK(MPI_T_cvar_read(handle, text) == MPI_SUCCESS);
      CHECK(MPI_T_cvar_handle_free(&handle) == MPI_SUCCESS);
    }
  }
  CHECK(MPI_T_cvar_get_index("no such variable", &index) == MPI_T_ERR_INVALID_NAME);
  CHECK(MPI_T_pvar_get_num(&n) == MPI_SUCCESS);
  CHECK(MPI_T_category_get_num(&n) == MPI_SUCCESS);
  CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  checks = 0;
  partitioned();
  shapes();
  order();
  sessions();
  generalized();
  checks = 0; /* how many variables there are differs */
  tools();
  checks = 0;
  return finish("parts");
}
