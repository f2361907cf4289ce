#include "study/change_map.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "hash/score.h"

namespace varve {

namespace {
/// Turns a quadrant so that the curve in it begins and ends where its neighbours want it.
void turn(uint32_t side, CurvePoint& point, bool right, bool upper) {
  if (upper) return;
  if (right) point = {side - 1 - point.x, side - 1 - point.y};
  std::swap(point.x, point.y);
}
}  // namespace

CurvePoint hilbert_point(uint32_t order, uint64_t distance) {
  CurvePoint point;
  for (uint32_t level = 0; level < order; ++level) {
    const uint32_t side = 1u << level;
    const bool right = (distance & 2) != 0;
    const bool upper = ((distance ^ (distance >> 1)) & 1) != 0;
    turn(side, point, right, upper);
    point.x += right ? side : 0;
    point.y += upper ? side : 0;
    distance >>= 2;
  }
  return point;
}

uint64_t hilbert_distance(uint32_t order, CurvePoint point) {
  uint64_t distance = 0;
  for (uint32_t level = order; level-- > 0;) {
    const uint32_t side = 1u << level;
    const bool right = (point.x & side) != 0, upper = (point.y & side) != 0;
    distance = distance * 4 + (right ? (upper ? 2 : 3) : (upper ? 1 : 0));
    point.x &= side - 1;
    point.y &= side - 1;
    turn(side, point, right, upper);
  }
  return distance;
}

uint32_t hilbert_order(uint64_t cells) {
  uint32_t order = 1;
  while (order < 16 && (uint64_t{1} << (2 * order)) < cells) ++order;
  return order;
}

namespace {
constexpr uint64_t kCellsMax = uint64_t{1} << 16;
constexpr uint64_t kCellBytesMin = 512;
constexpr uint64_t kBlockBytesMax = 4096;
constexpr size_t kReadBytes = 1_MiB;
/// How much fuller a smaller square must be to be worth its larger cells.
constexpr double kBetterFill = 1.25;

/// Cells so small that they fill a curve of the highest order, or a lower one if they fill that better.
uint64_t cell_bytes_for(uint64_t total_bytes) {
  uint64_t best = 0;
  double best_fill = 0;
  for (uint64_t cells = kCellsMax; cells >= kCellsMax / 16; cells /= 4) {
    uint64_t cell_bytes = std::max(total_bytes / (cells - 1) + 1, kCellBytesMin);
    const uint64_t unit = cell_bytes > kBlockBytesMax ? kBlockBytesMax : kCellBytesMin;
    cell_bytes = (cell_bytes + unit - 1) / unit * unit;
    const double fill = static_cast<double>(total_bytes) / static_cast<double>(cell_bytes * cells);
    if (best > 0 && fill < kBetterFill * best_fill) continue;
    best = cell_bytes;
    best_fill = fill;
  }
  return best;
}

/// A file of the series: the same rank, and the same place among the rank's files.
using FileKey = std::pair<int64_t, uint32_t>;

/// The regular files of a set by their keys.
std::map<FileKey, uint32_t> files_by_key(const StudySet& set) {
  std::map<int64_t, uint32_t> counts;
  std::map<FileKey, uint32_t> files;
  for (uint32_t i = 0; i < set.files.size(); ++i) {
    if (set.files[i].type != FileType::regular) continue;
    files[{set.files[i].rank, counts[set.files[i].rank]++}] = i;
  }
  return files;
}

struct Span {
  uint64_t begin = 0;  ///< in the map
  uint64_t bytes = 0;  ///< the most that the file has in any set
};

class Mapper {
 public:
  Mapper(const StudySeries& series, uint64_t memory_bytes, ProgressSink& progress)
      : series_(series), progress_(progress) {
    lay_out(memory_bytes);
  }

  Result<ChangeMap> run() {
    label_cells(series_.sets.back());
    size_t sets_done = 0;
    for (const StudySet& set : series_.sets) {
      VARVE_ASSIGN(const bool done, take_set(set, sets_done == 0));
      if (!done) break;
      ++sets_done;
    }
    map_.comparisons = sets_done > 0 ? sets_done - 1 : 0;
    for (size_t i = 0; i < map_.cells.size(); ++i) {
      if (blocks_of_[i] > 0)
        map_.cells[i].changes = static_cast<float>(changes_[i]) / static_cast<float>(blocks_of_[i]);
    }
    return std::move(map_);
  }

 private:
  void lay_out(uint64_t memory_bytes) {
    for (const StudySet& set : series_.sets) {
      for (const auto& [key, file] : files_by_key(set))
        spans_[key].bytes = std::max(spans_[key].bytes, set.files[file].bytes);
    }
    uint64_t total = 0;
    for (const auto& [key, span] : spans_) total += span.bytes + kCellBytesMin;
    map_.cell_bytes = cell_bytes_for(total);
    map_.block_bytes = kBlockBytesMax;
    while (map_.cell_bytes % map_.block_bytes != 0) map_.block_bytes /= 2;
    const uint64_t blocks_max = std::max<uint64_t>(memory_bytes / sizeof(uint64_t), kCellsMax);
    while (total / map_.block_bytes / map_.compared_one_in > blocks_max) map_.compared_one_in *= 2;
    // Files begin at a block, so that a block is of one file.
    uint64_t at = 0;
    for (auto& [key, span] : spans_) {
      span.begin = at;
      at += (span.bytes + map_.block_bytes - 1) / map_.block_bytes * map_.block_bytes;
    }
    const uint64_t step = map_.block_bytes * map_.compared_one_in;
    known_.assign(at / step + 1, 0);
    map_.cells.resize((at + map_.cell_bytes - 1) / map_.cell_bytes);
    map_.order = hilbert_order(map_.cells.size());
    changes_.assign(map_.cells.size(), 0);
    blocks_of_.assign(map_.cells.size(), 0);
    const auto compared = (at + step - 1) / step;
    for (uint64_t block = 0; block < compared; ++block) ++blocks_of_[block * step / map_.cell_bytes];
  }

