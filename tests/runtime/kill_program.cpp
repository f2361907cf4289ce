// A deterministic computation with checkpoints, made to be killed at any moment.
//
//   kill_program FOLDER STEPS CELLS EVERY MODE       MODE: copy, lent, two_slots, skip
//
// FOLDER/store and FOLDER/memory are what the session uses. Each rank leaves its process number in FOLDER/pid.RANK as
// soon as it runs, "from STEP" in FOLDER/log.RANK at the restart, and a digest of its final state in
// FOLDER/result.RANK.
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "varve/error.h"
#include "varve/session.h"
#ifdef KILL_PROGRAM_WITH_MPI
#include "varve/mpi.h"
#endif

namespace {

struct Arguments {
  std::string folder;
  uint64_t steps = 0;
  size_t cells = 0;
  uint64_t every = 1;
  std::string mode;
};

/// The ranks' ring: each step, every rank takes the first cell of the next one.
class Ring {
 public:
#ifdef KILL_PROGRAM_WITH_MPI
  Ring() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
  }
  double exchange(double mine) const {
    double theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_DOUBLE, (rank_ + count_ - 1) % count_, 0, &theirs, 1, MPI_DOUBLE, (rank_ + 1) % count_,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return theirs;
  }
  std::unique_ptr<varve::Communicator> ranks() const {
    return varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD));
  }
#else
  double exchange(double mine) const { return mine; }
  std::unique_ptr<varve::Communicator> ranks() const { return varve::make_single_communicator(); }
#endif
  int rank() const { return rank_; }

 private:
  int rank_ = 0;
  [[maybe_unused]] int count_ = 1;
};

void write_line(const std::string& path, const std::string& line) {
  // Whole or not at all, as others read it.
  std::ofstream(path + ".new") << line << "\n";
  std::rename((path + ".new").c_str(), path.c_str());
}

uint64_t digest(std::span<const double> field, uint64_t sum) {
  uint64_t hash = 1469598103934665603ull ^ sum;
  for (double value : field) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211ull;
  }
  return hash;
}

void compute(std::span<const double> from, std::span<double> to, double neighbour, uint64_t step) {
  const size_t cells = from.size();
  for (size_t i = 0; i < cells; ++i) {
    const double next = i + 1 < cells ? from[i + 1] : neighbour;
    // The second half stands still, so that there is something to know again.
    to[i] = i < cells / 2 ? 0.75 * from[i] + 0.25 * next + 1e-6 * static_cast<double>(step) : from[i];
  }
  // A step that takes its time wherever it runs.
  std::this_thread::sleep_for(std::chrono::milliseconds(4));
}

void run(const Arguments& arguments, const Ring& ring) {
  const std::string rank = std::to_string(ring.rank());
  write_line(arguments.folder + "/pid." + rank, std::to_string(::getpid()));
  varve::SessionOptions options;
  options.store = arguments.folder + "/store";
  options.memory_bytes = 64 << 20;
  options.shared_memory = arguments.folder + "/memory";
  options.job = "kill";
  options.every_steps = arguments.every;
  options.stop_on_signals = false;
  options.group = "2";
  if (arguments.mode == "two_slots") options.when_busy = varve::WhenBusy::two_slots;
  if (arguments.mode == "skip") options.when_busy = varve::WhenBusy::skip;
  auto session = varve::or_throw(varve::Session::open(ring.ranks(), options));

  const bool lent = arguments.mode == "lent";
  std::vector<double> here(arguments.cells), there(arguments.cells);
  std::span<double> now(here), next(there);
  if (lent) {
    now = varve::or_throw(session.make_grid<double>("field", arguments.cells));
    next = varve::or_throw(session.make_grid<double>("field", arguments.cells));
  }
  for (size_t i = 0; i < arguments.cells; ++i) {
    now[i] = static_cast<double>(ring.rank() + 1) + static_cast<double>(i % 1009) / 1009;
  }
  uint64_t sum = 0;
  varve::or_throw(session.protect("field", now));
  varve::or_throw(session.protect("sum", sum));
  const auto from = varve::or_throw(session.restart());
  std::string log = "from " + std::to_string(from.value_or(0));
  for (const varve::Status& warning : session.warnings()) log += "; " + warning.to_string();
  write_line(arguments.folder + "/log." + rank, log);

  for (uint64_t step = from.value_or(0) + 1; step <= arguments.steps; ++step) {
    compute(now, next, ring.exchange(now[0]), step);
    std::swap(now, next);
    sum = sum * 31 + step;
    if (!session.due(step)) {
      continue;
    }
    if (lent) {
      const std::span<double> full = now;
      now = varve::or_throw(session.lend("field", full));
      varve::or_throw(session.checkpoint(step));
      std::memcpy(now.data(), full.data(), full.size_bytes());
    } else {
      varve::or_throw(session.protect("field", now));
      varve::or_throw(session.checkpoint(step));
    }
  }
  varve::or_throw(session.finish());
  char line[32];
  std::snprintf(line, sizeof line, "%016" PRIx64, digest(now, sum));
  write_line(arguments.folder + "/result." + rank, line);
}

}  // namespace

int main(int argument_count, char** words) {
  if (argument_count != 6) return 2;
  const Arguments arguments{words[1], std::strtoull(words[2], nullptr, 10), std::strtoull(words[3], nullptr, 10),
                            std::strtoull(words[4], nullptr, 10), words[5]};
#ifdef KILL_PROGRAM_WITH_MPI
  int provided = 0;
  MPI_Init_thread(&argument_count, &words, MPI_THREAD_MULTIPLE, &provided);
#endif
  try {
    run(arguments, Ring());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
#ifdef KILL_PROGRAM_WITH_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    return 1;
  }
#ifdef KILL_PROGRAM_WITH_MPI
  MPI_Finalize();
#endif
  return 0;
}
