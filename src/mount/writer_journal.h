#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/unique_fd.h"
#include "varve/status.h"

namespace varve {

/// Notes, for the next mount, which files of an open set somebody has open for writing: a line when the first writer of
/// a file comes, one when its last has gone. It outlives this process, but not the machine. Files are known by the
/// spool's own inode numbers, which renames do not change. Not thread-safe.
class WriterJournal {
 public:
  /// Reads what the last mount has left, and begins anew.
  static Result<WriterJournal> open(const std::string& path);

  /// The files that had writers when the last mount ended.
  const std::set<uint64_t>& left_open() const { return left_open_; }

  Status begin(uint64_t file);
  /// What cannot be noted leaves the file open for the next mount, which then asks: nothing is lost.
  void end(uint64_t file);

 private:
  Status append(char sign, uint64_t file);

  std::string path_;
  UniqueFd descriptor_;
  std::set<uint64_t> left_open_;
  uint64_t writing_ = 0;  ///< files with writers now
};

}  // namespace varve
