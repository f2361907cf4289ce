#include "mount/closing_process.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace varve {
namespace {

/// What the kernel says of a thread; of the fields between and behind nothing is looked at.
std::string stat_of(uint64_t flags, uint64_t exit_code) {
  std::string stat = "7 (a ) (name) D 1 7 7 0 -1 " + std::to_string(flags);
  for (int field = 10; field < 52; ++field) stat += " " + std::to_string(field);
  return stat + " " + std::to_string(exit_code);
}

constexpr uint64_t kRunning = 0x400000, kExiting = 0x40000c, kSignaled = 0x40040c;

TEST(ClosingProcess, AProgramThatClosesItsFileOrEndsByItselfIsNotEndedByASignal) {
  for (const bool knows_exit_code : {true, false}) {
    EXPECT_EQ(who_closes_by_stat(stat_of(kRunning, 0), knows_exit_code), ClosedBy::program);
    EXPECT_EQ(who_closes_by_stat(stat_of(kExiting, knows_exit_code ? 3 << 8 : 0), knows_exit_code), ClosedBy::program);
  }
  EXPECT_EQ(who_closes(::getpid()), ClosedBy::program);
}

TEST(ClosingProcess, AProgramThatIsKilledIs) {
  for (const int signal : {SIGKILL, SIGTERM, SIGXCPU, SIGSEGV}) {
    constexpr uint64_t dumped_core = 0x80;
    EXPECT_EQ(who_closes_by_stat(stat_of(kSignaled, signal), true), ClosedBy::signal);
    EXPECT_EQ(who_closes_by_stat(stat_of(kSignaled, signal | dumped_core), true), ClosedBy::signal);
  }
  EXPECT_EQ(who_closes_by_stat(stat_of(kSignaled, 0), false), ClosedBy::signal);
}

// Its other threads are ended by a signal of the kernel's own.
TEST(ClosingProcess, AThreadOfAProgramThatEndsByItselfIsNot) {
  EXPECT_EQ(who_closes_by_stat(stat_of(kSignaled, 0), true), ClosedBy::program);
  EXPECT_EQ(who_closes_by_stat(stat_of(kSignaled, 1 << 8), true), ClosedBy::program);
}

TEST(ClosingProcess, WhatTheKernelClosesForSomebodyWhoIsNoMoreCountsAsKilled) {
  constexpr uint64_t of_kernel = 0x4208060;
  EXPECT_EQ(who_closes_by_stat(stat_of(of_kernel, 0), true), ClosedBy::signal);
}

/// A process of another user that kill -9 has ended, and nobody has waited for.
pid_t killed_process_of_another_user() {
  const pid_t process = ::fork();
  if (process == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    ::raise(SIGKILL);
  }
  siginfo_t ended;
  ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT);
  return process;
}

bool give_up_all_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0;
}

// It is told an exit code of 0 then, as if the program had ended well.
TEST(ClosingProcess, AKilledProgramOfAnotherUserIsKnownToARootWithoutCapabilities) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root";
  const pid_t killed = killed_process_of_another_user();
  EXPECT_EQ(who_closes(killed), ClosedBy::signal);
  const pid_t without = ::fork();
  if (without == 0) ::_exit(give_up_all_capabilities() && who_closes(killed) == ClosedBy::signal ? 0 : 1);
  int outcome = -1;
  ::waitpid(without, &outcome, 0);
  EXPECT_EQ(outcome, 0);
  ::waitpid(killed, nullptr, 0);
}

TEST(ClosingProcess, WhatCannotBeSeenIsUnknown) {
  for (const char* stat : {"", "7 (name", "7 (name) D 1 7", "7 (name) D 1 7 7 0 -1 4194316 1 2"})
    EXPECT_EQ(who_closes_by_stat(stat, true), ClosedBy::unknown) << stat;
  EXPECT_EQ(who_closes(0), ClosedBy::unknown);
}

}  // namespace
}  // namespace varve
