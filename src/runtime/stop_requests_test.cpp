#include "runtime/stop_requests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "core/memory_file_system.h"

namespace varve {
namespace {

int calls_of_programs_handler = 0;
extern "C" void programs_handler(int) { ++calls_of_programs_handler; }
extern "C" void programs_handler_with_information(int, siginfo_t* info, void*) {
  calls_of_programs_handler += info != nullptr ? 1 : 0;
}

struct sigaction present_action(int number) {
  struct sigaction action {};
  EXPECT_EQ(::sigaction(number, nullptr, &action), 0);
  return action;
}

class Stopping : public testing::Test {
 protected:
  void SetUp() override { calls_of_programs_handler = 0; }
  void TearDown() override {
    ::signal(SIGTERM, SIG_DFL);
    ::signal(SIGUSR1, SIG_DFL);
  }
  StopRequests start(StopRule rule, bool watches_file = true) {
    return StopRequests::start(std::move(rule), watches_file, files_, clock_).value();
  }

  ManualClock clock_;
  MemoryFileSystem files_;
};

constexpr StopRule kNoRule{.on_signals = false, .after_seconds = {}, .file = {}};

TEST_F(Stopping, IsNotPossibleWhereNothingMayAskForIt) {
  StopRequests requests = start(kNoRule);
  EXPECT_FALSE(requests.possible());
  clock_.advance(1e9);
  EXPECT_FALSE(requests.requested());
}

TEST_F(Stopping, FollowsEachOfTheSignals) {
  for (const auto& [number, name] : {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGUSR1, "SIGUSR1")}) {
    StopRequests requests = start({});
    EXPECT_TRUE(requests.possible());
    EXPECT_FALSE(requests.requested());
    EXPECT_EQ(requests.reason(), "");
    ASSERT_EQ(::raise(number), 0);
    ASSERT_EQ(::raise(number), 0);
    EXPECT_TRUE(requests.requested());
    EXPECT_TRUE(requests.requested());
    EXPECT_EQ(requests.reason(), name);
  }
}

TEST_F(Stopping, ConcernsOnlyThoseWhoWereThere) {
  StopRequests first = start({});
  ::raise(SIGUSR1);
  StopRequests second = start({});
  EXPECT_TRUE(first.requested());
  EXPECT_FALSE(second.requested());
  ::raise(SIGUSR1);
  EXPECT_TRUE(second.requested());
}

TEST_F(Stopping, CallsTheProgramsOwnHandlerAndGivesItBack) {
  ::signal(SIGUSR1, programs_handler);
  {
    StopRequests requests = start({});
    ::raise(SIGUSR1);
    EXPECT_TRUE(requests.requested());
    EXPECT_EQ(calls_of_programs_handler, 1);
  }
  EXPECT_EQ(present_action(SIGUSR1).sa_handler, programs_handler);
  EXPECT_EQ(present_action(SIGTERM).sa_handler, SIG_DFL);
}

TEST_F(Stopping, PassesInformationOnToAHandlerThatTakesIt) {
  struct sigaction action {};
  action.sa_sigaction = programs_handler_with_information;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGTERM, &action, nullptr), 0);
  StopRequests requests = start({});
  ::raise(SIGTERM);
  EXPECT_EQ(calls_of_programs_handler, 1);
}

TEST_F(Stopping, GivesHandlersBackWithTheEndOfTheLastObject) {
  {
    StopRequests first = start({});
    { StopRequests second = start({}); }
    EXPECT_NE(present_action(SIGTERM).sa_handler, SIG_DFL);
    StopRequests moved = std::move(first);
    EXPECT_NE(present_action(SIGTERM).sa_handler, SIG_DFL);
  }
  EXPECT_EQ(present_action(SIGTERM).sa_handler, SIG_DFL);
}

TEST_F(Stopping, LeavesAnIgnoredSignalIgnored) {
  ::signal(SIGUSR1, SIG_IGN);
  StopRequests requests = start({});
  ::raise(SIGUSR1);
  EXPECT_FALSE(requests.requested());
  EXPECT_EQ(present_action(SIGUSR1).sa_handler, SIG_IGN);
}

