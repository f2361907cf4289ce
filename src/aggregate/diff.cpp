#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "aggregate/inspect.h"
#include "aggregate/rank_order.h"

namespace varve {

namespace {
constexpr uint64_t kWindowBytes = 1_MiB;

/// A file of a set with the leaf that describes it.
struct LeafFile {
  std::shared_ptr<const Leaf> leaf;
  size_t index = 0;
  const TreeFile& file() const { return leaf->files[index]; }
};

Result<std::vector<LeafFile>> load_files(const Store& store, const SetName& name) {
  VARVE_ASSIGN(SetRecord record, Catalog(store).read(name));
  std::vector<LeafFile> files;
  Status walked = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    auto shared = std::make_shared<const Leaf>(leaf);
    for (size_t i = 0; i < leaf.files.size(); ++i) {
      if (leaf.files[i].type == FileType::regular) files.push_back({shared, i});
    }
    return {};
  });
  VARVE_TRY(walked);
  return files;
}

double element_value(const std::byte* at, const ElementType& type) {
  std::byte raw[8];
  std::memcpy(raw, at, type.bytes);
  if (type.order == ByteOrder::big) std::reverse(raw, raw + type.bytes);
  switch (type.bytes) {
    case 1:
      return type.kind == ElementKind::signed_integer ? double(load_le<int8_t>(raw)) : double(load_le<uint8_t>(raw));
    case 2:
      return type.kind == ElementKind::signed_integer ? double(load_le<int16_t>(raw)) : double(load_le<uint16_t>(raw));
    case 4:
      if (type.kind == ElementKind::floating) return double(load_le<float>(raw));
      return type.kind == ElementKind::signed_integer ? double(load_le<int32_t>(raw)) : double(load_le<uint32_t>(raw));
    default:
      if (type.kind == ElementKind::floating) return load_le<double>(raw);
      return type.kind == ElementKind::signed_integer ? double(load_le<int64_t>(raw)) : double(load_le<uint64_t>(raw));
  }
}

bool comparable(const ElementType& type) {
  if (!type.numeric()) return false;
  if (type.kind == ElementKind::floating) return type.bytes == 4 || type.bytes == 8;
  return type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
}

class Differ {
 public:
  Differ(const Store& store, SetDifference& difference, ProgressSink& progress)
      : difference_(difference), progress_(progress), reader_a_(store), reader_b_(store) {}

  Status compare_files(const LeafFile& a, const LeafFile& b) {
    const TreeFile& old_file = a.file();
    const TreeFile& new_file = b.file();
    VARVE_TRY(compare_streams(a, 0, b, 0, "", ElementType{}));
    std::map<std::string, size_t> old_variables;
    for (size_t i = 0; i < old_file.layout.variables.size(); ++i)
      old_variables.emplace(old_file.layout.variables[i].name, i);
    for (size_t i = 0; i < new_file.layout.variables.size(); ++i) {
      const Variable& variable = new_file.layout.variables[i];
      auto found = old_variables.find(variable.name);
      if (found == old_variables.end()) found = find_renamed_whole(old_file, new_file, old_variables);
      if (found == old_variables.end()) {
        add({new_file.path,
             variable.name,
             ChangeKind::added,
             variable.stored_bytes(),
             variable.stored_bytes(),
             {},
             {}});
        continue;
      }
      const bool same_type = old_file.layout.variables[found->second].type == variable.type && !variable.encoded;
      VARVE_TRY(
          compare_streams(a, found->second + 1, b, i + 1, variable.name, same_type ? variable.type : ElementType{}));
      old_variables.erase(found);
    }
    for (const auto& [name, index] : old_variables) {
      const uint64_t bytes = old_file.layout.variables[index].stored_bytes();
      add({old_file.path, name, ChangeKind::removed, bytes, bytes, {}, {}});
    }
    return {};
  }

  void whole_file(const TreeFile& file, ChangeKind kind) { add({file.path, "", kind, file.bytes, file.bytes, {}, {}}); }

 private:
  /// The one variable of an opaque file bears the file's name, which may contain the step.
  static std::map<std::string, size_t>::iterator find_renamed_whole(const TreeFile& old_file, const TreeFile& new_file,
                                                                    std::map<std::string, size_t>& old_variables) {
    const bool both_single = old_file.layout.variables.size() == 1 && new_file.layout.variables.size() == 1;
    const bool same_format = old_file.layout.format == new_file.layout.format && old_file.layout.format == "raw";
    return both_single && same_format ? old_variables.begin() : old_variables.end();
  }

  void add(VariableChange change) {
    difference_.bytes += change.bytes;
    difference_.changed_bytes += change.changed_bytes;
    if (change.kind == ChangeKind::same) {
      ++difference_.same_count;
    } else {
      difference_.changes.push_back(std::move(change));
    }
  }

