/* MPI_Alltoallw and MPI_Neighbor_alltoallw, blocking, nonblocking and persistent, with long messages of mixed types, and a member that
   is killed: before the others call, while they wait for it in the call, and somewhere in a call that it is in, too. Each round has a
   victim of its own, and ends with the same exchange among those that are left. Ours only: the standard has no failures. */
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { SURVIVORS = 3, MEMBERS };          /* in a round's communicator, where the victim is the last */
enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
enum { KNOWN, WAITED_FOR, AMID, MOMENTS }; /* when it dies */
enum { ROUNDS = 2 * FORMS * MOMENTS, MOST = 200000, SLOT = 2 * MOST };

/* An exchange with some peers, a slot of both buffers for each. */
struct exchange {
  MPI_Comm comm;
  int is_neighborly, form, me, n, peers[MEMBERS];
  int counts[2][MEMBERS], where[MEMBERS];
  MPI_Aint apart[MEMBERS];
  MPI_Datatype types[2][MEMBERS];
  MPI_Request request;
};
static int *in, *out; /* MEMBERS slots each */
static MPI_Comm survivors;

static int class_of(int code) {
  int class;
  MPI_Error_class(code, &class);
  return class;
}

/* How many go from one to another: for one pair nothing does. */
static int length(int from, int to) { return from == 1 && to == 0 ? 0 : MOST - 1000 * from - to; }

static int value(int from, int to, int i, int turn) { return from * 1000003 + to * 10007 + turn * 31 + i; }

/* What is dense at one end has gaps at the other. */
static int gap(int from, int to, int receives) { return ((from + to) % 2 == receives) + 1; }

static void make(struct exchange *x, MPI_Comm comm, int is_neighborly, int form) {
  int members;
  *x = (struct exchange){.comm = comm, .is_neighborly = is_neighborly, .form = form, .request = MPI_REQUEST_NULL};
  OK(MPI_Comm_size(comm, &members));
  OK(MPI_Comm_rank(comm, &x->me));
  if (is_neighborly) {
    int round[] = {1};
    OK(MPI_Cart_create(comm, 1, &members, round, 0, &x->comm));
    x->n = 2;
    OK(MPI_Cart_shift(x->comm, 0, 1, &x->peers[0], &x->peers[1]));
  } else {
    x->n = members;
    for (int at = 0; at < members; at++) x->peers[at] = at;
  }
  for (int at = 0; at < x->n; at++) {
    x->apart[at] = x->where[at] = at * SLOT * (int)sizeof(int);
    for (int receives = 0; receives < 2; receives++) {
      int from = receives ? x->peers[at] : x->me, to = receives ? x->me : x->peers[at], n = length(from, to);
      int dense = gap(from, to, receives) == 1;
      x->counts[receives][at] = dense ? n : n > 0;
      x->types[receives][at] = MPI_INT;
      if (dense) continue;
      OK(MPI_Type_vector(n, 1, 2, MPI_INT, &x->types[receives][at]));
      OK(MPI_Type_commit(&x->types[receives][at]));
    }
  }
}

static void unmake(struct exchange *x) {
  if (x->request != MPI_REQUEST_NULL) OK(MPI_Request_free(&x->request));
  for (int at = 0; at < x->n; at++)
    for (int receives = 0; receives < 2; receives++)
      if (x->types[receives][at] != MPI_INT) OK(MPI_Type_free(&x->types[receives][at]));
  if (x->is_neighborly) OK(MPI_Comm_free(&x->comm));
}

/* The call itself: what it ends with. */
static int call(struct exchange *x) {
  int *sent = x->counts[0], *came = x->counts[1], code = MPI_SUCCESS;
  MPI_Datatype *as = x->types[0], *to = x->types[1];
  MPI_Request request;
  if (x->form == BLOCKING)
    return x->is_neighborly ? MPI_Neighbor_alltoallw(out, sent, x->apart, as, in, came, x->apart, to, x->comm)
                            : MPI_Alltoallw(out, sent, x->where, as, in, came, x->where, to, x->comm);
  if (x->form == NONBLOCKING) {
    code = x->is_neighborly ? MPI_Ineighbor_alltoallw(out, sent, x->apart, as, in, came, x->apart, to, x->comm, &request)
                            : MPI_Ialltoallw(out, sent, x->where, as, in, came, x->where, to, x->comm, &request);
    if (code == MPI_SUCCESS) {
      code = MPI_Wait(&request, MPI_STATUS_IGNORE);
      CHECK(request == MPI_REQUEST_NULL);
    }
    return code;
  }
  if (x->request == MPI_REQUEST_NULL) {
    if (x->is_neighborly) OK(MPI_Neighbor_alltoallw_init(out, sent, x->apart, as, in, came, x->apart, to, x->comm, MPI_INFO_NULL, &x->request));
    else OK(MPI_Alltoallw_init(out, sent, x->where, as, in, came, x->where, to, x->comm, MPI_INFO_NULL, &x->request));
  }
  code = MPI_Start(&x->request);
  if (code == MPI_SUCCESS) code = MPI_Wait(&x->request, MPI_STATUS_IGNORE);
  CHECK(x->request != MPI_REQUEST_NULL);
  return code;
}

