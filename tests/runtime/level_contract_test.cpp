// One contract for all kinds of levels: what a run that was killed had brought to a level comes back from there,
// whatever is lost that the level is there to outlast, and the run goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "runtime/cluster.h"
#include "runtime/served_store.h"
#include "service/key_file.h"

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::ServedStore;

/// The cluster on which a kind of level is tried, with its servers.
struct Trial {
  Cluster cluster;
  std::vector<std::unique_ptr<ServedStore>> servers;

  /// Starts as many servers as there are addresses, each with a folder of its own; where they listen, as a level's
  /// name.
  std::string serve(const std::string& transport, const std::vector<std::string>& addresses) {
    std::string all = transport;
    for (const std::string& address : addresses) {
      const std::string folder = cluster.place.folder / ("served" + std::to_string(servers.size()));
      servers.push_back(std::make_unique<ServedStore>(transport + address, folder, cluster.key_file));
      all += (all == transport ? "" : ",") + servers.back()->address().substr(transport.size());
    }
    return all;
  }
  void lose_memory() const {
    for (const auto& file : std::filesystem::directory_iterator(cluster.place.memory))
      std::filesystem::remove_all(file.path());
  }
  void lose_node(const std::string& node) const { std::filesystem::remove_all(cluster.node_path(node)); }
  void lose_all_nodes() const { std::filesystem::remove_all(cluster.local); }
  void restart_servers() const {
    for (const auto& server : servers) {
      server->stop();
      server->start();
    }
  }
};

struct LevelKind {
  const char* name;
  /// The levels of the run, of which the last one is tried; starts what it needs.
  std::function<std::string(Trial&)> levels;
  std::function<void(const Trial&)> lose;
};

std::string local(const Trial& trial) { return "memory; local:" + trial.cluster.local; }

LevelKind redundancy(const char* name, const char* level) {
  return {name, [level](const Trial& trial) { return local(trial) + " keep=2; " + level; },
          [](const Trial& trial) {
            trial.lose_memory();
            trial.lose_node("b");
          }};
}

void lose_what_is_near(const Trial& trial) {
  trial.lose_memory();
  trial.lose_all_nodes();
  trial.restart_servers();
}

std::vector<LevelKind> all_kinds() {
  std::vector<LevelKind> kinds = {
      {"memory", [](const Trial& trial) { return "memory; dir:" + trial.cluster.far + " every=100"; },
       [](const Trial&) {}},
      {"local", local, [](const Trial& trial) { trial.lose_memory(); }},
      redundancy("partner", "partner"),
      redundancy("xor", "xor:3"),
      redundancy("rs", "rs:2+1"),
      {"directory", [](const Trial& trial) { return local(trial) + "; dir:" + trial.cluster.far; }, lose_what_is_near},
      {"unix_server",
       [](Trial& trial) { return local(trial) + "; " + trial.serve("unix:", {trial.cluster.place.folder / "s"}); },
       lose_what_is_near},
      {"two_unix_servers",
       [](Trial& trial) {
         const test::TempFolder& folder = trial.cluster.place.folder;
         return local(trial) + "; " + trial.serve("unix:", {folder / "s0", folder / "s1"});
       },
       lose_what_is_near},
  };
#ifdef VARVE_HAVE_TLS
  const auto over_tcp = [](Trial& trial, const std::vector<std::string>& addresses) {
    return local(trial) + "; " + trial.serve("tcp://", addresses);
  };
  kinds.push_back(
      {"tcp_server", [over_tcp](Trial& trial) { return over_tcp(trial, {"127.0.0.1:0"}); }, lose_what_is_near});
  kinds.push_back({"three_tcp_servers",
                   [over_tcp](Trial& trial) {
                     return over_tcp(trial, {"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"});
                   },
                   lose_what_is_near});
#endif
  return kinds;
}

class EveryKindOfLevel : public testing::TestWithParam<LevelKind> {
 protected:
  EveryKindOfLevel() {
#ifdef VARVE_HAVE_TLS
    trial.cluster.key_file = trial.cluster.place.folder / "key";
    EXPECT_TRUE(make_key_file(trial.cluster.key_file).ok());
#endif
  }

