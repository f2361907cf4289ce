#include "count/counted_run.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <barrier>
#include <deque>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/memory_file_system.h"
#include "count/counted_heap.h"
#include "runtime/run_session.h"

namespace varve::count {

namespace {
/// What one rank has beside its session.
struct CountedRank {
  explicit CountedRank(FileSystem& disk) : files(disk) {}
  CountingFileSystem files;
  MessageCounter messages;
  uint64_t heap_bytes = 0;  ///< at most, in the phase that it is in
};

/// Of a run that goes on from what another one has made.
struct Continuation {
  const char* suffix = "";  ///< of its phases
  uint32_t ranks = 0;
};

/// All ranks meet between two phases, and nobody counts on before all was noted.
class Phases {
 public:
  Phases(std::deque<CountedRank>& ranks, CountedRun& counted)
      : ranks_(ranks), counted_(counted), barrier_(static_cast<ptrdiff_t>(ranks.size())) {
    operations_.resize(ranks.size());
    messages_.resize(ranks.size());
    begin_ = steady_clock().seconds();
  }

  /// By each rank, at the end of a phase.
  void end(uint32_t rank, const std::string& name) {
    ranks_[rank].heap_bytes = HeapOfThread::most_since_mark();
    barrier_.arrive_and_wait();
    if (rank == 0) note(name);
    barrier_.arrive_and_wait();
    HeapOfThread::mark();
  }
  void fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return !failure_.ok();
  }
  Status outcome() const { return failure_; }
  void note_heap(int64_t bytes) { counted_.heap_bytes = static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

 private:
  void note(const std::string& name) {
    CountedPhase phase{.name = name, .ranks = static_cast<uint32_t>(ranks_.size())};
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const OperationCounts operations = ranks_[i].files.counts();
      const MessageCounts messages = ranks_[i].messages.counts();
      const OperationCounts own = operations - operations_[i];
      const MessageCounts said = messages - messages_[i];
      phase.operations += own;
      phase.messages += said;
      if (own.names() > phase.most.names()) phase.most = own;
      if (said.messages > phase.most_messages.messages) phase.most_messages = said;
      phase.heap_bytes += ranks_[i].heap_bytes;
      operations_[i] = operations;
      messages_[i] = messages;
    }
    const double now = steady_clock().seconds();
    phase.seconds = now - begin_;
    begin_ = now;
    counted_.phases.push_back(std::move(phase));
  }

  std::deque<CountedRank>& ranks_;
  CountedRun& counted_;
  std::barrier<> barrier_;
  std::vector<OperationCounts> operations_;  ///< until the phase before
  std::vector<MessageCounts> messages_;
  double begin_ = 0;
  std::mutex mutex_;
  Status failure_;
};

int64_t heap_bytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

SessionOptions options_of(const RunToCount& run, const std::string& memory_folder) {
  SessionOptions options;
  options.store = "/store";
  options.job = "job";
  options.group = "rank";
  options.shared_memory = memory_folder;
  options.snapshot_folder = "none";
  options.stop_on_signals = false;
  options.print_warnings = false;
  options.low_priority = false;
  options.threads = 1;
  options.every_steps = run.steps_between;
  return options;
}

/// What a rank has of an array that so many ranks had begun with, each with as many cells.
struct CountedProgram {
  const uint64_t cells_of_rank, cells_of_all;
  const uint64_t first;  ///< cell of the whole
  std::vector<double> field;
  uint64_t step = 0;

