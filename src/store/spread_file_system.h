#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "store/arena_spread.h"

namespace varve {

/// A folder on some file system that is one place of a store.
struct SpreadPlace {
  FileSystem* fs = nullptr;
  std::string path;
};

/// Makes several places, such as servers, one file system for one store: each arena is at the place of its id's range
/// (arena_spread.h), everything else at the first place. An arena that is not where it belongs, since it was written
/// when there were fewer places, is looked for at all. Thread-safe.
class SpreadFileSystem final : public FileSystem {
 public:
  /// The places in their order, which all who use the store must agree on; at least one. Their file systems outlive it.
  explicit SpreadFileSystem(std::vector<SpreadPlace> places);

  /// What paths begin with: it stands for the folders of all places.
  const std::string& root() const { return root_; }

  const ArenaSpread& spread() const { return spread_; }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Result<std::unique_ptr<FileMapping>> map(const std::string& path) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  /// An arena goes from all places.
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status touch(const std::string& path) override;
  /// Of the arenas' folder: what is at any place, each name once.
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;

 private:
  /// The place of an arena's file; nothing for other paths.
  std::optional<uint32_t> place_of(const std::string& path) const;
  const SpreadPlace& home_of(const std::string& path) const;
  /// `path` as a place knows it.
  std::string at(const SpreadPlace& place, const std::string& path) const;
  /// Asks the place where `path` belongs, and then, for an arena that is not there, the others.
  template <class T, class Question>
  Result<T> ask(const std::string& path, const Question& question) const;

  const std::vector<SpreadPlace> places_;
  const std::string root_;
  const ArenaSpread spread_;
};

}  // namespace varve
