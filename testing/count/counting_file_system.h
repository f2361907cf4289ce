#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"

namespace varve::count {

/// What a store's file system is asked for. Those before `read` are about names: on a parallel file system, each is a
/// request to who keeps the names of all. The others go to where the bytes are.
enum class Verb : uint8_t {
  open,
  create,
  list,
  stat,
  rename,
  remove,
  make_folder,
  sync_folder,
  touch,
  read,
  write,
  sync
};
inline constexpr size_t kVerbs = 12;
inline constexpr size_t kNameVerbs = 9;
std::string_view verb_name(Verb verb);

/// The folder of a store that a path is about: "arenas", "index", ...; "store" for what lies in none.
inline constexpr std::array<std::string_view, 7> kStorePlaces = {"store", "arenas", "condemned", "index",
                                                                 "parts", "sets",   "writers"};

/// How often each was asked for.
struct OperationCounts {
  std::array<std::array<uint64_t, kStorePlaces.size()>, kVerbs> of{};  ///< by verb and place
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t names_listed = 0;  ///< entries of all lists together

  uint64_t of_verb(Verb verb) const;
  /// About names, of all places.
  uint64_t names() const;
  /// Of bytes: reads, writes and syncs of files.
  uint64_t data() const;
  OperationCounts& operator+=(const OperationCounts& other);
  OperationCounts operator-(const OperationCounts& before) const;
};

/// Passes everything on to another file system, which outlives it, and counts. Thread-safe.
class CountingFileSystem final : public ForwardingFileSystem {
 public:
  explicit CountingFileSystem(FileSystem& inner) : ForwardingFileSystem(inner) {}
  OperationCounts counts() const;

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;

 private:
  class CountingFile;
  void note(Verb verb, const std::string& path);

  std::array<std::array<std::atomic<uint64_t>, kStorePlaces.size()>, kVerbs> of_{};
  std::atomic<uint64_t> bytes_read_{0}, bytes_written_{0}, names_listed_{0};
};

}  // namespace varve::count
