// A computation over MPI that goes on in the same processes when a rank dies, with those that are left (ULFM).
//
//   shrink_program FOLDER STEPS CELLS
//   shrink_program probe              whether this MPI library tells ranks of one that has died: the last kills itself
//
// FOLDER/store and FOLDER/memory are what the session uses. Each rank leaves its process number in FOLDER/pid.RANK as
// soon as it computes; rank 0 leaves in FOLDER/went_on.COUNT from which step so many ranks went on, and when, by the
// monotonic clock, they had computed the next one; at the end FOLDER/result has the whole field. The field is divided
// among the ranks there are, and its content does not depend on how.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#ifdef SHRINK_PROGRAM_HAS_EXTENSIONS
#include <mpi-ext.h>
#endif

#include "varve/error.h"
#include "varve/mpi.h"
#include "varve/session.h"

namespace {

struct Arguments {
  std::string folder;
  uint64_t steps = 0;
  uint64_t cells = 0;
};

/// Some rank has died, or has noticed that one has.
struct RankDied {};

void check(int code) {
  if (code != MPI_SUCCESS) throw RankDied();
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void write_line(const std::string& path, const std::string& line) {
  // Whole or not at all, as others read it.
  std::ofstream(path + ".new") << line << "\n";
  std::rename((path + ".new").c_str(), path.c_str());
}

/// The ranks that are there now, and this rank's part of the field.
class Part {
 public:
  Part(MPI_Comm ranks, uint64_t cells) : ranks_(ranks), whole_(cells) {
    MPI_Comm_rank(ranks, &rank_);
    MPI_Comm_size(ranks, &count_);
    begin_ = begin_of(rank_);
    field_.resize(begin_of(rank_ + 1) - begin_);
    for (uint64_t i = 0; i < field_.size(); ++i) field_[i] = static_cast<double>((begin_ + i) % 1009) / 1009;
  }
  int rank() const { return rank_; }
  int count() const { return count_; }

  void protect(varve::Session& session) {
    varve::ArrayShape shape;
    shape.cells = {field_.size()};
    shape.global_cells = {whole_};
    shape.global_offset = {begin_};
    varve::or_throw(session.protect("field", std::span(field_), shape));
    varve::or_throw(session.protect("sum", sum_));
  }

  /// Each cell takes from the next one, the last of a rank from the first of the next rank; in a ring.
  void compute(uint64_t step) {
    double next = 0;
    check(MPI_Sendrecv(field_.data(), 1, MPI_DOUBLE, (rank_ + count_ - 1) % count_, 0, &next, 1, MPI_DOUBLE,
                       (rank_ + 1) % count_, 0, ranks_, MPI_STATUS_IGNORE));
    for (size_t i = 0; i < field_.size(); ++i) {
      const double right = i + 1 < field_.size() ? field_[i + 1] : next;
      field_[i] = 0.75 * field_[i] + 0.25 * right + 1e-6 * static_cast<double>(step);
    }
    sum_ = sum_ * 31 + step;
    // A step that takes its time wherever it runs.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  void write(const std::string& path) const {
    std::vector<int> counts, offsets;
    for (int rank = 0; rank < count_; ++rank) {
      offsets.push_back(static_cast<int>(begin_of(rank)));
      counts.push_back(static_cast<int>(begin_of(rank + 1) - begin_of(rank)));
    }
    std::vector<double> all(rank_ == 0 ? whole_ : 0);
    check(MPI_Gatherv(field_.data(), counts[static_cast<size_t>(rank_)], MPI_DOUBLE, all.data(), counts.data(),
                      offsets.data(), MPI_DOUBLE, 0, ranks_));
    if (rank_ != 0) return;
    std::ofstream file(path + ".new", std::ios::binary);
    file.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(double)));
    file << sum_;
    file.close();
    std::rename((path + ".new").c_str(), path.c_str());
  }

 private:
  uint64_t begin_of(int rank) const { return whole_ * static_cast<uint64_t>(rank) / static_cast<uint64_t>(count_); }

