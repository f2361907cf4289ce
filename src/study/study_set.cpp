#include "study/study_set.h"

#include <algorithm>
#include <map>
#include <set>

#include "aggregate/folder_source.h"
#include "aggregate/rank_order.h"
#include "aggregate/source_tree.h"

namespace varve {

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
  VARVE_TRY(assign_ranks(set.files, options.rank_regex));
  FolderSource source(place.folder, set.files, layouts, options.layouts);
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

}  // namespace varve
