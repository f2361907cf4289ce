#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/memory_file_system.h"
#include "service/server_link.h"
#include "sim/simulator.h"

namespace varve::sim {

/// What can go wrong with a disk, and how slow it is. Chances are of each operation.
struct DiskFaults {
  double read_error = 0, write_error = 0, sync_error = 0;
  /// The operation happens, and who asked for it is told that it failed: a server whose reply was lost.
  double lost_reply = 0;
};

/// A disk with a file system: of a node, or one that several see. Every operation takes virtual time, may hand over the
/// turn, and may fail. It outlives losses of power, with what was durable.
class Disk {
 public:
  Disk(Simulator& simulator, std::string name);

  DiskFaults faults;
  /// The so many-th read of an arena from now on fails, and no other; 0: none.
  uint64_t failing_read = 0;
  double slowness = 1;             ///< an operation takes so many times as long
  uint64_t capacity = UINT64_MAX;  ///< bytes
  /// The processes of this machine alone find no room: their user's quota is used up, say.
  const Machine* full_for = nullptr;
  std::chrono::nanoseconds calendar_error{0};  ///< of the machine that stamps the files
  Moment away_until{};  ///< nobody reaches it before: they wait for so long at most, then get io_error
  std::chrono::nanoseconds patience = std::chrono::seconds(30);

  const std::string& name() const { return name_; }
  /// Without faults and without taking time: for the oracle.
  FileSystem& plain() { return *files_; }
  uint64_t used_bytes() const { return used_; }
  void lose_power(const CrashPolicy& policy);
  /// All open files are lost, and nothing else: a server that was started anew.
  void forget_open_files() { ++generation_; }
  /// Empty, as if it had been replaced.
  void replace();

  /// What every operation begins with: takes time, and fails if it is to. `path` is for the story.
  enum class Kind : uint8_t { look, read, write, sync, name };
  Status begin(Kind kind, const char* what, const std::string& path);
  /// What it ends with: perhaps with a reply that is lost.
  Status end(Kind kind, const char* what, const std::string& path, Status outcome);
  /// What the calling process, as a client of the server whose disk it is, has changed of names.
  NameChanges& own_changes() { return changes_[&simulator_.current_process()]; }
  /// Notes that it has changed this name.
  void note_change(const std::string& path) { own_changes().note(parent_path(path), machine_run()); }
  /// The run of the machine that has the disk.
  UniqueId machine_run() const { return UniqueId{{std::byte{machine_run_}}}; }
  /// Who removes something may be stopped for long just before.
  void before_removal() { simulator_.hand_over_before_removal(); }
  Status take_room(uint64_t bytes, const std::string& path);
  void give_room(uint64_t bytes) { used_ -= std::min(used_, bytes); }
  uint64_t generation() const { return generation_; }

 private:
  void mount(std::unique_ptr<MemoryFileSystem> files);
  void count_used(const std::string& folder);

  Simulator& simulator_;
  const std::string name_;
  std::unique_ptr<MemoryFileSystem> files_;
  std::vector<std::unique_ptr<MemoryFileSystem>> past_;  ///< killed processes have files of them open
  uint64_t used_ = 0;
  uint64_t generation_ = 0;
  uint8_t machine_run_ = 1;  ///< losses of power are few
  std::map<const Process*, NameChanges> changes_;
};

/// What the programs of the simulation take for the file system: by the begin of a path, another disk. Which disk it is
/// may depend on who asks.
class SimulatedFiles final : public FileSystem {
 public:
  /// `all`: the disks that find() may give.
  SimulatedFiles(std::function<Disk*(const std::string& path)> find, std::function<std::vector<Disk*>()> all)
      : find_(std::move(find)), all_(std::move(all)) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<PowerWatch>> watch_power() override;
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;
  Result<uint64_t> free_bytes(const std::string& path) override;

 private:
  Disk* find(const std::string& path) const { return find_(path); }

  const std::function<Disk*(const std::string& path)> find_;
  const std::function<std::vector<Disk*>()> all_;
};

}  // namespace varve::sim
