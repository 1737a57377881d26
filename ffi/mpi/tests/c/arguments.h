/* What a program made by tests/arguments/generate.rs stands on: good arguments of every kind, some wrong ones, and the loop over its
 * cases, which prints the class of each call's error. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64 };

#define ARRAYS(type, suffix) \
  static type zeros##suffix[N], outs##suffix[N], ones##suffix[N], negatives##suffix[N], apart##suffix[N];
ARRAYS(int, ) ARRAYS(MPI_Aint, _a) ARRAYS(MPI_Count, _c)

static int a[N], b[N], comm_key, type_key, newkey, my_class, my_code;
static int blocks[] = {MPI_DISTRIBUTE_BLOCK}, defaults[] = {MPI_DISTRIBUTE_DFLT_DARG};
static int ranges[1][3] = {{0, 0, 1}}, wrong_ranges[1][3] = {{5, 7, 1}};
static void *pointers[N];
static char text[4096], long_key[MPI_MAX_INFO_KEY + 10], long_value[MPI_MAX_INFO_VAL + 10];
static MPI_Comm comm, cart, graph, dist, newcomm;
static MPI_Datatype pair, uncommitted, newtype, types[N], no_types[N], newtypes[N];
static MPI_Group group, newgroup;
static MPI_Info info, newinfo;
static MPI_Errhandler handler;
static MPI_Session session, newsession;
static MPI_Message message;
static MPI_Op op;
static MPI_Request request, requests[N];
static MPI_Status statuses[N];

static void hook(MPI_Comm *where, int *code, ...) { (void)where, (void)code; }
static void combine(void *in, void *inout, int *length, MPI_Datatype *type) { (void)in, (void)inout, (void)length, (void)type; }

/* What needs no library. */
static void lay_out(void) {
  for (int i = 0; i < N; i++) {
    ones[i] = ones_a[i] = ones_c[i] = 1;
    negatives[i] = negatives_a[i] = negatives_c[i] = -2;
    apart[i] = apart_a[i] = apart_c[i] = 4 * i;
    types[i] = MPI_INT;
    no_types[i] = MPI_DATATYPE_NULL;
    requests[i] = MPI_REQUEST_NULL;
  }
  memset(long_key, 'k', sizeof long_key - 1);
  memset(long_value, 'v', sizeof long_value - 1);
  (void)a, (void)b, (void)ranges, (void)wrong_ranges, (void)blocks, (void)defaults, (void)pointers, (void)text, (void)newcomm;
  (void)newtype, (void)newtypes, (void)newgroup, (void)newinfo, (void)handler, (void)newsession, (void)message, (void)op;
  (void)hook, (void)combine, (void)zeros, (void)zeros_a, (void)zeros_c, (void)outs, (void)outs_a, (void)outs_c, (void)newkey;
}

static void prepare(void) {
  static int one = 1, zero = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  MPI_Cart_create(comm, 1, &one, &one, 0, &cart);
  MPI_Graph_create(comm, 1, &one, &zero, 0, &graph);
  MPI_Dist_graph_create_adjacent(comm, 1, &zero, MPI_UNWEIGHTED, 1, &zero, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &dist);
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  MPI_Comm_group(comm, &group);
  MPI_Info_create(&info);
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comm_key, 0);
  MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, 0);
  MPI_Add_error_class(&my_class);
  MPI_Add_error_code(my_class, &my_code);
  lay_out();
}

/* Each of the cases argv[2…] in a process of its own: its number, and how that ended: with 0 for success, 1 to 255 for an error, or
 * less than 0 for a signal. */
static int apart_from_each_other(int argc, char **argv, int (*const cases[])(void)) {
  int status;
  for (int i = 2; i < argc; i++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(cases[atoi(argv[i])]() != MPI_SUCCESS);
    }
    waitpid(child, &status, 0);
    printf("%s %d\n", argv[i], WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  return 0;
}

/* Before MPI_Init, with the handles that are there at all times. */
static int before(int argc, char **argv, int (*const cases[])(void)) {
  lay_out();
  comm = cart = graph = dist = MPI_COMM_SELF;
  pair = uncommitted = MPI_INT;
  group = MPI_GROUP_EMPTY;
  info = MPI_INFO_ENV;
  session = MPI_SESSION_NULL;
  return apart_from_each_other(argc, argv, cases);
}

static int after(int argc, char **argv, int (*const cases[])(void)) {
  MPI_Session_finalize(&session);
  MPI_Finalize();
  return apart_from_each_other(argc, argv, cases);
}

/* A line a case, but those in argv[1…]: its number and the class. After a call that ends the program there is only the number. */
static int run(int argc, char **argv, int (*const cases[])(void), int n) {
  int code, class, skip = 1;
  if (argc > 1 && !strcmp(argv[1], "before")) return before(argc, argv, cases);
  MPI_Init(NULL, NULL);
  prepare();
  if (argc > 1 && !strcmp(argv[1], "after")) return after(argc, argv, cases);
  if (argc > 1 && !strcmp(argv[1], "apart")) return apart_from_each_other(argc, argv, cases);
  for (int i = 0; i < n; i++) {
    if (skip < argc && atoi(argv[skip]) == i) {
      skip++;
      continue;
    }
    MPI_Info_set(info, "key", "value");
    MPI_Type_set_attr(MPI_INT, type_key, 0);
    MPI_Comm_set_attr(comm, comm_key, 0);
    MPI_Comm_set_attr(cart, comm_key, 0);
    request = MPI_REQUEST_NULL;
    memset(statuses, 0, sizeof statuses);
    printf("%d ", i);
    fflush(stdout);
    alarm(10);
    code = cases[i]();
    class = code;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    printf("%d\n", class);
  }
  fflush(stdout);
  _exit(0); /* what was made stays */
}
