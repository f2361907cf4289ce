#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/bytes.h"

namespace varve {

/// 128 random bits that name a store, an arena or a writer. Two are never the same in practice, so no one need
/// coordinate names.
struct UniqueId {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const UniqueId&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here

  /// From the operating system's random source.
  static Result<UniqueId> random();
  /// 32 lower-case hexadecimal digits, as in file names.
  std::string hex() const { return to_hex(bytes); }
  /// As a ByteWriter has written `bytes`.
  static Result<UniqueId> read(ByteReader& in);
  /// The reverse of hex(); invalid_argument for anything else.
  static Result<UniqueId> parse(std::string_view hex);
  /// The first eight bytes, as repeated in every frame of an arena.
  uint64_t tag() const { return load_le<uint64_t>(bytes.data()); }
};

struct UniqueIdHash {
  size_t operator()(const UniqueId& id) const { return static_cast<size_t>(id.tag()); }
};

}  // namespace varve
