/* Who has failed, and who of them is acknowledged: exactly those who died, on each communicator that they were of, whatever their
   ranks there, in the order in which they died, on both sides of an inter-communicator; and what the latter's agreement and shrink
   make of them. Ours only: the standard has no failures. */
#include "check.h"
#include <limits.h>
#include <mpi-ext.h>
#include <signal.h>

enum { RANKS = 8, FIRST = 5, SECOND = 2, LEFT = 4 }; /* the left side has the ranks below LEFT */
enum { ODD = 1 };

static MPI_Comm living;

static int class_of(int code) {
  int class;
  MPI_Error_class(code, &class);
  return class;
}

/* The group has these members of the world, in this order; with their right ranks on the communicator, or on either side of it. */
static void are(MPI_Comm comm, MPI_Group group, int n, const int *members, int line) {
  MPI_Group world, sides[2];
  int size_now, inter, ranks[RANKS], back[RANKS], translated[RANKS], bad = 0, sides_n = 1;
  OK(MPI_Group_size(group, &size_now));
  if (size_now != n) {
    wrong++;
    printf("rank %d: line %d: %d members, not %d\n", rank, line, size_now, n);
    return;
  }
  for (int i = 0; i < n; i++) ranks[i] = i;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  OK(MPI_Group_translate_ranks(group, n, ranks, world, translated));
  for (int i = 0; i < n; i++) bad += translated[i] != members[i];
  OK(MPI_Comm_group(comm, &sides[0]));
  OK(MPI_Comm_test_inter(comm, &inter));
  if (inter) OK(MPI_Comm_remote_group(comm, &sides[sides_n++]));
  for (int i = 0; i < n; i++) {
    int at, found = 0;
    for (int side = 0; side < sides_n; side++) {
      OK(MPI_Group_translate_ranks(group, 1, &i, sides[side], &at));
      if (at == MPI_UNDEFINED) continue;
      found++;
      /* back from the communicator's rank to the world's, and to the group's */
      OK(MPI_Group_translate_ranks(sides[side], 1, &at, world, &back[i]));
      bad += back[i] != members[i];
      OK(MPI_Group_translate_ranks(sides[side], 1, &at, group, &back[i]));
      bad += back[i] != i;
      if (inter) bad += (members[i] < LEFT) == (rank < LEFT) ? side != 0 : side != 1;
    }
    bad += found != 1;
  }
  OK(MPI_Group_rank(group, &size_now));
  bad += size_now != MPI_UNDEFINED;
  if (n == 0) {
    OK(MPI_Group_compare(group, MPI_GROUP_EMPTY, &size_now));
    bad += size_now != MPI_IDENT;
  }
  checks++;
  if (bad) {
    wrong++;
    printf("rank %d: line %d: wrong members\n", rank, line);
    fflush(stdout);
  }
  for (int side = 0; side < sides_n; side++) OK(MPI_Group_free(&sides[side]));
  OK(MPI_Group_free(&world));
}

/* Asked twice: who has failed, of whom the first `acked` are acknowledged. */
static void expect(MPI_Comm comm, int n, const int *members, int acked, int line) {
  MPI_Group group;
  for (int times = 0; times < 2; times++) {
    OK(MPIX_Comm_get_failed(comm, &group));
    are(comm, group, n, members, line);
    OK(MPI_Group_free(&group));
    OK(MPIX_Comm_failure_get_acked(comm, &group));
    are(comm, group, acked, members, line);
    OK(MPI_Group_free(&group));
  }
}
#define EXPECT(comm, n, members, acked) expect(comm, n, members, acked, __LINE__)

static void ack(MPI_Comm comm, int asked, int expected, int line) {
  int n = -1;
  OK(MPIX_Comm_ack_failed(comm, asked, &n));
  checks++;
  if (n != expected) {
    wrong++;
    printf("rank %d: line %d: %d are acknowledged, not %d\n", rank, line, n, expected);
    fflush(stdout);
  }
}
#define ACK(comm, asked, expected) ack(comm, asked, expected, __LINE__)

/* A wildcard receive is possible where all failures are acknowledged only. */
static void wildcard(MPI_Comm comm, int class) {
  int flag;
  CLASS(MPI_Iprobe(MPI_ANY_SOURCE, 9, comm, &flag, MPI_STATUS_IGNORE), class);
}

static void wait_for(MPI_Comm comm, int n) {
  MPI_Group group;
  int known = 0;
  while (known < n) {
    OK(MPIX_Comm_get_failed(comm, &group));
    OK(MPI_Group_size(group, &known));
    OK(MPI_Group_free(&group));
  }
}

