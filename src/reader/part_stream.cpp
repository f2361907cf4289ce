#include "reader/part_stream.h"

#include <algorithm>

#include "engine/inspect.h"

namespace varve {

PartStream::PartStream(const StoredPart& part) : leaf_(*part.leaf) {
  if (part.stream > 0) {
    references_ = &part.file->streams[part.stream];
  } else {
    own_ = FileReferences(*part.file).of(part.extents);
  }
  find_ends();
}

PartStream::PartStream(const Leaf& leaf, const TreeFile& file) : leaf_(leaf), own_(FileReferences(file).all()) {
  find_ends();
}

void PartStream::find_ends() {
  uint64_t end = 0;
  for (const Reference& reference : references()) ends_.push_back(end += reference.bytes);
}

Status PartStream::read(StreamReader& reader, uint64_t offset, MutableByteSpan into) const {
  size_t i = std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin();
  for (; !into.empty(); ++i) {
    if (i == ends_.size()) return Status::corrupt("a variable is shorter than its description says");
    const Reference& reference = references()[i];
    const uint64_t skip = offset - (ends_[i] - reference.bytes);
    const size_t bytes = std::min<uint64_t>(into.size(), reference.bytes - skip);
    // As a stream of its own: the reader would look for it from the stream's beginning.
    const Status read = reader.read(leaf_, {reference}, skip, into.first(bytes));
    if (!read.ok()) return read.code() == StatusCode::corrupt ? read.with_hint(Remedy::verify_and_replace_arena) : read;
    into = into.subspan(bytes);
    offset += bytes;
  }
  return {};
}

}  // namespace varve
