#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/bytes.h"

namespace varve::test {

/// The bytes of the dump in a document after the comment `<!-- example: NAME -->`: lines of an offset, the bytes in
/// hexadecimal, two spaces and a remark.
inline ByteVector documented_bytes(const std::string& document, const std::string& name) {
  std::ifstream stream(document);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const size_t mark = text.find("<!-- example: " + name + " -->");
  const size_t begin = text.find("```text\n", mark);
  const size_t end = text.find("\n```", begin);
  ByteVector bytes;
  if (mark == std::string::npos || begin == std::string::npos || end == std::string::npos) {
    ADD_FAILURE() << document << " has no dump of the " << name;
    return bytes;
  }
  for (size_t at = begin + 8; at < end; at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_EQ(std::stoul(line.substr(0, 4), nullptr, 16), bytes.size()) << line;
    const std::string digits = line.substr(6, line.find("  ", 6) - 6);
    for (size_t i = 0; i + 1 < digits.size(); i += 3)
      bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace varve::test