  CountedProgram(const RunToCount& run, uint32_t rank, uint32_t ranks)
      : cells_of_rank(run.cells),
        cells_of_all(run.cells * run.ranks),
        first(cells_of_all / ranks * rank),
        field(cells_of_all / ranks) {
    for (size_t i = 0; i < field.size(); ++i) {
      const uint64_t begun_by = (first + i) / cells_of_rank, there = (first + i) % cells_of_rank;
      field[i] = static_cast<double>(begun_by + 1) + static_cast<double>(there % 97) / 97;
    }
  }
  void go_on() {
    ++step;
    for (size_t i = 0; i < field.size(); ++i) {
      if ((first + i) % cells_of_rank < cells_of_rank / 10) field[i] += 1e-3 * static_cast<double>(step);
    }
  }
  Status protect(RunSession& session) {
    ArrayShape shape;
    shape.cells = {field.size()};
    shape.global_cells = {cells_of_all};
    shape.global_offset = {first};
    VARVE_TRY(session.variables().protect_array("field", element_type_of<double>(), field.data(), field.size(), shape));
    return session.variables().protect_scalar("step", element_type_of<uint64_t>(), &step);
  }
};

/// One rank's run: until its last checkpoint, or from it.
class RankOfRun {
 public:
  RankOfRun(const RunToCount& run, const std::string& memory_folder, uint32_t rank, CountedRank& own, Phases& phases)
      : run_(run), memory_folder_(memory_folder), rank_(rank), own_(own), phases_(phases) {}

  /// `continuation`: null for the one that begins.
  void play(std::unique_ptr<Communicator> ranks, const Continuation* continuation) {
    const std::string suffix = continuation != nullptr ? continuation->suffix : "";
    const uint32_t rank_count = ranks->rank_count();
    const int64_t heap_before = heap_bytes();
    CountedProgram program(run_, rank_, rank_count);
    HeapOfThread::mark();
    std::unique_ptr<RunSession> session;
    attempt("open" + suffix, [&]() -> Status {
      VARVE_ASSIGN(session, open(std::move(ranks)));
      return program.protect(*session);
    });
    if (rank_ == 0 && continuation == nullptr) phases_.note_heap(heap_bytes() - heap_before);
    if (continuation != nullptr) {
      const std::string name = rank_count == run_.ranks ? "restart" : "restart" + suffix;
      attempt(name, [&] { return restart(*session, program, rank_count); });
    } else {
      attempt("nothing", [&] { return session->restart().status(); });
      for (uint32_t i = 1; i <= run_.checkpoints; ++i)
        attempt(fmt::format("checkpoint {}", i), [&] { return checkpoint(*session, program); });
    }
    attempt("finish" + suffix, [&] { return session->finish(kSessionEndPatience); });
    session.reset();
  }

 private:
  template <class Act>
  void attempt(const std::string& name, const Act& act) {
    const Status done = phases_.failed() ? Status() : act();
    if (!done.ok()) phases_.fail(done.with_context(fmt::format("{}, rank {}", name, rank_)));
    phases_.end(rank_, name);
  }

  Result<std::unique_ptr<RunSession>> open(std::unique_ptr<Communicator> ranks) {
    SessionEnvironment environment;
    environment.files = &own_.files;
    environment.sources.environment.clear();
    environment.find_place = [this](const std::string&) -> Result<RankPlace> {
      const std::string node = fmt::format("n{}", rank_ / run_.ranks_of_node);
      return RankPlace{.node = node, .name = node};
    };
    return RunSession::open(counted(std::move(ranks), own_.messages), options_of(run_, memory_folder_), environment);
  }

  Status checkpoint(RunSession& session, CountedProgram& program) const {
    for (;;) {
      program.go_on();
      if (session.due(program.step)) break;
      if (program.step % run_.steps_between == 0) return Status::internal("no checkpoint was due");
    }
    VARVE_TRY(session.checkpoint(program.step, Persistence::later));
    return session.wait();
  }

  Status restart(RunSession& session, CountedProgram& program, uint32_t rank_count) const {
    VARVE_ASSIGN(const std::optional<uint64_t> step, session.restart());
    CountedProgram expected(run_, rank_, rank_count);
    while (expected.step < run_.checkpoints * run_.steps_between) expected.go_on();
    if (step != expected.step || program.field != expected.field)
      return Status::corrupt("the run went on from another state");
    return {};
  }

