#include "aggregate/folder_source.h"

#include "aggregate/source_tree.h"
#include "core/file_system.h"

namespace varve {

Result<std::vector<Layout>> FolderSource::layouts(ProgressSink& progress) {
  std::vector<LayoutRequest> requests;
  for (const SourceFile& file : files_) {
    if (file.type == FileType::regular) requests.push_back({join_path(folder_, file.path), file.bytes});
  }
  std::vector<LayoutOutcome> outcomes = layouts_.read_many(requests, layout_options_);
  std::vector<Layout> layouts(files_.size());
  size_t next = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].type != FileType::regular) continue;
    LayoutOutcome& outcome = outcomes[next++];
    if (outcome.warning) progress.warning(Status::corrupt(*outcome.warning));
    layouts[i] = std::move(outcome.layout);
  }
  return layouts;
}

Status FolderSource::check_unchanged() {
  for (const SourceFile& file : files_) {
    if (file.type != FileType::symlink) VARVE_TRY(varve::check_unchanged(folder_, file));
  }
  return {};
}

}  // namespace varve
