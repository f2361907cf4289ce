#include "engine/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "core/bytes.h"
#include "engine/folder_source.h"
#include "engine/inspect.h"
#include "engine/scheme.h"
#include "engine/stored_files.h"

namespace varve {

namespace {
constexpr size_t kShownElementBytesMax = 8;

/// An element in the byte order of load_le().
struct Element {
  std::byte raw[kShownElementBytesMax];

  Element(const std::byte* at, const ElementType& type) {
    std::memcpy(raw, at, type.bytes);
    if (type.order == ByteOrder::big) std::reverse(raw, raw + type.bytes);
  }
};

/// Fits even for the two ends of a type's range.
template <class Integer>
uint64_t distance(const Element& a, const Element& b) {
  const auto x = load_le<Integer>(a.raw), y = load_le<Integer>(b.raw);
  return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
               : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
}

uint64_t integer_distance(const Element& a, const Element& b, const ElementType& type) {
  const bool is_signed = type.kind == ElementKind::signed_integer;
  switch (type.bytes) {
    case 1: return is_signed ? distance<int8_t>(a, b) : distance<uint8_t>(a, b);
    case 2: return is_signed ? distance<int16_t>(a, b) : distance<uint16_t>(a, b);
    case 4: return is_signed ? distance<int32_t>(a, b) : distance<uint32_t>(a, b);
    default: return is_signed ? distance<int64_t>(a, b) : distance<uint64_t>(a, b);
  }
}

double floating_distance(const Element& a, const Element& b, const ElementType& type) {
  if (type.bytes == 4) return std::abs(double(load_le<float>(a.raw)) - double(load_le<float>(b.raw)));
  return std::abs(load_le<double>(a.raw) - load_le<double>(b.raw));
}
}  // namespace

bool ElementDifference::is_defined_for(const ElementType& type) {
  if (!type.numeric()) return false;
  if (type.kind == ElementKind::floating) return type.bytes == 4 || type.bytes == 8;
  return type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
}

void ElementDifference::add(const std::byte* old_element, const std::byte* new_element) {
  const Element a(old_element, type_), b(new_element, type_);
  const double difference = type_.kind == ElementKind::floating ? floating_distance(a, b, type_)
                                                                : static_cast<double>(integer_distance(a, b, type_));
  if (!std::isfinite(difference)) {
    finite_ = false;
    return;
  }
  largest_ = std::max(largest_, difference);
  root_of_squares_ = std::hypot(root_of_squares_, difference);  // the squares themselves could overflow
}

double ElementDifference::largest() const { return finite_ ? largest_ : std::numeric_limits<double>::quiet_NaN(); }

double ElementDifference::rms(uint64_t element_count) const {
  if (!finite_) return std::numeric_limits<double>::quiet_NaN();
  return element_count == 0 ? 0 : root_of_squares_ / std::sqrt(static_cast<double>(element_count));
}

namespace {
constexpr uint64_t kComparedBytes = 1_MiB;

/// Whether two references, from some bytes into each, refer to the same.
bool same_source(const Leaf& leaf_a, const Reference& a, uint64_t skip_a, const Leaf& leaf_b, const Reference& b,
                 uint64_t skip_b) {
  const bool pattern = a.pack == Reference::kPattern;
  if (pattern != (b.pack == Reference::kPattern)) return false;
  if (pattern) return pattern_at(a, skip_a) == pattern_at(b, skip_b);
  return leaf_a.packs[a.pack].score == leaf_b.packs[b.pack].score && a.offset + skip_a == b.offset + skip_b;
}

/// How far from `begin` to `end` both streams refer to the same bytes: all of it, or whole windows.
uint64_t same_bytes(const StoredStream& a, const StoredStream& b, uint64_t begin, uint64_t end) {
  size_t i = 0, j = 0;
  uint64_t at_a = 0, at_b = 0;
  while (at_a + a.references[i].bytes <= begin) at_a += a.references[i++].bytes;
  while (at_b + b.references[j].bytes <= begin) at_b += b.references[j++].bytes;
  uint64_t at = begin;
  while (true) {
    const uint64_t skip_a = at - at_a, skip_b = at - at_b;
    if (!same_source(a.leaf, a.references[i], skip_a, b.leaf, b.references[j], skip_b))
      return (at - begin) / kComparedBytes * kComparedBytes;
    at += std::min(a.references[i].bytes - skip_a, b.references[j].bytes - skip_b);
    if (at >= end) return end - begin;
    if (at_a + a.references[i].bytes <= at) at_a += a.references[i++].bytes;
    if (at_b + b.references[j].bytes <= at) at_b += b.references[j++].bytes;
  }
}
}  // namespace

uint64_t StoredStream::bytes() const {
  uint64_t bytes = 0;
  for (const Reference& reference : references) bytes += reference.bytes;
  return bytes;
}

Status StreamComparer::visit_windows(const StoredStream& a, const StoredStream& b, uint64_t bytes,
                                     const std::function<bool(uint64_t, ByteSpan, ByteSpan)>& visit) {
  for (uint64_t at = 0; at < bytes; at += kComparedBytes) {
    if (progress_.cancelled()) return Status::cancelled();
    const uint64_t same = same_bytes(a, b, at, bytes);
    progress_.advance(same);
    at += same;
    if (at >= bytes) break;
    const size_t window_bytes = std::min(kComparedBytes, bytes - at);
    progress_.advance(window_bytes);
    old_window_.resize(window_bytes);
    new_window_.resize(window_bytes);
    VARVE_TRY(old_.read(a.leaf, a.references, at, old_window_));
    VARVE_TRY(new_.read(b.leaf, b.references, at, new_window_));
    if (!visit(at, old_window_, new_window_)) break;
  }
  return {};
}

Result<StreamComparer::Outcome> StreamComparer::compare(const StoredStream& a, const StoredStream& b,
                                                        const ElementType& type) {
  const uint64_t old_bytes = a.bytes(), new_bytes = b.bytes();
  const bool values = ElementDifference::is_defined_for(type) && old_bytes == new_bytes && new_bytes % type.bytes == 0;
  const size_t element_bytes = values ? type.bytes : 1;
  ElementDifference difference(type);
  Outcome outcome;
  outcome.changed_bytes = std::max(old_bytes, new_bytes) - std::min(old_bytes, new_bytes);
  auto count_changes = [&](uint64_t at, ByteSpan before, ByteSpan after) {
    for (size_t i = 0; i + element_bytes <= before.size(); i += element_bytes) {
      if (std::memcmp(&before[i], &after[i], element_bytes) == 0) continue;
      outcome.changed_bytes += element_bytes;
      if (!outcome.first_changed) outcome.first_changed = at + i;
      if (values) difference.add(&before[i], &after[i]);
    }
    return true;
  };
  VARVE_TRY(visit_windows(a, b, std::min(old_bytes, new_bytes), count_changes));
  if (values && outcome.changed_bytes > 0) {
    outcome.difference_max = difference.largest();
    outcome.difference_rms = difference.rms(new_bytes / type.bytes);
  }
  return outcome;
}

Result<bool> StreamComparer::equal(const StoredStream& a, const StoredStream& b) {
  const uint64_t bytes = b.bytes();
  if (a.bytes() != bytes) return false;
  bool equal = true;
  VARVE_TRY(visit_windows(a, b, bytes, [&](uint64_t, ByteSpan before, ByteSpan after) {
    equal = std::equal(before.begin(), before.end(), after.begin());
    return equal;
  }));
  return equal;
}

namespace {
bool same_facts(const TreeFile& stored, const SourceFile& file) {
  if (stored.type != file.type) return false;
  switch (file.type) {
    case FileType::directory: return true;
    case FileType::symlink: return stored.link_target == file.link_target;
    case FileType::regular: break;
  }
  return stored.bytes == file.bytes && stored.mode == file.mode && stored.modified_s == file.modified_s &&
         stored.modified_ns == file.modified_ns;
}

std::map<std::string_view, uint32_t> places_of(const std::vector<SourceFile>& files) {
  std::map<std::string_view, uint32_t> places;
  for (uint32_t i = 0; i < files.size(); ++i) places.emplace(files[i].path, i);
  return places;
}
}  // namespace

Result<FolderMatch> match_folder(const Store& store, const SetRecord& record, const std::vector<SourceFile>& files) {
  const std::map<std::string_view, uint32_t> places = places_of(files);
  size_t equal = 0;
  bool more = false, differs = false;
  const Status seen = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& stored : leaf.files) {
      const auto place = places.find(stored.path);
      if (place == places.end()) {
        more = true;
      } else if (same_facts(stored, files[place->second])) {
        ++equal;
      } else {
        differs = true;
      }
    }
    return {};
  });
  VARVE_TRY(seen);
  if (differs || equal < places.size()) return FolderMatch::differs;
  return more ? FolderMatch::part : FolderMatch::whole;
}

