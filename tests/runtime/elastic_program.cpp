// A computation over MPI whose ranks are on several simulated nodes, and which goes on with another number of them.
//
//   elastic_program save FOLDER NODES LEVELS                   steps 1 and 2 go to the stores, 3 to memory; killed
//   elastic_program restart FOLDER NODES LEVELS BEFORE STEP    what BEFORE ranks have saved of STEP comes back; step 4
//   elastic_program shrink FOLDER NODES LEVELS DEATHS SEED     one after the other dies, and the others go on (ULFM)
//
// FOLDER/memory is the shared memory of all nodes. NODES are names, such as a,b,c: rank r is on the one of number r
// modulo their count. What saves leaves its process numbers in FOLDER/pid.RANK before it kills itself; the restart
// tells what it was told in FOLDER/told, and ends with 0 if all is as it should be. So does what shrinks: how many
// seconds after each death all that are left had computed a step again. It ends itself if that takes a minute.
#include <mpi.h>
#ifdef ELASTIC_PROGRAM_WITH_ULFM
#include <mpi-ext.h>
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/elastic_values.h"
#include "varve/error.h"
#include "varve/mpi.h"
#include "varve/session.h"

namespace {

using varve::test::particles_at;
using varve::test::table_at;
using varve::test::time_at;

constexpr uint64_t kRows = varve::test::kElasticRows, kColumns = varve::test::kElasticColumns, kGhosts = 1;
constexpr std::chrono::seconds kPatience{60};

void check(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
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
        visit(row * shape.cells[1] + column, varve::test::field_at(step, cell));
      }
    }
  }

  void set(uint64_t step) {
    for_each_cell(step, [&](uint64_t at, double value) { field[at] = value; });
    table = table_at(step);
    particles = varve::test::particles_of(step, rank);
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

varve::Session open(const std::string& folder, const std::string& levels, MPI_Comm ranks = MPI_COMM_WORLD) {
  varve::SessionOptions options;
  options.levels = levels;
  options.shared_memory = folder + "/memory";
  options.memory_bytes = 64 << 20;
  options.job = "elastic";
  options.threads = 1;
  options.stop_on_signals = false;
  return varve::or_throw(varve::Session::open(varve::or_throw(varve::make_mpi_communicator(ranks)), options));
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

#ifdef ELASTIC_PROGRAM_WITH_ULFM
/// Ranks of which one dies at any moment, and then another one, while the others go on in the same processes.
class ShrinkingRun {
 public:
  ShrinkingRun(std::string folder, std::string levels, uint32_t deaths, uint64_t seed)
      : folder_(std::move(folder)), levels_(std::move(levels)), deaths_(deaths), random_(seed), death_(shared_death()) {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
  }

  void run() {
    for (uint32_t died = 0;; ++died) {
      compute(/*last=*/died == deaths_);
      if (died == deaths_) break;
      MPIX_Comm_revoke(ranks_);
      session_->abandon().ignore("what is there is enough");
      session_.reset();
      MPI_Comm left = MPI_COMM_NULL;
      check(MPIX_Comm_shrink(ranks_, &left) == MPI_SUCCESS, "those that are left find each other");
      ranks_ = left;
    }
    if (state_->rank != 0) return;
    std::ofstream told(folder_ + "/told");
    for (const double seconds : seconds_) told << seconds << "\n";
  }

 private:
  using Nanoseconds = std::atomic<int64_t>;
  static constexpr uint64_t kStepsOfRound = 12;

  /// When the last rank died.
  Nanoseconds* shared_death() const {
    const int file = ::open((folder_ + "/death").c_str(), O_RDWR | O_CREAT, 0600);
    check(file >= 0 && ::ftruncate(file, sizeof(Nanoseconds)) == 0, "ranks share a file");
    void* const place = ::mmap(nullptr, sizeof(Nanoseconds), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    check(place != MAP_FAILED, "ranks share memory");
    return static_cast<Nanoseconds*>(place);
  }
  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  /// From the newest checkpoint on, until a rank dies, or to the end.
  void compute(bool last) {
    int rank = 0, rank_count = 1;
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank);
    MPI_Comm_size(ranks_, &rank_count);
    state_.emplace(static_cast<uint32_t>(rank), static_cast<uint32_t>(rank_count));
    session_.emplace(open(folder_, levels_, ranks_));
    state_->protect(*session_);
    go_on();
    // The same on all ranks.
    const auto victim = static_cast<int>(random_() % static_cast<uint64_t>(rank_count));
    const auto delay = std::chrono::microseconds(random_() % 200'000);
    const uint64_t first = step_ + 1;
    for (step_ = first;; ++step_) {
      state_->set(step_);
      count_of_[step_] = state_->rank_count;
      int one = 1, all = 0;
      if (MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, ranks_) != MPI_SUCCESS) return;
      if (step_ == first) note_going_on();
      if (step_ == first + 2 && rank == victim && !last) die_after(delay);
      if (last && step_ == first + kStepsOfRound) break;
      const varve::Status made = session_->checkpoint(step_);
      if (!made.ok()) return check(!last, made.to_string());
      made_ = step_;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    varve::or_throw(session_->finish());
  }

  void go_on() {
    const std::optional<uint64_t> from = varve::or_throw(session_->restart());
    // A rank that died while it made a snapshot has the one before.
    uint64_t least = made_;
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_UINT64_T, MPI_MIN, ranks_);
    check(from.value_or(0) + 1 >= least, "step " + std::to_string(from.value_or(0)) + " is the newest of " +
                                             std::to_string(least) + " that were made");
    if (from) state_->expect(*from, count_of_.at(*from));
    step_ = from.value_or(0);
  }

  /// All have computed a step since the last death.
  void note_going_on() {
    if (const int64_t died = death_->load(); died != 0) seconds_.push_back(1e-9 * static_cast<double>(now() - died));
  }

  void die_after(std::chrono::microseconds delay) {
    std::thread([this, delay] {
      std::this_thread::sleep_for(delay);
      death_->store(now());
      ::kill(::getpid(), SIGKILL);
    }).detach();
  }

  const std::string folder_, levels_;
  const uint32_t deaths_;
  std::mt19937_64 random_;
  Nanoseconds* const death_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  std::optional<State> state_;
  std::optional<varve::Session> session_;
  uint64_t step_ = 0, made_ = 0;
  std::map<uint64_t, uint32_t> count_of_;  ///< ranks that computed a step
  std::vector<double> seconds_;
};
#endif

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
#ifdef ELASTIC_PROGRAM_WITH_ULFM
    if (mode == "shrink") {
      check(argument_count == 7, "it is said how many ranks die, and a seed");
      ::alarm(static_cast<unsigned>(kPatience.count()));
      ShrinkingRun(folder, words[4], static_cast<uint32_t>(std::atoi(words[5])),
                   static_cast<uint64_t>(std::atoi(words[6])))
          .run();
      MPI_Finalize();
      return 0;
    }
#endif
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
