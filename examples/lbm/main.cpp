#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "options.h"
#include "picture.h"
#include "plain_files.h"
#include "ranks.h"
#include "solver.h"
#include "varve/error.h"
#include "varve/session.h"
#ifdef LBM_WITH_MPI
#include "varve/mpi.h"
#endif

namespace lbm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What threads other than the calling one used of the processors so far.
struct BackgroundTime {
  double user_seconds = 0, system_seconds = 0;

  static BackgroundTime now() {
    auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    rusage process{}, thread{};
    ::getrusage(RUSAGE_SELF, &process);
    ::getrusage(RUSAGE_THREAD, &thread);
    return {seconds(process.ru_utime) - seconds(thread.ru_utime), seconds(process.ru_stime) - seconds(thread.ru_stime)};
  }
};

/// What rank 0 writes about a run.
struct RunFigures {
  uint64_t first_step = 0, last_step = 0, checksum = 0;
  double compute_seconds = 0, total_seconds = 0;
  BackgroundTime background;            ///< of all ranks
  std::vector<double> blocked_seconds;  ///< for each checkpoint, of the slowest rank
  double speed_max = 0;                 ///< in the plane of the picture, over the reference speed
};

varve::Session open_session([[maybe_unused]] const Ranks& ranks, const Options& options) {
  varve::SessionOptions session;
  session.job = "lbm";
  session.every_steps = options.every;
#ifdef LBM_WITH_MPI
  return varve::or_throw(
      varve::Session::open(varve::or_throw(varve::make_mpi_communicator(ranks.communicator())), session));
#else
  return varve::or_throw(varve::Session::open(session));
#endif
}