Status check_saved(const Store& store, const SetRecord& record, SourceReader& reader, ProgressSink& progress) {
  const std::string& folder = reader.folder();
  const std::vector<SourceFile>& files = reader.files();
  const std::map<std::string_view, uint32_t> places = places_of(files);
  ByteVector own;
  size_t equal = 0;
  auto check_file = [&](const Leaf& leaf, const TreeFile& stored, uint32_t place) -> Status {
    const Status differs = Status::corrupt("the set does not have what the file has", join_path(folder, stored.path));
    if (!same_facts(stored, files[place])) return differs;
    if (stored.type != FileType::regular) return {};
    uint64_t at = 0;
    return read_leaf_file(store, leaf, stored, [&](ByteSpan part) -> Status {
      if (progress.cancelled()) return Status::cancelled();
      own.resize(part.size());
      VARVE_TRY(reader.read(place, at, own));
      at += part.size();
      progress.advance(part.size());
      return std::equal(part.begin(), part.end(), own.begin()) ? Status() : differs;
    });
  };
  const Status checked = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& stored : leaf.files) {
      const auto place = places.find(stored.path);
      if (place == places.end()) continue;
      VARVE_TRY(check_file(leaf, stored, place->second));
      ++equal;
    }
    return {};
  });
  VARVE_TRY(checked);
  if (equal < places.size()) return Status::corrupt("the set lacks some of the folder's files", folder);
  return {};
}

