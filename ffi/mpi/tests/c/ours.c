/* What others do not do, and cannot be compared: parts that travel one by one (chapter 4; others send all of them when the last one is
   ready), and handles that are none (chapter 15; others believe them). */
#include "check.h"

/* A part arrives when it is ready, not when all are; a strided datatype; the receiver may be busy elsewhere meanwhile. */
static void one_by_one(void) {
  enum { PARTS = 4, COUNT = 20000 };
  static int out[2 * PARTS * COUNT], in[2 * PARTS * COUNT];
  MPI_Request request;
  MPI_Datatype spread;
  int flag, token = 0;
  if (rank > 1) return;
  OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread));
  OK(MPI_Type_commit(&spread));
  for (int k = 0; k < 2 * PARTS * COUNT; k++) out[k] = k, in[k] = -1;
  if (rank == 0) {
    OK(MPI_Psend_init(out, PARTS, COUNT, spread, 1, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    for (int part = PARTS - 1; part >= 0; part--) {
      OK(MPI_Pready(part, request));
      if (part > 0) OK(MPI_Recv(&token, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Send(&token, 1, MPI_INT, 1, 9, MPI_COMM_WORLD));
  } else {
    OK(MPI_Precv_init(in, PARTS, COUNT, spread, 0, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    for (int part = PARTS - 1; part > 0; part--) {
      for (flag = 0; !flag;) OK(MPI_Parrived(request, part, &flag));
      CHECK(in[2 * part * COUNT] == 2 * part * COUNT);
      CHECK(in[2 * (part + 1) * COUNT - 2] == 2 * (part + 1) * COUNT - 2);
      OK(MPI_Send(&token, 1, MPI_INT, 0, 8, MPI_COMM_WORLD));
    }
    OK(MPI_Recv(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int k = 0; k < 2 * PARTS * COUNT; k++) if (in[k] != (k % 2 ? -1 : k)) { CHECK(in[k] == (k % 2 ? -1 : k)); break; }
  }
  OK(MPI_Request_free(&request));
  OK(MPI_Type_free(&spread));
}

/* A part of no bytes arrives like any other: not before it is ready. */
static void empty_parts(void) {
  enum { PARTS = 3 };
  MPI_Request request;
  int flag;
  if (rank > 1) return;
  if (rank == 0) OK(MPI_Psend_init(NULL, PARTS, 0, MPI_INT, 1, 10, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
  else OK(MPI_Precv_init(NULL, PARTS, 0, MPI_INT, 0, 10, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
  for (int round = 0; round < 3; round++) {
    if (rank == 1) {
      OK(MPI_Start(&request));
      for (int part = 0; part < PARTS; part++) {
        OK(MPI_Parrived(request, part, &flag));
        CHECK(!flag);
      }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
      OK(MPI_Start(&request));
      OK(MPI_Pready_range(0, PARTS - 1, request));
    } else {
      for (int part = 0; part < PARTS; part++) for (flag = 0; !flag;) OK(MPI_Parrived(request, part, &flag));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  OK(MPI_Request_free(&request));
}

/* Requests that are not active outlive their communicator: they can be freed, and a start is an error. */
static void without_communicator(void) {
  MPI_Comm comm;
  MPI_Request sends, parts, receives;
  static char room[1000];
  int data = 0;
  OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
  OK(MPI_Buffer_attach(room, sizeof room));
  OK(MPI_Bsend_init(&data, 1, MPI_INT, 0, 1, comm, &sends));
  OK(MPI_Psend_init(&data, 1, 1, MPI_INT, 0, 1, comm, MPI_INFO_NULL, &parts));
  OK(MPI_Precv_init(&data, 1, 1, MPI_INT, 0, 1, comm, MPI_INFO_NULL, &receives));
  OK(MPI_Comm_free(&comm));
  CHECK(MPI_Start(&sends) != MPI_SUCCESS);
  OK(MPI_Request_free(&sends));
  OK(MPI_Request_free(&parts));
  OK(MPI_Request_free(&receives));
  OK(MPI_Buffer_detach(&(void *){0}, &data));
}

/* There are no events: nothing is one. */
static void no_events(void) {
  int provided, index, bind, length = 0;
  MPI_Count ticks, stamp;
  MPI_Info info;
  MPI_T_source_order ordering;
  MPI_T_event_registration registration;
  CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
  CHECK(MPI_T_event_get_index("no such event", &index) == MPI_T_ERR_INVALID_NAME);
  CHECK(MPI_T_event_get_info(0, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &length, &bind) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_source_get_info(0, NULL, &length, NULL, &length, &ordering, &ticks, &ticks, &info) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_source_get_timestamp(0, &stamp) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_event_handle_free(NULL, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_handle_get_info(NULL, &info) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_handle_set_info(NULL, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_register_callback(NULL, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_callback_get_info(NULL, MPI_T_CB_REQUIRE_NONE, &info) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_callback_set_info(NULL, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_set_dropped_handler(NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_read(NULL, 0, &index) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_copy(NULL, &index) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_get_timestamp(NULL, &stamp) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_event_get_source(NULL, &index) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

static int told;

static void note(MPI_Comm *comm, int *code, ...) { told += *comm == MPI_COMM_NULL && *code == MPI_ERR_GROUP; }

/* The error handler for a communicator that does not come to be. */
static void unborn(void) {
  MPI_Comm comm;
  MPI_Group all;
  MPI_Errhandler handler;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  OK(MPI_Comm_create_errhandler(note, &handler));
  CLASS(MPI_Comm_create_from_group(MPI_GROUP_NULL, "x", MPI_INFO_NULL, handler, &comm), MPI_ERR_GROUP);
  CHECK(told == 1);
  CLASS(MPI_Intercomm_create_from_groups(all, 0, MPI_GROUP_NULL, 0, "x", MPI_INFO_NULL, handler, &comm), MPI_ERR_GROUP);
  CHECK(told == 2);
  OK(MPI_Errhandler_free(&handler));
  OK(MPI_Group_free(&all));
}

/* What becomes of a cancelled send to oneself is known at once, whether it is kept for later or not: nothing has to move in between. */
static void cancelled_to_oneself(void) {
  enum { MANY = 1 << 20 };
  static int out[MANY], in[MANY];
  const int counts[] = {0, 1, 1000, MANY};
  for (int k = 0; k < 4; k++) {
    MPI_Request requests[2];
    MPI_Status status;
    int flag, cancelled;
    OK(MPI_Issend(out, counts[k], MPI_INT, rank, 20, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Ssend_init(out, counts[k], MPI_INT, rank, 20, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Start(&requests[1]));
    for (int part = 0; part < 2; part++) OK(MPI_Cancel(&requests[part]));
    for (int part = 0; part < 2; part++) {
      OK(MPI_Request_get_status(requests[part], &flag, &status));
      OK(MPI_Test_cancelled(&status, &cancelled));
      CHECK(flag && cancelled);
      OK(MPI_Wait(&requests[part], &status));
    }
    OK(MPI_Iprobe(rank, 20, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag);
    /* one that was received is not cancelled */
    OK(MPI_Start(&requests[1]));
    OK(MPI_Recv(in, MANY, MPI_INT, rank, 20, MPI_COMM_WORLD, &status));
    OK(MPI_Cancel(&requests[1]));
    OK(MPI_Wait(&requests[1], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(!cancelled);
    OK(MPI_Request_free(&requests[1]));
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  unborn();
  one_by_one();
  empty_parts();
  without_communicator();
  no_events();
  cancelled_to_oneself();
  return finish("ours");
}