/* Once: where it ends well, everything that came is right, and the gaps are as they were. */
static int exchange(struct exchange *x, int turn) {
  int code, bad = 0;
  for (int at = 0; at < x->n; at++) {
    int to = x->peers[at], step = gap(x->me, to, 0);
    for (int i = 0; i < length(x->me, to); i++) out[at * SLOT + i * step] = value(x->me, to, i, turn);
  }
  memset(in, -1, MEMBERS * SLOT * sizeof *in);
  code = call(x);
  if (code != MPI_SUCCESS) return code;
  for (int at = 0; at < x->n; at++) {
    int from = x->peers[at], step = gap(from, x->me, 1), n = length(from, x->me);
    int *slot = in + at * SLOT;
    for (int i = 0; i < n; i++) bad += slot[i * step] != value(from, x->me, i, turn) || (step == 2 && slot[i * step + 1] != -1);
    for (int i = n * step; i < SLOT; i++) bad += slot[i] != -1;
  }
  CHECK(bad == 0);
  return code;
}

static void dies(int unused) {
  (void)unused;
  kill(getpid(), SIGKILL);
}

static void be_killed(struct exchange *x, int moment, int turn) {
  int unused;
  for (int from = 0; from < SURVIVORS; from++) OK(MPI_Recv(&unused, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  if (wrong) _exit(1);
  if (moment == AMID) {
    struct itimerval soon = {.it_value = {0, 1000 + 4000 * (rank / MOMENTS)}};
    signal(SIGALRM, dies);
    setitimer(ITIMER_REAL, &soon, NULL);
    while (exchange(x, turn++) == MPI_SUCCESS) {}
    pause();
  }
  if (moment == WAITED_FOR) usleep(5000);
  raise(SIGKILL);
}

/* Of an exchange with all, each survivor is told of the death. Of one with neighbours who has no dead one need not be: the
   revocation ends its wait for those that have given up. */
static void survive(struct exchange *x, int victim, int moment, int turn) {
  MPI_Comm smaller;
  MPI_Group failed;
  struct exchange rest;
  int n = 0, code, times = 0, is_apart = x->is_neighborly && rank == 1, unused = 0;
  OK(MPI_Send(&unused, 1, MPI_INT, victim, 0, MPI_COMM_WORLD));
  while (moment == KNOWN && n == 0) {
    OK(MPIX_Comm_get_failed(x->comm, &failed));
    OK(MPI_Group_size(failed, &n));
    OK(MPI_Group_free(&failed));
  }
  do code = exchange(x, turn++), times++; while (code == MPI_SUCCESS);
  CHECK(class_of(code) == MPIX_ERR_PROC_FAILED || (is_apart && class_of(code) == MPIX_ERR_REVOKED));
  if (moment != AMID && !is_apart) CHECK(times == 1);
  if (x->is_neighborly && rank == 2) OK(MPI_Send(&unused, 1, MPI_INT, 0, 0, survivors));
  if (x->is_neighborly && rank == 0) {
    OK(MPI_Recv(&unused, 1, MPI_INT, 2, 0, survivors, MPI_STATUS_IGNORE));
    OK(MPIX_Comm_revoke(x->comm));
  }
  /* and once more; in vain also for the request that has failed */
  code = exchange(x, turn);
  CHECK(class_of(code) == MPIX_ERR_PROC_FAILED || (x->is_neighborly && class_of(code) == MPIX_ERR_REVOKED));
  OK(MPIX_Comm_shrink(x->comm, &smaller));
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == SURVIVORS);
  make(&rest, smaller, x->is_neighborly, x->form);
  for (turn = 0; turn < 2; turn++) OK(exchange(&rest, turn));
  unmake(&rest);
  OK(MPI_Comm_free(&smaller));
}

int main(int argc, char **argv) {
  MPI_Comm comms[ROUNDS];
  MPI_Group all, some;
  int range[][3] = {{0, SURVIVORS - 1, 1}, {0, 0, 1}}, mine, total = 0;
  begin(&argc, &argv);
  if (size != SURVIVORS + ROUNDS) {
    SAY("alltoallw_fail: run it with %d ranks", SURVIVORS + ROUNDS);
    MPI_Finalize();
    return 1;
  }
  in = malloc(MEMBERS * SLOT * sizeof *in);
  out = malloc(MEMBERS * SLOT * sizeof *out);
  OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  for (int n = 0; n <= ROUNDS; n++) {
    range[1][0] = range[1][1] = SURVIVORS + n;
    OK(MPI_Group_range_incl(all, n < ROUNDS ? 2 : 1, range, &some));
    if (rank < SURVIVORS || rank == SURVIVORS + n) OK(MPI_Comm_create_group(MPI_COMM_WORLD, some, n, n < ROUNDS ? &comms[n] : &survivors));
    OK(MPI_Group_free(&some));
  }
  OK(MPI_Group_free(&all));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  for (int n = 0; n < ROUNDS; n++) {
    struct exchange x;
    int victim = SURVIVORS + n, moment = n % MOMENTS, turn = 0;
    if (rank >= SURVIVORS && rank != victim) continue;
    make(&x, comms[n], n / MOMENTS / FORMS, n / MOMENTS % FORMS);
    while (turn < 2) OK(exchange(&x, turn++));
    if (rank == victim) be_killed(&x, moment, turn);
    survive(&x, victim, moment, turn);
    unmake(&x);
    OK(MPI_Comm_free(&comms[n]));
    OK(MPI_Barrier(survivors));
  }
  mine = wrong;
  OK(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, survivors));
  SAY("alltoallw_fail: %d checks at rank 0, %d wrong", checks, total);
  MPI_Comm_free(&survivors);
  MPI_Finalize();
  return total != 0;
}
