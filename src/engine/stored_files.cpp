#include "engine/stored_files.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/bytes.h"
#include "store/stored_copies.h"

namespace varve {

bool FileFilter::matches(const TreeFile& file) const {
  if (rank && file.rank != *rank) return false;
  if (globs.empty()) return true;
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    const std::string subject = glob.find('/') == std::string::npos ? base_name(file.path) : file.path;
    return ::fnmatch(glob.c_str(), subject.c_str(), 0) == 0;
  });
}

IdlePatterns::IdlePatterns(const FileFilter& filter) {
  for (const std::string& glob : filter.globs) each_.push_back({.globs = {glob}, .rank = filter.rank});
}

void IdlePatterns::note(const TreeFile& file) {
  std::erase_if(each_, [&](const FileFilter& one) { return one.matches(file); });
}

std::vector<Status> IdlePatterns::warnings() const {
  std::vector<Status> warnings;
  for (const FileFilter& one : each_)
    warnings.push_back(Status::not_found(
        one.rank ? "the pattern matches nothing of this rank" : "the pattern matches nothing in the set",
        one.globs.front()));
  return warnings;
}

Status for_each_leaf(const Store& store, const SetRecord& record, const std::function<Status(const Leaf&)>& visit,
                     const std::function<Status(const LostLeaves&)>& lost) {
  const auto tell = [&](const Status& why, const Score& node, uint64_t file_count) {
    return lost && is_damage(why) ? lost({why, node, file_count}) : why;
  };
  open_ahead(store, record);
  for (const GroupRecord& group : record.groups) {
    const Result<Root> root = read_root(store, group.root, group.hint);
    if (!root.ok()) {
      VARVE_TRY(tell(root.status(), group.root, 0));
      continue;
    }
    for (const LeafLink& link : root->leaves) {
      const Result<Leaf> leaf = read_leaf(store, link);
      VARVE_TRY(leaf.ok() ? visit(*leaf) : tell(leaf.status(), link.score, link.file_count));
    }
  }
  return {};
}

std::vector<FilePiece> file_pieces(const TreeFile& file) {
  std::vector<FilePiece> pieces;
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      pieces.push_back({extent.offset, extent.bytes, stream, at});
      at += extent.bytes;
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const FilePiece& a, const FilePiece& b) { return a.file_offset < b.file_offset; });
  return pieces;
}

void fill_pattern(uint64_t pattern, uint64_t offset, MutableByteSpan into) {
  std::byte bytes[8];
  store_le<uint64_t>(bytes, pattern);
  const size_t head = std::min<size_t>(into.size(), 8);
  for (size_t i = 0; i < head; ++i) into[i] = bytes[(offset + i) % 8];
  for (size_t done = head; done < into.size();) {
    const size_t part = std::min(done, into.size() - done);
    std::copy_n(into.begin(), part, into.begin() + static_cast<ptrdiff_t>(done));
    done += part;
  }
}

Result<ByteSpan> StreamReader::range(const PackLink& link, const Extent& range) {
  for (auto it = packs_.begin(); it != packs_.end(); ++it) {
    if (it->first != link.score) continue;
    if (Result<ByteSpan> bytes = it->second.range(range.offset, range.bytes); bytes.ok()) {
      packs_.splice(packs_.begin(), packs_, it);
      return bytes;
    }
    packs_.erase(it);  // another copy may be better
    break;
  }
  VARVE_ASSIGN(Pack pack, read_pack(store_, link, {&range, 1}));
  packs_.emplace_front(link.score, std::move(pack));
  if (packs_.size() > packs_max_) packs_.pop_back();
  return packs_.front().second.range(range.offset, range.bytes);
}

Status StreamReader::read(const Leaf& leaf, const std::vector<Reference>& stream, uint64_t offset,
                          MutableByteSpan into) {
  uint64_t at = 0;
  for (const Reference& reference : stream) {
    if (into.empty()) break;
    if (offset >= at + reference.bytes) {
      at += reference.bytes;
      continue;
    }
    const uint64_t skip = offset - at;
    const size_t part = std::min<uint64_t>(into.size(), reference.bytes - skip);
    if (reference.pack == Reference::kPattern) {
      fill_pattern(reference.offset, skip, into.first(part));
    } else {
      VARVE_ASSIGN(ByteSpan bytes, range(leaf.packs[reference.pack], {reference.offset + skip, part}));
      std::copy(bytes.begin(), bytes.end(), into.begin());
    }
    into = into.subspan(part);
    offset += part;
    at += reference.bytes;
  }
  return into.empty() ? Status() : Status::corrupt("a stream is shorter than its layout says");
}

}  // namespace varve