namespace {
/// A file of a set with the leaf that describes it.
struct LeafFile {
  std::shared_ptr<const Leaf> leaf;
  size_t index = 0;
  const TreeFile& file() const { return leaf->files[index]; }
};

/// `others`: folders and links.
Result<std::vector<LeafFile>> load_files(const Store& store, const SetName& name, std::vector<LeafFile>& others) {
  VARVE_ASSIGN(SetRecord record, Catalog(store).read(name));
  std::vector<LeafFile> files;
  Status walked = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    auto unfolded = std::make_shared<Leaf>(leaf);
    for (size_t i = 0; i < leaf.files.size(); ++i) {
      unfold_small_variables(unfolded->files[i]);
      (leaf.files[i].type == FileType::regular ? files : others).push_back({unfolded, i});
    }
    return {};
  });
  VARVE_TRY(walked);
  return files;
}

/// A file that is one variable, which bears the file's name: that may contain the step.
bool is_opaque(const TreeFile& file) {
  return file.layout.format == "raw" && file.layout.variables.size() == 1 &&
         file.layout.variables.front().stored_bytes() == file.bytes;
}

/// Whether the streams of both files are the same parts of them.
bool same_parts(const TreeFile& a, const TreeFile& b) {
  if (a.bytes != b.bytes || a.layout.format != b.layout.format) return false;
  const bool opaque = is_opaque(a) && is_opaque(b);
  return std::equal(
      a.layout.variables.begin(), a.layout.variables.end(), b.layout.variables.begin(), b.layout.variables.end(),
      [&](const Variable& x, const Variable& y) { return x.extents == y.extents && (opaque || x.name == y.name); });
}

