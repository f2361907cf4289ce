#include "format/image.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/quantity.h"
#include "hash/score.h"
#include "layout/layout.h"

namespace varve {
namespace {

// FORMAT.md, "Snapshot image": magic 8 | version u16 | zero u16 | zero u32 | table bytes u64 | table | crc32c u32
constexpr std::string_view kImageMagic = "VARVEIMG";
constexpr uint16_t kImageVersion = 1;
/// The same, where a variable may have several boxes.
constexpr uint16_t kBoxesVersion = 2;
constexpr uint64_t kChecksumBytes = 4;
constexpr uint64_t kImageBytesMax = 1ULL << 60;
// FORMAT.md, "Limits"
constexpr uint64_t kElementBytesMax = 1ULL << 31;
constexpr uint64_t kNumberBytesMax = 16;
/// name, kind, order, element bytes, three counts, offset, bytes
constexpr uint64_t kVariableBytesMin = 2 + 1 + 1 + 1 + 3 + 8 + 8;

uint64_t aligned(uint64_t offset) { return (offset + kImageAlignmentBytes - 1) & ~(kImageAlignmentBytes - 1); }

void put_shape(ByteWriter& out, const std::vector<uint64_t>& shape) {
  out.varint(shape.size());
  for (uint64_t extent : shape) out.varint(extent);
}

ByteVector encode_table(const ImageTable& table) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.varint(table.variables.size());
  for (const ImageVariable& variable : table.variables) {
    out.text(variable.name);
    out.u8(static_cast<uint8_t>(variable.type.kind));
    out.u8(static_cast<uint8_t>(variable.type.order));
    out.varint(variable.type.bytes);
    put_shape(out, variable.shape);
    put_shape(out, variable.global_shape);
    put_shape(out, variable.global_offset);
    // Of fixed size, so that the table's size does not depend on where the variables lie.
    out.le64(variable.offset);
    out.le64(variable.bytes);
  }
  return bytes;
}

Result<std::vector<uint64_t>> get_shape(ByteReader& in) {
  VARVE_ASSIGN(const uint64_t dimensions, in.count());
  if (dimensions > kDimensionsMax) return Status::corrupt("a variable of the image has too many dimensions");
  std::vector<uint64_t> shape(dimensions);
  for (uint64_t& extent : shape) {
    VARVE_ASSIGN(extent, in.varint());
  }
  return shape;
}

Result<ElementType> get_type(ByteReader& in) {
  VARVE_ASSIGN(const uint8_t kind, in.u8());
  VARVE_ASSIGN(const uint8_t order, in.u8());
  VARVE_ASSIGN(const uint64_t bytes, in.varint());
  if (kind > static_cast<uint8_t>(ElementKind::text) || order > static_cast<uint8_t>(ByteOrder::big) ||
      bytes > kElementBytesMax) {
    return Status::corrupt("a variable of the image has an impossible type");
  }
  const ElementType type{static_cast<ElementKind>(kind), static_cast<ByteOrder>(order), static_cast<uint32_t>(bytes)};
  if (!element_type_is_possible(type)) return Status::corrupt("a variable of the image has an impossible type");
  return type;
}

Result<ImageVariable> get_variable(ByteReader& in) {
  ImageVariable variable;
  VARVE_ASSIGN(const std::string_view name, in.text());
  if (!check_variable_name(name).ok()) return Status::corrupt("a variable of the image has an impossible name");
  variable.name = name;
  VARVE_ASSIGN(variable.type, get_type(in));
  VARVE_ASSIGN(variable.shape, get_shape(in));
  VARVE_ASSIGN(variable.global_shape, get_shape(in));
  VARVE_ASSIGN(variable.global_offset, get_shape(in));
  VARVE_ASSIGN(variable.offset, in.le64());
  VARVE_ASSIGN(variable.bytes, in.le64());
  if (array_bytes(variable.shape, variable.type.bytes) != variable.bytes) {
    return Status::corrupt("a variable of the image has not the bytes of its shape", variable.name);
  }
  for (const std::vector<uint64_t>* global : {&variable.global_shape, &variable.global_offset}) {
    if (!global->empty() && global->size() != variable.shape.size()) {
      return Status::corrupt("a variable of the image has a global shape of other dimensions", variable.name);
    }
  }
  return variable;
}

/// Whether both are boxes of one whole.
bool are_boxes(const ImageVariable& a, const ImageVariable& b) {
  return a.name == b.name && a.type == b.type && a.global_shape == b.global_shape && !a.global_shape.empty();
}

/// Where the variables must lie: one after another, each from the next aligned offset on. Returns the image's end.
Result<uint64_t> check_places(const ImageTable& table, uint16_t version) {
  uint64_t end = table.header_bytes;
  const ImageVariable* before = nullptr;
  for (const ImageVariable& variable : table.variables) {
    const bool in_order =
        before == nullptr || before->name < variable.name || (version == kBoxesVersion && are_boxes(*before, variable));
    if (!in_order) {
      return Status::corrupt("the image's variables are not in the order of their names", variable.name);
    }
    if (variable.offset != aligned(end) || variable.bytes > kImageBytesMax) {
      return Status::corrupt("a variable of the image is out of place", variable.name);
    }
    end = variable.offset + variable.bytes;
    if (end > kImageBytesMax) return Status::corrupt("a variable of the image is out of place", variable.name);
    before = &variable;
  }
  return end;
}

}  // namespace

