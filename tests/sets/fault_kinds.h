#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/faulty_file_system.h"

namespace varve::test {

/// What a disk can do wrong, short of a crash.
inline auto every_fault() {
  return testing::Values(FaultKind::no_space, FaultKind::io_error, FaultKind::short_write, FaultKind::failed_sync,
                         FaultKind::failed_rename, FaultKind::failed_read, FaultKind::flipped_bit);
}

/// For the names of tests.
inline std::string fault_name(const testing::TestParamInfo<FaultKind>& kind) {
  switch (kind.param) {
    case FaultKind::no_space: return "NoSpace";
    case FaultKind::io_error: return "IoError";
    case FaultKind::short_write: return "ShortWrite";
    case FaultKind::failed_sync: return "FailedSync";
    case FaultKind::failed_rename: return "FailedRename";
    case FaultKind::failed_read: return "FailedRead";
    case FaultKind::flipped_bit: return "FlippedBit";
    case FaultKind::crash: break;
  }
  return "Crash";
}

}  // namespace varve::test
