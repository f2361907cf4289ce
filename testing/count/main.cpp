// Counts what runs of many groups ask of a store and say to each other (docs/BENCHMARKS.md, "To 10,000 groups").
//
//   varve_count [--details] [--same-ranks] [--ranks-of-node N] [--memory FOLDER] [GROUPS...]
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "count/counted_run.h"

namespace {
using namespace varve;
using namespace varve::count;

/// A rank has its shared memory open, as often as somebody looks into it: more files than a process may have by
/// default.
void allow_files(uint32_t ranks) {
  constexpr rlim_t kFilesOfRank = 16;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFilesOfRank * ranks) return;
  limit.rlim_cur = kFilesOfRank * ranks;
  limit.rlim_max = std::max(limit.rlim_cur, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  std::fprintf(stderr, "%u groups have more open files than a process may have here (ulimit -n)\n", ranks);
}

void print_row(const CountedRun& counted, const std::string& name) {
  const CountedPhase phase = counted.sum_of(name);
  if (phase.ranks == 0) return;
  const double groups = phase.ranks;
  const double times = name == "checkpoint" ? counted.run.checkpoints : 1;
  const auto share = [&](uint64_t count) { return static_cast<double>(count) / groups / times; };
  fmt::print("| {} | {} | {:.2f} | {:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.0f} | {:.1f} |\n",
             counted.run.ranks, name, share(phase.operations.names()), static_cast<double>(phase.most.names()) / times,
             share(phase.operations.data()), share(phase.operations.bytes_read) / 1024,
             share(phase.operations.names_listed), share(phase.messages.collectives), share(phase.messages.messages),
             share(phase.messages.collective_bytes + phase.messages.message_bytes) / 1024,
             static_cast<double>(phase.heap_bytes) / groups / 1024, phase.seconds / times);
}
}  // namespace

int main(int argc, char** argv) {
  bool details = false;
  RunToCount run;
  std::string memory = fmt::format("/dev/shm/varve_count.{}", ::getpid());
  std::vector<uint32_t> groups;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--details") {
      details = true;
    } else if (word == "--same-ranks") {
      run.with_other_ranks = false;
    } else if (word == "--ranks-of-node" && i + 1 < argc) {
      run.ranks_of_node = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else if (word == "--memory" && i + 1 < argc) {
      memory = argv[++i];
    } else if (std::atoi(word.c_str()) > 0) {
      groups.push_back(static_cast<uint32_t>(std::atoi(word.c_str())));
    } else {
      std::fprintf(stderr,
                   "usage: varve_count [--details] [--same-ranks] [--ranks-of-node N] [--memory FOLDER] [GROUPS...]\n");
      return 2;
    }
  }
  if (groups.empty()) groups = {16, 64, 256};
  if (!details) {
    fmt::print(
        "| groups | what | names a group | names of one group, at most | data a group | KiB read a group | names "
        "listed a "
        "group | collectives | messages | KiB received | KiB of heap | s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  }
  int outcome = 0;
  for (const uint32_t count : groups) {
    run.ranks = count;
    allow_files(count);
    std::filesystem::create_directories(memory);
    const auto counted = count_run(run, memory);
    std::error_code ignored;
    std::filesystem::remove_all(memory, ignored);
    if (!counted.ok()) {
      std::fprintf(stderr, "%u groups: %s\n", count, counted.status().to_string().c_str());
      outcome = 1;
    } else if (details) {
      fmt::print("{}\n", to_text(*counted));
    } else {
      for (const char* name : {"open", "checkpoint", "restart", "restart by half as many", "restart by twice as many"})
        print_row(*counted, name);
    }
    std::fflush(stdout);
  }
  return outcome;
}
