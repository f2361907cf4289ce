/* VELOC's functions, as its programs call them: `veloc_test CONFIGURATION TOLD run|leave|once|once-on-nodes`. "run"
 * computes some steps and goes on where an earlier run has ended, however it has; "leave" ends such a run without a
 * word to VELOC and MPI; "once" tries each function; the configuration of "once-on-nodes" has nothing behind the nodes.
 */
#include "veloc.h"

#include <stdint.h>

#include "calls.h"

enum { kCells = 20000, kSteps = 60, kEvery = 10 };

/* On the last rank, values that look like no numbers: each rank's memory is of a type of its own. */
static double value_at(int step, int cell) {
  const double value = step * 1000.0 + cell * 0.5 + rank_;
  return rank_ == rank_count_ - 1 ? value * 1e-315 : value;
}

static void fill(double* field, int step) {
  for (int i = 0; i < kCells; ++i) field[i] = value_at(step, i);
}
static int holds(const double* field, int step) {
  for (int i = 0; i < kCells; ++i) {
    if (field[i] != value_at(step, i)) return 0;
  }
  return 1;
}

static void write_file(int step) {
  char path[VELOC_MAX_NAME];
  CHECK_CALL(VELOC_Route_file("particles.dat", path));
  FILE* file = fopen(path, "w");
  CHECK(file != NULL);
  fprintf(file, "rank %d at %d", rank_, step);
  CHECK(fclose(file) == 0);
}
static void check_file(int step) {
  char path[VELOC_MAX_NAME], found[99] = "", wanted[99];
  CHECK_CALL(VELOC_Route_file("another name", path));
  FILE* file = fopen(path, "r");
  CHECK(file != NULL && fgets(found, sizeof found, file) != NULL);
  fclose(file);
  snprintf(wanted, sizeof wanted, "rank %d at %d", rank_, step);
  CHECK(strcmp(found, wanted) == 0);
}

static void run(const char* configuration, const char* told, int leaves) {
  int step = 0;
  double* field = malloc(kCells * sizeof *field);
  const int kept = told_before(told);
  CHECK(field != NULL);
  CHECK_CALL(VELOC_Init(MPI_COMM_WORLD, configuration));
  CHECK_CALL(VELOC_Mem_protect(0, &step, 1, sizeof step));
  CHECK_CALL(VELOC_Mem_protect(1, field, kCells, sizeof *field));
  fill(field, 0);
  const int version = CALL(VELOC_Restart_test("field", 0));
  CHECK(version >= kept);
  if (version >= 0) {
    CHECK_CALL(VELOC_Restart_begin("field", version));
    CHECK_CALL(VELOC_Recover_mem());
    check_file(version);
    CHECK_CALL(VELOC_Restart_end(1));
    CHECK(step == version && holds(field, version));
  }
  while (step < kSteps) {
    fill(field, ++step);
    if (step % kEvery != 0) continue;
    CHECK_CALL(VELOC_Checkpoint_wait());
    if (step > kEvery && step - kEvery > kept) tell_next(told, step - kEvery);
    CHECK_CALL(VELOC_Checkpoint_begin("field", step));
    CHECK_CALL(VELOC_Checkpoint_mem());
    write_file(step);
    CHECK_CALL(VELOC_Checkpoint_end(1));
  }
  if (leaves) exit(0);
  CHECK_CALL(VELOC_Mem_clear());
  free(field);
  CHECK_CALL(VELOC_Finalize(1));
  if (rank_ == 0) printf("calls %d\n", calls_made);
}

static void write_version(int version, int content) {
  CHECK_CALL(VELOC_Checkpoint_begin("files", version));
  CHECK_CALL(VELOC_Checkpoint_mem());
  write_file(content);
  CHECK_CALL(VELOC_Checkpoint_end(1));
}
static void check_version(int version, int content) {
  CHECK_CALL(VELOC_Restart_begin("files", version));
  CHECK_CALL(VELOC_Recover_mem());
  check_file(content);
  CHECK_CALL(VELOC_Restart_end(1));
}

