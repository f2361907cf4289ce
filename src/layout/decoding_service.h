#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/bytes.h"
#include "core/process.h"
#include "core/sync.h"
#include "layout/array_exchange.h"
#include "layout/layout_reader.h"
#include "layout/reader_process.h"
#include "varve/status.h"

namespace varve {

/// A file whose arrays are wanted, wherever its bytes are.
struct EncodedSource {
  const void* identity = nullptr;  ///< of two sources that are the same file, and of no other one
  ReadAt read;
  uint64_t bytes = 0;
};

/// Decodes arrays of files by the format's library (LayoutReader::open_encoded), which runs in a process of its own:
/// where that crashes, hangs or takes all memory, the call fails, and nothing else. The process asks for those bytes of
/// the file that it needs. It is started by the first call, and ends with this object. One thread at a time.
class DecodingService {
 public:
  /// `reader` is one of the formats'; null: nothing is decoded, since this build lacks the library.
  explicit DecodingService(std::unique_ptr<LayoutReader> reader, ReaderLimits limits = kLimits);
  DecodingService(const DecodingService&) = delete;
  DecodingService& operator=(const DecodingService&) = delete;
  ~DecodingService();

  /// As EncodedFile; what `source.read` fails with comes back. corrupt: the library crashed. io_error: its process was
  /// killed. resource_limit: it took too long, or too much memory. `into` may be large: cells come a part at a time.
  /// The last file stays open.
  Status check(const EncodedSource& source, const Variable& array);
  Status read(const EncodedSource& source, const WantedBox& wanted, MutableByteSpan into);

  /// Of one part of the cells, not counting what it takes to read the file's bytes.
  static constexpr ReaderLimits kLimits{std::chrono::milliseconds(60'000), 2_GiB};

 private:
  class Exchange;

  Status ask(const EncodedSource& source, ArrayWish kind, const WantedBox& wanted, MutableByteSpan into);
  Status open(const EncodedSource& source);
  /// In a process that was forked from the one that has talked to the decoding one: it starts one of its own.
  void leave_inherited();
  /// Ends the process, and says how it ended.
  ReaderEnd end();

  LayoutReaders readers_;  ///< one, or none
  const ReaderLimits limits_;
  ReaderSpawner spawner_;
  std::optional<ReaderClient> client_;
  UniqueFd socket_;  ///< of the open file
  const void* open_ = nullptr;
};

/// That of the format whose arrays libraries decode: HDF5. Null where this build lacks it.
std::unique_ptr<LayoutReader> make_decoding_reader();

}  // namespace varve
