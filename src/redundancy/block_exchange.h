#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/file_system.h"
#include "redundancy/member_files.h"
#include "redundancy/parity_group.h"
#include "varve/status.h"

namespace varve {

/// A range of bytes that a member has and another one asks for.
struct BlockRequest {
  enum class Kind : uint8_t { stream, parity_file };
  uint32_t member = 0;
  Kind kind = Kind::stream;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// How the members of a failure group get blocks from each other.
///
/// Redundancy works in rounds. In each round, **every** member calls fetch() once, also those that ask for nothing and
/// those for which something has gone wrong; and all have the same number of rounds. So an implementation may make a
/// round a collective operation, in which a member serves the others (by MemberReader) while it waits for its own.
class BlockExchange {
 public:
  virtual ~BlockExchange() = default;
  /// Fills into[i] with what requests[i] asks for. Fails if any of them cannot be fulfilled; that is told to the member
  /// that asked, and the round goes on for the others. The bytes are not trusted: who asked checks them.
  virtual Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) = 0;
};

/// An exchange over the members' folders themselves, where one process can reach all of them. One thread at a time.
class FolderExchange final : public BlockExchange {
 public:
  struct Place {
    FileSystem* fs = nullptr;  ///< outlives the exchange
    std::string folder;
  };
  /// `places` by position; `group` outlives it.
  FolderExchange(const ParityGroup& group, const std::vector<Place>& places);
  Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) override;

 private:
  std::vector<MemberReader> readers_;
};

}  // namespace varve
