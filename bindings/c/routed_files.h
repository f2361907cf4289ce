#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "varve/session.h"

namespace varve::c_binding {

/// The folder of a memory file system that a session uses, as its options in effect say it.
std::string shared_memory_of(const Session& session);

/// Files of a running program that belong to checkpoints: they are written into a folder in memory, and are variables
/// "file:NAME" of their checkpoints. One thread.
class RoutedFiles {
 public:
  struct File {
    std::string name, path;
  };

  /// Makes a folder of its own in `memory`, and removes what processes that were killed left there.
  static Result<std::unique_ptr<RoutedFiles>> make(const std::string& memory);
  RoutedFiles(const RoutedFiles&) = delete;
  RoutedFiles& operator=(const RoutedFiles&) = delete;
  /// Removes the folder; in a process that was forked, nothing.
  ~RoutedFiles();

  /// Where a file of the checkpoint of `step` is, if that was laid out and not forgotten since; else where it is to be
  /// written.
  Result<std::string> route(uint64_t step, const std::string& name);
  /// Session::checkpoint() with the files that were routed for `step`, which are removed when it has its snapshot, as
  /// are those of lower steps that never got a checkpoint. not_found: one was never written; nothing was saved then,
  /// and on no rank.
  Status checkpoint(Session& session, uint64_t step, Persistence persistence);
  /// Takes away what a restart has laid out, unless the session stands at its step still; nothing: at the beginning.
  void stand_at(std::optional<uint64_t> step);
  /// Session::restart(), with the files that `rank` has in the checkpoint. What was passed over for the one that was
  /// loaded is added to `warnings`.
  Result<std::optional<uint64_t>> restart(Session& session, uint32_t rank, const RestartChoice& choice,
                                          std::deque<Status>& warnings);
  /// What the last restart laid out, by name.
  const std::vector<File>& loaded() const { return loaded_; }
  /// Whether a checkpoint was loaded with its files, or was begun to be; the same on all ranks.
  bool has_loaded() const { return loaded_step_.has_value(); }

 private:
  RoutedFiles(std::string folder, int lock) : folder_(std::move(folder)), lock_(lock), owner_(::getpid()) {}
  std::string path_of(uint64_t step, const std::string& name) const;
  void forget_loaded();
  /// Removes what was routed for steps up to this one, and forgets it.
  void discard_up_to(uint64_t step);
  /// Loads one checkpoint and the files `names` of it. What is returned the ranks have agreed on; `own_failure`: what
  /// failed on this one, if anything did.
  Status load(Session& session, uint64_t step, const std::vector<std::string>& names, Status& own_failure);

  const std::string folder_;
  const int lock_;  ///< a file in the folder that is locked as long as this process lives
  const pid_t owner_;
  std::map<uint64_t, std::vector<File>> routed_;  ///< by step
  std::optional<uint64_t> loaded_step_;
  std::vector<File> loaded_;
};

}  // namespace varve::c_binding
