/* Chapter 15: what a tool sees through MPI_T: control variables, performance variables, categories. Which there are differs
 * from library to library; that they can be found, read and counted does not. */
#include "check.h"

enum { ROOM = 4096 };

static void control(void) {
  int count, n, i, at, verbosity, bind, scope, length, about, failed = 0;
  char name[ROOM], text[ROOM];
  static char value[1 << 16];
  MPI_Datatype type;
  MPI_T_enum kinds;
  MPI_T_cvar_handle handle;
  OK(MPI_T_cvar_get_num(&n));
  CHECK(n > 0);
  for (i = 0; i < n; i++) {
    length = about = ROOM;
    if (MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &kinds, text, &about, &bind, &scope) != MPI_SUCCESS) { failed++; continue; }
    failed += length != (int)strlen(name) + 1 || verbosity < MPI_T_VERBOSITY_USER_BASIC || verbosity > MPI_T_VERBOSITY_MPIDEV_ALL;
    failed += MPI_T_cvar_get_index(name, &at) != MPI_SUCCESS || at != i;
    if (bind != MPI_T_BIND_NO_OBJECT) continue;
    if (MPI_T_cvar_handle_alloc(i, NULL, &handle, &count) != MPI_SUCCESS) { failed++; continue; }
    failed += count < 1 || MPI_T_cvar_read(handle, value) != MPI_SUCCESS;
    if (scope == MPI_T_SCOPE_READONLY || scope == MPI_T_SCOPE_CONSTANT) failed += MPI_T_cvar_write(handle, value) == MPI_SUCCESS;
    failed += MPI_T_cvar_handle_free(&handle) != MPI_SUCCESS || handle != MPI_T_CVAR_HANDLE_NULL;
  }
  CHECK(failed == 0);
  CHECK(MPI_T_cvar_get_index("no such variable", &at) == MPI_T_ERR_INVALID_NAME);
  CHECK(MPI_T_cvar_get_info(n, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &n, name, &length) != MPI_SUCCESS);
  CHECK(MPI_T_enum_get_item(MPI_T_ENUM_NULL, 0, &n, name, &length) != MPI_SUCCESS);
}

static void performance(void) {
  int count, n, i, at, verbosity, bind, kind, length, about, fixed, continuous, atomic, failed = 0, found = -1;
  char name[ROOM], text[ROOM];
  MPI_Datatype type;
  MPI_T_enum kinds;
  MPI_T_pvar_session session;
  MPI_T_pvar_handle handle;
  OK(MPI_T_pvar_session_create(&session));
  OK(MPI_T_pvar_get_num(&n));
  for (i = 0; i < n; i++) {
    length = about = ROOM;
    if (MPI_T_pvar_get_info(i, name, &length, &verbosity, &kind, &type, &kinds, text, &about, &bind, &fixed, &continuous, &atomic) != MPI_SUCCESS) { failed++; continue; }
    failed += MPI_T_pvar_get_index(name, kind, &at) != MPI_SUCCESS || at != i;
    if (!strcmp(name, "pml_ob1_unexpected")) found = i;
  }
  CHECK(failed == 0);
  CHECK(MPI_T_pvar_get_index("no such variable", MPI_T_PVAR_CLASS_COUNTER, &at) == MPI_T_ERR_INVALID_NAME);
  if (found >= 0) { /* ours */
    unsigned long long before, after;
    int x = 1;
    MPI_Request request;
    MPI_Status status;
    OK(MPI_T_pvar_handle_alloc(session, found, NULL, &handle, &count));
    CHECK(count == 1);
    CHECK(MPI_T_pvar_start(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_stop(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_reset(session, handle));
    OK(MPI_T_pvar_read(session, handle, &before));
    CHECK(before == 0);
    OK(MPI_Isend(&x, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Probe(rank, 1, MPI_COMM_WORLD, &status));
    OK(MPI_Recv(&x, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&request, &status));
    OK(MPI_T_pvar_readreset(session, handle, &after));
    CHECK(after == 1);
    OK(MPI_T_pvar_read(session, handle, &after));
    CHECK(after == 0);
    before = 40;
    OK(MPI_T_pvar_write(session, handle, &before));
    OK(MPI_T_pvar_read(session, handle, &after));
    CHECK(after == 40);
    OK(MPI_T_pvar_handle_free(session, &handle));
    CHECK(handle == MPI_T_PVAR_HANDLE_NULL);
  }
  OK(MPI_T_pvar_session_free(&session));
  CHECK(session == MPI_T_PVAR_SESSION_NULL);
}

static void categories(void) {
  int n, i, at, controls, counters, inner, events, length, about, failed = 0, all, seen = 0, stamp, list[ROOM];
  char name[ROOM], text[ROOM];
  OK(MPI_T_category_get_num(&n));
  for (i = 0; i < n; i++) {
    length = about = ROOM;
    if (MPI_T_category_get_info(i, name, &length, text, &about, &controls, &counters, &inner) != MPI_SUCCESS) { failed++; continue; }
    failed += MPI_T_category_get_index(name, &at) != MPI_SUCCESS || at != i;
    failed += MPI_T_category_get_cvars(i, ROOM, list) != MPI_SUCCESS;
    for (int k = 0; k < controls; k++) failed += list[k] < 0;
    failed += MPI_T_category_get_pvars(i, ROOM, list) != MPI_SUCCESS;
    failed += MPI_T_category_get_categories(i, ROOM, list) != MPI_SUCCESS;
    failed += MPI_T_category_get_num_events(i, &events) != MPI_SUCCESS;
    failed += MPI_T_category_get_events(i, ROOM, list) != MPI_SUCCESS;
    seen += controls;
  }
  CHECK(failed == 0);
  OK(MPI_T_cvar_get_num(&all));
  CHECK(seen >= all);
  OK(MPI_T_category_changed(&stamp));
  CHECK(MPI_T_category_get_index("no such category", &at) == MPI_T_ERR_INVALID_NAME);
  OK(MPI_T_event_get_num(&events));
  CHECK(events >= 0);
  OK(MPI_T_source_get_num(&n));
  CHECK(n >= 0);
}

int main(int argc, char **argv) {
  int level, before;
  CHECK(MPI_T_cvar_get_num(&before) == MPI_T_ERR_NOT_INITIALIZED);
  CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &level) == MPI_SUCCESS);
  CHECK(MPI_T_cvar_get_num(&before) == MPI_SUCCESS && before > 0);
  begin(&argc, &argv);
  control();
  performance();
  categories();
  OK(MPI_T_finalize());
  checks = 0; /* how many there were depends on what there is */
  level = finish("tool");
  return level + (MPI_T_cvar_get_num(&before) != MPI_T_ERR_NOT_INITIALIZED);
}
