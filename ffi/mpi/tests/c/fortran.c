/* Chapter 19.3 and what MPI 3.0 removed: handles and statuses as Fortran has them, and names of old programs. The standard
 * ABI's own library has none of these, so there is nothing to compare with. */
#include "check.h"

static void handles(void) {
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Group group;
  MPI_Info info;
  MPI_Request request;
  MPI_Errhandler errhandler;
  MPI_Session session;
  MPI_Message message;
  MPI_Request sent;
  int x = 1, y = 0;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  OK(MPI_Type_contiguous(3, MPI_INT, &type));
  OK(MPI_Comm_group(comm, &group));
  OK(MPI_Info_create(&info));
  OK(MPI_Comm_get_errhandler(comm, &errhandler));
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  OK(MPI_Isend(&x, 1, MPI_INT, rank, 8, comm, &sent));
  OK(MPI_Mprobe(rank, 8, comm, &message, MPI_STATUS_IGNORE));
  OK(MPI_Irecv(&y, 1, MPI_INT, rank, 9, comm, &request));
#define BACK(kind, handle) CHECK(MPI_##kind##_f2c(MPI_##kind##_c2f(handle)) == (handle))
  BACK(Comm, comm); BACK(Comm, MPI_COMM_WORLD); BACK(Comm, MPI_COMM_NULL);
  BACK(Type, type); BACK(Type, MPI_DOUBLE); BACK(Type, MPI_DATATYPE_NULL);
  BACK(Group, group); BACK(Group, MPI_GROUP_EMPTY);
  BACK(Info, info); BACK(Info, MPI_INFO_NULL);
  BACK(Request, request); BACK(Request, MPI_REQUEST_NULL);
  BACK(Errhandler, errhandler); BACK(Errhandler, MPI_ERRORS_RETURN);
  BACK(Op, MPI_SUM); BACK(Op, MPI_OP_NULL);
  BACK(Session, session); BACK(Session, MPI_SESSION_NULL);
  BACK(Message, message); BACK(Message, MPI_MESSAGE_NO_PROC);
  BACK(Win, MPI_WIN_NULL); BACK(File, MPI_FILE_NULL);
  { MPI_Fint old = MPI_Comm_c2f(comm);
    OK(MPI_Mrecv(&y, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&comm));
    CHECK(MPI_Comm_f2c(old) == MPI_COMM_NULL); }
  OK(MPI_Session_finalize(&session));
  OK(MPI_Errhandler_free(&errhandler));
  OK(MPI_Info_free(&info));
  OK(MPI_Group_free(&group));
  OK(MPI_Type_free(&type));
}

static void statuses(void) {
  MPI_Status status, back;
  MPI_F08_status f08, f08_too;
  MPI_Fint fortran[MPI_F_STATUS_SIZE], too[MPI_F_STATUS_SIZE];
  int x[3] = {1, 2, 3}, y[3], n;
  OK(MPI_Sendrecv(x, 3, MPI_INT, rank, 11, y, 3, MPI_INT, rank, 11, MPI_COMM_WORLD, &status));
#define SAME(what) CHECK((what).MPI_SOURCE == rank && (what).MPI_TAG == 11 && MPI_Get_count(&(what), MPI_INT, &n) == MPI_SUCCESS && n == 3)
  OK(MPI_Status_c2f(&status, fortran));
  OK(MPI_Status_f2c(fortran, &back));
  SAME(back);
  OK(MPI_Status_c2f08(&status, &f08));
  memset(&back, 0, sizeof back);
  OK(MPI_Status_f082c(&f08, &back));
  SAME(back);
  OK(MPI_Status_f082f(&f08, too));
  CHECK(!memcmp(fortran, too, sizeof too));
  OK(MPI_Status_f2f08(too, &f08_too));
  memset(&back, 0, sizeof back);
  OK(MPI_Status_f082c(&f08_too, &back));
  SAME(back);
  CHECK(MPI_Status_c2f(MPI_STATUS_IGNORE, fortran) != MPI_SUCCESS);
}

/* A Fortran runtime tells its sizes and truth values once. */
static void runtime(void) {
  MPI_Info info;
  int yes = -1, no = 0, set = -1, got = 5, other = 5, length = 8, flag;
  char value[8];
  CHECK(MPI_Abi_get_fortran_booleans(sizeof yes, &got, &other, &set) == MPI_SUCCESS && !set);
  CHECK(MPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no) == MPI_SUCCESS);
  CHECK(MPI_Abi_get_fortran_booleans(sizeof yes, &got, &other, &set) == MPI_SUCCESS && set && got == yes && other == no);
  CHECK(MPI_Info_create(&info) == MPI_SUCCESS);
  CHECK(MPI_Info_set(info, "mpi_integer_size", "4") == MPI_SUCCESS);
  CHECK(MPI_Abi_set_fortran_info(info) == MPI_SUCCESS);
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
  CHECK(MPI_Abi_get_fortran_info(&info) == MPI_SUCCESS);
  CHECK(MPI_Info_get_string(info, "mpi_integer_size", &length, value, &flag) == MPI_SUCCESS && flag && !strcmp(value, "4"));
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  handled = *code;
}

static void removed(void) {
  struct { int a; double b[2]; } s = {0};
  int lengths[2] = {1, 2}, x = 0;
  MPI_Aint at[2], base, extent, lower, upper;
  MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, made, strided, indexed;
  MPI_Errhandler mine, found, before;
  OK(MPI_Address(&s, &base));
  OK(MPI_Address(&s.b, &at[1]));
  at[0] = 0;
  at[1] -= base;
  OK(MPI_Type_struct(2, lengths, at, types, &made));
  OK(MPI_Type_extent(made, &extent));
  OK(MPI_Type_lb(made, &lower));
  OK(MPI_Type_ub(made, &upper));
  CHECK(lower == 0 && upper == extent && extent == sizeof s);
  OK(MPI_Type_hvector(3, 1, 24, MPI_INT, &strided));
  OK(MPI_Type_extent(strided, &extent));
  CHECK(extent == 52);
  OK(MPI_Type_hindexed(2, lengths, at, MPI_DOUBLE, &indexed));
  OK(MPI_Type_size(indexed, &x));
  CHECK(x == 24);
  OK(MPI_Type_free(&indexed));
  OK(MPI_Type_free(&strided));
  OK(MPI_Type_free(&made));
  OK(MPI_Errhandler_get(MPI_COMM_WORLD, &before));
  OK(MPI_Errhandler_create(handler, &mine));
  OK(MPI_Errhandler_set(MPI_COMM_WORLD, mine));
  OK(MPI_Errhandler_get(MPI_COMM_WORLD, &found));
  CHECK(found == mine);
  MPI_Send(&x, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
  CHECK(handled != MPI_SUCCESS);
  OK(MPI_Errhandler_set(MPI_COMM_WORLD, before));
  OK(MPI_Errhandler_free(&found));
  OK(MPI_Errhandler_free(&mine));
}

int main(int argc, char **argv) {
  runtime();
  begin(&argc, &argv);
  handles();
  statuses();
  removed();
  return finish("fortran");
}
