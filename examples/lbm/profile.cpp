// Looks at a run of the flow solver from outside, while it goes on or afterwards: the mean speed along x of the newest
// checkpoint, from the bottom to the top, on the line through the middle of the box. However many ranks computed it, of
// their grids only what holds that line is read.
//
//   profile STORE [SET]
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "lattice.h"
#include "varve/checkpoint_reader.h"
#include "varve/error.h"

namespace {

void print_profile(const char* store, const char* set) {
  auto reader = varve::or_throw(varve::CheckpointReader::open(store, set));
  const std::vector<uint64_t> cells = varve::or_throw(reader.variable("populations"))->cells;  // population, z, y, x
  const varve::ArraySection line{{0, 0, cells.at(2) / 2, cells.at(3) / 2}, {cells[0], cells[1], 1, 1}};
  const auto populations = varve::or_throw(reader.values<double>("populations", line));
  std::printf("# %s, of %u ranks: z, speed along x\n", reader.set().c_str(), reader.rank_count());
  for (size_t z = 0; z < cells[1]; ++z) {
    double density = 0, momentum = 0;
    for (size_t q = 0; q < lbm::kDirections.size(); ++q) {
      const double population = populations.at(q * cells[1] + z);
      density += population;
      momentum += population * lbm::kDirections[q].x;
    }
    std::printf("%zu %.6g\n", z, momentum / density);
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 2) {
    std::fprintf(stderr, "usage: profile STORE [SET]\n");
    return 2;
  }
  try {
    print_profile(arguments[1], argument_count > 2 ? arguments[2] : "lbm");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "profile: %s\n", error.what());
    return 1;
  }
}
