// The heat equation on a plate, cut into rows among the MPI ranks. The lines marked [varve] make it survive being
// killed: run it again, and it goes on from its last checkpoint.
//
//   mpirun -n 4 heat [steps [rows [columns]]]
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "varve/error.h"    // [varve]
#include "varve/mpi.h"      // [varve]
#include "varve/session.h"  // [varve]

namespace {

/// This rank's rows of the plate, with one more row above and below that belong to the neighbours.
struct Plate {
  int rows, columns;
  std::vector<double> now, next;

  Plate(int rows_, int columns_)
      : rows(rows_), columns(columns_), now(static_cast<size_t>((rows + 2) * columns)), next(now) {}
  double* row(int r) { return now.data() + static_cast<ptrdiff_t>(r) * columns; }

  void exchange_borders(int rank, int rank_count) {
    const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < rank_count ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(1), columns, MPI_DOUBLE, above, 0, row(rows + 1), columns, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(rows), columns, MPI_DOUBLE, below, 1, row(0), columns, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }

  void diffuse() {
    next = now;
    for (int r = 1; r <= rows; ++r) {
      const double* const here = row(r);
      double* const to = next.data() + static_cast<ptrdiff_t>(r) * columns;
      for (int c = 1; c + 1 < columns; ++c)
        to[c] = here[c] + 0.2 * (here[c - 1] + here[c + 1] + here[c - columns] + here[c + columns] - 4 * here[c]);
    }
    now = next;
  }

  double heat() {
    double mine = 0, all = 0;
    for (int r = 1; r <= rows; ++r) {
      for (int c = 0; c < columns; ++c) mine += row(r)[c];
    }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
  }
};

void run(uint64_t steps, int rows, int columns) {
  int rank = 0, rank_count = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  const int first_row = rows * rank / rank_count, end_row = rows * (rank + 1) / rank_count;
  Plate plate(end_row - first_row, columns);
  const int hot_row = rows / 2;  // a hot spot in the middle
  if (hot_row >= first_row && hot_row < end_row) plate.row(hot_row - first_row + 1)[columns / 2] = 1e6;
  uint64_t step = 0;

  auto ranks = varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD));  // [varve]
  auto session = varve::or_throw(varve::Session::open(std::move(ranks)));      // [varve]
  varve::or_throw(session.protect("temperature", plate.now));                  // [varve]
  step = varve::or_throw(session.restart()).value_or(step);                    // [varve]

  while (step < steps) {
    plate.exchange_borders(rank, rank_count);
    plate.diffuse();
    ++step;
    if (session.due(step)) varve::or_warn(session.checkpoint(step));  // [varve]
    if (session.should_stop()) break;                                 // [varve]
  }
  const double heat = plate.heat();
  if (rank == 0) std::printf("after %llu steps the plate holds %.17g\n", static_cast<unsigned long long>(step), heat);
}

}  // namespace

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  auto argument = [&](int i, int otherwise) { return argument_count > i ? std::atoi(arguments[i]) : otherwise; };
  run(static_cast<uint64_t>(argument(1, 1000)), argument(2, 512), argument(3, 512));
  MPI_Finalize();
  return 0;
}
