#include "aggregate/tile_writer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

namespace varve {

TileWriter::TileWriter(Write write, uint64_t memory_bytes)
    : write_(std::move(write)), tiles_max_(std::max<uint64_t>(memory_bytes / kTileBytes, 2)) {}

Status TileWriter::add(uint32_t number, uint64_t file_bytes, uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    const uint64_t tile_offset = offset / kTileBytes * kTileBytes;
    const uint64_t tile_bytes = std::min(kTileBytes, file_bytes - tile_offset);
    const size_t part = std::min<uint64_t>(bytes.size(), tile_offset + tile_bytes - offset);
    VARVE_TRY(add_to_tile({number, tile_offset}, tile_bytes, offset - tile_offset, bytes.first(part)));
    bytes = bytes.subspan(part);
    offset += part;
  }
  return {};
}

Status TileWriter::add_to_tile(const Key& key, uint64_t tile_bytes, uint64_t begin, ByteSpan bytes) {
  std::byte* memory = nullptr;
  std::optional<std::pair<Key, Tile>> evicted;
  {
    std::lock_guard lock(mutex_);
    auto tile = tiles_.find(key);
    if (tile == tiles_.end()) {
      if (tiles_.size() >= tiles_max_) {
        auto oldest = std::find_if(oldest_first_.begin(), oldest_first_.end(),
                                   [&](const Key& k) { return tiles_.at(k).copying == 0; });
        if (oldest != oldest_first_.end()) {
          const Key old_key = *oldest;
          evicted.emplace(old_key, take(tiles_.find(old_key)));
        }
      }
      tile = tiles_.emplace(key, Tile{}).first;
      tile->second.bytes = tile_bytes;
      tile->second.age = oldest_first_.insert(oldest_first_.end(), key);
      if (!spare_.empty()) {
        tile->second.memory = std::move(spare_.back());
        spare_.pop_back();
      } else {
        tile->second.memory = AlignedBlock(kTileBytes);
        if (tile->second.memory.empty()) throw std::bad_alloc();
      }
    }
    ++tile->second.copying;
    memory = tile->second.memory.data();
  }
  if (evicted) VARVE_TRY(write_out(evicted->first, evicted->second));
  std::memcpy(memory + begin, bytes.data(), bytes.size());
  std::optional<Tile> whole;
  {
    std::lock_guard lock(mutex_);
    auto tile = tiles_.find(key);
    --tile->second.copying;
    std::vector<Extent>& filled = tile->second.filled;
    if (!filled.empty() && filled.back().offset + filled.back().bytes == begin) {
      filled.back().bytes += bytes.size();
    } else {
      filled.push_back({begin, bytes.size()});
    }
    tile->second.filled_bytes += bytes.size();
    if (tile->second.filled_bytes == tile->second.bytes && tile->second.copying == 0) whole = take(tile);
  }
  return whole ? write_out(key, *whole) : Status();
}

TileWriter::Tile TileWriter::take(std::map<Key, Tile>::iterator tile) {
  oldest_first_.erase(tile->second.age);
  Tile taken = std::move(tile->second);
  tiles_.erase(tile);
  return taken;
}

Status TileWriter::write_out(const Key& key, Tile& tile) {
  Status status;
  if (tile.filled_bytes == tile.bytes) {
    status = write_(key.first, key.second, tile.memory.first(tile.bytes), tile.bytes == kTileBytes);
  } else {
    for (const Extent& range : tile.filled) {
      if (!status.ok()) break;
      status =
          write_(key.first, key.second + range.offset, ByteSpan(tile.memory.data() + range.offset, range.bytes), false);
    }
  }
  std::lock_guard lock(mutex_);
  if (spare_.size() + tiles_.size() < tiles_max_) spare_.push_back(std::move(tile.memory));
  return status;
}

Status TileWriter::flush() {
  while (!tiles_.empty()) {
    const Key key = tiles_.begin()->first;
    Tile tile = take(tiles_.begin());
    VARVE_TRY(write_out(key, tile));
  }
  return {};
}

}  // namespace varve
