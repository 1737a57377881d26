/* Every call that waits, for one request or several, or polls, meets a death and a revocation while it is under way: it ends with the
   right error, and what concerns others goes well. In each round the first ranks are in a call each, a helper beside them lives, and
   what is waited for is a victim of the round's own that says nothing. Ours only: the standard has no failures. */
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

enum { WAITERS = 4, HELPER = WAITERS, VICTIM, MEMBERS }; /* ranks in a round's communicator */
enum { LATE, EARLY, LOST, SET };                         /* places in a set of requests */
enum { READY = 1, SEND, DONE };                          /* what waiters tell the helper, and READY the victim */
enum { TAG = 10, LONG = 500000 };

static MPI_Comm round_comm, living;
static int victim;            /* of this round, in the world */
static int killed;            /* or revoked */
static const char *call_name; /* for what goes wrong */
static int long_out[LONG];

#define HERE(what) do { \
    checks++; \
    if (!(what)) { wrong++; printf("rank %d: %s, %s: line %d: %s\n", rank, call_name, killed ? "killed" : "revoked", __LINE__, #what); fflush(stdout); } \
  } while (0)

static int class_of(int code) {
  int class;
  MPI_Error_class(code, &class);
  return class;
}

static int cause(void) { return killed ? MPIX_ERR_PROC_FAILED : MPIX_ERR_REVOKED; }

/* How a wildcard receive that does not block ends, or goes on. */
static int wildcard_cause(void) { return killed ? MPIX_ERR_PROC_FAILED_PENDING : MPIX_ERR_REVOKED; }

static void tell(int what) { OK(MPI_Send(&what, 1, MPI_INT, HELPER, 0, living)); }

/* From here on the victim may die, and the helper revoke: both give the caller a moment to get into its call. */
static void ready(void) {
  int what = READY;
  if (killed) OK(MPI_Send(&what, 1, MPI_INT, victim, 0, MPI_COMM_WORLD));
  tell(READY);
}

/* Who has failed, or was acknowledged, is the victim, or nobody. */
static void is_victim(MPI_Group group, int expected) {
  MPI_Group all;
  int n, member = 0, translated = -1;
  OK(MPI_Group_size(group, &n));
  HERE(n == expected);
  OK(MPI_Comm_group(round_comm, &all));
  if (n == 1) {
    OK(MPI_Group_translate_ranks(group, 1, &member, all, &translated));
    HERE(translated == VICTIM);
  }
  OK(MPI_Group_free(&all));
  OK(MPI_Group_free(&group));
}

static void acknowledge(void) {
  MPI_Group group;
  int n;
  OK(MPIX_Comm_get_failed(round_comm, &group));
  is_victim(group, 1);
  OK(MPIX_Comm_failure_get_acked(round_comm, &group));
  is_victim(group, 0);
  OK(MPIX_Comm_ack_failed(round_comm, 1, &n));
  HERE(n == 1);
  OK(MPIX_Comm_failure_get_acked(round_comm, &group));
  is_victim(group, 1);
}

/* A set of requests: LATE is the helper's, sent when it is told to; EARLY has come before; LOST is of the victim, or of any source. */
static MPI_Request set[SET];
static int got[SET];
static int is_wild;

static void make(int wild) {
  is_wild = wild;
  OK(MPI_Probe(HELPER, TAG + EARLY, round_comm, MPI_STATUS_IGNORE));
  OK(MPI_Irecv(&got[LATE], 1, MPI_INT, HELPER, TAG + LATE, round_comm, &set[LATE]));
  OK(MPI_Irecv(&got[EARLY], 1, MPI_INT, HELPER, TAG + EARLY, round_comm, &set[EARLY]));
  OK(MPI_Irecv(&got[LOST], 1, MPI_INT, wild ? MPI_ANY_SOURCE : VICTIM, TAG + LOST, round_comm, &set[LOST]));
}

static int lost_class(void) { return is_wild ? wildcard_cause() : cause(); }

static int stays(void) { return is_wild && killed; }

static void have(int place, const MPI_Status *status) {
  HERE(got[place] == TAG + place);
  HERE(status->MPI_SOURCE == HELPER && status->MPI_TAG == TAG + place);
}

/* After LOST has told of the failure: a wildcard goes on when that is acknowledged, and the late one was never disturbed. */
static void go_on(void) {
  MPI_Status status;
  HERE(stays() ? set[LOST] != MPI_REQUEST_NULL : set[LOST] == MPI_REQUEST_NULL);
  if (!killed) {
    HERE(set[LATE] == MPI_REQUEST_NULL);
    return;
  }
  HERE(set[LATE] != MPI_REQUEST_NULL);
  if (is_wild) {
    /* as often as it is asked */
    HERE(class_of(MPI_Wait(&set[LOST], &status)) == MPIX_ERR_PROC_FAILED_PENDING);
    acknowledge();
    int flag;
    OK(MPI_Test(&set[LOST], &flag, &status));
    HERE(!flag);
  }
  tell(SEND);
  OK(MPI_Wait(&set[LATE], &status));
  have(LATE, &status);
  if (is_wild) {
    OK(MPI_Wait(&set[LOST], &status));
    have(LOST, &status);
  }
}

static int polls; /* the call is one that tests */

static int all(MPI_Status *statuses) {
  int flag = 0, code;
  if (!polls) return MPI_Waitall(SET, set, statuses);
  do code = MPI_Testall(SET, set, &flag, statuses); while (code == MPI_SUCCESS && !flag);
  HERE(flag);
  return code;
}

static void of_all(int wild) {
  MPI_Status statuses[SET];
  make(wild);
  ready();
  HERE(all(statuses) == MPI_ERR_IN_STATUS);
  HERE(statuses[EARLY].MPI_ERROR == MPI_SUCCESS);
  have(EARLY, &statuses[EARLY]);
  HERE(class_of(statuses[LOST].MPI_ERROR) == lost_class());
  HERE(class_of(statuses[LATE].MPI_ERROR) == (killed ? MPI_ERR_PENDING : MPIX_ERR_REVOKED));
  HERE(set[EARLY] == MPI_REQUEST_NULL);
  go_on();
}

static int any(int *at, MPI_Status *status) {
  int flag = 0, code;
  if (!polls) return MPI_Waitany(SET, set, at, status);
  do code = MPI_Testany(SET, set, at, &flag, status); while (code == MPI_SUCCESS && !flag);
  HERE(flag);
  return code;
}

static void of_any(int wild) {
  MPI_Status status;
  int at, seen = 0;
  make(wild);
  OK(any(&at, &status));
  HERE(at == EARLY);
  have(EARLY, &status);
  ready();
  /* a revocation ends both that are left, in any order */
  for (int n = 0; n < (killed ? 1 : 2); n++) {
    HERE(class_of(any(&at, &status)) == lost_class());
    HERE(at == LOST || (!killed && at == LATE));
    seen |= 1 << at;
  }
  HERE(seen == (killed ? 1 << LOST : 1 << LOST | 1 << LATE));
  go_on();
  OK(any(&at, &status));
  HERE(at == MPI_UNDEFINED);
}

static int some(int *n, int *places, MPI_Status *statuses) {
  int code;
  if (!polls) return MPI_Waitsome(SET, set, n, places, statuses);
  do code = MPI_Testsome(SET, set, n, places, statuses); while (code == MPI_SUCCESS && *n == 0);
  return code;
}

static void of_some(int wild) {
  MPI_Status statuses[SET];
  int n, places[SET], seen = 0;
  make(wild);
  OK(some(&n, places, statuses));
  HERE(n == 1 && places[0] == EARLY);
  have(EARLY, &statuses[0]);
  ready();
  do {
    HERE(some(&n, places, statuses) == MPI_ERR_IN_STATUS);
    HERE(n >= 1 && n <= 2);
    for (int i = 0; i < n; i++) {
      HERE(places[i] == LOST || (!killed && places[i] == LATE));
      HERE(class_of(statuses[i].MPI_ERROR) == lost_class());
      seen |= 1 << places[i];
    }
  } while (!killed && seen != (1 << LOST | 1 << LATE));
  HERE(seen == (killed ? 1 << LOST : 1 << LOST | 1 << LATE));
  go_on();
  OK(some(&n, places, statuses));
  HERE(n == MPI_UNDEFINED);
}

static void of_one(int wild) {
  MPI_Status status;
  int flag = 0, code;
  make(wild);
  OK(MPI_Wait(&set[EARLY], &status));
  have(EARLY, &status);
  ready();
  if (polls) do code = MPI_Test(&set[LOST], &flag, &status); while (code == MPI_SUCCESS && !flag);
  else code = MPI_Wait(&set[LOST], &status);
  HERE(class_of(code) == lost_class());
  if (!killed) HERE(class_of(MPI_Wait(&set[LATE], &status)) == MPIX_ERR_REVOKED);
  go_on();
}

/* MPI_Request_get_status sees the end of a request, or a failure that it goes on after, and takes nothing of it. */
static void of_look(int wild) {
  MPI_Status status;
  int flag = 0;
  make(wild);
  OK(MPI_Wait(&set[EARLY], &status));
  have(EARLY, &status);
  ready();
  while (!flag) OK(MPI_Request_get_status(set[LOST], &flag, &status));
  HERE(set[LOST] != MPI_REQUEST_NULL);
  HERE(class_of(MPI_Wait(&set[LOST], &status)) == lost_class());
  if (!killed) HERE(class_of(MPI_Wait(&set[LATE], &status)) == MPIX_ERR_REVOKED);
  go_on();
}

/* Persistent receives begin again with the failure known, and acknowledged or not. */
static void of_persistent(int wild) {
  MPI_Request request;
  MPI_Status status;
  int in = 0, from = wild ? MPI_ANY_SOURCE : VICTIM, flag = 0, code;
  OK(MPI_Recv_init(&in, 1, MPI_INT, from, TAG + LOST, round_comm, &request));
  OK(MPI_Start(&request));
  ready();
  if (polls) do code = MPI_Testall(1, &request, &flag, &status); while (code == MPI_SUCCESS && !flag);
  else code = MPI_Waitall(1, &request, &status);
  HERE(code == MPI_ERR_IN_STATUS);
  HERE(class_of(status.MPI_ERROR) == (wild ? wildcard_cause() : cause()));
  HERE(request != MPI_REQUEST_NULL);
  if (killed && wild) {
    HERE(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST); /* it is active */
    acknowledge();
    tell(SEND);
    OK(MPI_Wait(&request, &status));
    HERE(in == TAG + LOST);
  } else {
    code = MPI_Start(&request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, &status);
    HERE(class_of(code) == cause());
  }
  OK(MPI_Request_free(&request));
}

/* Blocking calls: also from any source they end, since nothing is left to go on. */

static void blocking_recv(int wild) {
  int in;
  ready();
  HERE(class_of(MPI_Recv(&in, 1, MPI_INT, wild ? MPI_ANY_SOURCE : VICTIM, TAG + LOST, round_comm, MPI_STATUS_IGNORE)) == cause());
}

static void blocking_probe(int wild) {
  MPI_Status status;
  int from = wild ? MPI_ANY_SOURCE : VICTIM, flag = 0, code;
  ready();
  if (polls) do code = MPI_Iprobe(from, TAG + LOST, round_comm, &flag, &status); while (code == MPI_SUCCESS && !flag);
  else code = MPI_Probe(from, TAG + LOST, round_comm, &status);
  HERE(class_of(code) == cause());
}

static void blocking_mprobe(int wild) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int from = wild ? MPI_ANY_SOURCE : VICTIM, flag = 0, code;
  ready();
  if (polls) do code = MPI_Improbe(from, TAG + LOST, round_comm, &flag, &message, &status); while (code == MPI_SUCCESS && !flag);
  else code = MPI_Mprobe(from, TAG + LOST, round_comm, &message, &status);
  HERE(class_of(code) == cause());
  HERE(message == MPI_MESSAGE_NULL);
}