/// Whether it says something to compare the files variable by variable.
bool have_variables_in_common(const TreeFile& a, const TreeFile& b) {
  if (a.layout.format != b.layout.format) return false;
  if (is_opaque(a) && is_opaque(b)) return true;
  std::set<std::string_view> names;
  for (const Variable& variable : a.layout.variables) names.insert(variable.name);
  return std::any_of(b.layout.variables.begin(), b.layout.variables.end(),
                     [&](const Variable& variable) { return names.contains(variable.name); });
}

class Differ {
 public:
  Differ(const Store& store, SetDifference& difference, ProgressSink& progress)
      : difference_(difference), comparer_(store, progress) {}

  Status compare_files(const LeafFile& a, const LeafFile& b) {
    if (same_parts(a.file(), b.file())) return compare_parts(a, b);
    // Differently taken apart, as by another scheme or reader, the same bytes are the same file.
    const std::vector<Reference> old_whole = FileReferences(a.file()).all(), new_whole = FileReferences(b.file()).all();
    const StoredStream old_stream{*a.leaf, old_whole}, new_stream{*b.leaf, new_whole};
    VARVE_ASSIGN(const bool equal, comparer_.equal(old_stream, new_stream));
    if (!equal && have_variables_in_common(a.file(), b.file())) return compare_parts(a, b);
    VariableChange change{.file = b.file().path, .whole_file = true};
    if (!equal) return compare_streams(std::move(change), old_stream, new_stream, ElementType{});
    change.old_bytes = change.new_bytes = b.file().bytes;
    add(std::move(change));
    return {};
  }

  /// Folders, which are there or not and may be called by their step, as files may; and links, which lead somewhere.
  void compare_others(const std::vector<LeafFile>& old_files, const std::vector<LeafFile>& new_files) {
    using Family = std::tuple<FileType, int64_t, std::string>;
    const auto family_of = [](const TreeFile& file) { return Family(file.type, file.rank, path_family(file.path)); };
    std::multimap<Family, const TreeFile*> unmatched;
    for (const LeafFile& file : old_files) unmatched.emplace(family_of(file.file()), &file.file());
    std::vector<const TreeFile*> renamed;
    for (const LeafFile& leaf_file : new_files) {
      const TreeFile& file = leaf_file.file();
      const auto [begin, end] = unmatched.equal_range(family_of(file));
      const auto same = std::find_if(begin, end, [&](const auto& old) { return old.second->path == file.path; });
      if (same == end) {
        renamed.push_back(&file);
        continue;
      }
      compare_links(*same->second, file);
      unmatched.erase(same);
    }
    for (const TreeFile* const file : renamed) {
      const auto similar = unmatched.find(family_of(*file));
      if (similar == unmatched.end()) {
        whole_file(*file, ChangeKind::added);
        continue;
      }
      compare_links(*similar->second, *file);
      unmatched.erase(similar);
    }
    for (const auto& [family, file] : unmatched) whole_file(*file, ChangeKind::removed);
  }

  void whole_file(const TreeFile& file, ChangeKind kind) { add_one_sided({file.path, "", true, kind}, file.bytes); }

