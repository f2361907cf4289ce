#include "layout/layout_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace varve {
namespace {

constexpr uint64_t kTypeCore = 4;                 // ET_CORE
constexpr uint64_t kSegmentLoad = 1;              // PT_LOAD
constexpr uint64_t kSegmentNote = 4;              // PT_NOTE
constexpr uint64_t kSegmentsOverflowed = 0xffff;  // PN_XNUM: the count is in section 0
constexpr uint64_t kNoteFiles = 0x46494c45;       // NT_FILE
constexpr uint64_t kHeaderBytesMin = 52;          // of a 32-bit file

/// The offsets of the fields that differ between 32- and 64-bit files.
struct FieldOffsets {
  unsigned word;  ///< bytes of an address or offset
  unsigned header_bytes, phoff, shoff, phentsize, phnum;
  unsigned segment_bytes, flags, offset, address, file_bytes;
  unsigned section_info, section_bytes;
};
constexpr FieldOffsets kFields32{4, 52, 28, 32, 42, 44, 32, 24, 4, 8, 16, 28, 40};
constexpr FieldOffsets kFields64{8, 64, 32, 40, 54, 56, 56, 4, 8, 16, 32, 44, 64};

struct Segment {
  uint64_t type = 0, flags = 0, offset = 0, address = 0, file_bytes = 0;
};

struct MappedFile {
  uint64_t end = 0;          ///< address after its last byte
  uint64_t file_offset = 0;  ///< of its first byte, in bytes
  std::string name;          ///< without directories
};

class CoreParser {
 public:
  explicit CoreParser(FileWindow& file) : file_(file) {}

  Result<Layout> parse() {
    VARVE_TRY(read_header());
    VARVE_TRY(read_segments());
    for (const Segment& segment : segments_) {
      if (segment.type == kSegmentNote) VARVE_TRY(read_notes(segment.offset, segment.file_bytes));
    }
    Layout layout{.format = "elf", .variables = {}};
    for (const Segment& segment : segments_) {
      if (segment.type != kSegmentLoad || segment.file_bytes == 0) continue;
      Variable variable;
      variable.name = name_of(segment);
      variable.shape = {segment.file_bytes};
      variable.extents = {{segment.offset, segment.file_bytes}};
      layout.variables.push_back(std::move(variable));
    }
    return layout;
  }

 private:
  uint64_t integer(ByteSpan from, uint64_t offset, unsigned bytes) const {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) {
      unsigned shift = 8 * (big_endian_ ? bytes - 1 - i : i);
      value |= uint64_t{static_cast<uint8_t>(from[offset + i])} << shift;
    }
    return value;
  }
  uint64_t word(ByteSpan from, uint64_t offset) const { return integer(from, offset, fields_.word); }

  Status read_header() {
    VARVE_ASSIGN(ByteSpan ident, file_.view(0, kHeaderBytesMin));
    auto bits = static_cast<uint8_t>(ident[4]), order = static_cast<uint8_t>(ident[5]);
    if (as_text(ident.first(4)) !=
            "\x7f"
            "ELF" ||
        bits < 1 || bits > 2 || order < 1 || order > 2) {
      return Status::corrupt("not an ELF file");
    }
    fields_ = bits == 2 ? kFields64 : kFields32;
    big_endian_ = order == 2;
    VARVE_ASSIGN(ByteSpan header, file_.view(0, fields_.header_bytes));
    if (integer(header, 16, 2) != kTypeCore) return Status::corrupt("an ELF file, but no core dump");
    table_offset_ = word(header, fields_.phoff);
    entry_bytes_ = integer(header, fields_.phentsize, 2);
    segment_count_ = integer(header, fields_.phnum, 2);
    if (segment_count_ == kSegmentsOverflowed) {
      uint64_t sections = word(header, fields_.shoff);
      VARVE_ASSIGN(ByteSpan section, file_.view(sections, fields_.section_bytes));
      segment_count_ = integer(section, fields_.section_info, 4);
    }
    return {};
  }

  Status read_segments() {
    if (segment_count_ > kVariablesPerFileMax) {
      return Status::resource_limit(fmt::format("the core dump has {} segments", segment_count_));
    }
    if (segment_count_ > 0 && entry_bytes_ < fields_.segment_bytes) {
      return Status::corrupt(fmt::format("a program header has {} bytes", entry_bytes_));
    }
    if (table_offset_ > file_.file_bytes()) return Status::corrupt("the file ends before its program headers");
    for (uint64_t i = 0; i < segment_count_; ++i) {
      VARVE_ASSIGN(ByteSpan entry, file_.view(table_offset_ + i * entry_bytes_, fields_.segment_bytes));
      segments_.push_back({.type = integer(entry, 0, 4),
                           .flags = integer(entry, fields_.flags, 4),
                           .offset = word(entry, fields_.offset),
                           .address = word(entry, fields_.address),
                           .file_bytes = word(entry, fields_.file_bytes)});
    }
    return {};
  }

