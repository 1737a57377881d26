/* Sessions without a world, and what comes after MPI_Finalize: which error handler hears of errors that no object has to do with
 * (chapters 9.3 and 11.3). Run with MPI_ERRORS_RETURN as the initial error handler. */
#include "check.h"

static int told;

static void of_comm(MPI_Comm *comm, int *code, ...) {
  (void)code;
  CHECK(*comm == MPI_COMM_NULL);
  told++;
}

static void of_session(MPI_Session *session, int *code, ...) {
  (void)code;
  CHECK(*session == MPI_SESSION_NULL);
  told++;
}

int main(int argc, char **argv) {
  MPI_Session session, none_;
  MPI_Errhandler comms, sessions;
  MPI_Datatype type;
  MPI_Group group;
  MPI_Comm comm;
  int n = 0;

  OK(MPI_Session_create_errhandler(of_session, &sessions));
  CLASS(MPI_Session_init(MPI_INFO_NULL, sessions, NULL), MPI_ERR_ARG);
  CHECK(told == 1);
  OK(MPI_Session_init(MPI_INFO_NULL, sessions, &session));

  /* there is no world, and nothing that stands on it */
  CLASS(MPI_Comm_size(MPI_COMM_WORLD, &n), MPI_ERR_COMM);
  CLASS(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_COMM);
  CLASS(MPI_Send(&n, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF), MPI_ERR_COMM);
  CLASS(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL), MPI_ERR_COMM);
  CLASS(MPI_Type_contiguous(-1, MPI_INT, &type), MPI_ERR_COUNT);
  CHECK(told == 1);

  /* the handler of what is to be made */
  OK(MPI_Comm_create_errhandler(of_comm, &comms));
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  CLASS(MPI_Comm_create_from_group(group, "tests/worldless", MPI_INFO_NULL, comms, NULL), MPI_ERR_ARG);
  CHECK(told == 2);
  CLASS(MPI_Comm_create_from_group(MPI_GROUP_NULL, "tests/worldless", MPI_INFO_NULL, comms, &comm), MPI_ERR_GROUP);
  CLASS(MPI_Intercomm_create_from_groups(group, 99, group, 0, "tests/worldless", MPI_INFO_NULL, comms, &comm), MPI_ERR_RANK);
  CHECK(told == 4);
  CLASS(MPI_Session_init(MPI_INFO_NULL, comms, &none_), MPI_ERR_ARG); /* a handler of communicators is nobody to tell */
  CHECK(told == 4);
  OK(MPI_Comm_create_from_group(group, "tests/worldless", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
  OK(MPI_Barrier(comm));
  OK(MPI_Comm_free(&comm));
  OK(MPI_Group_free(&group));
  OK(MPI_Errhandler_free(&comms));
  OK(MPI_Errhandler_free(&sessions));
  OK(MPI_Session_finalize(&session));

  begin(&argc, &argv);
  OK(MPI_Type_contiguous(1, MPI_INT, &type));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Finalize());
  CLASS(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_OTHER);
  CLASS(MPI_Type_free(&type), MPI_ERR_OTHER);
  return wrong != 0;
}
