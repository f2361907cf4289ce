/* The C interface over MPI: every rank gets its own numbers back, and files. The folder to work in is its argument. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "varve/varve_mpi.h"

static varve_session* open_in(const char* store, int32_t* numbers, uint64_t count) {
  struct varve_options options;
  varve_session* session = NULL;
  varve_options_init(&options);
  options.store = store;
  options.job = "c-mpi";
  options.stop_on_signals = VARVE_NO;
  CHECK_OK(NULL, varve_open_mpi(MPI_COMM_WORLD, &options, &session));
  CHECK_OK(session, varve_protect_array(session, "numbers", VARVE_INT32, numbers, count, NULL));
  return session;
}

/* Two ranks have written the same file; a third one gets it, too. */
static void files_come_to_more_ranks(const char* store, int rank) {
  struct varve_options options;
  varve_session* session = NULL;
  MPI_Comm first_two;
  FILE* file;
  char text[20] = "";
  uint64_t step = 0;
  int restarted = 0;
  varve_options_init(&options);
  options.store = store;
  options.job = "c-mpi-files";
  options.stop_on_signals = VARVE_NO;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &first_two);
  if (rank < 2) {
    CHECK_OK(NULL, varve_open_mpi(first_two, &options, &session));
    file = varve_fopen(session, 1, "input", "w");
    CHECK(file != NULL && fputs("the same", file) >= 0 && fclose(file) == 0);
    CHECK_OK(session, varve_checkpoint(session, 1, VARVE_NOW));
    CHECK_OK(NULL, varve_close(session));
    MPI_Comm_free(&first_two);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(NULL, varve_open_mpi(MPI_COMM_WORLD, &options, &session));
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(restarted == 1 && step == 1 && varve_file_count(session) == 1);
  file = varve_fopen(session, 1, "input", "r");
  CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "the same") == 0);
  fclose(file);
  CHECK_OK(NULL, varve_close(session));
}

int main(int argument_count, char** arguments) {
  enum { kCount = 1000 };
  int32_t numbers[kCount];
  varve_session* session;
  uint64_t step = 0;
  int rank = 0, restarted = 0, given = 0, i;
  MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(argument_count == 2);

  for (i = 0; i < kCount; ++i) numbers[i] = rank * 10000 + i;
  session = open_in(arguments[1], numbers, kCount);
  CHECK_OK(session, varve_checkpoint(session, 3, VARVE_NOW));
  CHECK_OK(NULL, varve_close(session));

  memset(numbers, 0, sizeof numbers);
  session = open_in(arguments[1], numbers, kCount);
  CHECK_OK(session, varve_restart(session, &step, &restarted));
  CHECK(restarted == 1 && step == 3);
  for (i = 0; i < kCount; ++i) CHECK(numbers[i] == rank * 10000 + i);
  CHECK_OK(NULL, varve_close(session));

  files_come_to_more_ranks(arguments[1], rank);

  CHECK_CODE(NULL, varve_open_mpi(MPI_COMM_NULL, NULL, &session), VARVE_INVALID_ARGUMENT);
  CHECK(session == NULL);
  MPI_Finalize();
  return 0;
}
