/* Heat along a rod that is cut into pieces among the MPI ranks: what the two programs beside this compute. */
#ifndef ROD_H
#define ROD_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 200000 }; /* of each rank */

static double now[CELLS + 2], next[CELLS + 2]; /* with a neighbour's cell at each end */

static void heat_one_end(int rank) {
  for (int i = 1; i <= CELLS; ++i) now[i] = rank == 0 ? 1e6 / i : 0;
}

static void advance(int rank, int rank_count) {
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < rank_count ? rank + 1 : MPI_PROC_NULL;
  MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, left, 0, &now[CELLS + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(&now[CELLS], 1, MPI_DOUBLE, right, 1, &now[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 1; i <= CELLS; ++i) next[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
  memcpy(&now[1], &next[1], CELLS * sizeof now[0]);
}

static void tell(int rank, int step) {
  double mine = 0, all = 0;
  for (int i = 1; i <= CELLS; ++i) mine += now[i] * i;
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("after %d steps the rod holds %.17g\n", step, all);
}

#endif
