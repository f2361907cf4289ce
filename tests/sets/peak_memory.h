#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace varve::test {

/// The most memory that this process ever had since clear_peak(), in bytes; 0 where the system does not tell.
inline uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}
inline void clear_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace varve::test