/// The run of one process: a solver, and a session that keeps it safe.
class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), ranks_(options.cells, {options.flow.flow == Flow::channel, false, false}) {
    if (with_session()) session_.emplace(open_session(ranks_, options_));
    make_grids();
    solver_.emplace(ranks_, options_.cells, options_.flow, first_, second_);
  }

  void go() {
    solver_->start();
    uint64_t step = resume();
    const uint64_t first_step = step;
    ranks_.barrier();
    const BackgroundTime before = BackgroundTime::now();
    const Clock::time_point begin = Clock::now();
    while (step < options_.steps) {
      solver_->advance();
      checkpoint(++step);
      if (session_ && session_->should_stop()) break;
    }
    ranks_.barrier();
    const double compute_seconds = seconds_since(begin);
    if (session_) varve::or_throw(session_->finish());
    const double total_seconds = seconds_since(begin);
    const BackgroundTime after = BackgroundTime::now();
    RunFigures figures{first_step, step, solver_->checksum(), compute_seconds, total_seconds, {}, {}, 0};
    figures.background = {sum_of(after.user_seconds - before.user_seconds),
                          sum_of(after.system_seconds - before.system_seconds)};
    // The slowest process is what the others wait for.
    for (double mine : blocked_seconds_) figures.blocked_seconds.push_back(maximum_of(mine));
    const std::vector<float> speeds = solver_->plane();
    figures.speed_max = maximum_of(speeds.empty() ? 0.0 : *std::max_element(speeds.begin(), speeds.end()));
    if (!options_.picture.empty()) write_flow();
    if (ranks_.rank() == 0) report(figures);
  }

 private:
  bool with_session() const { return options_.mode != Mode::none && options_.mode != Mode::files; }

  void make_grids() {
    const uint64_t size = Solver::grid_size(ranks_);
    if (options_.mode == Mode::lent) {
      first_ = varve::or_throw(session_->make_grid<double>("populations", size));
      second_ = varve::or_throw(session_->make_grid<double>("populations", size));
      return;
    }
    memory_[0].resize(size);
    memory_[1].resize(size);
    first_ = memory_[0];
    second_ = memory_[1];
  }

  /// How the populations lie in a grid: ghost cells need not be saved, they are made anew.
  varve::ArrayShape shape() const {
    const auto cells = ranks_.cells(), offset = ranks_.offset();
    auto extent = [](int64_t n) { return static_cast<uint64_t>(n); };
    varve::ArrayShape shape;
    shape.cells = {kPopulations, extent(cells[2] + 2), extent(cells[1] + 2), extent(cells[0] + 2)};
    shape.ghosts_low = shape.ghosts_high = {0, 1, 1, 1};
    shape.global_cells = {kPopulations, extent(options_.cells[2]), extent(options_.cells[1]),
                          extent(options_.cells[0])};
    shape.global_offset = {0, extent(offset[2]), extent(offset[1]), extent(offset[0])};
    return shape;
  }

  /// Goes on from the newest checkpoint, and returns its step; 0 if there is none.
  uint64_t resume() {
    if (!session_) return 0;
    varve::or_throw(session_->protect("populations", solver_->current(), shape()));
    const std::optional<uint64_t> step = varve::or_throw(session_->restart());
    for (const varve::Status& warning : session_->warnings()) {
      if (ranks_.rank() == 0) std::fprintf(stderr, "lbm: %s\n", warning.to_string().c_str());
    }
    if (!step) return 0;
    if (ranks_.rank() == 0) std::printf("going on from step %" PRIu64 "\n", *step);
    solver_->complete_ghosts();
    return *step;
  }

  void checkpoint(uint64_t step) {
    Clock::time_point begin = Clock::now();
    if (options_.mode == Mode::files && options_.every > 0 && step % options_.every == 0) {
      std::filesystem::create_directories(options_.files_folder);
      write_plain_file(options_.files_folder + "/rank" + std::to_string(ranks_.rank()) + "-" + std::to_string(step),
                       solver_->current(), options_.files_bytes_per_second);
    } else if (session_ && session_->due(step)) {
      begin = Clock::now();  // ranks wait for one another in due(), as they do in the solver
      // The grids toggle: say which one holds the state now.
      if (options_.mode == Mode::lent) {
        solver_->spare_current(varve::or_throw(session_->lend("populations", solver_->current())));
      } else {
        varve::or_throw(session_->protect("populations", solver_->current(), shape()));
      }
      const bool now = options_.mode == Mode::sync;
      varve::or_warn(session_->checkpoint(step, now ? varve::Persistence::now : varve::Persistence::later));
    } else {
      return;
    }
    blocked_seconds_.push_back(seconds_since(begin));
    if (ranks_.rank() != 0) return;
    std::printf("checkpoint of step %" PRIu64 ", %.1f ms\n", step, blocked_seconds_.back() * 1e3);
    std::fflush(stdout);
  }

  double maximum_of(double mine) const {
    const std::vector<double> all = ranks_.gather(mine);
    return *std::max_element(all.begin(), all.end());
  }
  double sum_of(double mine) const {
    const std::vector<double> all = ranks_.gather(mine);
    return std::accumulate(all.begin(), all.end(), 0.0);
  }

  void report(const RunFigures& figures) {
    const double cells = static_cast<double>(options_.cells[0] * options_.cells[1] * options_.cells[2]);
    const double updates = cells * static_cast<double>(figures.last_step - figures.first_step);
    std::printf("steps %" PRIu64 " to %" PRIu64 " in %.2f s, %.1f million cell updates a second\n", figures.first_step,
                figures.last_step, figures.compute_seconds, updates / figures.compute_seconds / 1e6);
    if (session_) std::printf("%s", session_->report().c_str());
    std::printf("state after step %" PRIu64 ": %016" PRIx64 "\n", figures.last_step, figures.checksum);
    if (!options_.json.empty()) write_json(figures);
  }

  void write_json(const RunFigures& figures) const {
    std::ofstream out(options_.json);
    out << "{\"steps\": " << figures.last_step << ", \"compute_seconds\": " << figures.compute_seconds
        << ", \"total_seconds\": " << figures.total_seconds << ", \"rank_count\": " << ranks_.count()
        << ", \"bytes_per_rank\": " << saved_bytes() << ", \"checksum\": \"" << std::hex << figures.checksum << std::dec
        << "\", \"speed_max\": " << figures.speed_max
        << ", \"background_user_seconds\": " << figures.background.user_seconds
        << ", \"background_system_seconds\": " << figures.background.system_seconds << ", \"blocked_seconds\": [";
    for (size_t i = 0; i < figures.blocked_seconds.size(); ++i)
      out << (i > 0 ? ", " : "") << figures.blocked_seconds[i];
    out << "], \"session\": " << (session_ ? session_->report_json() : "null") << "}\n";
    if (!out.flush()) throw std::runtime_error("cannot write " + options_.json);
  }

  uint64_t saved_bytes() const {
    const auto cells = ranks_.cells();
    return static_cast<uint64_t>(kPopulations * cells[0] * cells[1] * cells[2]) * sizeof(double);
  }

  void write_flow() {
    const std::vector<float> parts = ranks_.gather(solver_->plane());
    // Which part of the plane each process has: gathered like its values.
    const auto cells = ranks_.cells(), offset = ranks_.offset();
    const int64_t y = options_.cells[1] / 2 - offset[1];
    const bool has_part = y >= 0 && y < cells[1];
    std::array<std::vector<uint64_t>, 4> blocks;
    const std::array<int64_t, 4> mine{offset[0], offset[2], has_part ? cells[0] : 0, cells[2]};
    for (size_t i = 0; i < 4; ++i) blocks[i] = ranks_.gather(static_cast<uint64_t>(mine[i]));
    if (ranks_.rank() != 0) return;
    const size_t width = static_cast<size_t>(options_.cells[0]), height = static_cast<size_t>(options_.cells[2]);
    std::vector<float> plane(width * height);
    auto next = parts.begin();
    for (size_t rank = 0; rank < blocks[0].size(); ++rank) {
      const uint64_t columns = blocks[2][rank], rows = columns > 0 ? blocks[3][rank] : 0;
      for (uint64_t row = 0; row < rows; ++row) {
        const auto to = plane.begin() + static_cast<ptrdiff_t>((blocks[1][rank] + row) * width + blocks[0][rank]);
        std::copy_n(next, columns, to);
        next += static_cast<ptrdiff_t>(columns);
      }
    }
    if (!write_picture(options_.picture, plane, static_cast<uint32_t>(width), static_cast<uint32_t>(height)))
      throw std::runtime_error("cannot write " + options_.picture);
  }

  const Options options_;
  const Ranks ranks_;
  std::optional<varve::Session> session_;
  std::array<std::vector<double>, 2> memory_;
  std::span<double> first_, second_;
  std::optional<Solver> solver_;
  std::vector<double> blocked_seconds_;
};

}  // namespace
}  // namespace lbm

int main(int argument_count, char** arguments) {
  const lbm::Options options = lbm::parse_options(argument_count, arguments);
#ifdef LBM_WITH_MPI
  // So that Varve's threads may talk to other nodes, for groups and redundancy that cross them.
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_MULTIPLE, &provided);
#endif
  try {
    lbm::Run(options).go();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "lbm: %s\n", failure.what());
#ifdef LBM_WITH_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    return 1;
  }
#ifdef LBM_WITH_MPI
  MPI_Finalize();
#endif
  return 0;
}
