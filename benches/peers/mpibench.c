/* mpibench: the peers' half of the side-by-side measurement.
 *
 * Built once with the mpicc of every peer and run by `benches/compare`; the Rust program `iw-mpibench` is its twin and runs
 * the same loops, with the same command line and the same output lines. benches/LOOPS.md is the definition both follow:
 * change it first, then both programs.
 *
 * It measures and prints; it never judges, never picks a setting of the MPI below it, and writes no file.
 *
 *   mpibench [--reps N] [--window N] [--recv-buffers N] [--autogroup] [--no-probe] TEST:SIZE[xITERS][,SIZE[xITERS]...] ...
 *   TEST: latency multi_lat bw bibw mbw_mr exchange; here only: barrier bcast allreduce alltoall ibcast iallreduce
 *         vector startup memory
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_WINDOW = 1024, MAX_CPUS = 1024, PROBE_SAMPLES = 63, PROBE_TURNS = 64 };

#define PROBE_BUDGET_NS 4000000ull /* ranks that do not probe yield for this long */

static int rank, ranks;
static int window = 64;
static int recv_buffers = 0; /* 0: as many as the window has messages */
static int reps = 3;
static int probe_wanted = 1;
static int probe_cpu[2] = {-1, -1};
static char *send_buffer, *recv_buffer;
static double launched = 0.0; /* --launched: when the launcher was started, seconds since 1970 */
static double startup_ms = 0.0, resident_mib = 0.0;

static void die(const char *what, const char *detail) {
  fprintf(stderr, "mpibench: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
  MPI_Abort(MPI_COMM_WORLD, 2);
  exit(2);
}

static unsigned long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;
  return x < y ? -1 : x > y;
}

/* ---- The probe: how long one cache line takes from core to core, right now (LOOPS.md, "The probe") ---- */

static _Alignas(128) _Atomic unsigned probe_line;

static void pin_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void spin_until(unsigned value) {
  while (atomic_load_explicit(&probe_line, memory_order_acquire) != value) __builtin_ia32_pause();
}

static void *probe_far_side(void *unused) {
  (void)unused;
  pin_thread(probe_cpu[1]);
  for (unsigned turn = 0; turn < (PROBE_SAMPLES + 1) * PROBE_TURNS; turn++) {
    spin_until(2 * turn + 1);
    atomic_store_explicit(&probe_line, 2 * turn + 2, memory_order_release);
  }
  return NULL;
}

/* Rank 0 alone calls this, while the others yield. Returns the median one-way hand-over in ns. */
static double probe(void) {
  unsigned long long sample[PROBE_SAMPLES + 1];
  cpu_set_t before;
  pthread_t thread;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  pin_thread(probe_cpu[0]);
  atomic_store(&probe_line, 0);
  if (pthread_create(&thread, NULL, probe_far_side, NULL)) die("cannot start the probe thread", NULL);
  unsigned turn = 0;
  for (int s = 0; s <= PROBE_SAMPLES; s++) {
    unsigned long long start = now_ns();
    for (int i = 0; i < PROBE_TURNS; i++, turn++) {
      atomic_store_explicit(&probe_line, 2 * turn + 1, memory_order_release);
      spin_until(2 * turn + 2);
    }
    sample[s] = now_ns() - start;
  }
  pthread_join(thread, NULL);
  pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  /* The first sample holds the thread's start. */
  qsort(sample + 1, PROBE_SAMPLES, sizeof *sample, ascending);
  return (double)sample[1 + PROBE_SAMPLES / 2] / (2.0 * PROBE_TURNS);
}

/* Everybody calls this. The other ranks keep their cores awake but give them away. */
static double probe_together(void) {
  if (!probe_wanted || probe_cpu[1] < 0) return 0.0;
  double result = 0.0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    result = probe();
  } else {
    unsigned long long end = now_ns() + PROBE_BUDGET_NS;
    while (now_ns() < end) sched_yield();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return result;
}

/* ---- The loops (LOOPS.md, "The loops") ---- */

static char *receive_at(int slot, size_t size) { return recv_buffer + (size_t)(slot % recv_buffers) * size; }

