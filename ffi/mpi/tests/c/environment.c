/* Chapters 9, 11 and 20: versions, memory, time, threads, what a process asks of its environment; handles and integers; the
 * standard ABI. Sessions have error handlers and hints of their own. */
#include "check.h"

static int handled;

static void session_handler(MPI_Session *session, int *code, ...) {
  (void)session;
  handled = *code;
}

static void before_init(int argc, char **argv) {
  int flag = 1, version, subversion, length, major = 0, minor = -1, n;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Info info;
  /* what may be called at any time */
  CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && !flag);
  CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && !flag);
  CHECK(MPI_Get_version(&version, &subversion) == MPI_SUCCESS && version == MPI_VERSION && subversion == MPI_SUBVERSION);
  CHECK(MPI_Get_library_version(text, &length) == MPI_SUCCESS && length == (int)strlen(text) && length > 0);
  CHECK(MPI_Abi_get_version(&major, &minor) == MPI_SUCCESS && major == MPI_ABI_VERSION && minor == MPI_ABI_SUBVERSION);
  CHECK(MPI_Info_create_env(argc, argv, &info) == MPI_SUCCESS);
  CHECK(MPI_Info_get_nkeys(info, &n) == MPI_SUCCESS && n >= 0);
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
}

static void environment(void) {
  int flag, length, level, n;
  char name[MPI_MAX_PROCESSOR_NAME];
  double since = MPI_Wtime(), tick = MPI_Wtick(), *memory, now;
  MPI_Info info;
  MPI_Comm parent;
  OK(MPI_Initialized(&flag));
  CHECK(flag);
  OK(MPI_Finalized(&flag));
  CHECK(!flag);
  OK(MPI_Is_thread_main(&flag));
  CHECK(flag);
  OK(MPI_Query_thread(&level));
  SAY("thread level %d", level - MPI_THREAD_SINGLE);
  OK(MPI_Get_processor_name(name, &length));
  CHECK(length > 0 && length == (int)strlen(name));
  CHECK(tick > 0 && tick < 1e-3);
  do now = MPI_Wtime(); while (now == since);
  CHECK(now > since && now - since < 100);
  OK(MPI_Alloc_mem(1000 * sizeof *memory, MPI_INFO_NULL, &memory));
  memory[0] = memory[999] = 1.5;
  CHECK(memory[0] + memory[999] == 3);
  OK(MPI_Free_mem(memory));
  OK(MPI_Get_hw_resource_info(&info));
  OK(MPI_Info_get_nkeys(info, &n));
  CHECK(n >= 0);
  OK(MPI_Info_free(&info));
  OK(MPI_Comm_get_parent(&parent));
  CHECK(parent == MPI_COMM_NULL);
  OK(MPI_Pcontrol(1));
  OK(MPI_Pcontrol(0));
}

static void abi(void) {
  MPI_Info info;
  char value[16];
  int length = sizeof value, flag;
  OK(MPI_Abi_get_info(&info));
  OK(MPI_Info_get_string(info, "mpi_aint_size", &length, value, &flag));
  SAY("mpi_aint_size %s", flag ? value : "is not told");
  length = sizeof value;
  OK(MPI_Info_get_string(info, "mpi_count_size", &length, value, &flag));
  SAY("mpi_count_size %s", flag ? value : "is not told");
  length = sizeof value;
  OK(MPI_Info_get_string(info, "mpi_offset_size", &length, value, &flag));
  SAY("mpi_offset_size %s", flag ? value : "is not told");
  OK(MPI_Info_free(&info));
}

static MPI_Request pending(void) {
  static int nowhere;
  MPI_Request request;
  OK(MPI_Irecv(&nowhere, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &request));
  return request;
}

/* A handle as an integer, and back. */
static void integers(void) {
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Group group;
  MPI_Info info;
  MPI_Request request = pending();
  MPI_Errhandler errhandler;
  MPI_Op op;
  MPI_Session session;
  MPI_Message message;
  int x = 1, y;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  OK(MPI_Type_contiguous(3, MPI_INT, &type));
  OK(MPI_Comm_group(comm, &group));
  OK(MPI_Info_create(&info));
  OK(MPI_Comm_get_errhandler(comm, &errhandler));
  OK(MPI_Op_create((MPI_User_function *)(void (*)(void))session_handler, 1, &op));
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  OK(MPI_Isend(&x, 1, MPI_INT, rank, 8, comm, &(MPI_Request){0}));
  OK(MPI_Mprobe(rank, 8, comm, &message, MPI_STATUS_IGNORE));
#define BACK(kind, handle) CHECK(MPI_##kind##_fromint(MPI_##kind##_toint(handle)) == (handle))
  BACK(Comm, comm); BACK(Comm, MPI_COMM_WORLD); BACK(Comm, MPI_COMM_NULL);
  BACK(Type, type); BACK(Type, MPI_DOUBLE); BACK(Type, MPI_DATATYPE_NULL);
  BACK(Group, group); BACK(Group, MPI_GROUP_EMPTY); BACK(Group, MPI_GROUP_NULL);
  BACK(Info, info); BACK(Info, MPI_INFO_NULL); BACK(Info, MPI_INFO_ENV);
  BACK(Request, request); BACK(Request, MPI_REQUEST_NULL);
  BACK(Errhandler, errhandler); BACK(Errhandler, MPI_ERRORS_ARE_FATAL);
  BACK(Op, op); BACK(Op, MPI_SUM); BACK(Op, MPI_OP_NULL);
  BACK(Session, session); BACK(Session, MPI_SESSION_NULL);
  BACK(Message, message); BACK(Message, MPI_MESSAGE_NO_PROC);
  BACK(Win, MPI_WIN_NULL); BACK(File, MPI_FILE_NULL);
  CHECK(MPI_Comm_toint(MPI_COMM_WORLD) != MPI_Comm_toint(comm));
  OK(MPI_Mrecv(&y, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
  CHECK(y == 1);
  OK(MPI_Session_finalize(&session));
  OK(MPI_Op_free(&op));
  OK(MPI_Errhandler_free(&errhandler));
  OK(MPI_Cancel(&request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Info_free(&info));
  OK(MPI_Group_free(&group));
  OK(MPI_Type_free(&type));
  OK(MPI_Comm_free(&comm));
}

static void sessions(void) {
  MPI_Session session;
  MPI_Errhandler mine, found;
  MPI_Info info;
  int class;
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_SOME"));
  CHECK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS); /* told to the handler that was given */
  OK(MPI_Info_free(&info));
  OK(MPI_Session_create_errhandler(session_handler, &mine));
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  OK(MPI_Session_get_errhandler(session, &found));
  CHECK(found == MPI_ERRORS_RETURN);
  OK(MPI_Session_set_errhandler(session, mine));
  OK(MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
  MPI_Error_class(handled, &class);
  CHECK(class == MPI_ERR_OTHER);
  OK(MPI_Session_get_errhandler(session, &found));
  CHECK(found == mine);
  OK(MPI_Errhandler_free(&found));
  OK(MPI_Errhandler_free(&mine));
  OK(MPI_Session_get_info(session, &info));
  OK(MPI_Info_free(&info));
  OK(MPI_Session_finalize(&session));
  CHECK(session == MPI_SESSION_NULL);
}

int main(int argc, char **argv) {
  int provided;
  before_init(argc, argv);
  CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(provided >= MPI_THREAD_FUNNELED);
  environment();
  abi();
  integers();
  sessions();
  provided = finish("environment");
  MPI_Finalized(&rank);
  return rank ? provided : 99;
}
