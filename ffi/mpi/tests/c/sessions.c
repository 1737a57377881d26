/* Chapter 11.3: a program that has nothing but sessions, three (or as many as it is told) one after the other, each the
 * library's whole life. */
#include "check.h"

static int handled;

static void handler(MPI_Session *session, int *code, ...) {
  (void)session, (void)code;
  handled++;
}

static void once(int round) {
  MPI_Session session;
  MPI_Group group, none_ = MPI_GROUP_NULL;
  MPI_Comm comm;
  MPI_Errhandler mine;
  int out = round, in = -1;
  OK(MPI_Session_create_errhandler(handler, &mine));
  OK(MPI_Session_init(MPI_INFO_NULL, mine, &session));
  MPI_Group_from_session_pset(session, "no such set", &none_);
  CHECK(handled == round + 1); /* the session's own handler */
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  OK(MPI_Comm_create_from_group(group, "tests/sessions", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  OK(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, comm));
  CHECK(in == round * size);
  CLASS(MPI_Send(&out, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
  OK(MPI_Allreduce(&wrong, &in, 1, MPI_INT, MPI_SUM, comm));
  SAY("sessions, round %d: %d wrong", round, in);
  OK(MPI_Comm_free(&comm));
  OK(MPI_Group_free(&group));
  OK(MPI_Errhandler_free(&mine));
  OK(MPI_Session_finalize(&session));
  CHECK(session == MPI_SESSION_NULL);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 3;
  for (int round = 0; round < rounds; round++) once(round);
  return wrong != 0;
}
