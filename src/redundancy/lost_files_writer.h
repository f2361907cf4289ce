#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "hash/score_stream.h"
#include "redundancy/parity_group.h"
#include "redundancy/stripe_geometry.h"
#include "varve/status.h"

namespace varve {

/// Writes the lost files of a member from its stream: each under an unfinished name, until it is complete, has the hash
/// that it had, and is durable; then it gets its own name, and replaces what has it. One file is open at a time. Its
/// destructor removes a file that was not completed. One thread at a time.
class LostFilesWriter {
 public:
  /// `fs` and `member` outlive it. No unfinished file of these names is there (already_exists later).
  LostFilesWriter(FileSystem& fs, std::string folder, const ProtectedMember& member,
                  const std::vector<bool>& lost_files, ScoreAlgorithm algorithm);
  LostFilesWriter(const LostFilesWriter&) = delete;
  LostFilesWriter& operator=(const LostFilesWriter&) = delete;
  ~LostFilesWriter();

  /// Takes what the lost files need of these bytes of the stream. In ascending order, and nothing of a lost file is
  /// left out (internal otherwise). corrupt if a file that is complete is not what it was.
  Status write(uint64_t stream_offset, ByteSpan bytes);
  /// After the last bytes: all lost files have their names, and these are durable.
  Status finish();

 private:
  struct LostFile {
    const ProtectedFile* file = nullptr;
    ByteRange range;  ///< of the stream
  };
  std::string unfinished_path(const ProtectedFile& file) const;
  /// Begins the file lost_[at_] unless that has been done.
  Status begin_file();
  Status complete_file();

  FileSystem& fs_;
  std::string folder_;
  ScoreAlgorithm algorithm_;
  std::vector<LostFile> lost_;
  size_t at_ = 0;       ///< the one that comes next, or is being written
  uint64_t bytes_ = 0;  ///< of it, that are there
  std::unique_ptr<File> open_;
  std::optional<ScoreStream> sum_;
};

}  // namespace varve