static void blocking_ssend(int unused) {
  (void)unused;
  ready();
  HERE(class_of(MPI_Ssend(long_out, 1, MPI_INT, VICTIM, TAG, round_comm)) == cause());
}

static void blocking_send(int unused) {
  (void)unused;
  ready();
  HERE(class_of(MPI_Send(long_out, LONG, MPI_INT, VICTIM, TAG, round_comm)) == cause());
}

/* Either half may be the victim's. The other one is with oneself. */
static void exchange_receives(int wild) {
  int in, out = 1;
  ready();
  HERE(class_of(MPI_Sendrecv(&out, 1, MPI_INT, rank, TAG, &in, 1, MPI_INT, wild ? MPI_ANY_SOURCE : VICTIM, TAG + LOST, round_comm, MPI_STATUS_IGNORE)) == cause());
  if (killed) OK(MPI_Recv(&in, 1, MPI_INT, rank, TAG, round_comm, MPI_STATUS_IGNORE));
}

static void exchange_sends(int unused) {
  int in = 0;
  (void)unused;
  ready();
  HERE(class_of(MPI_Sendrecv(long_out, LONG, MPI_INT, VICTIM, TAG, &in, 1, MPI_INT, HELPER, TAG + EARLY, round_comm, MPI_STATUS_IGNORE)) == cause());
  HERE(in == TAG + EARLY);
}

