/* Chapter 3: sends in all modes, receives, probes, requests, buffers; 2 ranks and more (the first two talk). */
#include "check.h"

static void modes(int other) {
  int (*sends[])(const void *, COUNT, MPI_Datatype, int, int, MPI_Comm) = {MPI_Send, MPI_Ssend, MPI_Bsend};
  int (*isends[])(const void *, COUNT, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {MPI_Isend, MPI_Issend, MPI_Ibsend};
  int (*inits[])(const void *, COUNT, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init};
  static char buffer[1 << 20];
  void *detached;
  COUNT length;
  int i, round;
  OK(MPI_Buffer_attach(buffer, sizeof buffer));
  CHECK(MPI_Buffer_attach(buffer, sizeof buffer) != MPI_SUCCESS);
  for (i = 0; i < 3; i++) {
    double out[3] = {1.5 * rank, i, 7}, in[3] = {0};
    MPI_Request request;
    MPI_Status status;
    COUNT count;
    if (rank == 0) {
      OK(sends[i](out, 3, MPI_DOUBLE, other, 10 + i, MPI_COMM_WORLD));
      OK(isends[i](out, 3, MPI_DOUBLE, other, 20 + i, MPI_COMM_WORLD, &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CHECK(request == MPI_REQUEST_NULL);
      OK(inits[i](out, 3, MPI_DOUBLE, other, 30 + i, MPI_COMM_WORLD, &request));
      for (round = 0; round < 3; round++) {
        out[1] = 100 * i + round;
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, &status));
        CHECK(request != MPI_REQUEST_NULL);
      }
      OK(MPI_Request_free(&request));
      CHECK(request == MPI_REQUEST_NULL);
    } else {
      OK(MPI_Recv(in, 3, MPI_DOUBLE, other, 10 + i, MPI_COMM_WORLD, &status));
      CHECK(in[1] == i && status.MPI_SOURCE == 0 && status.MPI_TAG == 10 + i);
      OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
      CHECK(count == 3);
      OK(MPI_Irecv(in, 3, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
      OK(MPI_Wait(&request, &status));
      CHECK(status.MPI_TAG == 20 + i);
      OK(MPI_Recv_init(in, 3, MPI_DOUBLE, other, 30 + i, MPI_COMM_WORLD, &request));
      for (round = 0; round < 3; round++) {
        int flag = 0;
        OK(MPI_Startall(1, &request));
        while (!flag) OK(MPI_Test(&request, &flag, &status));
        CHECK(in[1] == 100 * i + round);
      }
      OK(MPI_Request_free(&request));
    }
  }
  OK(MPI_Buffer_flush());
  { MPI_Request flushed; OK(MPI_Buffer_iflush(&flushed)); OK(MPI_Wait(&flushed, MPI_STATUS_IGNORE)); }
  OK(MPI_Buffer_detach(&detached, &length));
  CHECK(detached == buffer && length == sizeof buffer);
  if (rank == 1) { /* ready mode: the receive is posted before the word that it is */
    int in = 0, word = 1;
    MPI_Request request;
    OK(MPI_Irecv(&in, 1, MPI_INT, other, 40, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&word, 1, MPI_INT, other, 41, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(in == 77);
  } else {
    int out = 77, word;
    OK(MPI_Recv(&word, 1, MPI_INT, other, 41, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Rsend(&out, 1, MPI_INT, other, 40, MPI_COMM_WORLD));
  }
}

static void ready_later(int other) {
  int in[3] = {0}, out[3] = {71, 72, 73}, word = 1, i;
  MPI_Request requests[3];
  if (rank == 1) {
    for (i = 0; i < 3; i++) OK(MPI_Irecv(&in[i], 1, MPI_INT, other, 42 + i, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Send(&word, 1, MPI_INT, other, 41, MPI_COMM_WORLD));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(in[0] == 71 && in[1] == 72 && in[2] == 73);
  } else {
    OK(MPI_Rsend_init(&out[1], 1, MPI_INT, other, 43, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Recv(&word, 1, MPI_INT, other, 41, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Irsend(&out[0], 1, MPI_INT, other, 42, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Start(&requests[1]));
    OK(MPI_Irsend(&out[2], 1, MPI_INT, other, 44, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
    OK(MPI_Request_free(&requests[1]));
  }
}

/* A look at requests that ends none of them. */
static void looks(int other) {
  enum { N = 3 };
  int in[N] = {0}, out[N] = {81, 82, 83}, word = 1, i, flag, index, done, indices[N], error;
  MPI_Request requests[N];
  MPI_Status statuses[N];
  if (rank == 0) {
    OK(MPI_Recv(&word, 1, MPI_INT, other, 90, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (i = 0; i < N; i++) OK(MPI_Send(&out[i], 1, MPI_INT, other, 91 + i, MPI_COMM_WORLD));
    return;
  }
  for (i = 0; i < N; i++) OK(MPI_Irecv(&in[i], 1, MPI_INT, other, 91 + i, MPI_COMM_WORLD, &requests[i]));
  OK(MPI_Request_get_status_all(N, requests, &flag, statuses));
  CHECK(!flag);
  OK(MPI_Request_get_status_any(N, requests, &index, &flag, statuses));
  CHECK(!flag && index == MPI_UNDEFINED);
  OK(MPI_Request_get_status_some(N, requests, &done, indices, statuses));
  CHECK(done == 0);
  OK(MPI_Send(&word, 1, MPI_INT, other, 90, MPI_COMM_WORLD));
  for (flag = 0; !flag;) OK(MPI_Request_get_status_all(N, requests, &flag, statuses));
  for (i = 0; i < N; i++) CHECK(statuses[i].MPI_TAG == 91 + i && in[i] == 81 + i && requests[i] != MPI_REQUEST_NULL);
  OK(MPI_Request_get_status_any(N, requests, &index, &flag, statuses));
  CHECK(flag && index == 0 && statuses[0].MPI_TAG == 91);
  OK(MPI_Request_get_status_some(N, requests, &done, indices, statuses));
  CHECK(done == N && indices[2] == 2 && statuses[2].MPI_TAG == 93);
  OK(MPI_Status_get_source(&statuses[1], &i));
  CHECK(i == other);
  OK(MPI_Status_get_tag(&statuses[1], &i));
  CHECK(i == 92);
  OK(MPI_Status_set_source(&statuses[1], 5));
  OK(MPI_Status_set_tag(&statuses[1], 6));
  OK(MPI_Status_set_error(&statuses[1], MPI_ERR_OTHER));
  OK(MPI_Status_get_error(&statuses[1], &error));
  CHECK(statuses[1].MPI_SOURCE == 5 && statuses[1].MPI_TAG == 6 && error == MPI_ERR_OTHER);
  OK(MPI_Waitall(N, requests, MPI_STATUSES_IGNORE));
}

/* Buffers of a communicator and of a session, for buffered sends over them. */
static void buffers(int other) {
  static char room[2][4096 + MPI_BSEND_OVERHEAD];
  MPI_Request request;
  MPI_Session session;
  MPI_Group both;
  MPI_Comm pair, from_session;
  void *detached;
  COUNT length;
  int out[2] = {rank, 7}, in[2];
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  OK(MPI_Session_attach_buffer(session, room[1], sizeof room[1]));
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &both));
  { MPI_Group world = both; int two[2] = {0, 1}; OK(MPI_Group_incl(world, 2, two, &both)); OK(MPI_Group_free(&world)); }
  OK(MPI_Comm_create_from_group(both, "tests/p2p/buffers", MPI_INFO_NULL, MPI_ERRORS_RETURN, &from_session));
  OK(MPI_Group_free(&both));
  OK(MPI_Comm_dup(from_session, &pair));
  OK(MPI_Comm_attach_buffer(pair, room[0], sizeof room[0]));
  for (int i = 0; i < 2; i++) {
    MPI_Comm comm = i ? from_session : pair;
    OK(MPI_Bsend(out, 2, MPI_INT, other, 3, comm));
    OK(MPI_Recv(in, 2, MPI_INT, other, 3, comm, MPI_STATUS_IGNORE));
    CHECK(in[0] == other && in[1] == 7);
  }
  OK(MPI_Comm_flush_buffer(pair));
  OK(MPI_Comm_iflush_buffer(pair, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Comm_detach_buffer(pair, &detached, &length));
  CHECK(detached == room[0] && length == sizeof room[0]);
  OK(MPI_Session_flush_buffer(session));
  OK(MPI_Session_iflush_buffer(session, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Session_detach_buffer(session, &detached, &length));
  CHECK(detached == room[1] && length == sizeof room[1]);
  OK(MPI_Comm_free(&pair));
  OK(MPI_Comm_free(&from_session));
  OK(MPI_Session_finalize(&session));
}

/* What a buffer has no room for is refused, and the messages that fitted arrive. */
static void full(int other) {
  enum { LEN = 300000, ROOM = 2 * LEN + 4 * MPI_BSEND_OVERHEAD };
  static char room[ROOM], out[LEN], in[LEN];
  MPI_Request request;
  void *detached;
  COUNT length;
  CLASS(MPI_Bsend(out, 8, MPI_CHAR, other, 4, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  OK(MPI_Buffer_attach(room, ROOM));
  CLASS(MPI_Bsend(room, ROOM + 1, MPI_CHAR, other, 4, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  for (int round = 0; round < 3; round++) {
    if (rank == 0) {
      memset(out, 'a' + round, LEN);
      OK(MPI_Bsend(out, LEN, MPI_CHAR, other, 5, MPI_COMM_WORLD));
      memset(out, 'A' + round, LEN);
      OK(MPI_Ibsend(out, LEN, MPI_CHAR, other, 6, MPI_COMM_WORLD, &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CLASS(MPI_Bsend(out, LEN, MPI_CHAR, other, 7, MPI_COMM_WORLD), MPI_ERR_BUFFER);
      OK(MPI_Bsend_init(out, LEN, MPI_CHAR, other, 7, MPI_COMM_WORLD, &request));
      CLASS(MPI_Start(&request), MPI_ERR_BUFFER);
      OK(MPI_Request_free(&request));
      OK(MPI_Ssend(out, 1, MPI_CHAR, other, 8, MPI_COMM_WORLD));
      OK(MPI_Buffer_flush());
    } else {
      OK(MPI_Recv(in, 1, MPI_CHAR, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      OK(MPI_Recv(in, LEN, MPI_CHAR, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(in[0] == 'A' + round && in[LEN - 1] == 'A' + round);
      OK(MPI_Recv(in, LEN, MPI_CHAR, other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(in[0] == 'a' + round && in[LEN - 1] == 'a' + round);
    }
  }
  OK(MPI_Buffer_detach(&detached, &length));
  CHECK(detached == room && length == ROOM);
}

/* Of several that end, each status tells whose message it was, also of one that was too long. */
static void too_long(int other) {
  MPI_Request requests[2];
  MPI_Status statuses[2];
  int data[4] = {0}, in[2][2], class;
  if (rank == 0) {
    OK(MPI_Recv(NULL, 0, MPI_INT, other, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Send(data, 2, MPI_INT, other, 11, MPI_COMM_WORLD));
    OK(MPI_Send(data, 4, MPI_INT, other, 12, MPI_COMM_WORLD));
    return;
  }
  OK(MPI_Irecv(in[0], 2, MPI_INT, other, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]));
  OK(MPI_Irecv(in[1], 2, MPI_INT, MPI_ANY_SOURCE, 12, MPI_COMM_WORLD, &requests[1]));
  OK(MPI_Send(NULL, 0, MPI_INT, other, 13, MPI_COMM_WORLD));
  CLASS(MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS);
  CHECK(statuses[0].MPI_TAG == 11 && statuses[0].MPI_ERROR == MPI_SUCCESS);
  MPI_Error_class(statuses[1].MPI_ERROR, &class);
  CHECK(class == MPI_ERR_TRUNCATE && statuses[1].MPI_TAG == 12 && statuses[1].MPI_SOURCE == other);
}

/* Where nothing is sent, no datatype is missed. */
static void nothing(void) {
  MPI_Status status;
  MPI_Request request;
  OK(MPI_Irecv(NULL, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 10, MPI_COMM_WORLD, &request));
  OK(MPI_Wait(&request, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static void probes(int other) {
  int out[5] = {1, 2, 3, 4, 5}, in[5], flag = 0;
  COUNT count;
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  if (rank == 0) {
    for (int tag = 50; tag < 54; tag++) OK(MPI_Send(out, tag - 49, MPI_INT, other, tag, MPI_COMM_WORLD));
    return;
  }
  OK(MPI_Probe(other, 50, MPI_COMM_WORLD, &status));
  OK(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(count == 1);
  OK(MPI_Recv(in, 5, MPI_INT, other, 50, MPI_COMM_WORLD, &status));
  while (!flag) OK(MPI_Iprobe(MPI_ANY_SOURCE, 51, MPI_COMM_WORLD, &flag, &status));
  OK(MPI_Mprobe(other, 51, MPI_COMM_WORLD, &message, &status));
  OK(MPI_Mrecv(in, 5, MPI_INT, &message, &status));
  OK(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(count == 2 && message == MPI_MESSAGE_NULL);
  for (flag = 0; !flag;) OK(MPI_Improbe(other, 52, MPI_COMM_WORLD, &flag, &message, &status));
  OK(MPI_Imrecv(in, 5, MPI_INT, &message, &request));
  OK(MPI_Wait(&request, &status));
  CHECK(in[2] == 3);
  /* the message is longer than the buffer */
  CLASS(MPI_Recv(in, 2, MPI_INT, other, 53, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
  OK(MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, &status));
  CHECK(message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL);
  OK(MPI_Mrecv(in, 5, MPI_INT, &message, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static void several(int other) {
  enum { N = 8 };
  int in[N], out[N], i, index, done, flag, indices[N], seen = 0;
  MPI_Request requests[N];
  MPI_Status statuses[N];
  for (int form = 0; form < 6; form++) {
    for (i = 0; i < N; i++) {
      out[i] = 1000 * form + i;
      if (rank == 1) OK(MPI_Irecv(&in[i], 1, MPI_INT, other, 100 + i, MPI_COMM_WORLD, &requests[i]));
      else OK(MPI_Isend(&out[i], 1, MPI_INT, other, 100 + i, MPI_COMM_WORLD, &requests[i]));
    }
    seen = 0;
    switch (form) {
    case 0: OK(MPI_Waitall(N, requests, statuses)); seen = N; break;
    case 1: while (seen < N) { OK(MPI_Waitany(N, requests, &index, &statuses[0])); CHECK(index >= 0); seen++; } break;
    case 2: while (seen < N) { OK(MPI_Waitsome(N, requests, &done, indices, statuses)); seen += done; } break;
    case 3: for (flag = 0; !flag;) OK(MPI_Testall(N, requests, &flag, statuses)); seen = N; break;
    case 4: while (seen < N) { OK(MPI_Testany(N, requests, &index, &flag, &statuses[0])); seen += flag && index != MPI_UNDEFINED; } break;
    case 5: while (seen < N) { OK(MPI_Testsome(N, requests, &done, indices, statuses)); seen += done; } break;
    }
    CHECK(seen == N);
    for (i = 0; i < N; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
    for (i = 0; i < N && rank == 1; i++) CHECK(in[i] == 1000 * form + i);
  }
  OK(MPI_Waitany(N, requests, &index, &statuses[0]));
  CHECK(index == MPI_UNDEFINED);
  OK(MPI_Testany(N, requests, &index, &flag, &statuses[0]));
  CHECK(flag && index == MPI_UNDEFINED);
  OK(MPI_Waitsome(N, requests, &done, indices, statuses));
  CHECK(done == MPI_UNDEFINED);
  OK(MPI_Testall(N, requests, &flag, statuses));
  CHECK(flag);
}

static void rest(int other) {
  int a = rank, b = -1, c[2] = {rank, 10 + rank}, flag = 0;
  MPI_Request request;
  MPI_Status status;
  OK(MPI_Sendrecv(&a, 1, MPI_INT, other, 60, &b, 1, MPI_INT, other, 60, MPI_COMM_WORLD, &status));
  CHECK(b == other);
  OK(MPI_Sendrecv_replace(c, 2, MPI_INT, other, 61, other, 61, MPI_COMM_WORLD, &status));
  CHECK(c[1] == 10 + other);
  OK(MPI_Isendrecv(&a, 1, MPI_INT, other, 62, &b, 1, MPI_INT, other, 62, MPI_COMM_WORLD, &request));
  OK(MPI_Wait(&request, &status));
  CHECK(b == other);
  OK(MPI_Isendrecv_replace(c, 2, MPI_INT, other, 63, other, 63, MPI_COMM_WORLD, &request));
  OK(MPI_Wait(&request, &status));
  CHECK(c[0] == rank);
  OK(MPI_Irecv(&b, 1, MPI_INT, other, 64, MPI_COMM_WORLD, &request));
  OK(MPI_Cancel(&request));
  OK(MPI_Wait(&request, &status));
  OK(MPI_Test_cancelled(&status, &flag));
  CHECK(flag);
  OK(MPI_Irecv(&b, 1, MPI_INT, MPI_PROC_NULL, 65, MPI_COMM_WORLD, &request));
  OK(MPI_Request_get_status(request, &flag, &status));
  CHECK(flag && request != MPI_REQUEST_NULL);
  OK(MPI_Wait(&request, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
  OK(MPI_Send(&a, 1, MPI_INT, MPI_PROC_NULL, 65, MPI_COMM_WORLD));
  if (rank == 0) OK(MPI_Send_c(c, (MPI_Count)2, MPI_INT, other, 66, MPI_COMM_WORLD));
  else {
    MPI_Count count = 0;
    OK(MPI_Recv_c(c, (MPI_Count)2, MPI_INT, other, 66, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count_c(&status, MPI_INT, &count));
    CHECK(count == 2);
  }
  /* what is wrong is said, and nothing is sent */
  CLASS(MPI_Send(&a, 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
  CLASS(MPI_Send(&a, 1, MPI_INT, -7, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
  CLASS(MPI_Send(&a, -1, MPI_INT, other, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
  CLASS(MPI_Send(&a, 1, MPI_INT, other, -5, MPI_COMM_WORLD), MPI_ERR_TAG);
  CLASS(MPI_Send(&a, 1, MPI_DATATYPE_NULL, other, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
  CLASS(MPI_Send(&a, 1, MPI_INT, other, 0, MPI_COMM_NULL), MPI_ERR_COMM);
  CLASS(MPI_Recv(&a, 1, MPI_INT, size + 3, 0, MPI_COMM_WORLD, &status), MPI_ERR_RANK);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  if (rank < 2) {
    modes(1 - rank);
    probes(1 - rank);
    ready_later(1 - rank);
    several(1 - rank);
    looks(1 - rank);
    rest(1 - rank);
    buffers(1 - rank);
    full(1 - rank);
    nothing();
    too_long(1 - rank);
  }
  return finish("point-to-point");
}
