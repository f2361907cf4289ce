#pragma once

#include <string>

#include "core/bytes.h"
#include "core/file_system.h"

namespace varve::test {

/// What a small file has; why not, if it cannot be read.
inline std::string text_of_file(const std::string& path) {
  const Result<ByteVector> bytes = read_file(posix_file_system(), path, 4096);
  return bytes.ok() ? std::string(as_text(*bytes)) : bytes.status().to_string();
}

}  // namespace varve::test