 private:
  Status compare_parts(const LeafFile& a, const LeafFile& b) {
    const std::vector<Variable>& old_variables = a.file().layout.variables;
    const std::vector<Variable>& new_variables = b.file().layout.variables;
    VARVE_TRY(compare_streams({.file = b.file().path}, stream_of(a, 0), stream_of(b, 0), ElementType{}));
    std::multimap<std::string, size_t> unmatched;  // names may repeat: each is matched in its turn
    for (size_t i = 0; i < old_variables.size(); ++i) unmatched.emplace(old_variables[i].name, i);
    for (size_t i = 0; i < new_variables.size(); ++i) {
      const Variable& variable = new_variables[i];
      auto found = unmatched.lower_bound(variable.name);
      if (found != unmatched.end() && found->first != variable.name) found = unmatched.end();
      if (found == unmatched.end() && is_opaque(a.file()) && is_opaque(b.file())) found = unmatched.begin();
      if (found == unmatched.end()) {
        add_one_sided({b.file().path, variable.name, false, ChangeKind::added}, variable.stored_bytes());
        continue;
      }
      const bool same_type = old_variables[found->second].type == variable.type && !variable.encoded;
      VariableChange change{.file = b.file().path, .variable = variable.name};
      if (same_type) change.shape = variable.shape;
      VARVE_TRY(compare_streams(std::move(change), stream_of(a, found->second + 1), stream_of(b, i + 1),
                                same_type ? variable.type : ElementType{}));
      unmatched.erase(found);
    }
    for (const auto& [name, index] : unmatched)
      add_one_sided({a.file().path, name, false, ChangeKind::removed}, old_variables[index].stored_bytes());
    return {};
  }

  void compare_links(const TreeFile& old_file, const TreeFile& new_file) {
    const uint64_t was = old_file.link_target.size(), is = new_file.link_target.size();
    if (old_file.link_target == new_file.link_target) return;
    VariableChange change{.file = new_file.path, .whole_file = true, .kind = ChangeKind::changed};
    change.old_bytes = was;
    change.new_bytes = is;
    change.changed_bytes = std::max(was, is);
    add(std::move(change));
  }

  static StoredStream stream_of(const LeafFile& file, size_t stream) {
    return {*file.leaf, file.file().streams[stream]};
  }

  void add_one_sided(VariableChange change, uint64_t bytes) {
    (change.kind == ChangeKind::added ? change.new_bytes : change.old_bytes) = bytes;
    change.changed_bytes = bytes;
    add(std::move(change));
  }

  void add(VariableChange change) {
    difference_.bytes += change.larger_bytes();
    difference_.changed_bytes += change.changed_bytes;
    if (change.kind == ChangeKind::same) {
      ++difference_.same_count;
    } else {
      difference_.changes.push_back(std::move(change));
    }
  }

  Status compare_streams(VariableChange change, const StoredStream& a, const StoredStream& b, const ElementType& type) {
    change.old_bytes = a.bytes();
    change.new_bytes = b.bytes();
    if (change.larger_bytes() == 0) return {};
    VARVE_ASSIGN(const StreamComparer::Outcome outcome, comparer_.compare(a, b, type));
    change.kind = outcome.changed_bytes > 0 ? ChangeKind::changed : ChangeKind::same;
    change.changed_bytes = outcome.changed_bytes;
    change.difference_max = outcome.difference_max;
    change.difference_rms = outcome.difference_rms;
    change.element_bytes = std::max<uint64_t>(type.bytes, 1);
    if (outcome.first_changed) change.first_changed = *outcome.first_changed / change.element_bytes;
    add(std::move(change));
    return {};
  }

  SetDifference& difference_;
  StreamComparer comparer_;
};
}  // namespace

Result<SetDifference> diff_sets(const Store& store, const SetName& a, const SetName& b, ProgressSink& progress) {
  SetDifference difference;
  difference.a = a;
  difference.b = b;
  progress.phase("comparing");
  std::vector<LeafFile> old_others, new_others;
  VARVE_ASSIGN(std::vector<LeafFile> old_files, load_files(store, a, old_others));
  VARVE_ASSIGN(std::vector<LeafFile> new_files, load_files(store, b, new_others));
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
  differ.compare_others(old_others, new_others);
  return difference;
}

}  // namespace varve
