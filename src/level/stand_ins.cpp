#include "level/stand_ins.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "comm/agreement.h"
#include "comm/communicators.h"
#include "core/guarded.h"
#include "core/sync.h"

namespace varve {

namespace {
constexpr std::string_view kMark = ".stand-in-";

/// Of this job: another one may be rebuilding its own beside the same store.
std::string stand_in_path(const std::string& store_path, const std::string& job, uint64_t ordinal) {
  return fmt::format("{}{}{}-{}", store_path, kMark, job, ordinal);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Status remove_all(FileSystem& files, const std::string& path) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, files.list(path));
  for (const DirectoryEntry& entry : entries) {
    const std::string below = join_path(path, entry.name);
    VARVE_TRY(entry.is_directory ? remove_all(files, below) : files.remove(below));
  }
  return files.remove_directory(path);
}
}  // namespace

Result<std::vector<std::string>> list_stand_ins(FileSystem& files, const std::string& store_path,
                                                const std::string& job) {
  const std::string path = without_slashes(store_path);
  const std::string mark = fmt::format("{}{}{}-", path.substr(path.rfind('/') + 1), kMark, job);
  const auto is_of_job = [&](std::string_view name) {
    return name.starts_with(mark) && name.find_first_not_of("0123456789", mark.size()) == std::string_view::npos;
  };
  const Result<std::vector<DirectoryEntry>> entries = files.list(parent_path(path));
  std::vector<std::string> found;
  if (entries.status().code() == StatusCode::not_found) return found;
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.is_directory && is_of_job(entry.name)) found.push_back(join_path(parent_path(path), entry.name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

Status remove_stand_ins(FileSystem& files, const std::string& store_path, const std::string& job) {
  VARVE_ASSIGN(const std::vector<std::string> found, list_stand_ins(files, store_path, job));
  for (const std::string& path : found) VARVE_TRY(remove_all(files, path));
  return {};
}

namespace {
/// Threads that begin together on all nodes, or on none: each waits for the others' messages then.
class StartingLine {
 public:
  void open(bool go) {
    {
      const MutexLock lock(mutex_);
      is_open_ = true;
      go_ = go;
    }
    changed_.notify_all();
  }
  /// Whether to begin.
  bool await() {
    const MutexLock lock(mutex_);
    while (!is_open_) changed_.wait(mutex_);
    return go_;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_open_ VARVE_GUARDED_BY(mutex_) = false;
  bool go_ VARVE_GUARDED_BY(mutex_) = false;
};

/// A member of the nodes that restore: a node's own store, or a stand-in.
struct Member {
  std::unique_ptr<Communicator> members;
  NodePlace place;
};

/// Those of this rank; its own store first.
Result<std::deque<Member>> members_of(Communicator& ranks, uint32_t first_tag, const std::vector<uint32_t>& nodes,
                                      const NodePlace& place, const std::string& job, uint64_t count) {
  std::vector<uint32_t> all = nodes;
  for (uint64_t i = 0; i < count; ++i) all.push_back(nodes[i % nodes.size()]);
  std::deque<Member> own;
  const std::string path = without_slashes(place.path);
  for (uint32_t member = 0; member < all.size(); ++member) {
    if (all[member] != ranks.rank()) continue;
    Member& each = own.emplace_back(Member{nullptr, place});
    VARVE_ASSIGN(each.members, make_member_communicator(ranks, all, member, first_tag));
    if (own.size() == 1) continue;
    each.place.path = stand_in_path(path, job, own.size() - 1);
    each.place.node = fmt::format("{}{}{}", place.node, kMark, own.size() - 1);
  }
  return own;
}
}  // namespace

Result<std::vector<RestoredSet>> restore_with_stand_ins(Communicator& ranks, uint32_t first_tag, Communicator& leaders,
                                                        const std::vector<uint32_t>& nodes, const NodePlace& place,
                                                        uint64_t count, const RestoreLostOptions& options) {
  Result<std::deque<Member>> own =
      run_guarded([&] { return members_of(ranks, first_tag, nodes, place, options.job, count); });
  StartingLine line;
  std::vector<Thread> threads;
  Status ready = own.status();
  for (size_t i = 1; ready.ok() && i < own->size(); ++i) {
    ready = run_guarded([&]() -> Status {
      threads.reserve(own->size());
      VARVE_ASSIGN(Thread started, start_thread([&line, &options, &member = (*own)[i]] {
                     if (!line.await()) return;
                     run_guarded([&] { return restore_lost(*member.members, member.place, options); })
                         .status()
                         .ignore("the node's own store has the same outcome");
                   }));
      threads.push_back(std::move(started));
      return {};
    });
  }
  const Status begins = agree(leaders, ready);
  line.open(begins.ok());
  Result<std::vector<RestoredSet>> restored =
      begins.ok() ? restore_lost(*own->front().members, place, options) : Result<std::vector<RestoredSet>>(begins);
  for (Thread& thread : threads) thread.join();
  // Those that had nothing to do.
  for (size_t i = 1; own.ok() && i < own->size(); ++i) {
    place.fs->remove_directory((*own)[i].place.path).ignore("something is in it, or it was not made");
  }
  return restored;
}

}  // namespace varve
