#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/frame.h"
#include "hash/score.h"

namespace varve {

// What lies where in a store (FORMAT.md, "The folder of a store", "Several places").

/// The folders that every store in a folder has from its creation on.
inline constexpr std::array<std::string_view, 5> kStoreFolders{"sets", "arenas", "writers", "condemned", "index"};

/// And where a node's own store keeps what protects its sets against the loss of other nodes; elsewhere it is not
/// there.
inline constexpr std::string_view kRedundancyFolder = "redundancy";

/// The name of an arena's file in the folder `arenas/` of a store (FORMAT.md, "The folder of a store").
std::string arena_file_name(const ArenaId& arena);

/// The arena whose file has this name; none for other names.
std::optional<ArenaId> parse_arena_file_name(std::string_view name);

/// How the arenas of a store are spread over several places, such as servers (FORMAT.md, "Several places"): each place
/// has an equal range of ids and of scores. What has a score lies in an arena of the score's place, unless it was
/// written when there were fewer places; so it is looked for by name, never by place alone.
class ArenaSpread {
 public:
  ArenaSpread() = default;
  /// `places` > 0.
  explicit ArenaSpread(uint32_t places) : places_(places) {}

  uint32_t places() const { return places_; }
  /// By the first word of the id.
  uint32_t place_of(const ArenaId& arena) const { return range_of(load_le<uint32_t>(arena.bytes.data())); }
  uint32_t place_of(const Score& score) const { return place_of_prefix(score.prefix()); }
  /// The place that knows about a chunk (chunk_index.h), by Score::prefix(); an ascending function of it.
  uint32_t place_of_prefix(uint64_t prefix) const { return range_of(static_cast<uint32_t>(prefix >> 32)); }

  /// The id of the `ordinal`-th arena that a writer makes at a place. Ids of different ordinals and places differ, as
  /// long as ordinals are below 2^32 / places().
  ArenaId arena_at(const UniqueId& writer, uint32_t ordinal, uint32_t place) const {
    const uint64_t begin = range_begin(place), length = range_begin(place + 1) - begin;
    ArenaId arena = writer;
    const uint64_t word = begin + (uint64_t{load_le<uint32_t>(writer.bytes.data())} + ordinal) % length;
    store_le<uint32_t>(arena.bytes.data(), static_cast<uint32_t>(word));
    return arena;
  }

 private:
  uint32_t range_of(uint32_t word) const { return static_cast<uint32_t>((uint64_t{word} * places_) >> 32); }
  /// The first word of a place's range.
  uint64_t range_begin(uint32_t place) const { return ((uint64_t{place} << 32) + places_ - 1) / places_; }

  uint32_t places_ = 1;
};

/// The folder of a place's index runs, as one who sees all places names it; each place alone has it as the first.
std::string index_folder_name(uint32_t place);

/// The place of which this is the folder's name, if it is one of so many; nothing for the first, which has a usual
/// name.
std::optional<uint32_t> index_folder_place(std::string_view name, uint32_t places);

/// Which place of a spread store a folder is (FORMAT.md, "Several places"). A store in one folder has no such file.
struct SpreadMember {
  UniqueId store;
  uint32_t position = 0;  ///< counts from 0; place 0 has the catalog too
  uint32_t count = 1;
  bool operator==(const SpreadMember&) const = default;
};

inline constexpr uint32_t kSpreadPlacesMax = 1024;
inline constexpr std::string_view kSpreadMemberName = "varve.spread";
inline constexpr uint64_t kSpreadMemberBytesMax = 256;

/// What a file that says which place of a store its folder is holds.
std::string encode_spread_member(const SpreadMember& member);
/// corrupt if it makes no sense.
Result<SpreadMember> decode_spread_member(std::string_view text);

}  // namespace varve
