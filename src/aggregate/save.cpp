#include "aggregate/save.h"

#include <charconv>
#include <deque>
#include <filesystem>

#include "aggregate/folder_source.h"
#include "aggregate/save_groups.h"

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
  name.step = number ? *number : steps.empty() ? 0 : steps.back() + 1;
  return name;
}

Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress) {
  VARVE_TRY(check_save_options(options));
  VARVE_ASSIGN(SetName name, choose_set_name(store, folder, options));
  return save_folder_as(store, folder, name, options, layouts, progress,
                        [](WriterLease& lease, const SetRecord& record) { return lease.commit(record); });
}

Result<SaveReport> save_folder_as(const Store& store, const std::string& folder, const SetName& name,
                                  const SaveOptions& options, LayoutService& layouts, ProgressSink& progress,
                                  const PublishRecord& publish) {
  VARVE_TRY(check_save_options(options));
  VARVE_TRY(check_job_name(name.job));
  if (store.fs().stat(Catalog(store).record_path(name)).ok()) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "choose another step with --step, or `varve drop` the old set first");
  }
  progress.phase("saving");
  VARVE_ASSIGN(std::vector<std::vector<SourceFile>> groups, group_folder(folder, options, progress));
  std::deque<FolderSource> folders;
  std::vector<Source*> sources;
  for (std::vector<SourceFile>& files : groups) {
    sources.push_back(&folders.emplace_back(folder, std::move(files), layouts, options.layouts));
  }
  return save_groups(store, sources, name, options, progress, publish);
}

}  // namespace varve
