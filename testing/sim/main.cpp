// varve_sim: plays schedules of the simulated cluster, each in a process of its own (docs/SIMULATION.md).
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/oracle.h"
#include "sim/promises.h"
#include "sim/schedule.h"
#include "sim/simulator.h"

namespace varve::sim {

namespace {
Simulator* (*story_source)() = nullptr;

constexpr int kBroken = 1;
/// Real time, after which a schedule is taken to hang outside of what is simulated.
constexpr unsigned kRealSecondsMax = 300;
}  // namespace

void set_story_source(Simulator* (*source)()) { story_source = source; }

void fail(const std::string& what) {
  if (Simulator* const simulator = story_source == nullptr ? nullptr : story_source()) {
    simulator->tell("BROKEN: " + what);
  }
  fmt::print("BROKEN: {}\n", what);
  std::fflush(stdout);
  ::_exit(kBroken);
}

namespace {
/// Threads take turns: on one processor, that costs no more than a switch.
void stay_on_one_processor() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(::sched_getcpu(), &mine);
  ::sched_setaffinity(0, sizeof mine, &mine);
}

constexpr std::pair<std::string_view, Theme> kThemes[] = {
    {"runs", Theme::runs},         {"savers", Theme::savers},   {"stores", Theme::stores},
    {"watchers", Theme::watchers}, {"buckets", Theme::buckets},
};

/// What a schedule is about is a matter of its seed, unless it is said.
std::optional<Theme> said_theme;
Theme theme_of(uint64_t seed) {
  if (said_theme) return *said_theme;
  return kThemes[seed % std::size(kThemes)].second;
}

std::string scratch_folder(pid_t process, uint64_t seed) {
  return fmt::format("/dev/shm/varve-sim-{}-{}", process, seed);
}

[[noreturn]] void play_here(uint64_t seed, bool story) {
  ScheduleOptions options;
  options.seed = seed;
  options.theme = theme_of(seed);
  options.story = story;
  options.scratch = scratch_folder(::getpid(), seed);
  play(options);
  std::fflush(stdout);
  ::_exit(0);
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(descriptor);
  return text;
}

/// The status of a process that played a schedule, and what it said.
struct Played {
  int status = 0;
  std::string said;
};

/// In a process of its own: killed threads are left where they stood, and end with it.
Played play_apart(uint64_t seed, bool story) {
  int said[2];
  if (::pipe2(said, O_CLOEXEC) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(said[1], STDOUT_FILENO);
    ::alarm(kRealSecondsMax);
    play_here(seed, story);
  }
  ::close(said[1]);
  Played played;
  played.said = read_all(said[0]);
  ::waitpid(child, &played.status, 0);
  std::filesystem::remove_all(scratch_folder(child, seed));
  return played;
}

/// Whether the schedule of this seed holds.
bool holds(uint64_t seed) {
  const Played played = play_apart(seed, false);
  if (WIFEXITED(played.status) && WEXITSTATUS(played.status) == 0) return true;
  const std::string signal =
      WIFSIGNALED(played.status) ? fmt::format("signal {}\n", WTERMSIG(played.status)) : std::string();
  fmt::print("seed {}: {}{}", seed, played.said, signal);
  std::fflush(stdout);
  return false;
}

/// Whether all is decided by the seed.
int play_twice(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string once = play_apart(seed, true).said, again = play_apart(seed, true).said;
    if (once == again) continue;
    const auto differ = std::mismatch(once.begin(), once.end(), again.begin(), again.end());
    const auto line = std::count(once.begin(), differ.first, '\n') + 1;
    fmt::print("seed {}: played twice, its story differs from line {} on\n", seed, line);
    return kBroken;
  }
  return 0;
}

uint64_t number(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    fmt::print(stderr, "varve_sim: not a number: {}\n", text);
    std::exit(2);
  }
  return value;
}

int play_many(uint64_t first, uint64_t count, uint64_t failures_max) {
  const auto begin = std::chrono::steady_clock::now();
  uint64_t failures = 0, played = 0;
  for (; played < count && failures < failures_max; ++played) {
    if (!holds(first + played)) ++failures;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} schedules from seed {}, {} broken, {:.1f} s\n", played, first, failures, seconds);
  return failures == 0 ? 0 : kBroken;
}

constexpr const char* kHelp =
    "Plays schedules of a simulated cluster. A THEME is runs, savers, stores, watchers or buckets; without it, it is\n"
    "a matter of the seed.\n"
    "  varve_sim [THEME] seeds FIRST COUNT [FAILURES]  play so many, until some are broken (default 1)\n"
    "  varve_sim [THEME] replay SEED                   play one, and tell it line by line\n"
    "  varve_sim twice FIRST COUNT                     check that a seed decides all\n"
    "  varve_sim promises                              what it demands, as docs/GUIDE.md says it\n";

int run(std::vector<std::string_view> words) {
  stay_on_one_processor();
  for (const auto& [name, theme] : kThemes) {
    if (words.empty() || words[0] != name) continue;
    said_theme = theme;
    words.erase(words.begin());
  }
  if (words.size() == 2 && words[0] == "replay") play_here(number(words[1]), true);
  if (words.size() == 1 && words[0] == "promises") {
    fmt::print("{}", promise_table_text());
    return 0;
  }
  if (words.size() == 3 && words[0] == "twice") return play_twice(number(words[1]), number(words[2]));
  if ((words.size() == 3 || words.size() == 4) && words[0] == "seeds") {
    return play_many(number(words[1]), number(words[2]), words.size() == 4 ? number(words[3]) : 1);
  }
  fmt::print(stderr, "{}", kHelp);
  return 2;
}
}  // namespace

}  // namespace varve::sim

int main(int argc, char** argv) { return varve::sim::run(std::vector<std::string_view>(argv + 1, argv + argc)); }
