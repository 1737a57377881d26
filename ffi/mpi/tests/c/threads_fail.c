/* Failures and MPI_THREAD_MULTIPLE: threads of one process wait in calls of all kinds, each on a communicator of its own and some on
   one that they share, when a member dies, or when another thread revokes: every thread comes back with the right error, and repairs
   its communicator while the others repair theirs. Last, members die while threads are anywhere between a collective and a shrink.
   Ours only: the standard has no failures. */
#include "check.h"
#include <mpi-ext.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RANKS = 5, SECOND = 2, FIRST, SILENT }; /* who dies: SILENT while others wait, then FIRST, and SECOND as soon as it knows */
enum { LOST = 1, LATE, RING, NEVER };          /* tags */
enum { WARM = 20, LAST_ROUNDS = 20, REPAIRERS = 6 };

static int killed; /* or revoked */
static atomic_int are_ready;

static int class_of(int code) {
  int class;
  MPI_Error_class(code, &class);
  return class;
}

static int cause(void) { return killed ? MPIX_ERR_PROC_FAILED : MPIX_ERR_REVOKED; }

static int living(void) { return killed ? SILENT : RANKS; }

/* What goes on after the failure. */
struct lost {
  MPI_Request late, wild;
  int late_in, wild_in;
};

static void recv_directed(MPI_Comm comm, struct lost *lost) {
  int in;
  (void)lost;
  CLASS(MPI_Recv(&in, 1, MPI_INT, SILENT, LOST, comm, MPI_STATUS_IGNORE), cause());
}

static void recv_any(MPI_Comm comm, struct lost *lost) {
  int in;
  (void)lost;
  CLASS(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, LOST, comm, MPI_STATUS_IGNORE), cause());
}

static void wait_directed(MPI_Comm comm, struct lost *lost) {
  MPI_Request request;
  int in;
  (void)lost;
  OK(MPI_Irecv(&in, 1, MPI_INT, SILENT, LOST, comm, &request));
  CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), cause());
  CHECK(request == MPI_REQUEST_NULL);
}

/* It is told of the failure, and goes on. */
static void wait_any_source(MPI_Comm comm, struct lost *lost) {
  OK(MPI_Irecv(&lost->wild_in, 1, MPI_INT, MPI_ANY_SOURCE, LOST, comm, &lost->wild));
  CLASS(MPI_Wait(&lost->wild, MPI_STATUS_IGNORE), killed ? MPIX_ERR_PROC_FAILED_PENDING : MPIX_ERR_REVOKED);
  CHECK((lost->wild != MPI_REQUEST_NULL) == killed);
}

static void begin_two(MPI_Comm comm, struct lost *lost, MPI_Request *two) {
  OK(MPI_Irecv(&lost->wild_in, 1, MPI_INT, SILENT, LOST, comm, &two[0]));
  OK(MPI_Irecv(&lost->late_in, 1, MPI_INT, (rank + living() - 1) % living(), LATE, comm, &two[1]));
}

static void waitall(MPI_Comm comm, struct lost *lost) {
  MPI_Request two[2];
  MPI_Status statuses[2];
  begin_two(comm, lost, two);
  CHECK(MPI_Waitall(2, two, statuses) == MPI_ERR_IN_STATUS);
  CHECK(class_of(statuses[0].MPI_ERROR) == cause());
  CHECK(class_of(statuses[1].MPI_ERROR) == (killed ? MPI_ERR_PENDING : MPIX_ERR_REVOKED));
  CHECK(two[0] == MPI_REQUEST_NULL);
  lost->late = two[1];
}

static void waitany(MPI_Comm comm, struct lost *lost) {
  MPI_Request two[2];
  int at, seen = 0;
  begin_two(comm, lost, two);
  /* a revocation ends both, in any order */
  for (int n = 0; n < (killed ? 1 : 2); n++) {
    CLASS(MPI_Waitany(2, two, &at, MPI_STATUS_IGNORE), cause());
    seen |= 1 << at;
  }
  CHECK(seen == (killed ? 1 : 3));
  lost->late = two[1];
}

static void probe(MPI_Comm comm, struct lost *lost) {
  (void)lost;
  CLASS(MPI_Probe(SILENT, LOST, comm, MPI_STATUS_IGNORE), cause());
}

static void mprobe_any(MPI_Comm comm, struct lost *lost) {
  MPI_Message message = MPI_MESSAGE_NULL;
  (void)lost;
  CLASS(MPI_Mprobe(MPI_ANY_SOURCE, LOST, comm, &message, MPI_STATUS_IGNORE), cause());
  CHECK(message == MPI_MESSAGE_NULL);
}

static void barrier(MPI_Comm comm, struct lost *lost) {
  (void)lost;
  CLASS(MPI_Barrier(comm), cause());
}

static void allreduce(MPI_Comm comm, struct lost *lost) {
  int in;
  (void)lost;
  CLASS(MPI_Allreduce(&rank, &in, 1, MPI_INT, MPI_SUM, comm), cause());
}