/* Ping-pong of `pairs` pairs; returns one-way µs seen by this rank. */
static double ping_pong(size_t size, long iters, long warmup, int pairs) {
  double start = 0.0;
  int n = (int)size, first = rank < pairs, peer = first ? rank + pairs : rank - pairs;
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    if (first) {
      MPI_Send(send_buffer, n, MPI_CHAR, peer, 1, MPI_COMM_WORLD);
      MPI_Recv(recv_buffer, n, MPI_CHAR, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(recv_buffer, n, MPI_CHAR, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(send_buffer, n, MPI_CHAR, peer, 1, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - start) * 1e6 / (2.0 * (double)iters);
}

/* Windows one way, `pairs` pairs; returns seconds seen by this rank. */
static double windows_one_way(size_t size, long iters, long warmup, int pairs) {
  static MPI_Request request[MAX_WINDOW];
  double start = 0.0;
  char ack[4] = {0};
  int n = (int)size, first = rank < pairs, peer = first ? rank + pairs : rank - pairs;
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    if (first) {
      for (int w = 0; w < window; w++) MPI_Isend(send_buffer, n, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &request[w]);
      MPI_Waitall(window, request, MPI_STATUSES_IGNORE);
      MPI_Recv(ack, 4, MPI_CHAR, peer, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      for (int w = 0; w < window; w++)
        MPI_Irecv(receive_at(w, size), n, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &request[w]);
      MPI_Waitall(window, request, MPI_STATUSES_IGNORE);
      MPI_Send(ack, 4, MPI_CHAR, peer, 101, MPI_COMM_WORLD);
    }
  }
  return MPI_Wtime() - start;
}

/* Windows both ways between ranks 0 and 1; returns seconds. */
static double windows_both_ways(size_t size, long iters, long warmup) {
  static MPI_Request sends[MAX_WINDOW], receives[MAX_WINDOW];
  double start = 0.0;
  int n = (int)size, peer = 1 - rank, mine = rank == 0 ? 100 : 10, theirs = rank == 0 ? 10 : 100;
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    for (int w = 0; w < window; w++)
      MPI_Irecv(receive_at(w, size), n, MPI_CHAR, peer, theirs, MPI_COMM_WORLD, &receives[w]);
    for (int w = 0; w < window; w++) MPI_Isend(send_buffer, n, MPI_CHAR, peer, mine, MPI_COMM_WORLD, &sends[w]);
    MPI_Waitall(window, sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(window, receives, MPI_STATUSES_IGNORE);
  }
  return MPI_Wtime() - start;
}

/* Every rank with both neighbours of the ring; returns µs for one exchange. */
static double exchange(size_t size, long iters, long warmup) {
  double start = 0.0;
  int n = (int)size, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    MPI_Sendrecv(send_buffer, n, MPI_CHAR, right, 2, recv_buffer, n, MPI_CHAR, left, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(send_buffer, n, MPI_CHAR, left, 3, recv_buffer, n, MPI_CHAR, right, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  return (MPI_Wtime() - start) * 1e6 / (double)iters;
}

enum collective { BARRIER, BCAST, ALLREDUCE, ALLTOALL, IBCAST, IALLREDUCE, COLLECTIVES };

#define COMPUTE_NS 20000ull /* what a non-blocking collective has to go on beside */

static enum collective collective_named(const char *test) {
  static const char *names[] = {"barrier", "bcast", "allreduce", "alltoall", "ibcast", "iallreduce"};
  int which = 0;
  while (which < COLLECTIVES && strcmp(test, names[which])) which++;
  return (enum collective)which;
}

static int is_collective(const char *test) { return collective_named(test) != COLLECTIVES; }

/* Computes, without a call to MPI, and waits for the operation. */
static void compute_and_wait(MPI_Request *request) {
  unsigned long long end = now_ns() + COMPUTE_NS;
  while (now_ns() < end) {}
  MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* One collective operation of all ranks, over and over; returns µs for one, seen by this rank: for a non-blocking one,
 * without those of the computation beside it. */
static double collective(const char *test, size_t size, long iters, long warmup) {
  double start = 0.0, computed = 0.0;
  MPI_Request request;
  enum collective which = collective_named(test);
  int n = (int)size, ints = (int)(size / sizeof(int));
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    switch (which) {
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case BCAST: MPI_Bcast(send_buffer, n, MPI_CHAR, 0, MPI_COMM_WORLD); break;
    case ALLREDUCE: MPI_Allreduce(send_buffer, recv_buffer, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALLTOALL: MPI_Alltoall(send_buffer, n, MPI_CHAR, recv_buffer, n, MPI_CHAR, MPI_COMM_WORLD); break;
    case IBCAST:
      MPI_Ibcast(send_buffer, n, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
      compute_and_wait(&request);
      break;
    case IALLREDUCE:
      MPI_Iallreduce(send_buffer, recv_buffer, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
      compute_and_wait(&request);
      break;
    case COLLECTIVES: break;
    }
  }
  if (which == IBCAST || which == IALLREDUCE) computed = (double)COMPUTE_NS / 1e3;
  return (MPI_Wtime() - start) * 1e6 / (double)iters - computed;
}

/* Ping-pong of ranks 0 and 1 with every other one of blocks of 8 doubles; returns one-way µs. */
static double vector(size_t size, long iters, long warmup) {
  double start = 0.0;
  MPI_Datatype strided;
  MPI_Type_vector((int)(size / 64), 8, 16, MPI_DOUBLE, &strided);
  MPI_Type_commit(&strided);
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; i < iters + warmup; i++) {
    if (i == warmup) start = MPI_Wtime();
    if (rank == 0) MPI_Send(send_buffer, 1, strided, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(recv_buffer, 1, strided, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(send_buffer, 1, strided, 0, 1, MPI_COMM_WORLD);
  }
  double us = (MPI_Wtime() - start) * 1e6 / (2.0 * (double)iters);
  MPI_Type_free(&strided);
  return us;
}

static double mean_over_ranks(double mine) {
  double sum = 0.0;
  MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  return sum / ranks;
}

/* One block: the value to print and its unit. Valid on rank 0. */
static double block(const char *test, size_t size, long iters, const char **unit) {
  long warmup = iters / 10 > 2 ? iters / 10 : 2;
  double messages = (double)iters * window;
  int pairs = ranks / 2;
  *unit = "us";
  if (!strcmp(test, "latency")) return ping_pong(size, iters, warmup, 1);
  if (!strcmp(test, "multi_lat")) return mean_over_ranks(ping_pong(size, iters, warmup, pairs));
  if (!strcmp(test, "exchange")) return mean_over_ranks(exchange(size, iters, warmup));
  if (!strcmp(test, "vector")) return vector(size, iters, warmup);
  if (is_collective(test)) return mean_over_ranks(collective(test, size, iters, warmup));
  *unit = "ms";
  if (!strcmp(test, "startup")) return mean_over_ranks(startup_ms);
  *unit = "MiB";
  if (!strcmp(test, "memory")) return mean_over_ranks(resident_mib);
  *unit = "MB/s";
  if (!strcmp(test, "bw")) return (double)size * messages / 1e6 / windows_one_way(size, iters, warmup, 1);
  if (!strcmp(test, "bibw")) return 2.0 * (double)size * messages / 1e6 / windows_both_ways(size, iters, warmup);
  *unit = "msg/s";
  if (!strcmp(test, "mbw_mr"))
    return pairs * messages / mean_over_ranks(windows_one_way(size, iters, warmup, pairs));
  die("unknown test", test);
  return 0.0;
}

/* ---- Command line and output ---- */

static int windowed(const char *test) { return !strcmp(test, "bw") || !strcmp(test, "bibw") || !strcmp(test, "mbw_mr"); }

static long default_iterations(const char *test, size_t size) {
  if (windowed(test)) return size <= 1024 ? 1000 : size <= 8192 ? 400 : size <= 65536 ? 40 : size <= 1048576 ? 6 : 3;
  return size <= 1024 ? 10000 : size <= 8192 ? 5000 : size <= 65536 ? 1000 : size <= 1048576 ? 100 : 30;
}

static void check_ranks(const char *test) {
  int exactly_two = !strcmp(test, "latency") || !strcmp(test, "bw") || !strcmp(test, "bibw") || !strcmp(test, "vector");
  if (is_collective(test) || !strcmp(test, "startup") || !strcmp(test, "memory")) return;
  if (exactly_two && ranks != 2) die("needs exactly 2 ranks", test);
  if (!strcmp(test, "exchange") ? ranks < 2 : ranks % 2 != 0) die("needs an even number of ranks", test);
}

static void run_spec(char *spec) {
  char *colon = strchr(spec, ':'), *save = NULL;
  if (!colon) die("want TEST:SIZE[xITERS]", spec);
  *colon = '\0';
  const char *test = spec;
  check_ranks(test);
  for (char *item = strtok_r(colon + 1, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
    char *end = NULL;
    size_t size = strtoull(item, &end, 10);
    long iters = *end == 'x' ? strtol(end + 1, &end, 10) : default_iterations(test, size);
    if (*end || end == item || iters < 1 || size > 1u << 30) die("bad size or iterations", item);
    const char *unit;
    int blocks = windowed(test) ? recv_buffers : !strcmp(test, "alltoall") ? ranks : !strcmp(test, "vector") ? 2 : 1;
    size_t receive_bytes = (size ? size : 1) * (size_t)blocks;
    size_t send_bytes = windowed(test) ? (size ? size : 1) : receive_bytes;
    if (posix_memalign((void **)&send_buffer, 4096, send_bytes)) die("out of memory", item);
    if (posix_memalign((void **)&recv_buffer, 4096, receive_bytes)) die("out of memory", item);
    memset(send_buffer, 'a', send_bytes);
    memset(recv_buffer, 'b', receive_bytes);
    block(test, size, iters, &unit); /* connections and page tables settle here, unprinted */
    double before = probe_together();
    for (int rep = 0; rep < reps; rep++) {
      double value = block(test, size, iters, &unit);
      double after = probe_together();
      if (rank == 0) {
        printf("test=%s size=%zu rep=%d value=%.6g unit=%s before=%.1f after=%.1f\n", test, size, rep, value, unit,
               before, after);
        fflush(stdout);
      }
      before = after;
    }
    free(send_buffer);
    free(recv_buffer);
  }
}

/* One `bind` line a rank, so that the harness can see that the binding it asked for really holds. */
static void report_binding(void) {
  int mine[3] = {sched_getcpu(), 0, -1}, all[3 * MAX_CPUS];
  cpu_set_t set;
  if (ranks > MAX_CPUS) die("too many ranks", NULL);
  if (sched_getaffinity(0, sizeof set, &set)) die("sched_getaffinity failed", NULL);
  mine[1] = CPU_COUNT(&set);
  for (int cpu = 0; cpu < CPU_SETSIZE && mine[2] < 0; cpu++)
    if (CPU_ISSET(cpu, &set)) mine[2] = cpu;
  MPI_Allgather(mine, 3, MPI_INT, all, 3, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < ranks && rank == 0; r++)
    printf("bind rank=%d cpu=%d allowed=%d first=%d\n", r, all[3 * r], all[3 * r + 1], all[3 * r + 2]);
  /* The two cores to probe: rank 0's and the first other one in use; unbound ranks: cores 0 and 1. */
  if (all[1] != 1) {
    cpu_set_t probe_set = set;
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
      if (CPU_ISSET(cpu, &probe_set)) probe_cpu[found++] = cpu;
  } else {
    probe_cpu[0] = all[2];
    for (int r = 1; r < ranks && probe_cpu[1] < 0; r++)
      if (all[3 * r + 2] != all[2]) probe_cpu[1] = all[3 * r + 2];
  }
}

/* Takes this session's share of the processor up against other sessions; `nice` would not (see sched(7), autogroup). */
static void raise_autogroup(void) {
  FILE *file = fopen("/proc/self/autogroup", "w");
  if (!file) return;
  fputs("-19", file);
  fclose(file);
}

/* What starting has cost: the time since the launcher was started, and the memory that is resident now. */
static void take_stock(void) {
  struct timespec t;
  MPI_Barrier(MPI_COMM_WORLD);
  clock_gettime(CLOCK_REALTIME, &t);
  if (launched > 0.0) startup_ms = ((double)t.tv_sec + (double)t.tv_nsec / 1e9 - launched) * 1e3;
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "VmRSS:", 6)) resident_mib = strtod(line + 6, NULL) / 1024.0;
  if (file) fclose(file);
}

static long option_value(char **argv, int argc, int *i) {
  char *end = NULL;
  long value = *i + 1 < argc ? strtol(argv[*i + 1], &end, 10) : 0;
  if (!end || *end || value < 1) die("wants a number above 0", argv[*i]);
  (*i)++;
  return value;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int specs = 0, i = 1;
  for (; i < argc && argv[i][0] == '-'; i++) {
    if (!strcmp(argv[i], "--reps")) reps = (int)option_value(argv, argc, &i);
    else if (!strcmp(argv[i], "--window")) window = (int)option_value(argv, argc, &i);
    else if (!strcmp(argv[i], "--recv-buffers")) recv_buffers = (int)option_value(argv, argc, &i);
    else if (!strcmp(argv[i], "--autogroup")) raise_autogroup();
    else if (!strcmp(argv[i], "--no-probe")) probe_wanted = 0;
    else if (!strcmp(argv[i], "--launched")) launched = i + 1 < argc ? strtod(argv[++i], NULL) : 0.0;
    else die("unknown option", argv[i]);
  }
  if (window > MAX_WINDOW) die("window too large", NULL);
  if (!recv_buffers) recv_buffers = window;
  take_stock();
  report_binding();
  for (; i < argc; i++, specs++) run_spec(argv[i]);
  if (!specs) die("nothing to run", "give TEST:SIZE[xITERS]");
  if (rank == 0) printf("done\n");
  MPI_Finalize();
  return 0;
}
