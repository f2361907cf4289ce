#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/process.h"
#include "sim/simulator.h"

namespace varve::sim {

/// What simulated programs leave in a folder that is watched, and what they know of it. The files are real ones, in
/// memory: the kernel itself knows who has which of them open, and gives leases. Their times are virtual.
class WrittenFiles {
 public:
  /// A file as it was after the last write. One that is removed and made again is another one.
  struct File {
    uint64_t step = 0;
    std::string name, text;
    bool given_up = false;  ///< the program itself has replaced it
    bool saved = false;     ///< it is gone, and was found where it is to be
  };
  /// A file that a program has open for writing.
  struct Writer {
    UniqueFd descriptor;
    size_t file = 0;  ///< of files()
  };

  WrittenFiles(Simulator& simulator, std::string folder);

  const std::string& folder() const { return folder_; }
  std::vector<File>& files() { return files_; }
  static std::string folder_of(uint64_t step);

  /// A new one. None: it is there already.
  std::optional<Writer> create(uint64_t step, const std::string& name);
  /// As open(2), which waits while somebody has a lease on it. None: there is no such file.
  std::optional<Writer> open(uint64_t step, const std::string& name);
  void append(Writer& writer, const std::string& text);
  void close(Writer writer);
  /// By a new one that is renamed to it. False: its folder is gone.
  bool replace(uint64_t step, const std::string& name, const std::string& text);

  /// Whether the file is where it was written, or on its way out.
  bool is_there(const File& file) const;
  /// Whether its folder has anything in it that a removal has left.
  bool is_being_removed(uint64_t step) const;
  /// The descriptors of processes that were killed, as far as they are of files in this folder: the kernel closes them.
  void close_for_the_dead();

 private:
  std::string path_of(uint64_t step, const std::string& name) const;
  size_t newest(uint64_t step, const std::string& name) const;
  void stamp(int descriptor) const;
  /// Fails if the file is gone under a program that has it open.
  void check_has_name(const Writer& writer) const;

  Simulator& simulator_;
  const std::string folder_, staging_;
  std::vector<File> files_;
  std::set<int> descriptors_;  ///< of programs
};

}  // namespace varve::sim
