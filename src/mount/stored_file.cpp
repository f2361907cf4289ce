#include "mount/stored_file.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "aggregate/set_files.h"

namespace varve {

namespace {
/// The kernel's own reading ahead has several requests on their way, which come in any order.
constexpr uint64_t kDisorderBytes = 4_MiB;
/// How far ahead packs are read, and how many.
constexpr uint64_t kAheadBytes = 32_MiB;
constexpr size_t kAheadPacks = 16;
constexpr uint64_t kHoleBytesMin = 4096;
}  // namespace

MountResult<size_t> StoredFile::read(uint64_t offset, MutableByteSpan into) {
  if (offset >= map_->bytes) return size_t{0};
  into = into.first(std::min<uint64_t>(into.size(), map_->bytes - offset));
  read_ahead(offset, offset + into.size());
  size_t done = 0;
  for (size_t i = map_->piece_at(offset); done < into.size(); ++i) {
    const FileMap::Piece& piece = map_->pieces[i];
    const uint64_t skip = offset + done - piece.file_offset;
    const MutableByteSpan part = into.subspan(done, std::min<uint64_t>(into.size() - done, piece.bytes - skip));
    if (piece.pack == FileMap::kPattern) {
      fill_pattern(piece.at, piece.skipped + skip, part);
    } else if (const Status got = packs_.read(map_->packs[piece.pack], piece.at + skip, part); !got.ok()) {
      log_("cannot read " + name_ + ": " + got.to_string());
      return Errno{EIO};
    }
    done += part.size();
  }
  return done;
}

void StoredFile::read_ahead(uint64_t offset, uint64_t end) {
  std::lock_guard lock(mutex_);
  const bool in_sequence = offset <= sequence_end_ + kDisorderBytes && offset + kDisorderBytes >= sequence_end_;
  if (!in_sequence) next_ahead_ = 0;
  sequence_end_ = in_sequence ? std::max(sequence_end_, end) : end;
  if (!in_sequence || end >= map_->bytes) return;
  const size_t current = map_->piece_at(end - 1);
  next_ahead_ = std::max(next_ahead_, current + 1);
  const uint32_t own = map_->pieces[current].pack;
  std::map<uint32_t, std::vector<Extent>> wanted;
  for (; next_ahead_ < map_->pieces.size(); ++next_ahead_) {
    const FileMap::Piece& piece = map_->pieces[next_ahead_];
    if (piece.file_offset > end + kAheadBytes) break;
    if (piece.pack == FileMap::kPattern || piece.pack == own) continue;
    if (wanted.size() == kAheadPacks && wanted.count(piece.pack) == 0) break;
    wanted[piece.pack].push_back({piece.at, piece.bytes});
  }
  for (auto& [pack, ranges] : wanted) packs_.read_ahead(map_->packs[pack], std::move(ranges));
}

MountResult<uint64_t> StoredFile::seek(uint64_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return Errno{EINVAL};
  if (offset >= map_->bytes) return Errno{ENXIO};
  for (size_t i = map_->piece_at(offset); i < map_->pieces.size(); ++i) {
    const FileMap::Piece& piece = map_->pieces[i];
    const bool is_hole = piece.pack == FileMap::kPattern && piece.at == 0 && piece.bytes >= kHoleBytesMin;
    if (is_hole == (whence == SEEK_HOLE)) return std::max(offset, piece.file_offset);
  }
  return whence == SEEK_HOLE ? MountResult<uint64_t>(map_->bytes) : MountResult<uint64_t>(Errno{ENXIO});
}

}  // namespace varve
