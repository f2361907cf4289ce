#include "study/study_set.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/folder_source.h"
#include "engine/scheme.h"
#include "engine/stored_files.h"
#include "store/catalog.h"

namespace varve {

namespace {
namespace fs = std::filesystem;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

/// Takes the digits at the front of `text`, without leading zeros.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

std::string name_of(const fs::path& path) {
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  return plain.filename().string();
}

/// The folders in a folder that holds no files; empty if it holds any.
Result<std::vector<std::string>> folders_of_series(const std::string& folder) {
  std::vector<std::string> folders;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!entries->is_directory(error)) return std::vector<std::string>();
    folders.push_back(entries->path().filename().string());
  }
  if (error) return Status::from_errno(error.value(), "list", folder);
  std::sort(folders.begin(), folders.end(), natural_less);
  return folders;
}

Status add_places(const std::string& path, std::vector<SetPlace>& places) {
  std::error_code error;
  const fs::path full = fs::canonical(path, error);
  if (error) return Status::from_errno(error.value(), "look at", path);
  if (fs::is_regular_file(full, error)) {
    places.push_back({name_of(full), full.parent_path().string(), name_of(full)});
    return {};
  }
  if (!fs::is_directory(full, error)) return Status::invalid_argument("neither a folder nor a file", path);
  VARVE_ASSIGN(const std::vector<std::string> folders, folders_of_series(full.string()));
  if (folders.empty()) places.push_back({name_of(full), full.string(), {}});
  for (const std::string& folder : folders) places.push_back({folder, (full / folder).string(), {}});
  return {};
}
}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view number_a = take_number(a), number_b = take_number(b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

Result<std::vector<SetPlace>> find_series(const std::vector<std::string>& paths) {
  std::vector<SetPlace> places;
  for (const std::string& path : paths) VARVE_TRY(add_places(path, places));
  if (places.empty()) return Status::invalid_argument("nothing to study is named");
  return places;
}

namespace {
class FolderReader final : public SetReader {
 public:
  FolderReader(const std::string& folder, const std::vector<SourceFile>& files) : reader_(folder, files) {}
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    return reader_.read(file, offset, into);
  }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return reader_.hole_bytes(file, offset, bytes_max);
  }

 private:
  SourceReader reader_;
};

Result<StudySet> open_set(const SetPlace& place, const SaveOptions& options, LayoutService& layouts,
                          ProgressSink& progress) {
  StudySet set;
  set.label = place.label;
  VARVE_ASSIGN(set.files, scan_source_tree(place.folder, progress));
  if (!place.file.empty()) std::erase_if(set.files, [&](const SourceFile& file) { return file.path != place.file; });
  VARVE_TRY(assign_ranks(set.files, options.ranks.rank_regex));
  FolderSource source(place.folder, set.files, layouts, options.variables.layouts);
  VARVE_ASSIGN(set.group, describe_streams(source, options, progress));
  if (set.group.raw_bytes == 0) return Status::invalid_argument("a set without a byte cannot be studied", place.folder);
  // The files are copied, since a set may be moved.
  auto files = std::make_shared<const std::vector<SourceFile>>(set.files);
  set.open_reader = [folder = place.folder, files]() -> std::unique_ptr<SetReader> {
    return std::make_unique<FolderReader>(folder, *files);
  };
  return set;
}
}  // namespace

uint64_t StudySeries::bytes() const {
  uint64_t sum = 0;
  for (const StudySet& set : sets) sum += set.bytes();
  return sum;
}

uint64_t StudySeries::set_bytes_max() const {
  uint64_t most = 0;
  for (const StudySet& set : sets) most = std::max(most, set.bytes());
  return most;
}

uint64_t StudySeries::rank_count() const {
  uint64_t most = 1;
  for (const StudySet& set : sets) {
    std::set<int64_t> ranks;
    for (const SourceFile& file : set.files) {
      if (file.rank >= 0) ranks.insert(file.rank);
    }
    most = std::max<uint64_t>(most, ranks.size());
  }
  return most;
}

Result<StudySeries> open_series(const std::vector<SetPlace>& places, const SaveOptions& options, LayoutService& layouts,
                                ProgressSink& progress) {
  StudySeries series;
  series.options = options;
  for (const SetPlace& place : places) {
    if (progress.cancelled()) return Status::cancelled();
    VARVE_ASSIGN(StudySet set, open_set(place, options, layouts, progress));
    series.sets.push_back(std::move(set));
  }
  match_streams(series);
  return series;
}

void match_streams(StudySeries& series) {
  std::map<std::string, uint32_t> ids;
  for (StudySet& set : series.sets) {
    std::map<std::pair<uint32_t, int64_t>, uint32_t> ordinals;
    set.keys.clear();
    for (const Stream& stream : set.group.streams) {
      const std::string& key = set.group.class_keys[stream.class_id];
      auto [found, added] = ids.emplace(key, static_cast<uint32_t>(series.class_keys.size()));
      if (added) series.class_keys.push_back(key);
      set.keys.push_back({found->second, ordinals[{found->second, stream.rank}]++});
    }
  }
}

