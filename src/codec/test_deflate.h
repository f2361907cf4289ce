#pragma once

#include <string>
#include <string_view>

#include "codec/deflater.h"
#include "core/bytes.h"

namespace varve::test {

/// A stream of deflate, as zlib makes it.
inline ByteVector deflated(ByteSpan content, DeflateSettings settings = {}) {
  ByteVector stream(content.size() + content.size() / 8 + 1000);
  stream.resize(Deflater().make(content, settings, stream));
  return stream;
}
inline std::string deflated(std::string_view content) { return std::string(as_text(deflated(as_bytes(content)))); }

}  // namespace varve::test
