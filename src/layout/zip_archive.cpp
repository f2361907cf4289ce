#include "layout/zip_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace varve {
namespace {

// APPNOTE.TXT, 4.3.7, 4.3.12, 4.3.14 to 4.3.16.
constexpr uint32_t kLocalHeaderMark = 0x04034b50;
constexpr uint32_t kDirectoryEntryMark = 0x02014b50;
constexpr uint32_t kDirectoryEndMark = 0x06054b50;
constexpr uint32_t kLargeDirectoryEndMark = 0x06064b50;
constexpr uint32_t kLargeDirectoryPlaceMark = 0x07064b50;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kDirectoryEntryBytes = 46;
constexpr uint64_t kDirectoryEndBytes = 22;
constexpr uint64_t kLargeDirectoryEndBytes = 56;
constexpr uint64_t kLargeDirectoryPlaceBytes = 20;
constexpr uint64_t kCommentBytesMax = 0xffff;
constexpr uint16_t kLargeSizesField = 1;
constexpr uint16_t kEncryptedFlags = 0x2041;    ///< by either way, or with a masked header
constexpr uint16_t kStored = 0, kDeflated = 8;  ///< ways to keep a member
constexpr uint64_t kZipDirectoryBytesMax = 32_MiB;

Status not_a_zip(const char* what) { return Status::corrupt(what); }

struct ZipDirectory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

class ZipParser {
 public:
  explicit ZipParser(FileWindow& file) : file_(file) {}

  Result<std::vector<ZipMember>> read() {
    VARVE_ASSIGN(const ZipDirectory directory, find_directory());
    VARVE_TRY(read_directory(directory));
    // From now on the offset is that of the header in front of a member.
    std::sort(members_.begin(), members_.end(),
              [](const ZipMember& a, const ZipMember& b) { return a.stored.offset < b.stored.offset; });
    uint64_t end = 0;
    for (ZipMember& member : members_) {
      if (member.stored.offset < end) return not_a_zip("members of a zip archive overlap");
      VARVE_TRY(step_over_header(member, directory.offset));
      end = member.stored.offset + member.stored.bytes;
    }
    return std::move(members_);
  }

 private:
  /// The end of the directory is the last thing in the file but for a comment.
  Result<ZipDirectory> find_directory() {
    const uint64_t file_bytes = file_.file_bytes();
    if (file_bytes < kDirectoryEndBytes) return not_a_zip("not a zip archive");
    const uint64_t tail_bytes = std::min(file_bytes, kDirectoryEndBytes + kCommentBytesMax);
    VARVE_ASSIGN(const ByteSpan tail, file_.view(file_bytes - tail_bytes, tail_bytes));
    for (uint64_t back = kDirectoryEndBytes; back <= tail_bytes; ++back) {
      const std::byte* const at = tail.data() + (tail_bytes - back);
      if (load_le<uint32_t>(at) != kDirectoryEndMark) continue;
      if (load_le<uint16_t>(at + 20) != back - kDirectoryEndBytes) continue;
      const ZipDirectory small{load_le<uint32_t>(at + 16), load_le<uint32_t>(at + 12), load_le<uint16_t>(at + 10)};
      const bool one_file = load_le<uint16_t>(at + 8) == load_le<uint16_t>(at + 10);
      return check_directory(small, one_file, file_bytes - back);
    }
    return not_a_zip("a zip archive has no directory");
  }

  /// Of an archive with large sizes there is a second end before this one, which counts.
  Result<ZipDirectory> check_directory(ZipDirectory directory, bool one_file, uint64_t end) {
    if (end >= kLargeDirectoryPlaceBytes) {
      VARVE_ASSIGN(const ByteSpan place, file_.view(end - kLargeDirectoryPlaceBytes, kLargeDirectoryPlaceBytes));
      if (load_le<uint32_t>(place.data()) == kLargeDirectoryPlaceMark) {
        const uint64_t large_end = load_le<uint64_t>(place.data() + 8);
        VARVE_ASSIGN(const ByteSpan large, file_.view(large_end, kLargeDirectoryEndBytes));
        if (load_le<uint32_t>(large.data()) != kLargeDirectoryEndMark)
          return not_a_zip("a zip archive has no directory");
        one_file = load_le<uint64_t>(large.data() + 24) == load_le<uint64_t>(large.data() + 32);
        directory = {load_le<uint64_t>(large.data() + 48), load_le<uint64_t>(large.data() + 40),
                     load_le<uint64_t>(large.data() + 32)};
        end = large_end;
      }
    }
    if (!one_file) return not_a_zip("a part of a zip archive");
    if (directory.offset > end || directory.bytes != end - directory.offset)
      return not_a_zip("the directory of a zip archive is not where it should be");
    if (directory.bytes > kZipDirectoryBytesMax || directory.entries > kZipMembersMax)
      return Status::resource_limit(fmt::format("a zip archive has {} members", directory.entries));
    return directory;
  }

