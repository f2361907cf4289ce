#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace varve::zoo {

/// `bytes` bytes that look random and are the same for the same seed.
std::vector<char> pattern(size_t bytes, uint32_t seed);

/// Creates or replaces a file. Throws std::runtime_error.
void write_file(const std::filesystem::path& path, const std::vector<char>& contents);

}  // namespace varve::zoo