static void ssend(MPI_Comm comm, struct lost *lost) {
  (void)lost;
  CLASS(MPI_Ssend(&rank, 1, MPI_INT, SILENT, LOST, comm), cause());
}

/* The last ones share a communicator, which the first of them repairs. */
static void (*const waits[])(MPI_Comm, struct lost *) = {
  recv_directed, recv_any, wait_directed, wait_any_source, waitall, waitany, probe, mprobe_any, barrier, allreduce, ssend,
  recv_any, wait_directed, ssend,
};
enum { THREADS = sizeof waits / sizeof waits[0], SHARERS = 3, LANES = THREADS - SHARERS + 1, LEADER = THREADS - SHARERS };

struct thread {
  pthread_t id;
  int at;
  MPI_Comm comm;
};
static pthread_barrier_t sharers;

/* To the next and from the one before, among the first `n`. */
static void ring(MPI_Comm comm, int tag, int n) {
  int in = -1, before = (rank + n - 1) % n;
  OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % n, tag, &in, 1, MPI_INT, before, tag, comm, MPI_STATUS_IGNORE));
  CHECK(in == before);
}

static void warm_up(const struct thread *me) {
  for (int round = 0; round < WARM; round++) {
    int in, out = rank + round * me->at;
    if (me->at > LEADER) {
      ring(me->comm, RING + me->at, RANKS);
      continue;
    }
    OK(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, me->comm));
    CHECK(in == RANKS * (RANKS - 1) / 2 + RANKS * round * me->at);
  }
}

static void is_silent(MPI_Comm comm, MPI_Group group, int expected) {
  MPI_Group all;
  int n, first = 0, translated = -1;
  OK(MPI_Group_size(group, &n));
  CHECK(n == expected);
  if (n == 1) {
    OK(MPI_Comm_group(comm, &all));
    OK(MPI_Group_translate_ranks(group, 1, &first, all, &translated));
    CHECK(translated == SILENT);
    OK(MPI_Group_free(&all));
  }
  OK(MPI_Group_free(&group));
}

/* All of the living have acknowledged what they know before they agree: the agreement has no error, and the smaller communicator
   has exactly them. */
static void repair(const struct thread *me, struct lost *lost) {
  MPI_Comm smaller;
  MPI_Group group;
  MPI_Request sends[2];
  int n, flag = 0xf0 | 1 << rank, in, out = rank * (me->at + 1), next = (rank + 1) % living();
  OK(MPIX_Comm_get_failed(me->comm, &group));
  is_silent(me->comm, group, killed);
  OK(MPIX_Comm_ack_failed(me->comm, killed, &n));
  CHECK(n == killed);
  OK(MPIX_Comm_failure_get_acked(me->comm, &group));
  is_silent(me->comm, group, killed);
  OK(MPIX_Comm_agree(me->comm, &flag));
  CHECK(flag == 0xf0);
  /* everybody has been told of the failure: what is sent now interrupts no wait instead of it */
  if (killed) {
    OK(MPI_Isend(&rank, 1, MPI_INT, next, LATE, me->comm, &sends[0]));
    OK(MPI_Isend(&rank, 1, MPI_INT, next, LOST, me->comm, &sends[1]));
    if (lost->late != MPI_REQUEST_NULL) {
      OK(MPI_Wait(&lost->late, MPI_STATUS_IGNORE));
      CHECK((lost->late_in + 1) % living() == rank);
    }
    if (lost->wild != MPI_REQUEST_NULL) {
      OK(MPI_Wait(&lost->wild, MPI_STATUS_IGNORE));
      CHECK((lost->wild_in + 1) % living() == rank);
    }
    OK(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
  }
  OK(MPIX_Comm_shrink(me->comm, &smaller));
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == living());
  OK(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, smaller));
  CHECK(in == living() * (living() - 1) / 2 * (me->at + 1));
  OK(MPI_Comm_free(&smaller));
}

static void *wait_and_repair(void *given) {
  struct thread *me = given;
  struct lost lost = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, -1, -1};
  int in;
  warm_up(me);
  are_ready++;
  /* the one that gives others nothing is revoked in a call, too, or dies in it */
  if (rank == SILENT) CLASS(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, NEVER, me->comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
  else waits[me->at](me->comm, &lost);
  /* what the leader acknowledges would not interrupt the others any more */
  if (me->at >= LEADER) pthread_barrier_wait(&sharers);
  if (me->at <= LEADER) {
    repair(me, &lost);
  } else {
    for (int round = 0; round < WARM; round++) {
      if (killed) ring(me->comm, RING + me->at, living());
      else CLASS(MPI_Send(&rank, 1, MPI_INT, rank, RING, me->comm), MPIX_ERR_REVOKED);
    }
  }
  return NULL;
}

static void start(struct thread *threads, int n, void *(*body)(void *), MPI_Comm *comms) {
  are_ready = 0;
  for (int at = 0; at < n; at++) {
    threads[at].at = at;
    threads[at].comm = comms[at < LANES ? at : LANES - 1];
    CHECK(pthread_create(&threads[at].id, NULL, body, &threads[at]) == 0);
  }
}