bool element_type_is_possible(const ElementType& type) {
  const bool number = type.numeric();
  if (type.order == ByteOrder::big && (!number || type.bytes == 1)) return false;
  return type.bytes > 0 && type.bytes <= (number ? kNumberBytesMax : kElementBytesMax);
}

Status check_variable_name(std::string_view name) {
  auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty()) return Status::invalid_argument("a protected variable needs a name");
  if (name.size() > kImageNameBytesMax) {
    return Status::invalid_argument(
        fmt::format("a variable's name has {} bytes, {} are allowed", name.size(), kImageNameBytesMax));
  }
  if (std::any_of(name.begin(), name.end(), control)) {
    return Status::invalid_argument("a variable's name holds a control character");
  }
  return {};
}

std::string image_file_name(uint32_t rank) { return fmt::format("rank-{:06}.varve", rank); }

std::optional<uint32_t> rank_of_image(std::string_view file_name) {
  const size_t dash = file_name.find('-'), dot = file_name.rfind('.');
  if (dash == std::string_view::npos || dot == std::string_view::npos || dot < dash) return std::nullopt;
  const Result<uint64_t> rank = parse_number(file_name.substr(dash + 1, dot - dash - 1), UINT32_MAX);
  if (!rank.ok() || image_file_name(static_cast<uint32_t>(*rank)) != file_name) return std::nullopt;
  return static_cast<uint32_t>(*rank);
}

Result<ImageTable> plan_image(std::vector<ImageVariable> variables) {
  ImageTable table{.variables = std::move(variables), .header_bytes = 0, .image_bytes = 0};
  if (table.variables.size() > kVariablesPerFileMax) {
    return Status::resource_limit(fmt::format("more than {} variables are protected", kVariablesPerFileMax));
  }
  const uint64_t table_bytes = encode_table(table).size();
  if (table_bytes > kImageTableBytesMax) return Status::resource_limit("the protected variables' names are too long");
  table.header_bytes = aligned(kImagePrefixBytes + table_bytes + kChecksumBytes);
  uint64_t end = table.header_bytes;
  for (ImageVariable& variable : table.variables) {
    if (variable.bytes > kImageBytesMax || end > kImageBytesMax) {
      return Status::resource_limit("the protected variables are too large", variable.name);
    }
    variable.offset = aligned(end);
    end = variable.offset + variable.bytes;
  }
  table.image_bytes = end;
  return table;
}

ByteVector encode_image_header(const ImageTable& table) {
  const ByteVector encoded = encode_table(table);
  const bool has_boxes = std::adjacent_find(table.variables.begin(), table.variables.end(),
                                            [](const ImageVariable& a, const ImageVariable& b) {
                                              return a.name == b.name;
                                            }) != table.variables.end();
  ByteVector bytes;
  bytes.reserve(table.header_bytes);
  ByteWriter out(bytes);
  out.bytes(as_bytes(kImageMagic));
  out.le16(has_boxes ? kBoxesVersion : kImageVersion);
  out.le16(0);
  out.le32(0);
  out.le64(encoded.size());
  out.bytes(encoded);
  out.le32(crc32c(bytes));
  bytes.resize(table.header_bytes);
  return bytes;
}

