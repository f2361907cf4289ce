#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/file_system.h"
#include "redundancy/parity_group.h"
#include "varve/status.h"

namespace varve {

// The redundancy file that a member of a failure group keeps beside its data: FORMAT.md, "Redundancy files".

/// Whose redundancy file it is.
struct ParityHeader {
  ParityGroup group;
  uint32_t position = 0;  ///< of the member that keeps the file
};

/// The first bytes of a member's redundancy file, before its blocks.
ByteVector encode_parity_header(const ParityGroup& group, uint32_t position);
/// Reads and checks the header of an untrusted file, and that the file is as long as the header says. corrupt; or
/// unsupported for another version, or a build that lacks the algorithm of the sums.
Result<ParityHeader> read_parity_header(File& file, const std::string& path);

/// Writes a new redundancy file from its begin to its end. One thread at a time.
class ParityFileWriter {
 public:
  /// Makes the file, which must not exist, and writes its header; removes it if that fails. `group` must outlive the
  /// writer.
  static Result<ParityFileWriter> create(FileSystem& fs, const std::string& path, const ParityGroup& group,
                                         uint32_t position);
  /// The next block, in the order of rows and blocks; as long as the geometry says (internal otherwise).
  Status append(ByteSpan block);
  /// Makes the file durable (its name is not). internal unless all blocks are there.
  Status finish();

 private:
  ParityFileWriter(std::unique_ptr<File> file, const ParityGroup& group, uint32_t position);
  std::unique_ptr<File> file_;
  const ParityGroup& group_;
  uint32_t position_;
  uint32_t row_ = 0;
  uint64_t block_ = 0;
  uint64_t offset_;
  ByteVector record_;
};

/// The block of a record that was read at `offset` of a member's redundancy file; corrupt if its checksum differs.
Result<ByteSpan> open_parity_record(const ParityGroup& group, uint32_t position, uint64_t offset, ByteSpan record);

/// Reads all of a member's redundancy file, with one block in memory: OK if it is the one of this very group and
/// position, and whole. Without `blocks` only its header. not_found, corrupt, unsupported, or what the file system
/// says.
Status verify_parity_file(FileSystem& fs, const std::string& path, const ParityGroup& group, uint32_t position,
                          bool blocks = true);

}  // namespace varve