static void dies(int who) {
  if (rank == who) {
    int unused;
    for (int from = 0; from < RANKS; from++)
      if (from != FIRST && from != SECOND) OK(MPI_Recv(&unused, 1, MPI_INT, from, who, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (wrong) exit(1);
    raise(SIGKILL);
  } else if (rank != FIRST && rank != SECOND) {
    OK(MPI_Send(&rank, 1, MPI_INT, who, who, MPI_COMM_WORLD));
  }
}

/* Bits of the ranks of a side that live. */
static int bits_of(int left) {
  int bits = 0;
  for (int r = 0; r < RANKS; r++)
    if (r != FIRST && r != SECOND && (r < LEFT) == left) bits |= 1 << r;
  return bits;
}

/* Both sides get the AND of what the other one gave, and one error. */
static void agree_on(MPI_Comm inter, int fails, int blocks, int line) {
  MPI_Request request;
  int flag = ~(1 << rank), code;
  if (blocks) {
    code = MPIX_Comm_agree(inter, &flag);
  } else {
    OK(MPIX_Comm_iagree(inter, &flag, &request));
    code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  checks++;
  if (class_of(code) != (fails ? MPIX_ERR_PROC_FAILED : MPI_SUCCESS) || flag != ~bits_of(rank >= LEFT)) {
    wrong++;
    printf("rank %d: line %d: agreed on %x, class %d\n", rank, line, (unsigned)flag, class_of(code));
    fflush(stdout);
  }
}
#define AGREE(inter, fails, blocks) agree_on(inter, fails, blocks, __LINE__)

static void shrink(MPI_Comm inter) {
  static const int left[] = {0, 1, 3}, right[] = {7, 6, 4};
  const int *sides[] = {left, right}, *mine = sides[rank >= LEFT], *theirs = sides[rank < LEFT];
  MPI_Comm smaller, merged;
  int n, flag, in, sum, me;
  OK(MPIX_Comm_shrink(inter, &smaller));
  OK(MPI_Comm_test_inter(smaller, &flag));
  CHECK(flag);
  OK(MPI_Comm_size(smaller, &n));
  CHECK(n == 3);
  OK(MPI_Comm_remote_size(smaller, &n));
  CHECK(n == 3);
  /* in the order that they had */
  OK(MPI_Comm_rank(smaller, &me));
  CHECK(mine[me] == rank);
  OK(MPI_Sendrecv(&rank, 1, MPI_INT, me, 0, &in, 1, MPI_INT, me, 0, smaller, MPI_STATUS_IGNORE));
  CHECK(in == theirs[me]);
  OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, smaller));
  CHECK(sum == theirs[0] + theirs[1] + theirs[2]);
  EXPECT(smaller, 0, NULL, 0);
  flag = ~(1 << rank);
  OK(MPIX_Comm_agree(smaller, &flag));
  CHECK(flag == ~bits_of(rank >= LEFT));
  OK(MPI_Intercomm_merge(smaller, rank >= LEFT, &merged));
  OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged));
  CHECK(sum == RANKS * (RANKS - 1) / 2 - FIRST - SECOND);
  OK(MPI_Comm_free(&merged));
  OK(MPI_Comm_free(&smaller));
}

