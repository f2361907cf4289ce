#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/memory_file_system.h"
#include "sets/saving.h"

namespace varve::test {

/// A small store that is damaged in one way after the other, and what it must say then: verify reports every damage to
/// arenas, records and the header, naming exactly the sets whose restore fails; such a restore leaves nothing; and all
/// other sets and files come back as they were.
class DamagedStore {
 public:
  /// Three sets in three arenas, two of which share most of their chunks; about `field_bytes` in each.
  explicit DamagedStore(size_t field_bytes);

  /// Files of the store that matter: header, arenas and set records; and those that can be rebuilt: the runs of the
  /// index.
  const std::vector<std::string>& vital_files() const { return vital_; }
  const std::vector<std::string>& disposable_files() const { return disposable_; }
  std::vector<std::string> arenas() const;
  const ByteVector& original(const std::string& path) const { return originals_.at(path); }

  /// Puts other contents in place of a file.
  void replace(const std::string& path, ByteSpan contents);
  void remove(const std::string& path);
  /// Puts everything back that was replaced, removed or added.
  void repair();

  /// Flips one bit of a file and checks, without restoring anything, that verify reports it; repairs it.
  testing::AssertionResult flip_is_reported(const std::string& path, uint64_t bit);
  /// Flips one bit of a file, checks all that is said above, and repairs it.
  testing::AssertionResult flip_is_contained(const std::string& path, uint64_t bit);
  /// Checks the store as it is now. `must_report`: verify must find a damage that is not disposable.
  testing::AssertionResult is_contained(bool must_report = true);

  MemoryFileSystem& fs() { return fs_; }
  const Snapshot& snapshot(const SetName& name) const { return snapshots_.at(name); }

 private:
  void flip(const std::string& path, uint64_t bit);
  testing::AssertionResult check_set(const Store& store, const SetName& name, bool affected,
                                     const std::vector<std::string>& affected_files) const;

  MemoryFileSystem fs_;
  TempFolder sources_;
  std::map<SetName, Snapshot> snapshots_;
  std::map<std::string, ByteVector> originals_;
  std::vector<std::string> vital_, disposable_;
};

}  // namespace varve::test