// A process of its own: what lies in the chain of handlers stays there.
struct sigaction below {};
extern "C" void handler_over_ours(int number, siginfo_t* info, void* context) {
  ++calls_of_programs_handler;
  below.sa_sigaction(number, info, context);
}
void put_a_handler_over_ours() {
  struct sigaction action {};
  action.sa_sigaction = handler_over_ours;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGUSR1, &action, &below);
}

TEST_F(Stopping, NeverCallsInCirclesWithAHandlerThatWasPutOverIt) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        {
          StopRequests first = start({});
          put_a_handler_over_ours();
        }
        StopRequests second = start({});
        ::raise(SIGUSR1);
        std::exit(second.requested() && calls_of_programs_handler == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Stopping, LetsASignalEndTheProgramAgainAfterTheLastObject) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        {
          StopRequests first = start({});
          put_a_handler_over_ours();
        }
        ::raise(SIGUSR1);
        std::exit(0);
      },
      testing::KilledBySignal(SIGUSR1), "");
}

TEST_F(Stopping, FollowsTheTimeLimit) {
  clock_.advance(1000);
  StopRequests requests = start({.on_signals = false, .after_seconds = 3600, .file = {}});
  EXPECT_TRUE(requests.possible());
  clock_.advance(3599);
  EXPECT_FALSE(requests.requested());
  clock_.advance(1);
  EXPECT_TRUE(requests.requested());
  EXPECT_EQ(requests.reason(), "the time limit of 60.0 min");
}

TEST_F(Stopping, ComesBeforeTheEndOfTheJobsTime) {
  const double now = static_cast<double>(calendar_seconds());
  StopRequests requests = start({.on_signals = false, .grace = 90, .end_time = now + 1000});
  EXPECT_TRUE(requests.possible());
  clock_.advance(900);
  EXPECT_FALSE(requests.requested());
  EXPECT_TRUE(std::isinf(requests.seconds_left()));
  clock_.advance(20);
  EXPECT_TRUE(requests.requested());
  EXPECT_EQ(requests.reason(), "the end of the job's time");
  EXPECT_NEAR(requests.seconds_left(), 80, 3);
  clock_.advance(50);
  EXPECT_NEAR(requests.seconds_left(), 30, 3);
}

TEST_F(Stopping, KnowsHowLongWhoSendsASignalWaits) {
  StopRequests unlimited = start({}), limited = start({.grace = 90});
  const double now = static_cast<double>(calendar_seconds());
  StopRequests ending = start({.grace = 90, .end_time = now + 20});
  ::raise(SIGUSR1);
  EXPECT_TRUE(unlimited.requested() && limited.requested() && ending.requested());
  EXPECT_TRUE(std::isinf(unlimited.seconds_left()));
  EXPECT_NEAR(limited.seconds_left(), 90, 3);
  EXPECT_NEAR(ending.seconds_left(), 20, 3) << "the job's time is over before";
}

TEST_F(Stopping, FollowsAFileThatAppears) {
  const StopRule rule{.on_signals = false, .after_seconds = {}, .file = "halt"};
  StopRequests requests = start(rule), elsewhere = start(rule, /*watches_file=*/false);
  EXPECT_FALSE(requests.requested());
  ASSERT_TRUE(files_.create("halt").ok());
  EXPECT_FALSE(requests.requested()) << "the file was looked for within the last second";
  clock_.advance(1);
  EXPECT_TRUE(requests.requested());
  EXPECT_EQ(requests.reason(), "the file halt");
  EXPECT_FALSE(elsewhere.requested());
  EXPECT_TRUE(elsewhere.possible()) << "another rank may see it";
  ASSERT_TRUE(files_.remove("halt").ok());
  clock_.advance(10);
  EXPECT_TRUE(requests.requested()) << "a request stays";
}

}  // namespace
}  // namespace varve