int main(int argc, char **argv) {
  static const int dead[] = {FIRST, SECOND}, second[] = {SECOND};
  MPI_Comm world, dup, backward, halves, side, inter, later;
  MPI_Group all, some;
  int n, total = 0, lost[] = {FIRST, SECOND}, flag;
  begin(&argc, &argv);
  if (size != RANKS) {
    SAY("failed_groups: run it with %d ranks", RANKS);
    MPI_Finalize();
    return 1;
  }
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  OK(MPI_Comm_dup(world, &dup));
  OK(MPI_Comm_split(world, rank == RANKS - 1 ? MPI_UNDEFINED : 0, -rank, &backward));
  OK(MPI_Comm_split(world, rank % 2 == ODD, (rank + 3) % RANKS, &halves));
  OK(MPI_Comm_split(world, rank < LEFT, rank < LEFT ? rank : -rank, &side));
  OK(MPI_Intercomm_create(side, 0, world, rank < LEFT ? RANKS - 1 : 0, 1, &inter));
  OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
  OK(MPI_Group_excl(all, 2, lost, &some));
  if (rank != FIRST && rank != SECOND) OK(MPI_Comm_create_group(world, some, 0, &living));
  EXPECT(world, 0, dead, 0);
  EXPECT(inter, 0, dead, 0);
  ACK(world, 5, 0);
  flag = ~(1 << rank);
  OK(MPIX_Comm_agree(inter, &flag));
  CHECK(flag == (rank < LEFT ? ~0xf0 : ~0x0f));
  OK(MPI_Barrier(world));

  dies(FIRST);
  if (rank == SECOND) dies(SECOND);
  MPI_Comm comms[] = {world, dup, inter, rank == RANKS - 1 ? MPI_COMM_NULL : backward};
  int comms_n = rank == RANKS - 1 ? 3 : 4;
  for (n = 0; n < comms_n; n++) {
    wait_for(comms[n], 1);
    EXPECT(comms[n], 1, dead, 0);
  }
  if (rank % 2 == ODD) wait_for(halves, 1);
  EXPECT(halves, rank % 2 == ODD, dead, 0);
  /* 0 only asks; acknowledged once is for good, and on that communicator */
  wildcard(world, MPIX_ERR_PROC_FAILED);
  ACK(world, 0, 0);
  wildcard(world, MPIX_ERR_PROC_FAILED);
  ACK(world, 1, 1);
  EXPECT(world, 1, dead, 1);
  ACK(world, 0, 1);
  ACK(world, 1, 1);
  EXPECT(world, 1, dead, 1);
  wildcard(world, MPI_SUCCESS);
  EXPECT(dup, 1, dead, 0);
  wildcard(dup, MPIX_ERR_PROC_FAILED);
  EXPECT(inter, 1, dead, 0);
  if (rank != RANKS - 1) {
    EXPECT(backward, 1, dead, 0);
    ACK(backward, INT_MAX, 1);
    EXPECT(backward, 1, dead, 1);
  }
  CLASS(MPIX_Comm_ack_failed(world, -1, &n), MPI_ERR_ARG);
  EXPECT(world, 1, dead, 1);
  OK(MPI_Barrier(living));

  dies(SECOND);
  for (n = 0; n < comms_n; n++) {
    int acked = comms[n] == world || (n == 3);
    wait_for(comms[n], 2);
    EXPECT(comms[n], 2, dead, acked);
    wildcard(comms[n], MPIX_ERR_PROC_FAILED);
  }
  if (rank % 2 != ODD) wait_for(halves, 1);
  EXPECT(halves, 1, rank % 2 == ODD ? dead : second, 0);
  ACK(world, 1, 1);
  EXPECT(world, 2, dead, 1);
  wildcard(world, MPIX_ERR_PROC_FAILED);
  ACK(world, INT_MAX, 2);
  EXPECT(world, 2, dead, 2);
  wildcard(world, MPI_SUCCESS);
  OK(MPIX_Comm_failure_ack(dup));
  EXPECT(dup, 2, dead, 2);
  ACK(dup, 1, 2); /* never fewer */
  OK(MPIX_Comm_failure_ack(halves));
  EXPECT(halves, 1, rank % 2 == ODD ? dead : second, 1);
  /* who is made of the living only, before or after, knows of none */
  EXPECT(living, 0, NULL, 0);
  OK(MPI_Comm_create_group(world, some, 0, &later));
  EXPECT(later, 0, NULL, 0);
  OK(MPI_Comm_free(&later));

  /* one of all has acknowledged one only, in the end nobody has not */
  EXPECT(inter, 2, dead, 0);
  AGREE(inter, 1, 1);
  ACK(inter, rank == 6 ? 1 : 2, rank == 6 ? 1 : 2);
  EXPECT(inter, 2, dead, rank == 6 ? 1 : 2);
  AGREE(inter, 1, 0);
  AGREE(inter, 1, 1);
  ACK(inter, 2, 2);
  EXPECT(inter, 2, dead, 2);
  wildcard(inter, MPI_SUCCESS);
  AGREE(inter, 0, 1);
  AGREE(inter, 0, 0);
  shrink(inter);
  OK(MPI_Barrier(living));
  if (rank == 3) OK(MPIX_Comm_revoke(inter));
  do OK(MPIX_Comm_is_revoked(inter, &flag)); while (!flag);
  CLASS(MPI_Barrier(inter), MPIX_ERR_REVOKED);
  EXPECT(inter, 2, dead, 2);
  AGREE(inter, 0, 1);
  shrink(inter);

  OK(MPI_Group_free(&some));
  OK(MPI_Group_free(&all));
  n = wrong;
  OK(MPI_Allreduce(&n, &total, 1, MPI_INT, MPI_SUM, living));
  SAY("failed_groups: %d checks at rank 0, %d wrong", checks, total);
  if (backward != MPI_COMM_NULL) OK(MPI_Comm_free(&backward));
  MPI_Comm *made[] = {&world, &dup, &halves, &side, &inter, &living};
  for (n = 0; n < 6; n++) OK(MPI_Comm_free(made[n]));
  MPI_Finalize();
  return total != 0;
}