static void join(struct thread *threads, int n) {
  for (int at = 0; at < n; at++) CHECK(pthread_join(threads[at].id, NULL) == 0);
}

static void die(void) {
  if (!wrong) raise(SIGKILL);
  _exit(1);
}

/* Everybody's threads are about to wait: a moment later they do. */
static void interrupt(MPI_Comm *comms) {
  int in;
  while (are_ready < THREADS) usleep(1000);
  usleep(20000);
  if (!killed) {
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int lane = 0; lane < LANES; lane++)
      if (lane % RANKS == rank) OK(MPIX_Comm_revoke(comms[lane]));
  } else if (rank != SILENT) {
    OK(MPI_Send(&rank, 1, MPI_INT, SILENT, 0, MPI_COMM_WORLD));
  } else {
    for (int from = 0; from < SILENT; from++) OK(MPI_Recv(&in, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    die();
  }
}

/* Reduces until only those are left that do not die, and some rounds more. Each round's end is agreed on, for a death may be seen by
   some only, and in the agreement first: its value and its error are the same everywhere. */
static void *reduce_and_repair(void *given) {
  struct thread *me = given;
  MPI_Comm comm, smaller;
  int n, sum, code, agreed, flag, acked, rounds = 0, repairs = 0;
  OK(MPI_Comm_dup(me->comm, &comm));
  are_ready++;
  while (rounds < LAST_ROUNDS) {
    OK(MPI_Comm_size(comm, &n));
    code = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    flag = code == MPI_SUCCESS;
    if (!flag) {
      CHECK(class_of(code) == MPIX_ERR_PROC_FAILED || class_of(code) == MPIX_ERR_REVOKED);
      OK(MPIX_Comm_revoke(comm));
    }
    OK(MPIX_Comm_ack_failed(comm, n, &acked));
    agreed = MPIX_Comm_agree(comm, &flag);
    CHECK(agreed == MPI_SUCCESS || class_of(agreed) == MPIX_ERR_PROC_FAILED);
    if (flag) CHECK(sum == n * (n - 1) / 2); /* who is left of a round that all finished are the lowest ranks */
    if (flag && agreed == MPI_SUCCESS) {
      rounds += n == SECOND;
      continue;
    }
    OK(MPIX_Comm_shrink(comm, &smaller));
    OK(MPI_Comm_free(&comm));
    comm = smaller;
    repairs++;
  }
  CHECK(repairs >= 1);
  OK(MPI_Comm_free(&comm));
  return NULL;
}

static void interrupt_repairs(MPI_Comm comm) {
  MPI_Group failed;
  int n = 0;
  while (are_ready < REPAIRERS) usleep(1000);
  usleep(20000);
  if (rank == FIRST) die();
  if (rank != SECOND) return;
  while (!n) {
    OK(MPIX_Comm_get_failed(comm, &failed));
    OK(MPI_Group_size(failed, &n));
    OK(MPI_Group_free(&failed));
  }
  die();
}

int main(int argc, char **argv) {
  struct thread threads[THREADS];
  MPI_Comm comms[2][LANES], smaller, smallest;
  int level, mine, all;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(level == MPI_THREAD_MULTIPLE);
  if (size != RANKS) {
    SAY("threads_fail: run it with %d ranks", RANKS);
    MPI_Finalize();
    return 1;
  }
  pthread_barrier_init(&sharers, NULL, SHARERS);
  for (int lane = 0; lane < LANES; lane++)
    for (int k = 0; k < 2; k++) OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[k][lane]));
  for (killed = 0; killed < 2; killed++) {
    start(threads, THREADS, wait_and_repair, comms[killed]);
    interrupt(comms[killed]);
    join(threads, THREADS);
    for (int lane = 0; lane < LANES; lane++) OK(MPI_Comm_free(&comms[killed][lane]));
  }
  SAY("threads_fail: waits are over");
  OK(MPIX_Comm_shrink(MPI_COMM_WORLD, &smaller));
  OK(MPI_Comm_size(smaller, &size));
  CHECK(size == SILENT);
  for (int lane = 0; lane < REPAIRERS; lane++) OK(MPI_Comm_dup(smaller, &comms[0][lane]));
  start(threads, REPAIRERS, reduce_and_repair, comms[0]);
  interrupt_repairs(smaller);
  join(threads, REPAIRERS);
  for (int lane = 0; lane < REPAIRERS; lane++) OK(MPI_Comm_free(&comms[0][lane]));
  OK(MPIX_Comm_shrink(smaller, &smallest));
  OK(MPI_Comm_size(smallest, &size));
  CHECK(size == SECOND);
  mine = wrong;
  OK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, smallest));
  SAY("threads_fail: %d checks at rank 0, %d wrong", checks, all);
  MPI_Comm_free(&smallest);
  MPI_Comm_free(&smaller);
  pthread_barrier_destroy(&sharers);
  MPI_Finalize();
  return all != 0;
}
