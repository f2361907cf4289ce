#pragma once

#include <functional>

#include "core/bytes.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// Appends `layout` in a compact form for another process of this same build: it has no version and is never stored.
///
///     format text | variable count | for each: name text | kind u8 | order u8 | element bytes | encoded u8 |
///     shape count, lengths | run shape count, lengths | extent count, (distance from the previous end, bytes) each
///
/// All numbers without a width are varints, the distance a signed one. The first distance is from the end of the
/// variable before.
void encode_layout(const Layout& layout, ByteWriter& out);

/// Hears of memory before it is taken, and may refuse it, which is then the outcome. Empty: all may be taken.
using TakeMemory = std::function<Status(uint64_t bytes)>;
/// What a text takes beside its std::string, and what a vector of so many bytes takes beside itself.
uint64_t text_memory_bytes(size_t bytes);
uint64_t array_memory_bytes(uint64_t bytes);

/// The reverse, from bytes that are not trusted: what is allocated is bounded by what is left to read, by the limits
/// of layout.h, and by `take`. The result still has to be validated against its file.
Result<Layout> decode_layout(ByteReader& in, const TakeMemory& take = {});

}  // namespace varve