static void exchange_both(int unused) {
  (void)unused;
  ready();
  HERE(class_of(MPI_Sendrecv_replace(long_out, LONG, MPI_INT, VICTIM, TAG, VICTIM, TAG + LOST, round_comm, MPI_STATUS_IGNORE)) == cause());
}

/* An exchange that does not block goes on as a wildcard does. */
static void exchange_later(int wild) {
  MPI_Request request;
  MPI_Status status;
  int in = 0, out = 1;
  OK(MPI_Isendrecv(&out, 1, MPI_INT, rank, TAG, &in, 1, MPI_INT, wild ? MPI_ANY_SOURCE : VICTIM, TAG + LOST, round_comm, &request));
  ready();
  HERE(class_of(MPI_Wait(&request, &status)) == (wild ? wildcard_cause() : cause()));
  HERE(killed && wild ? request != MPI_REQUEST_NULL : request == MPI_REQUEST_NULL);
  if (killed && wild) {
    acknowledge();
    tell(SEND);
    OK(MPI_Wait(&request, &status));
    HERE(in == TAG + LOST && status.MPI_SOURCE == HELPER);
  }
  if (killed) OK(MPI_Recv(&in, 1, MPI_INT, rank, TAG, round_comm, MPI_STATUS_IGNORE));
}