/* Versions are written over, also the one that was just restarted from. */
static void write_files_over(void) {
  const int versions[] = {10, 20, 20, 10, 0, 0, 30};
  for (int i = 0; i < (int)(sizeof versions / sizeof *versions); ++i) {
    write_version(versions[i], 100 + i);
    check_version(versions[i], 100 + i);
  }
  check_version(20, 102);
  check_version(0, 105);
  /* Not by what did not become a checkpoint. */
  CHECK_CALL(VELOC_Checkpoint_begin("files", 0));
  write_file(7);
  CHECK(VELOC_Checkpoint_end(rank_ != 0) == VELOC_FAILURE);
  check_version(0, 105);
  check_version(30, 106);
}

static void once(const char* configuration, int persists) {
  int step = 0, ids[1] = {0};
  double *a = malloc(kCells * sizeof *a), *b = malloc(kCells * sizeof *b);
  char path[VELOC_MAX_NAME];
  CHECK(a != NULL && b != NULL);
  CHECK(VELOC_Checkpoint("early", 1) == VELOC_FAILURE);
  CHECK(VELOC_Init(MPI_COMM_WORLD, "/nowhere/at/all") == VELOC_FAILURE);
  CHECK_CALL(VELOC_Init(MPI_COMM_WORLD, configuration));
  CHECK(VELOC_Init(MPI_COMM_WORLD, configuration) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Mem_protect(0, &step, 1, sizeof step));
  CHECK_CALL(VELOC_Mem_protect(1, a, kCells, sizeof *a));
  CHECK_CALL(VELOC_Region_protect(7, b, kCells, sizeof *b, "other"));
  /* What cannot be protected is not, and what was stays. */
  CHECK(VELOC_Mem_protect(1, NULL, kCells, sizeof *a) == VELOC_FAILURE);
  CHECK(VELOC_Mem_protect(2, NULL, 1, 8) == VELOC_FAILURE && VELOC_Mem_unprotect(2) == VELOC_FAILURE);
  CHECK(VELOC_Mem_protect(2, a, SIZE_MAX, 8) == VELOC_FAILURE && VELOC_Mem_unprotect(2) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Mem_protect(2, NULL, 0, 8));
  CHECK_CALL(VELOC_Mem_unprotect(2));
  CHECK(VELOC_Restart_test("one", 0) == VELOC_FAILURE);
  CHECK(VELOC_Restart("one", 3) == VELOC_FAILURE);
  CHECK(VELOC_Route_file("x", path) == VELOC_FAILURE);
  CHECK(VELOC_Checkpoint_end(1) == VELOC_FAILURE);
  CHECK(VELOC_Checkpoint("one", -1) == VELOC_FAILURE);
  /* Versions of two names, 0 among them. */
  for (step = 0; step <= 40; step += 20) {
    fill(a, step);
    fill(b, step + 1);
    CHECK_CALL(VELOC_Checkpoint("one", step));
    CHECK_CALL(VELOC_Checkpoint("other", step));
  }
  CHECK_CALL(VELOC_Checkpoint_wait());
  CHECK(VELOC_Checkpoint_finished() == 1);
  CHECK(VELOC_Restart_test("one", 0) == 40 && VELOC_Restart_test("one", 39) == 20 &&
        VELOC_Restart_test("one", 20) == 20);
  CHECK(VELOC_Restart_test("one", 19) == 0);
  /* Any of them, in the middle of the run. */
  for (int version = 40; version >= 0; version -= 20) {
    CHECK_CALL(VELOC_Restart("one", version));
    CHECK(step == version && holds(a, version));
  }
  fill(b, 0);
  CHECK_CALL(VELOC_Restart("other", 20));
  CHECK(holds(b, 21) && holds(a, 20) && step == 20);
  /* Written over; the others stay. */
  fill(a, 77);
  CHECK_CALL(VELOC_Checkpoint("one", 20));
  fill(a, 78);
  CHECK_CALL(VELOC_Checkpoint("one", 0));
  CHECK_CALL(VELOC_Restart("one", 40));
  CHECK(holds(a, 40));
  CHECK_CALL(VELOC_Restart("one", 20));
  CHECK(holds(a, 77));
  CHECK_CALL(VELOC_Restart("one", 0));
  CHECK(holds(a, 78));
  CHECK(VELOC_Restart_test("one", 0) == 40);
  write_files_over();
  CHECK_CALL(VELOC_Restart("one", 0));
  /* Some of the memory. */
  CHECK_CALL(VELOC_Restart_begin("one", 40));
  CHECK(VELOC_Recover_size(1) == (int)(kCells * sizeof *a) && VELOC_Recover_size(7) == VELOC_FAILURE);
  fill(a, 5);
  step = 5;
  CHECK_CALL(VELOC_Recover_selective(VELOC_RECOVER_SOME, ids, 1));
  CHECK(step == 40 && holds(a, 5));
  CHECK_CALL(VELOC_Recover_selective(VELOC_RECOVER_REST, ids, 1));
  CHECK(holds(a, 40));
  CHECK(VELOC_Restart_begin("one", 20) == VELOC_FAILURE);
  CHECK(VELOC_Restart_end(rank_ != rank_count_ - 1) == VELOC_FAILURE); /* one rank did not make it */
  CHECK_CALL(VELOC_Checkpoint_begin("some", 1));
  CHECK_CALL(VELOC_Checkpoint_selective(VELOC_CKPT_REST, ids, 1));
  CHECK_CALL(VELOC_Checkpoint_end(1));
  CHECK_CALL(VELOC_Restart_begin("some", 1));
  CHECK(VELOC_Recover_size(0) == VELOC_FAILURE && VELOC_Recover_size(1) > 0);
  CHECK_CALL(VELOC_Restart_end(1));
  /* Memory that is too small, and a larger one. */
  CHECK_CALL(VELOC_Mem_protect(1, a, 10, sizeof *a));
  CHECK(VELOC_Restart("one", 40) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Mem_protect(1, a, kCells, sizeof *a));
  CHECK_CALL(VELOC_Checkpoint("small", 1));
  /* A checkpoint that one rank could not make is none. */
  CHECK_CALL(VELOC_Checkpoint_begin("failed", 1));
  CHECK_CALL(VELOC_Checkpoint_mem());
  CHECK(VELOC_Checkpoint_end(rank_ != 0) == VELOC_FAILURE);
  CHECK(VELOC_Restart_test("failed", 0) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Checkpoint_begin("failed", 1));
  CHECK(VELOC_Checkpoint_begin("failed", 2) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Checkpoint_mem());
  CHECK_CALL(VELOC_Checkpoint_end(1));
  CHECK(VELOC_Restart_test("failed", 0) == 1);
  CHECK_CALL(VELOC_Mem_unprotect(0));
  CHECK(VELOC_Mem_unprotect(0) == VELOC_FAILURE);
  CHECK_CALL(VELOC_Region_unprotect(7, "other"));
  CHECK_CALL(VELOC_Region_clear("other"));
  /* What is not on the nodes any more comes from behind them. */
  CHECK_CALL(VELOC_Mem_protect(0, &step, 1, sizeof step));
  CHECK_CALL(VELOC_Cleanup("one"));
  CHECK_CALL(VELOC_Cleanup("never"));
  CHECK(VELOC_Cleanup(NULL) == VELOC_FAILURE);
  CHECK(VELOC_Restart_test("one", 0) == (persists ? 40 : -1) && VELOC_Restart_test("other", 0) == 40);
  if (persists) {
    CHECK_CALL(VELOC_Restart("one", 40));
    CHECK(step == 40 && holds(a, 40));
  }
  step = 50;
  fill(a, step);
  CHECK_CALL(VELOC_Checkpoint("one", step));
  fill(a, 0);
  CHECK_CALL(VELOC_Restart("one", 50));
  CHECK(holds(a, 50));
  CHECK_CALL(VELOC_Cleanup("one"));
  CHECK_CALL(VELOC_Mem_unprotect(0));
  free(a);
  free(b);
  CHECK_CALL(VELOC_Finalize(1));
  CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
  /* A process by itself. */
  double alone = rank_;
  CHECK_CALL(VELOC_Init_single((unsigned)rank_, configuration));
  CHECK_CALL(VELOC_Mem_protect(0, &alone, 1, sizeof alone));
  CHECK_CALL(VELOC_Checkpoint("alone", rank_));
  alone = -1;
  CHECK(VELOC_Restart_test("alone", 0) == rank_);
  CHECK_CALL(VELOC_Restart("alone", rank_));
  CHECK(alone == rank_);
  CHECK_CALL(VELOC_Finalize(1));
}

int main(int argc, char** argv) {
  begin_test(&argc, &argv);
  CHECK(argc == 4);
  if (strncmp(argv[3], "once", 4) == 0) {
    once(argv[1], strcmp(argv[3], "once-on-nodes") != 0);
  } else {
    run(argv[1], argv[2], strcmp(argv[3], "leave") == 0);
  }
  MPI_Finalize();
  return 0;
}
