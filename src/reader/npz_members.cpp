#include "reader/npz_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "codec/inflater.h"
#include "layout/npy_array.h"
#include "layout/zip_archive.h"
#include "reader/part_stream.h"

namespace varve {

namespace {
constexpr uint64_t kHeaderBytesMax = 1_MiB;
/// A stream of RFC 1951 makes no more of a byte, but for its first few.
constexpr uint64_t kInflatedRatioMax = 1032;

/// What of `bytes` there is.
Result<uint64_t> read_at(const PartStream& file, StreamReader& reader, uint64_t offset, MutableByteSpan into) {
  const uint64_t there = file.bytes() - std::min(offset, file.bytes());
  into = into.first(std::min<uint64_t>(into.size(), there));
  VARVE_TRY(file.read(reader, offset, into));
  return into.size();
}

/// The beginning of a member's content, with all of numpy's header.
Result<ByteVector> read_head(const PartStream& file, StreamReader& reader, const ZipMember& member) {
  uint64_t done = 0;
  InflateStream content([&](MutableByteSpan into) -> Result<size_t> {
    into = into.first(std::min<uint64_t>(into.size(), member.stored.bytes - done));
    VARVE_ASSIGN(const uint64_t got, read_at(file, reader, member.stored.offset + done, into));
    done += got;
    return got;
  });
  constexpr size_t first_bytes = 12, version_at = 6, length_at = 8;
  ByteVector head(std::min<uint64_t>(first_bytes, member.bytes));
  VARVE_TRY(content.read(head));
  if (head.size() < first_bytes || as_text(head).substr(0, kNpyMagic.size()) != kNpyMagic) return head;
  const bool is_short = head[version_at] == std::byte{1};
  const uint64_t header_bytes =
      is_short ? uint64_t{load_le<uint16_t>(head.data() + length_at)} : load_le<uint32_t>(head.data() + length_at);
  if (header_bytes > kHeaderBytesMax) return Status::resource_limit("the header of a numpy array is too long");
  const uint64_t all = (is_short ? length_at + 2 : length_at + 4) + header_bytes;
  if (all > member.bytes) return Status::corrupt("the file ends within a numpy array");
  head.resize(std::max<uint64_t>(all, first_bytes));
  VARVE_TRY(content.read(MutableByteSpan(head).subspan(first_bytes)));
  return head;
}

Status describe(const PartStream& file, StreamReader& reader, const ZipMember& member, StoredPart& part) {
  if (!member.name.ends_with(".npy")) return {};
  if (!member.is_deflated)
    return Status::unsupported("the zip archive has compressed it in a way that is not known here, or encrypted it");
  VARVE_ASSIGN(const ByteVector head, read_head(file, reader, member));
  FileWindow window{ByteSpan(head)};
  VARVE_ASSIGN(Variable array, read_npy_array(window, {0, member.bytes}, part.variable->name));
  // Objects are bytes, which mean something to Python alone.
  if (array.extents.size() > 1) return {};
  const Extent cells = array.extents.empty() ? Extent() : array.extents.front();
  if (array_bytes(array.shape, array.type.bytes) != cells.bytes) return {};
  if (cells.bytes / kInflatedRatioMax > member.stored.bytes)
    return Status::corrupt(
        fmt::format("{} bytes cannot be what {} were deflated to", member.stored.bytes, cells.bytes));
  part.type = array.type;
  part.shape = std::move(array.shape);
  part.head_bytes = cells.offset;
  part.content_bytes = member.bytes;
  part.content_crc32 = member.crc32;
  part.coding = PartCoding::deflated;
  part.why_unknown = {};
  return {};
}
}  // namespace

void describe_npz_members(StreamReader& reader, const Leaf& leaf, const TreeFile& file,
                          const std::vector<StoredPart*>& parts) {
  const PartStream bytes(leaf, file);
  FileWindow window([&](uint64_t offset, MutableByteSpan into) { return read_at(bytes, reader, offset, into); },
                    file.bytes);
  Result<std::vector<ZipMember>> members = read_zip_members(window);
  std::map<uint64_t, const ZipMember*> by_place;
  if (members.ok()) {
    for (const ZipMember& member : *members) by_place.emplace(member.stored.offset, &member);
  }
  for (StoredPart* const part : parts) {
    part->why_unknown = members.status();
    const std::vector<Extent>& extents = part->variable->extents;
    const auto member = extents.size() == 1 ? by_place.find(extents.front().offset) : by_place.end();
    if (member != by_place.end() && member->second->stored == extents.front())
      part->why_unknown = describe(bytes, reader, *member->second, *part);
  }
}

}  // namespace varve