  const RunToCount& run_;
  const std::string& memory_folder_;
  const uint32_t rank_;
  CountedRank& own_;
  Phases& phases_;
};
}  // namespace

CountedPhase CountedRun::sum_of(std::string_view name) const {
  CountedPhase sum{.name = std::string(name)};
  for (const CountedPhase& phase : phases) {
    const std::string_view of_phase = phase.name;
    if (!of_phase.starts_with(name) || of_phase.find_first_not_of(" 0123456789", name.size()) != of_phase.npos)
      continue;
    sum.ranks = phase.ranks;
    sum.operations += phase.operations;
    sum.most += phase.most;
    sum.messages += phase.messages;
    sum.most_messages += phase.most_messages;
    sum.heap_bytes = std::max(sum.heap_bytes, phase.heap_bytes);
    sum.seconds += phase.seconds;
  }
  return sum;
}

Result<CountedRun> count_run(const RunToCount& run, const std::string& memory_folder) {
  MemoryFileSystem disk;
  CountedRun counted{.run = run};
  const Continuation again{" again", run.ranks};
  const Continuation half{" by half as many", run.ranks / 2}, twice{" by twice as many", run.ranks * 2};
  for (const Continuation* const continuation : {static_cast<const Continuation*>(nullptr), &again, &half, &twice}) {
    const uint32_t count = continuation != nullptr ? continuation->ranks : run.ranks;
    if (count != run.ranks && !run.with_other_ranks) continue;
    std::deque<CountedRank> own;
    for (uint32_t rank = 0; rank < count; ++rank) own.emplace_back(disk);
    Phases phases(own, counted);
    auto ranks = make_thread_communicators(count);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank, of_rank = std::move(ranks[rank])]() mutable {
        RankOfRun(run, memory_folder, rank, own[rank], phases).play(std::move(of_rank), continuation);
      });
    }
    for (std::thread& thread : threads) thread.join();
    VARVE_TRY(phases.outcome());
  }
  return counted;
}

std::string to_text(const CountedRun& counted) {
  std::string text =
      fmt::format("{} groups, {} on a node; {:.0f} KiB of heap a group when it is open\n", counted.run.ranks,
                  counted.run.ranks_of_node, static_cast<double>(counted.heap_bytes) / counted.run.ranks / 1024);
  for (const CountedPhase& phase : counted.phases) {
    const auto share = [&](uint64_t count) { return static_cast<double>(count) / phase.ranks; };
    const OperationCounts& operations = phase.operations;
    text += fmt::format(
        "{:<14} names {:>9} ({:.2f} a group, one did {}), data {:>8} ({:.2f}), {:.1f} KiB read, {:.1f} KiB written, "
        "{:.1f} "
        "names listed a group; {:.1f} collectives, {:.1f} KiB, {:.1f} messages, {:.1f} KiB of heap at most a group; "
        "{:.2f} s\n",
        phase.name, operations.names(), share(operations.names()), phase.most.names(), operations.data(),
        share(operations.data()), share(operations.bytes_read) / 1024, share(operations.bytes_written) / 1024,
        share(operations.names_listed), share(phase.messages.collectives),
        share(phase.messages.collective_bytes) / 1024, share(phase.messages.messages), share(phase.heap_bytes) / 1024,
        phase.seconds);
    for (size_t place = 0; place < kStorePlaces.size(); ++place) {
      std::string line;
      for (size_t verb = 0; verb < kVerbs; ++verb) {
        const uint64_t count = operations.of[verb][place];
        if (count > 0) line += fmt::format(" {} {}", verb_name(static_cast<Verb>(verb)), count);
      }
      if (!line.empty()) text += fmt::format("    {:<10}{}\n", kStorePlaces[place], line);
    }
  }
  return text;
}

}  // namespace varve::count
