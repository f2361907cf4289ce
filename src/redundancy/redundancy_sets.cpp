#include "redundancy/redundancy_sets.h"

#include <algorithm>
#include <set>

#include "redundancy/leader_group.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_label.h"
#include "redundancy/parity_group.h"

namespace varve {

namespace {
Result<std::vector<DirectoryEntry>> list_if_there(FileSystem& fs, const std::string& path) {
  Result<std::vector<DirectoryEntry>> entries = fs.list(path);
  if (entries.status().code() == StatusCode::not_found) return std::vector<DirectoryEntry>();
  return entries;
}

Status remove_if_there(FileSystem& fs, const std::string& path) {
  const Status removed = fs.remove(path);
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

Status remove_unfinished(FileSystem& fs, const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list_if_there(fs, folder));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory && entry.name.ends_with(kUnfinishedSuffix)) {
      VARVE_TRY(remove_if_there(fs, join_path(folder, entry.name)));
    }
  }
  return {};
}
}  // namespace

Result<std::vector<SetName>> list_redundancy(const NodePlace& place, const std::string& job) {
  std::vector<SetName> sets;
  if (place.path.empty()) return sets;
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries,
               list_if_there(*place.fs, NodeFolder::redundancy_path(place.path)));
  for (const DirectoryEntry& entry : entries) {
    std::optional<SetName> set = parse_set_name(entry.name);
    if (set && entry.is_directory && (job.empty() || set->job == job)) sets.push_back(std::move(*set));
  }
  return sets;
}

Result<std::vector<SetName>> unite_sets(Communicator& leaders, const std::vector<SetName>& mine) {
  ByteVector told;
  ByteWriter out(told);
  for (const SetName& set : mine) out.text(set.to_string());
  VARVE_ASSIGN(const std::vector<ByteVector> all, leaders.all_gather(told));
  std::set<SetName> united;
  for (const ByteVector& each : all) {
    ByteReader in(each);
    while (!in.at_end()) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      std::optional<SetName> set = parse_set_name(name);
      if (!set) return Status::corrupt("a node tells of a set whose name is none", std::string(name));
      united.insert(std::move(*set));
    }
  }
  std::vector<SetName> sets(united.begin(), united.end());
  std::stable_sort(sets.begin(), sets.end(), [](const SetName& a, const SetName& b) { return a.step > b.step; });
  return sets;
}

Status tidy_redundancy(const NodePlace& place) {
  FileSystem& fs = *place.fs;
  VARVE_ASSIGN(const std::vector<SetName> sets, list_redundancy(place, ""));
  for (const SetName& set : sets) {
    const std::string folder = NodeFolder::set_path(place.path, set);
    VARVE_TRY(remove_unfinished(fs, folder));
    fs.remove_directory(folder).ignore("it is in use");
  }
  // A folder without this file is no store: what a rebuild began to make of it.
  if (fs.stat(join_path(place.path, "varve.store")).status().code() != StatusCode::not_found) return {};
  fs.remove_directory(NodeFolder::redundancy_path(place.path)).ignore("not there, or something is in it");
  for (const std::string_view folder : Store::kFolders) {
    fs.remove_directory(join_path(place.path, folder)).ignore("not there, or something is in it");
  }
  return {};
}

Status drop_redundancy(const NodePlace& place, const SetName& set) {
  if (place.path.empty()) return {};
  FileSystem& fs = *place.fs;
  const std::string folder = NodeFolder::set_path(place.path, set);
  VARVE_TRY(remove_unfinished(fs, folder));
  VARVE_TRY(remove_if_there(fs, join_path(folder, kParityFileName)));
  const Status synced = fs.sync_directory(folder);
  if (synced.code() == StatusCode::not_found) return {};
  VARVE_TRY(synced);
  fs.remove_directory(folder).ignore("somebody else's files are in it");
  return fs.sync_directory(NodeFolder::redundancy_path(place.path));
}

namespace {
/// What a node says of a set: whether it has a redundancy file of it, and whether it has the set.
Result<ByteVector> describe_sets(const NodePlace& place, const std::vector<SetName>& sets) {
  ByteVector told;
  if (place.path.empty()) return told;
  for (const SetName& set : sets) {
    NodeFolder folder(*place.fs, place.path, set);
    uint8_t bits = 0;
    for (const std::string_view name : {kParityFileName, NodeFolder::kRecordName}) {
      const Result<FileStatus> status = folder.stat(join_path(folder.path(), name));
      if (!status.ok() && status.status().code() != StatusCode::not_found) return status.status();
      bits = static_cast<uint8_t>(bits << 1 | (status.ok() ? 1 : 0));
    }
    told.push_back(std::byte{bits});
  }
  return told;
}

/// Which sets give their redundancy up, of all that there are, the newest first.
std::vector<SetName> choose_dropped(const std::vector<SetName>& sets, const std::vector<ByteVector>& told,
                                    uint64_t keep) {
  std::vector<SetName> dropped;
  uint64_t kept = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    bool all_protected = true, any_record = false;
    for (const ByteVector& each : told) {
      if (each.size() != sets.size()) continue;  // no store
      const auto bits = static_cast<uint8_t>(each[i]);
      all_protected = all_protected && (bits & 2) != 0;
      any_record = any_record || (bits & 1) != 0;
    }
    if (kept >= keep || !any_record) {
      dropped.push_back(sets[i]);
    } else if (all_protected) {
      ++kept;
    }
  }
  return dropped;
}
}  // namespace

Result<std::vector<SetName>> retain_redundancy(Communicator& leaders, const NodePlace& place, const std::string& job,
                                               uint64_t keep) {
  const Result<std::vector<SetName>> mine = list_redundancy(place, job);
  VARVE_TRY(agree_among_nodes(leaders, place.node, mine.status()));
  VARVE_ASSIGN(const std::vector<SetName> sets, unite_sets(leaders, *mine));
  const Result<ByteVector> described = describe_sets(place, sets);
  VARVE_TRY(agree_among_nodes(leaders, place.node, described.status()));
  VARVE_ASSIGN(const std::vector<ByteVector> told, leaders.all_gather(*described));
  const std::vector<SetName> dropped = choose_dropped(sets, told, keep);
  Status status;
  for (const SetName& set : dropped) {
    const Status done = drop_redundancy(place, set);
    if (status.ok()) status = done;
  }
  VARVE_TRY(agree_among_nodes(leaders, place.node, status));
  return dropped;
}

}  // namespace varve
