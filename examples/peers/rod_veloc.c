/* A program that was written for VELOC: nothing in it is Varve's.
 *
 *   mpirun -n 4 rod_veloc CONFIGURATION [steps] */
#include <veloc.h>

#include "rod.h"

int main(int argc, char** argv) {
  int rank, rank_count, step = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  if (argc < 2 || VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  const int steps = argc > 2 ? atoi(argv[2]) : 2000;
  heat_one_end(rank);
  VELOC_Mem_protect(0, &step, 1, sizeof step);
  VELOC_Mem_protect(1, now, CELLS + 2, sizeof now[0]);
  const int version = VELOC_Restart_test("rod", 0);
  if (version > 0 && VELOC_Restart("rod", version) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  if (version > 0 && rank == 0) printf("going on from step %d\n", step);
  while (step < steps) {
    advance(rank, rank_count);
    ++step;
    if (step % 100 == 0 && VELOC_Checkpoint("rod", step) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  tell(rank, step);
  VELOC_Finalize(1);
  MPI_Finalize();
  return 0;
}