  /// A run of four steps, which is killed when the last level has them all. Starts the servers; returns the levels.
  std::string run_and_kill() {
    int words[2] = {};
    EXPECT_EQ(::pipe(words), 0);
    // Before the servers' threads are there, of which a fork would leave only locks.
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(words[1]);
      std::string levels;
      for (char letter = 0; ::read(words[0], &letter, 1) == 1;) levels += letter;
      run_until_killed(levels);
      ::_exit(1);
    }
    EXPECT_GT(child, 0);
    std::string levels = GetParam().levels(trial);
    EXPECT_EQ(::write(words[1], levels.data(), levels.size()), static_cast<ssize_t>(levels.size()));
    for (const int end : words) ::close(end);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the run failed";
    return levels;
  }

  void run_until_killed(const std::string& levels) const {
    std::barrier all(static_cast<ptrdiff_t>(trial.cluster.rank_count()));
    trial.cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      EXPECT_EQ(session.restart().value(), std::nullopt);
      go(session, model, 1, 4);
      // Nodes tell each other what they have.
      EXPECT_TRUE(session.wait().ok());
      // Rank 0 and the first rank of each node know how far the levels are.
      if (rank % trial.cluster.node_ranks == 0) await_last_level(session, 4);
      all.arrive_and_wait();
      if (rank == 0 && !HasFailure()) ::kill(::getpid(), SIGKILL);
      all.arrive_and_wait();
    });
  }

  /// Flips a byte in the middle of each file that holds some of a set; says how many there are.
  int damage_all_files() const {
    int count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(trial.cluster.place.folder.path())) {
      if (!entry.is_regular_file() || entry.file_size() < 1000) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
      file.seekg(middle);
      const int byte = file.get();
      file.seekp(middle);
      file.put(static_cast<char>(byte ^ 1));
      EXPECT_TRUE(file.good()) << entry.path();
      ++count;
    }
    return count;
  }

  static bool is_memory() { return GetParam().name == std::string("memory"); }

  static void go(RunSession& session, Model& model, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      model.step(step);
      EXPECT_TRUE(session.checkpoint(step, Persistence::later).ok());
    }
  }

  static void await_last_level(RunSession& session, uint64_t step) {
    for (int milliseconds = 0; milliseconds < 30'000; milliseconds += 2) {
      const std::vector<LevelProgress> levels = session.progress().levels;
      const LevelProgress& last = is_memory() ? levels.front() : levels.back();
      if (last.newest == step) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "the last level does not get the last set";
  }

  Trial trial;
};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindOfLevel, testing::ValuesIn(all_kinds()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(EveryKindOfLevel, GivesBackWhatAKilledRunHadBroughtThere) {
  const std::string levels = run_and_kill();
  GetParam().lose(trial);
  trial.cluster.restart_from(levels, 4, 6);
  if (is_memory()) return;  // which goes with the run that ends well
  GetParam().lose(trial);
  trial.cluster.restart_from(levels, 6, 7);
}

TEST_P(EveryKindOfLevel, GivesWhatWasSavedOrAnErrorWhereEverythingIsDamaged) {
  const std::string levels = run_and_kill();
  GetParam().lose(trial);
  EXPECT_GT(damage_all_files(), 0);
  trial.cluster.run(levels, [](uint32_t rank, RunSession& session, Model& model) {
    const Model untouched = model;
    const auto from = session.restart();
    if (from.ok() && *from) {
      EXPECT_EQ(model, test::model_at(rank, Cluster::kCells, **from)) << "step " << **from;
    } else {
      EXPECT_EQ(from.status().code(), StatusCode::corrupt) << from.status().to_string();
      const bool says_so = from.status().to_string().find("neither old nor new") != std::string::npos;
      EXPECT_TRUE(says_so || model == untouched) << from.status().to_string();
    }
  });
}

}  // namespace
}  // namespace varve
