#include "engine/inspect.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace varve {
namespace {

/// What stands for a byte of a file: where it comes from.
using Source = std::pair<uint32_t, uint64_t>;

/// The bytes of a pattern repeat, so that only their values count.
std::vector<Source> expand(const std::vector<Reference>& stream) {
  std::vector<Source> bytes;
  for (const Reference& reference : stream) {
    for (uint64_t i = 0; i < reference.bytes; ++i) {
      const bool pattern = reference.pack == Reference::kPattern;
      bytes.emplace_back(reference.pack, pattern ? pattern_at(reference, i) & 0xff : reference.offset + i);
    }
  }
  return bytes;
}

std::vector<Source> whole_file(const TreeFile& file) {
  std::vector<Source> bytes(file.bytes);
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    const std::vector<Source> content = expand(file.streams[stream]);
    size_t at = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      for (uint64_t i = 0; i < extent.bytes; ++i) bytes.at(extent.offset + i) = content.at(at++);
    }
    EXPECT_EQ(at, content.size());
  }
  return bytes;
}

std::vector<Reference> arbitrary_stream(uint64_t bytes) {
  std::vector<Reference> stream;
  while (bytes > 0) {
    Reference reference;
    reference.bytes = *rc::gen::inRange<uint64_t>(1, std::min<uint64_t>(bytes, 40) + 1);
    reference.pack = *rc::gen::element(uint32_t{0}, uint32_t{1}, Reference::kPattern);
    reference.offset = *rc::gen::arbitrary<uint32_t>() * uint64_t{0x100000001};
    bytes -= reference.bytes;
    stream.push_back(reference);
  }
  return stream;
}

/// With variables, large and small, whose extents take turns.
TreeFile arbitrary_file() {
  TreeFile file;
  const auto variable_count = *rc::gen::inRange<size_t>(0, 6);
  std::vector<Variable> variables(variable_count);
  uint64_t offset = 0;
  for (auto left = *rc::gen::inRange<size_t>(0, 12); left > 0 && variable_count > 0; --left) {
    offset += *rc::gen::inRange<uint64_t>(0, 20);
    const auto bytes = *rc::gen::inRange<uint64_t>(1, 60);
    variables[*rc::gen::inRange<size_t>(0, variable_count)].extents.push_back({offset, bytes});
    offset += bytes;
  }
  for (size_t i = 0; i < variable_count; ++i) {
    variables[i].name = std::to_string(i);
    (*rc::gen::arbitrary<bool>() ? file.small_variables : file.layout.variables).push_back(variables[i]);
  }
  file.bytes = offset + *rc::gen::inRange<uint64_t>(0, 20);
  for (size_t i = 0; i <= file.layout.variables.size(); ++i) {
    uint64_t bytes = 0;
    for (const Extent& extent : stream_extents(file, i)) bytes += extent.bytes;
    file.streams.push_back(arbitrary_stream(bytes));
  }
  return file;
}

RC_GTEST_PROP(FileReferences, AreThoseOfTheFilesBytesInOrder, ()) {
  const TreeFile file = arbitrary_file();
  const FileReferences references(file);
  const std::vector<Source> bytes = whole_file(file);
  RC_ASSERT(expand(references.all()) == bytes);
  for (const Variable& variable : file.small_variables) {
    std::vector<Source> expected;
    for (const Extent& extent : variable.extents)
      expected.insert(expected.end(), bytes.begin() + static_cast<ptrdiff_t>(extent.offset),
                      bytes.begin() + static_cast<ptrdiff_t>(extent.offset + extent.bytes));
    RC_ASSERT(expand(references.of(variable.extents)) == expected);
  }
}

RC_GTEST_PROP(SmallVariables, AreUnfoldedWithoutAByteOfTheFileBeingAnother, ()) {
  const TreeFile file = arbitrary_file();
  TreeFile unfolded = file;
  unfold_small_variables(unfolded);
  RC_ASSERT(unfolded.small_variables.empty());
  RC_ASSERT(unfolded.layout.variables.size() == file.layout.variables.size() + file.small_variables.size());
  RC_ASSERT(whole_file(unfolded) == whole_file(file));
}

}  // namespace
}  // namespace varve
