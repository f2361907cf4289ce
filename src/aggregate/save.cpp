#include "aggregate/save.h"

#include <charconv>
#include <deque>
#include <filesystem>

#include "aggregate/folder_source.h"
#include "aggregate/save_groups.h"
#include "aggregate/source_tree.h"

namespace varve {

std::optional<uint64_t> last_number(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9')) --end;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  uint64_t value = 0;
  auto [parsed, error] = std::from_chars(name.data() + begin, name.data() + end, value);
  return begin < end && error == std::errc() && parsed == name.data() + end ? std::optional(value) : std::nullopt;
}

Result<SetName> choose_set_name(const Store& store, const std::string& folder, const SaveOptions& options) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(folder, error);
  if (error) return Status::from_errno(error.value(), "find folder", folder);
  SetName name{options.job, options.step.value_or(0)};
  const std::optional<uint64_t> number = last_number(full.filename().string());
  // `run/dump0007` is step 7 of the job `run`; `run` alone is the next step of the job `run`.
  if (name.job.empty()) name.job = number ? full.parent_path().filename().string() : full.filename().string();
  if (name.job.empty()) name.job = "job";
  VARVE_TRY(check_job_name(name.job).with_hint("name the job with --job"));
  if (options.step) return name;
  VARVE_ASSIGN(std::vector<uint64_t> steps, Catalog(store).steps(name.job));
  if (!number && !steps.empty() && steps.back() == UINT64_MAX)
    return Status::invalid_argument("the newest step is the largest there is", name.job, "name the step with --step");
  name.step = number ? *number : steps.empty() ? 0 : steps.back() + 1;
  return name;
}

Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress) {
  VARVE_ASSIGN(const SetName name, choose_set_name(store, folder, options));
  VARVE_TRY(Catalog(store).check_is_new(name, kChooseAnotherStep));  // before the folder is gone through
  VARVE_ASSIGN(const SourceFile self, look_at_folder(folder));
  VARVE_ASSIGN(std::vector<SourceFile> files, find_files(folder, options.rank_regex, progress));
  return save_files_as(store, folder, std::move(files), name, options, layouts, progress,
                       [&](WriterLease& lease, const SetRecord& record) -> Status {
                         VARVE_TRY(check_unchanged(folder, self));
                         return lease.commit(record);
                       });
}

Result<SaveReport> save_files(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                              const SetName& name, const SaveOptions& options, LayoutService& layouts,
                              ProgressSink& progress) {
  return save_files_as(store, folder, std::move(files), name, options, layouts, progress,
                       [](WriterLease& lease, const SetRecord& record) { return lease.commit(record); });
}

Result<SaveReport> save_files_as(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                                 const SetName& name, const SaveOptions& options, LayoutService& layouts,
                                 ProgressSink& progress, const PublishRecord& publish) {
  VARVE_TRY(check_save_options(options));
  VARVE_TRY(check_job_name(name.job));
  VARVE_TRY(Catalog(store).check_is_new(name, kChooseAnotherStep));
  progress.phase("saving");
  std::deque<FolderSource> folders;
  std::vector<Source*> sources;
  for (std::vector<SourceFile>& group : split_into_groups(std::move(files), options)) {
    sources.push_back(&folders.emplace_back(folder, std::move(group), layouts, options.layouts));
  }
  return save_groups(store, sources, name, options, progress, publish);
}

}  // namespace varve