  /// Notes only give names: a damaged one costs the names that come after it, not the layout.
  Status read_notes(uint64_t offset, uint64_t bytes) {
    if (offset > file_.file_bytes()) return Status::corrupt("the file ends before its notes");
    uint64_t end = offset + std::min(bytes, file_.file_bytes() - offset);
    constexpr uint64_t kNoteHeaderBytes = 12;
    while (end - offset >= kNoteHeaderBytes) {
      VARVE_ASSIGN(ByteSpan header, file_.view(offset, kNoteHeaderBytes));
      uint64_t name_bytes = integer(header, 0, 4), content_bytes = integer(header, 4, 4);
      uint64_t type = integer(header, 8, 4);
      uint64_t content = offset + kNoteHeaderBytes + ((name_bytes + 3) & ~uint64_t{3});
      uint64_t next = content + ((content_bytes + 3) & ~uint64_t{3});
      if (content > end || content_bytes > end - content) return {};
      if (type == kNoteFiles && content_bytes <= FileWindow::kViewBytesMax) {
        VARVE_ASSIGN(ByteSpan table, file_.view(content, content_bytes));
        read_mapped_files(table);
      }
      if (next > end) return {};
      offset = next;
    }
    return {};
  }

  /// core(5), NT_FILE: count, page size, (start, end, offset in pages) for each, then the names, each ended by a zero.
  void read_mapped_files(ByteSpan table) {
    uint64_t width = fields_.word;
    if (table.size() < 2 * width) return;
    uint64_t count = word(table, 0), page_bytes = word(table, width);
    if (count > (table.size() - 2 * width) / (3 * width)) return;
    std::string_view names = as_text(table.subspan((2 + 3 * count) * width));
    for (uint64_t i = 0; i < count; ++i) {
      size_t name_end = names.find('\0');
      if (name_end == std::string_view::npos) return;
      std::string_view name = names.substr(0, name_end);
      names.remove_prefix(name_end + 1);
      if (size_t slash = name.rfind('/'); slash != std::string_view::npos) name.remove_prefix(slash + 1);
      if (name.size() > kVariableNameBytesMax / 2) continue;
      uint64_t entry = (2 + 3 * i) * width;
      MappedFile& mapped = mapped_files_[word(table, entry)];
      mapped = {word(table, entry + width), word(table, entry + 2 * width) * page_bytes, std::string(name)};
    }
  }

  std::string name_of(const Segment& segment) {
    std::string name = fmt::format("/segment/{}{}{}/", segment.flags & 4 ? 'r' : '-', segment.flags & 2 ? 'w' : '-',
                                   segment.flags & 1 ? 'x' : '-');
    auto after = mapped_files_.upper_bound(segment.address);
    if (after != mapped_files_.begin()) {
      const auto& [start, mapped] = *std::prev(after);
      if (segment.address < mapped.end) {
        name += fmt::format("{}+{:#x}", mapped.name, mapped.file_offset + (segment.address - start));
        uint64_t ordinal = ++uses_[name];
        return ordinal == 1 ? name : fmt::format("{}#{}", name, ordinal);
      }
    }
    name += "anonymous";
    return fmt::format("{}-{}", name, ++uses_[name]);
  }

  FileWindow& file_;
  FieldOffsets fields_ = kFields64;
  bool big_endian_ = false;
  uint64_t table_offset_ = 0, entry_bytes_ = 0, segment_count_ = 0;
  std::vector<Segment> segments_;
  std::map<uint64_t, MappedFile> mapped_files_;     ///< by first address
  std::unordered_map<std::string, uint64_t> uses_;  ///< of a name so far
};

class ElfCoreReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "ELF core"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t) const override {
    if (first_bytes.size() < kHeaderBytesMin || as_text(first_bytes.first(4)) !=
                                                    "\x7f"
                                                    "ELF")
      return false;
    bool big_endian = first_bytes[5] == std::byte{2};
    return first_bytes[big_endian ? 17 : 16] == std::byte{kTypeCore} &&
           first_bytes[big_endian ? 16 : 17] == std::byte{0};
  }
  Result<Layout> read(int fd, uint64_t file_bytes) const override {
    FileWindow file(read_file_at(fd), file_bytes);
    return read_elf_core_layout(file);
  }
};

}  // namespace

Result<Layout> read_elf_core_layout(FileWindow& file) { return CoreParser(file).parse(); }

std::unique_ptr<LayoutReader> make_elf_core_reader() { return std::make_unique<ElfCoreReader>(); }

}  // namespace varve