static const struct call {
  const char *name;
  void (*call)(int wild);
  int wild, polls;
} calls[] = {
  {"Waitall", of_all, 0, 0}, {"Waitall, any source", of_all, 1, 0}, {"Testall", of_all, 0, 1}, {"Testall, any source", of_all, 1, 1},
  {"Waitany", of_any, 0, 0}, {"Waitany, any source", of_any, 1, 0}, {"Testany", of_any, 0, 1}, {"Testany, any source", of_any, 1, 1},
  {"Waitsome", of_some, 0, 0}, {"Waitsome, any source", of_some, 1, 0}, {"Testsome", of_some, 0, 1}, {"Testsome, any source", of_some, 1, 1},
  {"Wait", of_one, 0, 0}, {"Wait, any source", of_one, 1, 0}, {"Test", of_one, 0, 1}, {"Test, any source", of_one, 1, 1},
  {"Recv", blocking_recv, 0, 0}, {"Recv, any source", blocking_recv, 1, 0}, {"Probe", blocking_probe, 0, 0}, {"Probe, any source", blocking_probe, 1, 0},
  {"Mprobe", blocking_mprobe, 0, 0}, {"Mprobe, any source", blocking_mprobe, 1, 0}, {"Ssend", blocking_ssend, 0, 0}, {"long Send", blocking_send, 0, 0},
  {"Sendrecv, its receive", exchange_receives, 0, 0}, {"Sendrecv, any source", exchange_receives, 1, 0}, {"Sendrecv, its send", exchange_sends, 0, 0}, {"Sendrecv_replace", exchange_both, 0, 0},
  {"Isendrecv", exchange_later, 0, 0}, {"Isendrecv, any source", exchange_later, 1, 0}, {"Iprobe", blocking_probe, 0, 1}, {"Iprobe, any source", blocking_probe, 1, 1},
  {"Improbe", blocking_mprobe, 0, 1}, {"Improbe, any source", blocking_mprobe, 1, 1}, {"Request_get_status", of_look, 0, 0}, {"Request_get_status, any source", of_look, 1, 0},
  {"persistent Waitall", of_persistent, 0, 0}, {"persistent Waitall, any source", of_persistent, 1, 0}, {"persistent Testall", of_persistent, 0, 1}, {"persistent Testall, any source", of_persistent, 1, 1},
};
enum { ROUNDS = sizeof calls / sizeof calls[0] / WAITERS };

/* The helper's part: what comes early is there before, what is late when a waiter wants it. */
static void help(void) {
  int what, is_ready = 0, done = 0, message[SET] = {TAG + LATE, TAG + EARLY, TAG + LOST};
  for (int to = 0; to < WAITERS; to++) OK(MPI_Send(&message[EARLY], 1, MPI_INT, to, TAG + EARLY, round_comm));
  while (done < WAITERS) {
    MPI_Status status;
    /* nobody of the living dies: their wildcards are never disturbed */
    OK(MPI_Recv(&what, 1, MPI_INT, MPI_ANY_SOURCE, 0, living, &status));
    if (what == READY && ++is_ready == WAITERS && !killed) {
      usleep(3000);
      OK(MPIX_Comm_revoke(round_comm));
    }
    if (what == SEND) {
      OK(MPI_Send(&message[LATE], 1, MPI_INT, status.MPI_SOURCE, TAG + LATE, round_comm));
      OK(MPI_Send(&message[LOST], 1, MPI_INT, status.MPI_SOURCE, TAG + LOST, round_comm));
    }
    done += what == DONE;
  }
}

