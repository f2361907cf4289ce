#pragma once

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Appends a Status: code u8 | message | subject | remedy u8 | what the remedy is about, or the hint's words if there
/// is none (docs/PROTOCOL.md, "Messages"). Its texts are cut to `text_bytes_max` each, not within a character.
void put_status(ByteWriter& out, const Status& status, size_t text_bytes_max);
/// The reverse. Returns whether it could be read, which `status` must not be mistaken for: corrupt if it is none.
Status get_status(ByteReader& in, Status& status);

/// A Status alone, as a message.
ByteVector encode_status(const Status& status, size_t text_bytes_max = 2000);
Status decode_status(ByteSpan bytes, Status& status);

}  // namespace varve
