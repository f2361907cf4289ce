#include "study/part_source.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "engine/save.h"

namespace varve {

namespace {
/// The parts of a stream's extents that pieces of the stream cover.
std::vector<Extent> covered(const std::vector<Extent>& extents, const std::vector<StreamPiece>& pieces) {
  std::vector<Extent> found;
  uint64_t at = 0;
  size_t next = 0;
  for (const Extent& extent : extents) {
    const uint64_t extent_end = at + extent.bytes;
    while (next < pieces.size() && pieces[next].end <= at) ++next;
    for (size_t i = next; i < pieces.size() && pieces[i].begin < extent_end; ++i) {
      const uint64_t begin = std::max(pieces[i].begin, at), end = std::min(pieces[i].end, extent_end);
      if (begin < end) found.push_back({extent.offset + begin - at, end - begin});
    }
    at = extent_end;
  }
  return found;
}
}  // namespace

PartSource::PartSource(const StudySet& set, const SamplePlan& plan, const std::vector<uint32_t>& files)
    : set_(set), reader_(set.open_reader()) {
  std::vector<size_t> first_stream(set.group.files.size() + 1);
  for (size_t i = 0; i < set.group.files.size(); ++i) {
    first_stream[i + 1] = first_stream[i] + set.group.files[i].streams.size();
  }
  for (const uint32_t file : files) {
    if (plan.takes_all()) {
      files_.push_back(set.files[file]);
      parts_.push_back({file, {}, set.group.files[file].layout});
      continue;
    }
    if (set.files[file].type != FileType::regular) continue;
    Part part = sample_file(file, first_stream[file], plan);
    if (part.pieces.empty()) continue;
    SourceFile sampled = set.files[file];
    sampled.bytes = part.pieces.back().offset + part.pieces.back().bytes;
    sampled.sparse = false;
    files_.push_back(std::move(sampled));
    parts_.push_back(std::move(part));
  }
}

PartSource::Part PartSource::sample_file(uint32_t file, size_t first_stream, const SamplePlan& plan) const {
  Part part{file, {}, {}};
  const TreeFile& described = set_.group.files[file];
  part.layout.format = described.layout.format;
  std::vector<std::vector<Extent>> taken(described.streams.size());  // of each stream, in the real file
  for (size_t position = 0; position < taken.size(); ++position) {
    const size_t stream = first_stream + position;
    taken[position] = covered(set_.group.streams[stream].extents, plan.pieces(set_, stream));
    for (const Extent& extent : taken[position]) part.pieces.push_back({0, extent.offset, extent.bytes});
  }
  std::sort(part.pieces.begin(), part.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.real_offset < b.real_offset; });
  uint64_t offset = 0;
  std::unordered_map<uint64_t, uint64_t> offset_of;
  for (Piece& piece : part.pieces) {
    piece.offset = offset;
    offset_of[piece.real_offset] = offset;
    offset += piece.bytes;
  }
  for (size_t position = 1; position < taken.size(); ++position) {
    if (taken[position].empty()) continue;
    Variable variable = described.layout.variables[position - 1];
    const std::vector<uint64_t>& shape = variable.run_shape.empty() ? variable.shape : variable.run_shape;
    variable.run_shape = shape;
    variable.extents = taken[position];
    for (Extent& extent : variable.extents) extent.offset = offset_of[extent.offset];
    part.layout.variables.push_back(std::move(variable));
  }
  return part;
}

Result<std::vector<Layout>> PartSource::layouts(ProgressSink& /*progress*/) {
  std::vector<Layout> layouts;
  for (const Part& part : parts_) layouts.push_back(part.layout);
  return layouts;
}

Status PartSource::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  const Part& part = parts_[file];
  if (part.pieces.empty()) return reader_->read(part.file, offset, into);
  auto piece = std::upper_bound(part.pieces.begin(), part.pieces.end(), offset,
                                [](uint64_t wanted, const Piece& each) { return wanted < each.offset; });
  for (--piece; !into.empty(); ++piece) {
    if (piece == part.pieces.end()) return Status::internal("a read past the end of a sampled file", files_[file].path);
    const uint64_t skip = offset - piece->offset;
    const size_t bytes = std::min<uint64_t>(into.size(), piece->bytes - skip);
    VARVE_TRY(reader_->read(part.file, piece->real_offset + skip, into.first(bytes)));
    into = into.subspan(bytes);
    offset += bytes;
  }
  return {};
}

Result<uint64_t> PartSource::hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) {
  if (!parts_[file].pieces.empty()) return uint64_t{0};
  return reader_->hole_bytes(parts_[file].file, offset, bytes_max);
}

uint64_t PartSource::bytes() const {
  uint64_t sum = 0;
  for (const SourceFile& file : files_) sum += file.bytes;
  return sum;
}

std::vector<std::vector<uint32_t>> groups_of(const StudySet& set, uint32_t group_size) {
  std::unordered_map<std::string, uint32_t> ordinals;
  for (uint32_t i = 0; i < set.files.size(); ++i) ordinals.emplace(set.files[i].path, i);
  std::vector<std::vector<uint32_t>> groups;
  SaveOptions options;
  options.ranks.group_size = group_size;
  for (const std::vector<SourceFile>& files : split_into_groups(set.files, options)) {
    groups.emplace_back();
    for (const SourceFile& file : files) groups.back().push_back(ordinals.at(file.path));
  }
  return groups;
}

std::vector<uint32_t> all_files(const StudySet& set) {
  std::vector<uint32_t> files(set.files.size());
  std::iota(files.begin(), files.end(), 0u);
  return files;
}

}  // namespace varve
