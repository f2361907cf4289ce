#include "mount/closing_process.h"

#include <gtest/gtest.h>
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
    EXPECT_FALSE(is_ended_by_signal(stat_of(kRunning, 0), knows_exit_code));
    EXPECT_FALSE(is_ended_by_signal(stat_of(kExiting, knows_exit_code ? 3 << 8 : 0), knows_exit_code));
  }
  EXPECT_FALSE(is_closed_by_signal(::getpid(), ::geteuid(), ::getegid()));
}

TEST(ClosingProcess, AProgramThatIsKilledIs) {
  for (const int signal : {SIGKILL, SIGTERM, SIGXCPU, SIGSEGV}) {
    constexpr uint64_t dumped_core = 0x80;
    EXPECT_TRUE(is_ended_by_signal(stat_of(kSignaled, signal), true));
    EXPECT_TRUE(is_ended_by_signal(stat_of(kSignaled, signal | dumped_core), true));
  }
  EXPECT_TRUE(is_ended_by_signal(stat_of(kSignaled, 0), false));
}

// Its other threads are ended by a signal of the kernel's own.
TEST(ClosingProcess, AThreadOfAProgramThatEndsByItselfIsNot) {
  EXPECT_FALSE(is_ended_by_signal(stat_of(kSignaled, 0), true));
  EXPECT_FALSE(is_ended_by_signal(stat_of(kSignaled, 1 << 8), true));
}

TEST(ClosingProcess, WhatCannotBeToldCountsAsEndedByASignal) {
  constexpr uint64_t of_kernel = 0x4208060;
  EXPECT_TRUE(is_ended_by_signal(stat_of(of_kernel, 0), true));
  for (const char* stat : {"", "7 (name", "7 (name) D 1 7", "7 (name) D 1 7 7 0 -1 4194316 1 2"})
    EXPECT_TRUE(is_ended_by_signal(stat, true)) << stat;
  EXPECT_TRUE(is_closed_by_signal(0, ::geteuid(), ::getegid()));
}

}  // namespace
}  // namespace varve
