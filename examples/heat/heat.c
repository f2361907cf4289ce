// The same program as heat.cpp, in C: the heat equation on a plate, cut into rows among the MPI ranks. The lines marked
// [varve] make it survive being killed: run it again, and it goes on from its last checkpoint.
//
//   mpirun -n 4 heat_c [steps [rows [columns]]]
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "varve/varve_mpi.h"                                                                     // [varve]
#define WARN(call) (void)((call) && fputs(varve_error_message(session), stderr))                 // [varve]
#define CHECK(call) (void)((call) && (fputs(varve_error_message(session), stderr), exit(1), 0))  // [varve]

// This rank's rows of the plate, with one more row above and below that belong to the neighbours.
struct plate {
  int rows, columns;
  double *now, *next;
};

static size_t plate_size(const struct plate* plate) { return (size_t)(plate->rows + 2) * (size_t)plate->columns; }
static double* row(const struct plate* plate, int r) { return plate->now + (ptrdiff_t)r * plate->columns; }

static void exchange_borders(const struct plate* plate, int rank, int rank_count) {
  const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < rank_count ? rank + 1 : MPI_PROC_NULL;
  MPI_Sendrecv(row(plate, 1), plate->columns, MPI_DOUBLE, above, 0, row(plate, plate->rows + 1), plate->columns,
               MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(row(plate, plate->rows), plate->columns, MPI_DOUBLE, below, 1, row(plate, 0), plate->columns, MPI_DOUBLE,
               above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void diffuse(const struct plate* plate) {
  const int columns = plate->columns;
  memcpy(plate->next, plate->now, plate_size(plate) * sizeof(double));
  for (int r = 1; r <= plate->rows; ++r) {
    const double* const here = row(plate, r);
    double* const to = plate->next + (ptrdiff_t)r * columns;
    for (int c = 1; c + 1 < columns; ++c)
      to[c] = here[c] + 0.2 * (here[c - 1] + here[c + 1] + here[c - columns] + here[c + columns] - 4 * here[c]);
  }
  memcpy(plate->now, plate->next, plate_size(plate) * sizeof(double));
}

static double heat(const struct plate* plate) {
  double mine = 0, all = 0;
  for (int r = 1; r <= plate->rows; ++r) {
    for (int c = 0; c < plate->columns; ++c) mine += row(plate, r)[c];
  }
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static void run(uint64_t steps, int rows, int columns) {
  int rank = 0, rank_count = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  const int first_row = rows * rank / rank_count, end_row = rows * (rank + 1) / rank_count;
  struct plate plate = {end_row - first_row, columns, NULL, NULL};
  plate.now = calloc(plate_size(&plate), sizeof(double));
  plate.next = calloc(plate_size(&plate), sizeof(double));
  if (plate.now == NULL || plate.next == NULL) exit(1);
  const int hot_row = rows / 2;  // a hot spot in the middle
  if (hot_row >= first_row && hot_row < end_row) row(&plate, hot_row - first_row + 1)[columns / 2] = 1e6;
  uint64_t step = 0;

  varve_session* session = NULL;                                                                          // [varve]
  CHECK(varve_open_mpi(MPI_COMM_WORLD, NULL, &session));                                                  // [varve]
  CHECK(varve_protect_array(session, "temperature", VARVE_DOUBLE, plate.now, plate_size(&plate), NULL));  // [varve]
  CHECK(varve_restart(session, &step, NULL));                                                             // [varve]

  while (step < steps) {
    exchange_borders(&plate, rank, rank_count);
    diffuse(&plate);
    ++step;
    if (varve_due(session, step)) WARN(varve_checkpoint(session, step, VARVE_LATER));  // [varve]
    if (varve_should_stop(session)) break;                                             // [varve]
  }
  CHECK(varve_close(session));  // [varve]
  const double all = heat(&plate);
  if (rank == 0) printf("after %llu steps the plate holds %.17g\n", (unsigned long long)step, all);
  free(plate.now);
  free(plate.next);
}

static int argument(int count, char** arguments, int i, int otherwise) {
  return count > i ? atoi(arguments[i]) : otherwise;
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  run((uint64_t)argument(argument_count, arguments, 1, 1000), argument(argument_count, arguments, 2, 512),
      argument(argument_count, arguments, 3, 512));
  MPI_Finalize();
  return 0;
}
