// A computation over MPI whose ranks are on several simulated nodes, and which goes on with another number of them.
//
//   elastic_program save FOLDER NODES LEVELS                   steps 1 and 2 go to the stores, 3 to memory; killed
//   elastic_program restart FOLDER NODES LEVELS BEFORE STEP    what BEFORE ranks have saved of STEP comes back; step 4
//
// FOLDER/memory is the shared memory of all nodes. NODES are names, such as a,b,c: rank r is on the one of number r
// modulo their count. What saves leaves its process numbers in FOLDER/pid.RANK before it kills itself; the restart
// tells what it was told in FOLDER/told, and ends with 0 if all is as it should be.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "varve/error.h"
#include "varve/mpi.h"
#include "varve/session.h"

namespace {

constexpr uint64_t kRows = 61, kColumns = 43, kGhosts = 1;
constexpr std::chrono::seconds kPatience{60};

void check(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15;
  return value ^ (value >> 29);
}

/// What one rank has: its rows or columns of a field, with ghost cells, a table that all have alike, a time, and
/// particles, of which each rank has its own number. As a whole it depends on the step alone, the particles also on the
/// number of ranks.
struct State {
  uint32_t rank, rank_count;
  varve::ArrayShape shape;
  std::vector<double> field;
  std::vector<uint64_t> table, particles;
  double time = -1;

  State(uint32_t own_rank, uint32_t of) : rank(own_rank), rank_count(of) {
    // Odd numbers of ranks divide it in columns.
    const bool in_rows = rank_count % 2 == 0;
    const uint64_t whole = in_rows ? kRows : kColumns;
    const uint64_t begin = whole * rank / rank_count, cells = whole * (rank + 1) / rank_count - begin;
    shape = varve::ArrayShape::with_ghosts(
        {(in_rows ? cells : kRows) + 2 * kGhosts, (in_rows ? kColumns : cells) + 2 * kGhosts}, kGhosts);
    shape.global_cells = {kRows, kColumns};
    shape.global_offset = {in_rows ? begin : 0, in_rows ? 0 : begin};
    field.assign(shape.cells[0] * shape.cells[1], -1);
  }

  void protect(varve::Session& session) {
    varve::or_throw(session.protect("field", std::span(field), shape));
    varve::or_throw(session.protect("table", table));
    varve::or_throw(session.protect("particles", particles));
    varve::or_throw(session.protect("time", time));
    varve::or_throw(session.redistribute("table", varve::Redistribution::same));
    varve::or_throw(session.redistribute("particles", varve::Redistribution::evenly));
  }

  /// visit(place in `field`, value of the cell)
  template <class Visit>
  void for_each_cell(uint64_t step, const Visit& visit) const {
    for (uint64_t row = kGhosts; row + kGhosts < shape.cells[0]; ++row) {
      for (uint64_t column = kGhosts; column + kGhosts < shape.cells[1]; ++column) {
        const uint64_t cell =
            (shape.global_offset[0] + row - kGhosts) * kColumns + shape.global_offset[1] + column - kGhosts;
        visit(row * shape.cells[1] + column, std::ldexp(static_cast<double>(mix(cell + (step << 32)) >> 11), -20));
      }
    }
  }
  static std::vector<uint64_t> table_at(uint64_t step) {
    std::vector<uint64_t> values(300);
    for (uint64_t i = 0; i < values.size(); ++i) values[i] = mix(i * step);
    return values;
  }
  /// Those from `first` on.
  static std::vector<uint64_t> particles_at(uint64_t step, uint64_t first, uint64_t count) {
    std::vector<uint64_t> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = mix(first + i) + step;
    return values;
  }
  static double time_at(uint64_t step) { return 0.1 * static_cast<double>(step); }

  void set(uint64_t step) {
    for_each_cell(step, [&](uint64_t at, double value) { field[at] = value; });
    table = table_at(step);
    particles = particles_at(step, 7 * rank * (rank + 1) / 2, 7 * (rank + 1));
    time = time_at(step);
  }