  MPI_Comm ranks_;
  uint64_t whole_;
  int rank_ = 0, count_ = 1;
  uint64_t begin_ = 0;
  std::vector<double> field_;
  uint64_t sum_ = 0;
};

varve::SessionOptions options_of(const Arguments& arguments) {
  varve::SessionOptions options;
  options.store = arguments.folder + "/store";
  options.shared_memory = arguments.folder + "/memory";
  options.job = "shrink";
  options.every_steps = 5;
  options.when_busy = varve::WhenBusy::two_slots;
  options.stop_on_signals = false;
  return options;
}

/// What a call of the session says fails when a rank has died, too.
void check(const varve::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  throw RankDied();
}

/// Computes to the end with these ranks. Throws RankDied if one of them dies; the session is given up then.
void run(const Arguments& arguments, MPI_Comm ranks) {
  Part part(ranks, arguments.cells);
  auto mpi = varve::make_mpi_communicator(ranks);
  check(mpi.status());
  auto session = varve::Session::open(std::move(*mpi), options_of(arguments));
  check(session.status());
  try {
    part.protect(*session);
    const auto from = session->restart();
    check(from.status());
    write_line(arguments.folder + "/pid." + std::to_string(part.rank()), std::to_string(::getpid()));
    for (uint64_t step = from->value_or(0) + 1; step <= arguments.steps; ++step) {
      part.compute(step);
      if (part.rank() == 0 && step == from->value_or(0) + 1) {
        write_line(arguments.folder + "/went_on." + std::to_string(part.count()),
                   std::to_string(from->value_or(0)) + " " + std::to_string(monotonic_seconds()));
      }
      if (session->due(step)) check(session->checkpoint(step));
    }
    part.write(arguments.folder + "/result");
    check(session->finish());
  } catch (const RankDied&) {
    MPIX_Comm_revoke(ranks);
    session->abandon().ignore("what is left is enough to go on from");
    throw;
  }
}

/// The ranks that are left. Ends the program if none has died: then something else is wrong, and said.
MPI_Comm shrink(MPI_Comm ranks) {
  MPIX_Comm_revoke(ranks);
  MPI_Comm left = MPI_COMM_NULL;
  int before = 0, count = 0;
  MPI_Comm_size(ranks, &before);
  if (MPIX_Comm_shrink(ranks, &left) != MPI_SUCCESS || MPI_Comm_size(left, &count) != MPI_SUCCESS || count == before) {
    std::fprintf(stderr, "no ranks that are left: %d of %d\n", count, before);
    std::_Exit(3);
  }
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  return left;
}

MPI_Comm all_ranks() {
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  return ranks;
}

/// Prints how many ranks are left.
void probe() {
  MPI_Comm ranks = all_ranks();
  int rank = 0, count = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &count);
  MPI_Barrier(ranks);
  if (rank == count - 1) ::raise(SIGKILL);
  while (MPI_Barrier(ranks) == MPI_SUCCESS) {
  }
  const MPI_Comm left = shrink(ranks);
  MPI_Comm_rank(left, &rank);
  MPI_Comm_size(left, &count);
  MPI_Barrier(left);
  if (rank == 0) std::printf("%d ranks are left\n", count);
}

}  // namespace

int main(int argument_count, char** words) {
  int provided = 0;
  MPI_Init_thread(&argument_count, &words, MPI_THREAD_MULTIPLE, &provided);
  if (argument_count == 2) {
    probe();
  } else if (argument_count == 4) {
    const Arguments arguments{words[1], std::strtoull(words[2], nullptr, 10), std::strtoull(words[3], nullptr, 10)};
    MPI_Comm ranks = all_ranks();
    for (bool done = false; !done;) {
      try {
        run(arguments, ranks);
        done = true;
      } catch (const RankDied&) {
        ranks = shrink(ranks);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        std::_Exit(1);
      }
    }
  } else {
    return 2;
  }
  // MPI_Finalize() may wait for the dead with some libraries.
  std::fflush(nullptr);
  std::_Exit(0);
}