/* All victims are dead: they are told in one order, and acknowledged from the first on. */
static void count_the_dead(void) {
  MPI_Group failed, acked, common, all;
  int n, flag, in, ranks[ROUNDS], translated[ROUNDS], dead[ROUNDS] = {0}, result;
  call_name = "get_failed and ack_failed";
  do {
    OK(MPI_Comm_get_failed(MPI_COMM_WORLD, &failed));
    OK(MPI_Group_size(failed, &n));
    if (n < ROUNDS) OK(MPI_Group_free(&failed));
  } while (n < ROUNDS);
  HERE(n == ROUNDS);
  for (n = 0; n < ROUNDS; n++) ranks[n] = n;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  OK(MPI_Group_translate_ranks(failed, ROUNDS, ranks, all, translated));
  for (n = 0; n < ROUNDS; n++) {
    HERE(translated[n] >= VICTIM && translated[n] < VICTIM + ROUNDS);
    dead[translated[n] - VICTIM]++;
  }
  for (n = 0; n < ROUNDS; n++) HERE(dead[n] == 1);
  /* 0 only asks; fewer than before changes nothing; more than there are is all */
  int asked[] = {0, 3, 1, ROUNDS + 5}, expected[] = {0, 3, 3, ROUNDS};
  for (int i = 0; i < 4; i++) {
    HERE(class_of(MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    OK(MPI_Comm_ack_failed(MPI_COMM_WORLD, asked[i], &n));
    HERE(n == expected[i]);
    OK(MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &acked));
    OK(MPI_Group_size(acked, &n));
    HERE(n == expected[i]);
    OK(MPI_Group_translate_ranks(acked, n, ranks, failed, translated));
    for (int at = 0; at < n; at++) HERE(translated[at] == at);
    OK(MPI_Group_free(&acked));
  }
  OK(MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
  HERE(!flag);
  /* on a communicator without them nobody has failed */
  OK(MPI_Comm_get_failed(living, &acked));
  OK(MPI_Group_compare(acked, MPI_GROUP_EMPTY, &result));
  HERE(result == MPI_IDENT);
  OK(MPI_Group_free(&acked));
  /* acknowledged ones are still dead for who names them */
  OK(MPI_Group_intersection(all, failed, &common));
  OK(MPI_Group_size(common, &n));
  HERE(n == ROUNDS);
  HERE(class_of(MPI_Recv(&in, 1, MPI_INT, VICTIM, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
  OK(MPI_Group_free(&common));
  OK(MPI_Group_free(&all));
  OK(MPI_Group_free(&failed));
}

int main(int argc, char **argv) {
  MPI_Comm comms[ROUNDS][2] = {0};
  MPI_Group all, some;
  int range[][3] = {{0, HELPER, 1}, {0, 0, 1}}, what, total = 0;
  begin(&argc, &argv);
  if (size != VICTIM + ROUNDS) {
    SAY("interrupted: run it with %d ranks", VICTIM + ROUNDS);
    MPI_Finalize();
    return 1;
  }
  OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  for (int n = 0; n <= ROUNDS; n++) {
    range[1][0] = range[1][1] = VICTIM + n;
    OK(MPI_Group_range_incl(all, n < ROUNDS ? 2 : 1, range, &some));
    if (n == ROUNDS && rank < VICTIM) OK(MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &living));
    else if (n < ROUNDS && (rank < VICTIM || rank == VICTIM + n))
      for (int k = 0; k < 2; k++) OK(MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &comms[n][k]));
    OK(MPI_Group_free(&some));
  }
  OK(MPI_Group_free(&all));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (rank >= VICTIM) {
    for (int from = 0; from < WAITERS; from++) OK(MPI_Recv(&what, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    usleep(3000);
    if (!wrong) raise(SIGKILL);
    return 1;
  }
  for (killed = 0; killed < 2; killed++) {
    for (int n = 0; n < ROUNDS; n++) {
      round_comm = comms[n][killed];
      victim = VICTIM + n;
      if (rank == HELPER) {
        help();
      } else {
        const struct call *call = &calls[n * WAITERS + rank];
        call_name = call->name;
        polls = call->polls;
        call->call(call->wild);
        tell(DONE);
      }
      OK(MPI_Barrier(living)); /* what the helper is told is of one round */
    }
  }
  count_the_dead();
  for (int n = 0; n < ROUNDS; n++)
    for (int k = 0; k < 2; k++) OK(MPI_Comm_free(&comms[n][k]));
  MPI_Allreduce(&wrong, &total, 1, MPI_INT, MPI_SUM, living);
  SAY("interrupted: %d wrong", total);
  MPI_Comm_free(&living);
  MPI_Finalize();
  return total != 0;
}
