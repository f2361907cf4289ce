#include "mount/file_map.h"

#include <algorithm>
#include <unordered_map>

namespace varve {

namespace {
/// Lays the references of a stream over the extents that it fills, piece by piece.
class StreamLayer {
 public:
  StreamLayer(const Leaf& leaf, FileMap& map) : leaf_(leaf), map_(map) {}

  Status lay(const std::vector<Reference>& stream, const std::vector<Extent>& extents) {
    size_t ordinal = 0;
    uint64_t used = 0;  // of the reference
    for (const Extent& extent : extents) {
      for (uint64_t done = 0; done < extent.bytes;) {
        if (ordinal == stream.size()) return Status::corrupt("a stream is shorter than its layout says");
        const Reference& reference = stream[ordinal];
        const uint64_t part = std::min(extent.bytes - done, reference.bytes - used);
        add(reference, used, extent.offset + done, part);
        done += part;
        used += part;
        if (used == reference.bytes) {
          ++ordinal;
          used = 0;
        }
      }
    }
    return {};
  }

 private:
  void add(const Reference& reference, uint64_t used, uint64_t file_offset, uint64_t bytes) {
    if (bytes == 0) return;
    FileMap::Piece piece{file_offset, bytes, reference.offset, FileMap::kPattern, static_cast<uint32_t>(used % 8)};
    if (reference.pack != Reference::kPattern) {
      const auto [known, is_new] = packs_.try_emplace(reference.pack, static_cast<uint32_t>(map_.packs.size()));
      if (is_new) map_.packs.push_back(leaf_.packs[reference.pack]);
      piece.pack = known->second;
      piece.at = reference.offset + used;
      piece.skipped = 0;
    }
    map_.pieces.push_back(piece);
  }

  const Leaf& leaf_;
  FileMap& map_;
  std::unordered_map<uint32_t, uint32_t> packs_;  ///< ordinal in the leaf, in the map
};

bool continues(const FileMap::Piece& before, const FileMap::Piece& piece) {
  if (before.pack != piece.pack) return false;
  if (piece.pack != FileMap::kPattern) return before.at + before.bytes == piece.at;
  return before.at == piece.at && (before.skipped + before.bytes) % 8 == piece.skipped;
}
}  // namespace

size_t FileMap::piece_at(uint64_t offset) const {
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                      [](uint64_t at, const Piece& piece) { return at < piece.file_offset; });
  return static_cast<size_t>(after - pieces.begin()) - 1;
}

Result<FileMap> map_file(const Leaf& leaf, const TreeFile& file) {
  FileMap map;
  map.bytes = file.bytes;
  StreamLayer layer(leaf, map);
  for (size_t stream = 0; stream < file.streams.size(); ++stream)
    VARVE_TRY(layer.lay(file.streams[stream], stream_extents(file, stream)));
  std::sort(map.pieces.begin(), map.pieces.end(),
            [](const FileMap::Piece& a, const FileMap::Piece& b) { return a.file_offset < b.file_offset; });
  size_t kept = 0;
  uint64_t end = 0;
  for (const FileMap::Piece& piece : map.pieces) {
    if (piece.file_offset != end) return Status::corrupt("the streams of a file do not cover it", file.path);
    end += piece.bytes;
    if (kept > 0 && continues(map.pieces[kept - 1], piece)) {
      map.pieces[kept - 1].bytes += piece.bytes;
    } else {
      map.pieces[kept++] = piece;
    }
  }
  if (end != file.bytes) return Status::corrupt("the streams of a file do not cover it", file.path);
  map.pieces.resize(kept);
  map.pieces.shrink_to_fit();
  return map;
}

}  // namespace varve
