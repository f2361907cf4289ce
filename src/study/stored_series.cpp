#include "study/stored_series.h"

#include <algorithm>

#include "aggregate/set_files.h"
#include "store/catalog.h"

namespace varve {

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