namespace {
/// How many packs a reader keeps decoded: streams of one class lie in few.
constexpr size_t kPacksMax = 64;

/// A set as its tree describes it.
struct StoredFiles {
  struct Place {
    size_t leaf = 0, file = 0;
  };
  std::vector<Leaf> leaves;
  std::vector<Place> places;  ///< of the set's files, in order

  const Leaf& leaf(uint32_t file) const { return leaves[places[file].leaf]; }
  const TreeFile& file(uint32_t file) const { return leaf(file).files[places[file].file]; }
};

class StoredReader final : public SetReader {
 public:
  StoredReader(const Store& store, std::shared_ptr<const StoredFiles> files)
      : files_(std::move(files)), reader_(store, kPacksMax) {}

  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    if (file != pieces_of_) {
      pieces_ = file_pieces(files_->file(file));
      pieces_of_ = file;
    }
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](uint64_t wanted, const FilePiece& each) { return wanted < each.file_offset; });
    if (piece == pieces_.begin()) return Status::internal("a read in a file without bytes");
    for (--piece; !into.empty(); ++piece) {
      if (piece == pieces_.end()) return Status::internal("a read past the end of a stored file");
      const uint64_t skip = offset - piece->file_offset;
      const size_t bytes = std::min<uint64_t>(into.size(), piece->bytes - skip);
      VARVE_TRY(reader_.read(files_->leaf(file), files_->file(file).streams[piece->stream], piece->stream_offset + skip,
                             into.first(bytes)));
      into = into.subspan(bytes);
      offset += bytes;
    }
    return {};
  }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }

 private:
  const std::shared_ptr<const StoredFiles> files_;
  StreamReader reader_;
  uint32_t pieces_of_ = UINT32_MAX;
  std::vector<FilePiece> pieces_;
};

SourceFile source_file(const TreeFile& file) {
  SourceFile source;
  source.path = file.path;
  source.type = file.type;
  source.mode = file.mode;
  source.modified_s = file.modified_s;
  source.modified_ns = file.modified_ns;
  source.link_target = file.link_target;
  source.bytes = file.bytes;
  source.rank = file.rank;
  return source;
}

/// For taking a set apart: it is not read.
class DescribedSource final : public Source {
 public:
  DescribedSource(const StoredFiles& stored, const std::vector<SourceFile>& files) : stored_(stored), files_(files) {}
  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& /*progress*/) override {
    std::vector<Layout> layouts;
    for (uint32_t i = 0; i < files_.size(); ++i) layouts.push_back(stored_.file(i).layout);
    return layouts;
  }
  Status read(uint32_t, uint64_t, MutableByteSpan) override { return Status::internal("not to be read"); }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }
  Status check_unchanged() override { return {}; }

 private:
  const StoredFiles& stored_;
  const std::vector<SourceFile>& files_;
};

Result<StudySet> open_stored_set(const Store& store, const SetName& name, const SaveOptions& options,
                                 ProgressSink& progress) {
  StudySet set;
  set.label = name.to_string();
  VARVE_ASSIGN(const SetRecord record, Catalog(store).read(name));
  auto stored = std::make_shared<StoredFiles>();
  Status walked = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (size_t i = 0; i < leaf.files.size(); ++i) {
      stored->places.push_back({stored->leaves.size(), i});
      set.files.push_back(source_file(leaf.files[i]));
    }
    stored->leaves.push_back(leaf);
    return {};
  });
  VARVE_TRY(walked);
  DescribedSource source(*stored, set.files);
  VARVE_ASSIGN(set.group, describe_streams(source, options, progress));
  if (set.group.raw_bytes == 0) return Status::invalid_argument("a set without a byte cannot be studied", set.label);
  for (uint32_t i = 0; i < set.files.size(); ++i) {
    set.group.files[i].small_variables = stored->file(i).small_variables;
    set.group.files[i].unnamed_variable_count = stored->file(i).unnamed_variable_count;
  }
  set.open_reader = [&store, stored]() -> std::unique_ptr<SetReader> {
    return std::make_unique<StoredReader>(store, stored);
  };
  return set;
}
}  // namespace

Result<StudySeries> open_stored_series(const Store& store, const std::string& job, const SaveOptions& options,
                                       ProgressSink& progress) {
  StudySeries series;
  series.options = options;
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(job));
  if (steps.empty()) return Status::not_found("the store has no set of this job", job, "`varve list` shows the sets");
  for (const uint64_t step : steps) {
    if (progress.cancelled()) return Status::cancelled();
    VARVE_ASSIGN(StudySet set, open_stored_set(store, {job, step}, options, progress));
    series.sets.push_back(std::move(set));
  }
  match_streams(series);
  return series;
}

}  // namespace varve
