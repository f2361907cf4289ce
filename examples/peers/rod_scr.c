/* A program that was written for SCR: nothing in it is Varve's.
 *
 *   SCR_PREFIX=run mpirun -n 4 rod_scr [steps] */
#include <scr.h>

#include "rod.h"

/* Reads or writes this rank's file of a checkpoint; whether all of it went well. */
static int with_file(int rank, int step, const char* mode) {
  char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
  snprintf(name, sizeof name, "rod.%d/rank.%d", step, rank);
  if (SCR_Route_file(name, path) != SCR_SUCCESS) return 0;
  FILE* file = fopen(path, mode);
  if (file == NULL) return 0;
  const size_t done = *mode == 'r' ? fread(now, sizeof now, 1, file) : fwrite(now, sizeof now, 1, file);
  return fclose(file) == 0 && done == 1;
}

int main(int argc, char** argv) {
  int rank, rank_count, step = 0, have = 0, need = 0, stop = 0;
  char name[SCR_MAX_FILENAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  if (SCR_Init() != SCR_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  const int steps = argc > 1 ? atoi(argv[1]) : 2000;
  heat_one_end(rank);
  while (step == 0 && SCR_Have_restart(&have, name) == SCR_SUCCESS && have) {
    SCR_Start_restart(name);
    const int found = atoi(name + strlen("rod."));
    if (SCR_Complete_restart(with_file(rank, found, "r")) == SCR_SUCCESS) step = found;
  }
  if (step > 0 && rank == 0) printf("going on from step %d\n", step);
  while (step < steps && !stop) {
    advance(rank, rank_count);
    ++step;
    SCR_Need_checkpoint(&need);
    if (need) {
      snprintf(name, sizeof name, "rod.%d", step);
      SCR_Start_output(name, SCR_FLAG_CHECKPOINT);
      if (SCR_Complete_output(with_file(rank, step, "w")) != SCR_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
      SCR_Should_exit(&stop);
    }
  }
  tell(rank, step);
  SCR_Finalize();
  MPI_Finalize();
  return 0;
}
