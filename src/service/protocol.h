#pragma once

#include <vector>

#include "core/bytes.h"
#include "service/messages.h"
#include "service/wire.h"

namespace varve {

/// What a client asks, as its frame says it.
struct Request {
  bool again = false;  ///< may have reached the server before
  AnyRequest message;
};

/// `header` has no flag of a reply. unsupported: a message that is unknown. corrupt: fields or data that are not its
/// own.
Result<Request> decode_request(const WireHeader& header, ByteSpan fields);

/// Entries of a folder, as the data of a reply to `list`: u8 whether it is a directory | text, one after another.
void append_entry(ByteVector& out, const DirectoryEntry& entry);
Status decode_entries(ByteSpan data, std::vector<DirectoryEntry>& entries);

}  // namespace varve
