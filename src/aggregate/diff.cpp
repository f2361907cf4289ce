#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "aggregate/file_references.h"
#include "aggregate/inspect.h"
#include "aggregate/rank_order.h"
#include "aggregate/stream_comparison.h"

namespace varve {

namespace {
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
    auto unfolded = std::make_shared<Leaf>(leaf);
    for (size_t i = 0; i < leaf.files.size(); ++i) {
      unfold_small_variables(unfolded->files[i]);
      if (leaf.files[i].type == FileType::regular) files.push_back({unfolded, i});
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
      VARVE_TRY(compare_streams({.file = b.file().path, .variable = variable.name}, stream_of(a, found->second + 1),
                                stream_of(b, i + 1), same_type ? variable.type : ElementType{}));
      unmatched.erase(found);
    }
    for (const auto& [name, index] : unmatched)
      add_one_sided({a.file().path, name, false, ChangeKind::removed}, old_variables[index].stored_bytes());
    return {};
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