  void expect(uint64_t step, uint32_t before) const {
    uint64_t wrong = 0;
    for_each_cell(
        step, [&](uint64_t at, double value) { wrong += std::memcmp(&field[at], &value, sizeof value) == 0 ? 0 : 1; });
    check(wrong == 0, "all cells came back; wrong: " + std::to_string(wrong));
    check(table == table_at(step), "the table came back");
    const double time_then = time_at(step);
    check(std::memcmp(&time, &time_then, sizeof time) == 0, "the time came back");
    uint64_t first = 7 * uint64_t{rank} * (rank + 1) / 2, count = 7 * (rank + 1);
    if (before != rank_count) {
      const uint64_t total = 7 * uint64_t{before} * (before + 1) / 2, each = total / rank_count,
                     more = total % rank_count;
      first = each * rank + std::min<uint64_t>(rank, more);
      count = each + (rank < more ? 1 : 0);
    }
    check(particles == particles_at(step, first, count), "the particles came back");
  }
};

varve::Session open(const std::string& folder, const std::string& levels) {
  varve::SessionOptions options;
  options.levels = levels;
  options.shared_memory = folder + "/memory";
  options.memory_bytes = 64 << 20;
  options.job = "elastic";
  options.threads = 1;
  options.stop_on_signals = false;
  return varve::or_throw(varve::Session::open(varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD)), options));
}

/// Rank 0 knows of all levels, and what protects a set has done so on all nodes.
void wait_for_all_levels(const varve::Session& session, uint64_t step) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool all = false; !all; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    all = true;
    for (const varve::LevelProgress& level : session.progress().levels) {
      varve::or_throw(level.last_error);
      all = all && level.newest >= step;
    }
    check(all || std::chrono::steady_clock::now() < end, "the levels get the set");
  }
}

void save(varve::Session& session, State& state, const std::string& folder) {
  check(!varve::or_throw(session.restart()).has_value(), "nothing is there");
  for (uint64_t step = 1; step <= 2; ++step) {
    state.set(step);
    varve::or_throw(session.checkpoint(step, varve::Persistence::now));
  }
  varve::or_throw(session.wait());
  if (state.rank == 0) wait_for_all_levels(session, 2);
  state.set(3);
  varve::or_throw(session.checkpoint(3, varve::Persistence::later));
  std::ofstream(folder + "/pid." + std::to_string(state.rank)) << ::getpid();
  MPI_Barrier(MPI_COMM_WORLD);
  ::raise(SIGKILL);
}

void restart(varve::Session& session, State& state, uint32_t before, uint64_t step, const std::string& folder) {
  const auto from = varve::or_throw(session.restart());
  check(from == step, "the newest step that is whole is not " + std::to_string(from.value_or(0)));
  state.expect(step, before);
  if (state.rank == 0) {
    std::ofstream told(folder + "/told");
    for (const varve::Status& warning : session.warnings()) told << warning.to_string() << "\n";
  }
  state.set(4);
  varve::or_throw(session.checkpoint(4, varve::Persistence::now));
  varve::or_throw(session.finish());
}

}  // namespace

int main(int argument_count, char** words) {
  int provided = 0, rank = 0, rank_count = 1;
  MPI_Init_thread(&argument_count, &words, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  try {
    check(argument_count >= 5, "there are enough arguments");
    const std::string mode = words[1], folder = words[2], names = words[3];
    std::vector<std::string> nodes{""};
    for (const char letter : names) {
      if (letter == ',') {
        nodes.emplace_back();
      } else {
        nodes.back() += letter;
      }
    }
    ::setenv("VARVE_NODE", nodes[static_cast<size_t>(rank) % nodes.size()].c_str(), 1);
    State state(static_cast<uint32_t>(rank), static_cast<uint32_t>(rank_count));
    varve::Session session = open(folder, words[4]);
    state.protect(session);
    if (mode == "save") {
      save(session, state, folder);
    } else {
      check(argument_count == 7, "it is said how many ranks have saved, and what");
      restart(session, state, static_cast<uint32_t>(std::atoi(words[5])), static_cast<uint64_t>(std::atoi(words[6])),
              folder);
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d of %d: %s\n", rank, rank_count, failure.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
