#ifndef VARVE_CALLS_H
#define VARVE_CALLS_H

/* What the tests of other libraries' functions share: calls that are counted and checked, and a rank that dies before
 * one of them. */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank_, rank_count_, calls_made;

static void count_call(void) {
  const char* at = getenv("TEST_DIES_AT");
  ++calls_made;
  if (at != NULL && atoi(at) == calls_made && rank_ == rank_count_ / 2) raise(SIGKILL);
}

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank_, #condition); \
      sleep(1); /* MPICH's launcher loses what is said just before */                         \
      MPI_Abort(MPI_COMM_WORLD, 9);                                                           \
    }                                                                                         \
  } while (0)
/* A call of the library. */
#define CALL(call) (count_call(), (call))
#define CHECK_CALL(call) CHECK(CALL(call) == 0)

static void begin_test(int* argc, char*** argv) {
  int threads;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count_);
}

/* What a run has been told that it keeps: nothing older may come back. In a file, as the next run asks. */
static int told_before(const char* path) {
  int step = -1;
  FILE* file = fopen(path, "r");
  if (file == NULL) return -1;
  if (fscanf(file, "%d", &step) != 1) step = -1;
  fclose(file);
  return step;
}

static void tell_next(const char* path, int step) {
  char part[4096];
  if (rank_ != 0) return;
  snprintf(part, sizeof part, "%s.part", path);
  FILE* file = fopen(part, "w");
  CHECK(file != NULL);
  fprintf(file, "%d", step);
  fclose(file);
  CHECK(rename(part, path) == 0);
}

#endif
