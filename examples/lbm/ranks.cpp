#include "ranks.h"

#include <algorithm>
#include <numeric>

namespace lbm {

#ifdef LBM_WITH_MPI

Ranks::Ranks(std::array<int64_t, 3> cells, std::array<bool, 3> periodic) {
  MPI_Comm_size(MPI_COMM_WORLD, &count_);
  // The largest dimension gets the most blocks. MPI's dimensions go from slow to fast here: z, y, x.
  std::array<int, 3> blocks{};
  MPI_Dims_create(count_, 3, blocks.data());
  std::array<int, 3> by_size{0, 1, 2};
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) { return cells[a] > cells[b]; });
  std::array<int, 3> dims{}, wraps{};
  for (int i = 0; i < 3; ++i) dims[2 - by_size[i]] = blocks[i];
  for (int d = 0; d < 3; ++d) wraps[2 - d] = periodic[d];
  MPI_Cart_create(MPI_COMM_WORLD, 3, dims.data(), wraps.data(), 0, &communicator_);
  MPI_Comm_rank(communicator_, &rank_);
  std::array<int, 3> at{};
  MPI_Cart_coords(communicator_, rank_, 3, at.data());
  for (int d = 0; d < 3; ++d) {
    const int64_t parts = dims[2 - d], part = at[2 - d];
    offset_[d] = cells[d] * part / parts;
    cells_[d] = cells[d] * (part + 1) / parts - offset_[d];
    MPI_Cart_shift(communicator_, 2 - d, 1, &neighbours_[d][0], &neighbours_[d][1]);
    for (int& neighbour : neighbours_[d]) {
      if (neighbour == MPI_PROC_NULL) neighbour = -1;
    }
  }
}

Ranks::~Ranks() { MPI_Comm_free(&communicator_); }

void Ranks::exchange(std::span<const double> out, int to, std::span<double> in, int from) const {
  MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_DOUBLE, to < 0 ? MPI_PROC_NULL : to, 0, in.data(),
               static_cast<int>(in.size()), MPI_DOUBLE, from < 0 ? MPI_PROC_NULL : from, 0, communicator_,
               MPI_STATUS_IGNORE);
}

std::vector<double> Ranks::gather(double mine) const {
  std::vector<double> all(static_cast<size_t>(count_));
  MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, communicator_);
  return all;
}

std::vector<uint64_t> Ranks::gather(uint64_t mine) const {
  std::vector<uint64_t> all(static_cast<size_t>(count_));
  MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, communicator_);
  return all;
}

std::vector<float> Ranks::gather(const std::vector<float>& mine) const {
  const std::vector<uint64_t> sizes = gather(static_cast<uint64_t>(mine.size()));
  std::vector<int> counts(sizes.begin(), sizes.end()), places(sizes.size());
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  std::vector<float> all(rank_ == 0 ? std::accumulate(sizes.begin(), sizes.end(), size_t{0}) : 0);
  MPI_Gatherv(mine.data(), static_cast<int>(mine.size()), MPI_FLOAT, all.data(), counts.data(), places.data(),
              MPI_FLOAT, 0, communicator_);
  return all;
}

void Ranks::barrier() const { MPI_Barrier(communicator_); }

#else

Ranks::Ranks(std::array<int64_t, 3> cells, std::array<bool, 3> periodic) : cells_(cells) {
  for (int d = 0; d < 3; ++d) neighbours_[d].fill(periodic[d] ? 0 : -1);
}

Ranks::~Ranks() = default;

void Ranks::exchange(std::span<const double> out, int to, std::span<double> in, int from) const {
  if (to >= 0 && from >= 0) std::copy(out.begin(), out.end(), in.begin());
}

std::vector<double> Ranks::gather(double mine) const { return {mine}; }
std::vector<uint64_t> Ranks::gather(uint64_t mine) const { return {mine}; }
std::vector<float> Ranks::gather(const std::vector<float>& mine) const { return mine; }
void Ranks::barrier() const {}

#endif

}  // namespace lbm
