#include "sim/schedule.h"

#include <fmt/format.h>

#include "sim/buckets.h"
#include "sim/oracle.h"
#include "sim/runs.h"
#include "sim/savers.h"
#include "sim/simulator.h"
#include "sim/stores.h"
#include "sim/watchers.h"

namespace varve::sim {

namespace {
constexpr std::chrono::hours kScheduleLimit(24);
}

void play(const ScheduleOptions& options) {
  static Simulator* told = nullptr;
  auto* const simulator = new Simulator(options.seed);  // as long as the process: killed threads refer to it
  told = simulator;
  set_story_source([] { return told; });
  simulator->set_story(options.story);
  simulator->on_deadlock = [](const std::string& tasks) { fail("nobody can go on:\n" + tasks); };
  simulator->on_timeout = [](const std::string& tasks) { fail("it does not end:\n" + tasks); };
  simulator->end_of_time = simulator->now() + kScheduleLimit;
  switch (options.theme) {
    case Theme::runs: return play_runs(*simulator, options.scratch);
    case Theme::stores: return play_stores(*simulator, options.scratch);
#ifdef VARVE_SIM_BUCKETS
    case Theme::buckets: return play_buckets(*simulator, options.scratch);
#else
    case Theme::buckets: return play_stores(*simulator, options.scratch);
#endif
    case Theme::savers: return play_savers(*simulator, options.scratch);
    case Theme::watchers: return play_watchers(*simulator, options.scratch);
  }
}

}  // namespace varve::sim