  Status compare_streams(const LeafFile& a, size_t stream_a, const LeafFile& b, size_t stream_b,
                         const std::string& variable, const ElementType& type) {
    const std::vector<Reference>& old_stream = a.file().streams[stream_a];
    const std::vector<Reference>& new_stream = b.file().streams[stream_b];
    uint64_t old_bytes = 0, new_bytes = 0;
    for (const Reference& reference : old_stream) old_bytes += reference.bytes;
    for (const Reference& reference : new_stream) new_bytes += reference.bytes;
    VariableChange change{b.file().path, variable, ChangeKind::same, new_bytes, 0, {}, {}};
    const uint64_t common = std::min(old_bytes, new_bytes);
    change.changed_bytes = new_bytes - common + (old_bytes - common);
    const bool values = comparable(type) && old_bytes == new_bytes && new_bytes % type.bytes == 0;
    double difference_max = 0, square_sum = 0;
    for (uint64_t at = 0; at < common; at += kWindowBytes) {
      if (progress_.cancelled()) return Status::cancelled();
      const uint64_t same = same_bytes(*a.leaf, old_stream, *b.leaf, new_stream, at, common);
      progress_.advance(same);
      at += same;
      if (at >= common) break;
      const size_t bytes = std::min(kWindowBytes, common - at);
      progress_.advance(bytes);
      window_a_.resize(bytes);
      window_b_.resize(bytes);
      VARVE_TRY(reader_a_.read(*a.leaf, old_stream, at, window_a_));
      VARVE_TRY(reader_b_.read(*b.leaf, new_stream, at, window_b_));
      const size_t element_bytes = values ? type.bytes : 1;
      for (size_t i = 0; i + element_bytes <= bytes; i += element_bytes) {
        if (std::memcmp(&window_a_[i], &window_b_[i], element_bytes) == 0) continue;
        change.changed_bytes += element_bytes;
        if (!values) continue;
        const double difference = std::abs(element_value(&window_b_[i], type) - element_value(&window_a_[i], type));
        // NaN and infinity do not order; they are counted as changed elements only.
        if (!std::isfinite(difference)) continue;
        difference_max = std::max(difference_max, difference);
        square_sum += difference * difference;
      }
    }
    if (change.changed_bytes > 0) {
      change.kind = ChangeKind::changed;
      if (values) {
        change.difference_max = difference_max;
        const uint64_t element_count = new_bytes / type.bytes;
        change.difference_rms = std::sqrt(square_sum / static_cast<double>(element_count));
      }
    }
    if (new_bytes > 0 || old_bytes > 0) add(std::move(change));
    return {};
  }

  /// How far from `begin` to `end` both streams refer to the same bytes: all of it, or whole windows.
  static uint64_t same_bytes(const Leaf& leaf_a, const std::vector<Reference>& a, const Leaf& leaf_b,
                             const std::vector<Reference>& b, uint64_t begin, uint64_t end) {
    size_t i = 0, j = 0;
    uint64_t at_a = 0, at_b = 0;
    while (at_a + a[i].bytes <= begin) at_a += a[i++].bytes;
    while (at_b + b[j].bytes <= begin) at_b += b[j++].bytes;
    uint64_t at = begin;
    while (true) {
      const uint64_t skip_a = at - at_a, skip_b = at - at_b;
      if (!same_source(leaf_a, a[i], skip_a, leaf_b, b[j], skip_b)) return (at - begin) / kWindowBytes * kWindowBytes;
      at += std::min(a[i].bytes - skip_a, b[j].bytes - skip_b);
      if (at >= end) return end - begin;
      if (at_a + a[i].bytes <= at) at_a += a[i++].bytes;
      if (at_b + b[j].bytes <= at) at_b += b[j++].bytes;
    }
  }

  /// Whether two references, from some bytes into each, refer to the same.
  static bool same_source(const Leaf& leaf_a, const Reference& a, uint64_t skip_a, const Leaf& leaf_b,
                          const Reference& b, uint64_t skip_b) {
    const bool pattern = a.pack == Reference::kPattern;
    if (pattern != (b.pack == Reference::kPattern)) return false;
    if (pattern) return a.offset == b.offset && skip_a % 8 == skip_b % 8;
    return leaf_a.packs[a.pack].score == leaf_b.packs[b.pack].score && a.offset + skip_a == b.offset + skip_b;
  }

  SetDifference& difference_;
  ProgressSink& progress_;
  StreamReader reader_a_, reader_b_;
  ByteVector window_a_, window_b_;
};
}  // namespace

Result<SetDifference> diff_sets(const Store& store, const SetName& a, const SetName& b, ProgressSink& progress) {
  SetDifference difference;
  difference.a = a;
  difference.b = b;
  progress.phase("comparing");
  VARVE_ASSIGN(std::vector<LeafFile> old_files, load_files(store, a));
  VARVE_ASSIGN(std::vector<LeafFile> new_files, load_files(store, b));
  uint64_t total = 0;
  for (const LeafFile& file : new_files) total += file.file().bytes;
  progress.total(total);
  std::map<std::string, size_t> by_path;
  std::map<std::pair<int64_t, std::string>, size_t> by_family;
  for (size_t i = 0; i < old_files.size(); ++i) {
    const TreeFile& file = old_files[i].file();
    by_path.emplace(file.path, i);
    by_family.emplace(std::pair(file.rank, path_family(file.path)), i);
  }
  std::set<size_t> matched;
  Differ differ(store, difference, progress);
  for (const LeafFile& file : new_files) {
    auto exact = by_path.find(file.file().path);
    auto similar = by_family.find({file.file().rank, path_family(file.file().path)});
    size_t match = old_files.size();
    if (exact != by_path.end()) {
      match = exact->second;
    } else if (similar != by_family.end() && !matched.contains(similar->second)) {
      match = similar->second;
    }
    if (match == old_files.size()) {
      differ.whole_file(file.file(), ChangeKind::added);
      continue;
    }
    matched.insert(match);
    VARVE_TRY(differ.compare_files(old_files[match], file));
  }
  for (size_t i = 0; i < old_files.size(); ++i) {
    if (!matched.contains(i)) differ.whole_file(old_files[i].file(), ChangeKind::removed);
  }
  return difference;
}

}  // namespace varve