Result<uint64_t> image_header_bytes(ByteSpan prefix, uint64_t image_bytes) {
  ByteReader in(prefix);
  VARVE_ASSIGN(const ByteSpan magic, in.bytes(kImageMagic.size()));
  if (as_text(magic) != kImageMagic) return Status::corrupt("this is no image of a snapshot");
  VARVE_ASSIGN(const uint16_t version, in.le16());
  if (version != kImageVersion && version != kBoxesVersion) {
    return Status::unsupported(fmt::format("the snapshot's image is of version {}", version), {},
                               "use a newer version of varve");
  }
  VARVE_ASSIGN(const uint16_t zero, in.le16());
  VARVE_ASSIGN(const uint32_t zeros, in.le32());
  VARVE_ASSIGN(const uint64_t table_bytes, in.le64());
  if (zero != 0 || zeros != 0 || table_bytes > kImageTableBytesMax) {
    return Status::corrupt("the header of a snapshot's image is damaged");
  }
  const uint64_t header_bytes = aligned(kImagePrefixBytes + table_bytes + kChecksumBytes);
  if (header_bytes > image_bytes) return Status::corrupt("a snapshot's image is shorter than its header");
  return header_bytes;
}

Result<ImageTable> decode_image_header(ByteSpan header, uint64_t image_bytes) {
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, image_bytes));
  if (header.size() < header_bytes) return Status::corrupt("the header of a snapshot's image is cut off");
  const uint64_t table_bytes = load_le<uint64_t>(header.data() + kImagePrefixBytes - 8);
  const ByteSpan summed = header.first(kImagePrefixBytes + table_bytes);
  if (crc32c(summed) != load_le<uint32_t>(header.data() + summed.size())) {
    return Status::corrupt("the header of a snapshot's image does not match its checksum");
  }
  for (std::byte padding :
       header.subspan(summed.size() + kChecksumBytes, header_bytes - summed.size() - kChecksumBytes)) {
    if (padding != std::byte{0}) return Status::corrupt("the header of a snapshot's image is damaged");
  }

  ByteReader in(summed.subspan(kImagePrefixBytes));
  ImageTable table{.variables = {}, .header_bytes = header_bytes, .image_bytes = image_bytes};
  VARVE_ASSIGN(const uint64_t count, in.count(kVariableBytesMin));
  if (count > kVariablesPerFileMax) return Status::corrupt("the image has too many variables");
  table.variables.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(ImageVariable variable, get_variable(in));
    table.variables.push_back(std::move(variable));
  }
  if (!in.at_end()) return Status::corrupt("the image's table has bytes left over");
  VARVE_ASSIGN(const uint64_t end, check_places(table, load_le<uint16_t>(header.data() + kImageMagic.size())));
  if (end != image_bytes) return Status::corrupt("the image's size is not that of its table");
  return table;
}

Layout image_layout(const ImageTable& table) {
  Layout layout{.format = "snapshot", .variables = {}};
  layout.variables.reserve(table.variables.size());
  for (size_t i = 0, box = 0; i < table.variables.size(); ++i) {
    const ImageVariable& from = table.variables[i];
    box = i > 0 && table.variables[i - 1].name == from.name ? box + 1 : 0;
    const bool is_box = box > 0 || (i + 1 < table.variables.size() && table.variables[i + 1].name == from.name);
    Variable variable;
    variable.name = from.name.starts_with('/') ? from.name : "/" + from.name;
    if (is_box) variable.name += fmt::format("/box{}", box);
    variable.type = from.type;
    variable.shape = from.shape;
    if (from.bytes > 0) variable.extents = {{from.offset, from.bytes}};
    layout.variables.push_back(std::move(variable));
  }
  return layout;
}

}  // namespace varve
