#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "core/aligned_block.h"
#include "core/bytes.h"
#include "core/sync.h"
#include "layout/layout.h"

namespace varve {

inline constexpr uint64_t kTileBytes = 4_MiB;

/// Gathers the pieces of large files, which packs give in small ranges and no order, into tiles that are written with
/// one call each. A tile that is whole is written at once and may bypass the page cache; when too many are open, the
/// oldest is written as far as it is there. Thread-safe.
class TileWriter {
 public:
  /// Writes `bytes` at `offset` of file `number`; `whole_tile`: they are a whole tile in memory that is aligned for
  /// direct I/O.
  using Write = std::function<Status(uint32_t number, uint64_t offset, ByteSpan bytes, bool whole_tile)>;

  TileWriter(Write write, uint64_t memory_bytes);
  TileWriter(const TileWriter&) = delete;
  TileWriter& operator=(const TileWriter&) = delete;

  /// Adds a piece of a file that is `file_bytes` long. Each byte of a file comes once.
  Status add(uint32_t number, uint64_t file_bytes, uint64_t offset, ByteSpan bytes);
  /// Writes what is left. No add() may be running.
  Status flush();

 private:
  using Key = std::pair<uint32_t, uint64_t>;  ///< file, offset of the tile
  struct Tile {
    AlignedBlock memory;
    uint64_t bytes = 0;  ///< of the tile: less than kTileBytes at the end of a file
    uint64_t filled_bytes = 0;
    std::vector<Extent> filled;  ///< in the tile
    unsigned copying = 0;        ///< threads that are filling it
    std::list<Key>::iterator age;
  };

  Status add_to_tile(const Key& key, uint64_t tile_bytes, uint64_t begin, ByteSpan bytes);
  /// Takes a tile out of the map, or the oldest that nobody is filling. The lock is held.
  Tile take(std::map<Key, Tile>::iterator tile);
  Status write_out(const Key& key, Tile& tile);

  const Write write_;
  const size_t tiles_max_;
  Mutex mutex_;  // guards what follows
  std::map<Key, Tile> tiles_;
  std::list<Key> oldest_first_;
  std::vector<AlignedBlock> spare_;
};

}  // namespace varve
