#pragma once

#include <functional>
#include <vector>

#include "aggregate/save.h"
#include "aggregate/source.h"
#include "store/writer_lease.h"

namespace varve {

/// What to do with the record of groups that are sealed: commit a set, publish a part.
using PublishRecord = std::function<Status(WriterLease& lease, const SetRecord& record)>;

/// What the options of every save must be.
Status check_save_options(const SaveOptions& options);

/// Files as groups: the ranks in order, `group_size` in each, or fewer so that there are `group_count_wanted` groups at
/// least, if there are so many ranks. What belongs to no rank goes with the first.
std::vector<std::vector<SourceFile>> split_into_groups(std::vector<SourceFile> files, size_t group_size,
                                                       uint32_t group_count_wanted = 1);

/// The files of a folder, as groups: the ranks in order, so many in each as `options` say. What belongs to no rank goes
/// with the first. With `smaller_groups`, there are `group_count_wanted` at least, if there are so many ranks.
Result<std::vector<std::vector<SourceFile>>> group_folder(const std::string& folder, const SaveOptions& options,
                                                          ProgressSink& progress, uint32_t group_count_wanted = 1);

/// Saves `sources`, each as one group, under one lease, and has the record of them all published; `name` is the set's.
/// Some groups run at the same time. Starts over, three times at most, if a prune takes the writer for dead. Until
/// `publish` is called, nothing is visible.
Result<SaveReport> save_groups(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                               const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish);

}  // namespace varve