  Status read_directory(const ZipDirectory& directory) {
    // No copy is needed: nothing else is looked at meanwhile.
    VARVE_ASSIGN(const ByteSpan raw, file_.view(directory.offset, directory.bytes));
    ByteReader in(raw);
    for (uint64_t i = 0; i < directory.entries; ++i) {
      VARVE_ASSIGN(const ByteSpan head, in.bytes(kDirectoryEntryBytes));
      if (load_le<uint32_t>(head.data()) != kDirectoryEntryMark) return not_a_zip("an entry is none");
      const auto flags = load_le<uint16_t>(head.data() + 8), method = load_le<uint16_t>(head.data() + 10);
      uint64_t stored_bytes = load_le<uint32_t>(head.data() + 20), bytes = load_le<uint32_t>(head.data() + 24);
      uint64_t offset = load_le<uint32_t>(head.data() + 42);
      VARVE_ASSIGN(const ByteSpan name, in.bytes(load_le<uint16_t>(head.data() + 28)));
      VARVE_ASSIGN(const ByteSpan fields, in.bytes(load_le<uint16_t>(head.data() + 30)));
      VARVE_TRY(in.bytes(load_le<uint16_t>(head.data() + 32)).status());  // a comment
      VARVE_TRY(take_large_sizes(fields, bytes, stored_bytes, offset));
      const bool is_encrypted = (flags & kEncryptedFlags) != 0;
      ZipMember member{.name = std::string(as_text(name)),
                       .stored = {offset, stored_bytes},
                       .is_plain = method == kStored && !is_encrypted,
                       .is_deflated = method == kDeflated && !is_encrypted,
                       .bytes = bytes,
                       .crc32 = load_le<uint32_t>(head.data() + 16)};
      if (member.is_plain && bytes != stored_bytes) return not_a_zip("a stored member has two sizes");
      members_.push_back(std::move(member));
    }
    return in.at_end() ? Status() : not_a_zip("the directory of a zip archive has more entries than it says");
  }

  /// 4.5.3: those that do not fit into 32 bits are in a field of their own, in this order.
  static Status take_large_sizes(ByteSpan fields, uint64_t& bytes, uint64_t& stored_bytes, uint64_t& offset) {
    ByteReader in(fields);
    constexpr size_t field_head_bytes = 4;
    while (in.remaining() >= field_head_bytes) {
      VARVE_ASSIGN(const uint16_t kind, in.le16());
      VARVE_ASSIGN(const uint16_t field_bytes, in.le16());
      if (field_bytes > in.remaining()) break;  // some writers pad with what is no field
      VARVE_ASSIGN(const ByteSpan field, in.bytes(field_bytes));
      if (kind != kLargeSizesField) continue;
      ByteReader sizes(field);
      for (uint64_t* size : {&bytes, &stored_bytes, &offset}) {
        if (*size != UINT32_MAX) continue;
        VARVE_ASSIGN(*size, sizes.le64());
      }
      return {};
    }
    return {};
  }

  Status step_over_header(ZipMember& member, uint64_t end) {
    VARVE_ASSIGN(const ByteSpan head, file_.view(member.stored.offset, kLocalHeaderBytes));
    if (load_le<uint32_t>(head.data()) != kLocalHeaderMark) return not_a_zip("a member of a zip archive is not there");
    const uint64_t header_bytes =
        kLocalHeaderBytes + load_le<uint16_t>(head.data() + 26) + load_le<uint16_t>(head.data() + 28);
    const uint64_t left = end - std::min(end, member.stored.offset);
    if (header_bytes > left || member.stored.bytes > left - header_bytes)
      return not_a_zip("a member of a zip archive reaches past its end");
    member.stored.offset += header_bytes;
    return {};
  }

  FileWindow& file_;
  std::vector<ZipMember> members_;
};

}  // namespace

Result<std::vector<ZipMember>> read_zip_members(FileWindow& file) { return ZipParser(file).read(); }

}  // namespace varve