  Result<bool> take_set(const StudySet& set, bool first) {
    const std::unique_ptr<SetReader> reader = set.open_reader();
    const std::map<FileKey, uint32_t> files = files_by_key(set);
    for (const auto& [key, span] : spans_) {
      const auto found = files.find(key);
      const uint64_t bytes = found == files.end() ? 0 : set.files[found->second].bytes;
      const uint32_t file = found == files.end() ? 0 : found->second;
      VARVE_ASSIGN(const bool done, take_file(*reader, file, bytes, span, first));
      if (!done) return false;
    }
    return true;
  }

  /// The file has `bytes` in this set; where it had more in others, there is nothing.
  Result<bool> take_file(SetReader& reader, uint32_t file, uint64_t bytes, const Span& span, bool first) {
    const uint64_t step = map_.block_bytes * map_.compared_one_in;
    uint64_t at = (span.begin + step - 1) / step * step;  // the first compared block in the span
    const uint64_t end = span.begin + span.bytes;
    ByteVector buffer(kReadBytes);
    while (at < end) {
      if (progress_.cancelled()) return false;
      // Adjoining blocks are read together.
      const size_t count = map_.compared_one_in == 1 ? kReadBytes / map_.block_bytes : 1;
      const uint64_t offset = at - span.begin;
      const uint64_t read_bytes =
          offset >= bytes ? 0 : std::min<uint64_t>({count * map_.block_bytes, bytes - offset, end - at});
      if (read_bytes > 0) VARVE_TRY(reader.read(file, offset, MutableByteSpan(buffer).first(read_bytes)));
      take_blocks(ByteSpan(buffer).first(read_bytes), at, std::min(at + count * map_.block_bytes, end), first);
      progress_.advance(read_bytes);
      at += map_.compared_one_in == 1 ? count * map_.block_bytes : step;
    }
    return true;
  }

  void take_blocks(ByteSpan data, uint64_t begin, uint64_t end, bool first) {
    inputs_.clear();
    for (size_t at = 0; at < data.size(); at += map_.block_bytes) {
      inputs_.push_back(data.subspan(at, std::min<size_t>(map_.block_bytes, data.size() - at)));
    }
    scores_.resize(inputs_.size());
    score_.many(inputs_, scores_);
    const uint64_t step = map_.block_bytes * map_.compared_one_in;
    for (uint64_t at = begin, i = 0; at < end; at += map_.block_bytes, ++i) {
      const uint64_t now = i < scores_.size() ? scores_[i].prefix() : 0;
      uint64_t& before = known_[at / step];
      if (!first && before != now) ++changes_[at / map_.cell_bytes];
      before = now;
    }
  }

  void label_cells(const StudySet& set) {
    std::vector<uint64_t> most(map_.cells.size());
    const std::map<FileKey, uint32_t> files = files_by_key(set);
    std::vector<std::vector<const Stream*>> streams(set.files.size());
    for (const Stream& stream : set.group.streams) streams[stream.file].push_back(&stream);
    for (const auto& [key, file] : files) {
      for (const Stream* stream : streams[file]) label_stream(set, *stream, spans_.at(key).begin, most);
    }
  }

  void label_stream(const StudySet& set, const Stream& stream, uint64_t file_begin, std::vector<uint64_t>& most) {
    std::unordered_map<uint64_t, uint64_t> bytes_in;
    for (const Extent& extent : stream.extents) {
      uint64_t at = file_begin + extent.offset;
      for (const uint64_t end = at + extent.bytes; at < end;) {
        const uint64_t cell = at / map_.cell_bytes, next = std::min(end, (cell + 1) * map_.cell_bytes);
        bytes_in[cell] += next - at;
        at = next;
      }
    }
    bool is_named = false;
    for (const auto& [cell, bytes] : bytes_in) {
      ++map_.cells[cell].shared_by;
      if (bytes <= most[cell]) continue;
      most[cell] = bytes;
      if (!is_named) map_.labels.push_back(name_of(set, stream));
      is_named = true;
      map_.cells[cell].label = static_cast<uint32_t>(map_.labels.size() - 1);
    }
  }

  static std::string name_of(const StudySet& set, const Stream& stream) {
    const TreeFile& file = set.group.files[stream.file];
    if (is_opaque(file.layout)) return file.path;
    return file.path + ": " + (stream.position == 0 ? "(skeleton)" : file.layout.variables[stream.position - 1].name);
  }

  const StudySeries& series_;
  ProgressSink& progress_;
  const ScoreFunction score_ = ScoreFunction::preferred();
  ChangeMap map_;
  std::map<FileKey, Span> spans_;
  std::vector<uint64_t> known_;  ///< fingerprints of the compared blocks in the last set; 0: not there
  std::vector<uint64_t> changes_, blocks_of_;
  std::vector<ByteSpan> inputs_;
  std::vector<Score> scores_;
};
}  // namespace

Result<ChangeMap> study_changes(const StudySeries& series, uint64_t memory_bytes, ProgressSink& progress) {
  return Mapper(series, memory_bytes, progress).run();
}

}  // namespace varve
