#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "core/bytes.h"
#include "core/file_system.h"

namespace varve::test {

/// What a small file has; why not, if it cannot be read.
inline std::string text_of_file(const std::string& path) {
  const Result<ByteVector> bytes = read_file(posix_file_system(), path, 4096);
  return bytes.ok() ? std::string(as_text(*bytes)) : bytes.status().to_string();
}

/// As if it had been written an hour ago.
inline void make_older(const std::string& path) {
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
}

}  // namespace varve::test
