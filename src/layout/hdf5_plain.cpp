#include "layout/layout_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_set>

#include "layout/array_type.h"
#include "layout/layout.h"

namespace varve {
namespace {

/// Steps are symbols, messages and tree entries: so many take well under a second. A file without loops or shared parts
/// needs no more than one for eight bytes.
constexpr uint64_t kStepsMax = 500'000;
constexpr uint64_t kBytesPerStep = 8;
constexpr uint64_t kHeapBytesMax = 1_MiB;
constexpr uint64_t kHeaderBlockBytesMax = 1_MiB;
constexpr size_t kHeaderBlocksMax = 256;
constexpr unsigned kTreeLevelMax = 16;
constexpr uint64_t kNoAddress = UINT64_MAX;

Status not_plain(const char* what) { return Status::unsupported(what); }

/// "Object Header Messages": those that say what an object is, and those that say nothing of where its data lie.
enum Message : uint16_t {
  kNil = 0x00,
  kDataspace = 0x01,
  kDatatype = 0x03,
  kOldFillValue = 0x04,
  kFillValue = 0x05,
  kDataLayout = 0x08,
  kFilterPipeline = 0x0b,
  kAttribute = 0x0c,
  kComment = 0x0d,
  kOldModificationTime = 0x0e,
  kContinuation = 0x10,
  kSymbolTable = 0x11,
  kModificationTime = 0x12,
};
constexpr uint8_t kSharedMessage = 0x02;

/// The messages of one object that tell what it is; empty where it has none of a kind.
struct Object {
  ByteVector dataspace, datatype, data_layout, symbol_table;
  bool has_filters = false;
  bool is_dataset() const {
    return !dataspace.empty() && !datatype.empty() && !data_layout.empty() && symbol_table.empty();
  }
  bool is_group() const {
    return dataspace.empty() && datatype.empty() && data_layout.empty() && !symbol_table.empty();
  }
};

/// A hard link of a group. `address` identifies the object, however many links there are to it.
struct Link {
  std::string name;
  uint64_t address;
};

struct Group {
  std::string path;  ///< with a '/' at its end
  ByteVector symbol_table;
};

Result<std::vector<uint64_t>> parse_dataspace(ByteSpan message) {
  ByteReader in(message);
  VARVE_ASSIGN(const uint8_t version, in.u8());
  VARVE_ASSIGN(const uint8_t rank, in.u8());
  VARVE_TRY(in.u8().status());  // flags: maximal sizes follow the sizes
  VARVE_ASSIGN(const uint8_t kind, in.u8());
  if (rank > kDimensionsMax) return not_plain("dataspace");
  if (version == 1) {
    VARVE_TRY(in.le32().status());
  } else {
    constexpr uint8_t kind_null = 2;
    if (version != 2 || kind > kind_null) return not_plain("dataspace");
    if (kind == kind_null) return std::vector<uint64_t>{0};
  }
  std::vector<uint64_t> shape;
  for (uint8_t i = 0; i < rank; ++i) {
    VARVE_ASSIGN(const uint64_t extent, in.le64());
    shape.push_back(extent);
  }
  return shape;
}

/// Numbers that no codec of ours knows are opaque.
ElementType number_type(ElementKind kind, bool big_endian, uint32_t bytes) {
  if (bytes > 16 || (bytes & (bytes - 1)) != 0) return {ElementKind::opaque, ByteOrder::little, bytes};
  return {kind, big_endian && bytes > 1 ? ByteOrder::big : ByteOrder::little, bytes};
}

/// "Fixed-Point Numbers": offset and precision in bits.
Result<ElementType> parse_integer(ByteReader& in, uint32_t bit_field, uint32_t bytes) {
  VARVE_ASSIGN(const uint16_t bit_offset, in.le16());
  VARVE_ASSIGN(const uint16_t precision, in.le16());
  if (bit_offset != 0 || precision != uint64_t{8} * bytes) return not_plain("padded integers");
  const bool is_signed = (bit_field & 8) != 0;
  return number_type(is_signed ? ElementKind::signed_integer : ElementKind::unsigned_integer, (bit_field & 1) != 0,
                     bytes);
}

/// "Floating-Point Numbers": IEEE 754 binary16, 32, 64 or 128, or not plain.
Result<ElementType> parse_float(ByteReader& in, uint32_t bit_field, uint32_t bytes) {
  VARVE_ASSIGN(const uint16_t bit_offset, in.le16());
  VARVE_ASSIGN(const uint16_t precision, in.le16());
  VARVE_ASSIGN(const uint8_t exponent_at, in.u8());
  VARVE_ASSIGN(const uint8_t exponent_bits, in.u8());
  VARVE_ASSIGN(const uint8_t mantissa_at, in.u8());
  VARVE_ASSIGN(const uint8_t mantissa_bits, in.u8());
  const unsigned expected = bytes == 2 ? 10 : bytes == 4 ? 23 : bytes == 8 ? 52 : bytes == 16 ? 112 : 0;
  const unsigned sign_at = 8 * bytes - 1;
  const bool vax = (bit_field & 0x40) != 0;
  const bool ieee = expected != 0 && !vax && bit_offset == 0 && precision == sign_at + 1 && mantissa_at == 0 &&
                    mantissa_bits == expected && exponent_at == expected && exponent_bits == sign_at - expected &&
                    (bit_field >> 8 & 0xff) == sign_at;
  if (!ieee) return not_plain("unusual floats");
  return number_type(ElementKind::floating, (bit_field & 1) != 0, bytes);
}

Result<ElementType> parse_datatype(ByteSpan message) {
  enum : uint8_t { class_integer = 0, class_float = 1, class_string = 3 };
  ByteReader in(message);
  VARVE_ASSIGN(const uint32_t head, in.le32());  // class and version u8 | bit field of 24 bits
  VARVE_ASSIGN(const uint32_t bytes, in.le32());
  const uint32_t version = head >> 4 & 15, bit_field = head >> 8;
  if (version < 1 || version > 3 || bytes == 0) return not_plain("datatype");
  switch (head & 15) {
    case class_integer: return parse_integer(in, bit_field, bytes);
    case class_float: return parse_float(in, bit_field, bytes);
    case class_string: return ElementType{ElementKind::text, ByteOrder::little, bytes};
    default: return not_plain("datatype");
  }
}

/// Where the bytes of a dataset lie outside its object's header, if they do.
struct DataPlace {
  std::optional<Extent> contiguous{};
  std::vector<uint64_t> chunk_shape{};   ///< empty: there are no chunks
  std::optional<uint64_t> chunk_tree{};  ///< none: no chunk has been written
};

/// Version 3. `rank` and `element_bytes` are those of the dataset.
Result<DataPlace> parse_data_layout(ByteSpan message, size_t rank, uint64_t element_bytes) {
  enum : uint8_t { class_compact = 0, class_contiguous = 1, class_chunked = 2 };
  DataPlace place;
  ByteReader in(message);
  VARVE_ASSIGN(const uint8_t version, in.u8());
  VARVE_ASSIGN(const uint8_t kind, in.u8());
  if (version != 3 || kind > class_chunked) return not_plain("data layout");
  if (kind == class_compact) return place;
  if (kind == class_contiguous) {
    VARVE_ASSIGN(const uint64_t address, in.le64());
    VARVE_ASSIGN(const uint64_t bytes, in.le64());
    if (address != kNoAddress) place.contiguous = {address, bytes};
    return place;
  }
  VARVE_ASSIGN(const uint8_t dimensions, in.u8());  // those of the dataset, and one for the bytes of an element
  if (rank == 0 || dimensions != rank + 1) return not_plain("chunk shape");
  VARVE_ASSIGN(const uint64_t address, in.le64());
  if (address != kNoAddress) place.chunk_tree = address;
  for (size_t i = 0; i < rank; ++i) {
    VARVE_ASSIGN(const uint32_t cells, in.le32());
    if (cells == 0) return not_plain("chunk shape");
    place.chunk_shape.push_back(cells);
  }
  VARVE_ASSIGN(const uint32_t bytes, in.le32());
  if (bytes != element_bytes) return not_plain("chunk shape");
  return place;
}

/// Visits every object of one file once, in the library's order.
class PlainFile {
 public:
  PlainFile(FileBlocks& blocks, uint64_t file_bytes)
      : blocks_(blocks), file_bytes_(file_bytes), steps_left_(std::min(kStepsMax, file_bytes / kBytesPerStep)) {}

  Result<Layout> visit() {
    VARVE_ASSIGN(const uint64_t root_address, read_superblock());
    VARVE_ASSIGN(Object root, read_object(root_address));
    if (!root.is_group()) return not_plain("the root is no group");
    visited_.insert(root_address);
    groups_.push_back({"/", std::move(root.symbol_table)});
    // NOLINTNEXTLINE(modernize-loop-convert): groups come while others are visited
    for (size_t i = 0; i < groups_.size(); ++i) VARVE_TRY(visit_group(Group(std::move(groups_[i]))));
    return std::move(layout_);
  }

 private:
  Status read(uint64_t address, MutableByteSpan into) {
    if (address > file_bytes_ || into.size() > file_bytes_ - address) return not_plain("an address past the end");
    return blocks_.read(address, into) ? Status() : Status::io_error("the file cannot be read");
  }
  Result<ByteVector> read(uint64_t address, uint64_t bytes) {
    if (address > file_bytes_ || bytes > file_bytes_ - address) return not_plain("an address past the end");
    ByteVector found(bytes);
    VARVE_TRY(read(address, MutableByteSpan(found)));
    return found;
  }
  Status take_steps(uint64_t count) {
    if (count > steps_left_) return not_plain("too many objects");
    steps_left_ -= count;
    return {};
  }

  /// Returns the address of the root group.
  Result<uint64_t> read_superblock() {
    std::array<std::byte, 72> raw;
    VARVE_TRY(read(0, raw));
    constexpr size_t versions_at = 8, offset_bytes_at = 13, length_bytes_at = 14;
    constexpr size_t base_at = 24, end_at = 40, driver_at = 48, root_at = 64;
    const auto byte_at = [&raw](size_t at) { return static_cast<uint8_t>(raw[at]); };
    const auto address_at = [&raw](size_t at) { return load_le<uint64_t>(raw.data() + at); };
    const bool original = load_le<uint32_t>(raw.data() + versions_at) << 8 == 0 && byte_at(versions_at + 4) == 0;
    if (!original || byte_at(offset_bytes_at) != 8 || byte_at(length_bytes_at) != 8) return not_plain("superblock");
    const bool whole = address_at(base_at) == 0 && address_at(end_at) <= file_bytes_;
    if (!whole || address_at(driver_at) != kNoAddress) return not_plain("superblock");
    return address_at(root_at);
  }

  Result<Object> read_object(uint64_t address) {
    std::array<std::byte, 16> prefix;
    VARVE_TRY(read(address, prefix));
    if (prefix[0] != std::byte{1}) return not_plain("object header");
    Object object;
    std::vector<Extent> header_blocks = {{address + prefix.size(), load_le<uint32_t>(prefix.data() + 8)}};
    for (size_t i = 0; i < header_blocks.size(); ++i) {
      const Extent block = header_blocks[i];
      if (block.bytes > kHeaderBlockBytesMax || i == kHeaderBlocksMax) return not_plain("a large object header");
      VARVE_ASSIGN(const ByteVector messages, read(block.offset, block.bytes));
      VARVE_TRY(read_messages(messages, object, header_blocks));
    }
    return object;
  }

  Status read_messages(ByteSpan messages, Object& object, std::vector<Extent>& header_blocks) {
    constexpr size_t head_bytes = 8;
    for (ByteReader in(messages); in.remaining() >= head_bytes;) {
      VARVE_TRY(take_steps(1));
      VARVE_ASSIGN(const uint16_t type, in.le16());
      VARVE_ASSIGN(const uint16_t bytes, in.le16());
      VARVE_ASSIGN(const uint32_t flags, in.le32());
      VARVE_ASSIGN(const ByteSpan body, in.bytes(bytes));
      switch (type) {
        case kDataspace: VARVE_TRY(keep(body, flags, object.dataspace)); break;
        case kDatatype: VARVE_TRY(keep(body, flags, object.datatype)); break;
        case kDataLayout: VARVE_TRY(keep(body, flags, object.data_layout)); break;
        case kSymbolTable: VARVE_TRY(keep(body, flags, object.symbol_table)); break;
        case kFilterPipeline: object.has_filters = true; break;
        case kContinuation: {
          ByteReader place(body);
          VARVE_ASSIGN(const uint64_t offset, place.le64());
          VARVE_ASSIGN(const uint64_t block_bytes, place.le64());
          header_blocks.push_back({offset, block_bytes});
          break;
        }
        case kNil:
        case kOldFillValue:
        case kFillValue:
        case kAttribute:
        case kComment:
        case kOldModificationTime:
        case kModificationTime: break;
        default: return not_plain("a message of another kind");
      }
    }
    return {};
  }

  static Status keep(ByteSpan body, uint32_t flags, ByteVector& message) {
    if ((flags & kSharedMessage) != 0 || !message.empty() || body.empty()) return not_plain("a shared message");
    message.assign(body.begin(), body.end());
    return {};
  }

  Status visit_group(const Group& group) {
    ByteReader table(group.symbol_table);
    VARVE_ASSIGN(const uint64_t tree_address, table.le64());
    VARVE_ASSIGN(const uint64_t heap_address, table.le64());
    VARVE_ASSIGN(const ByteVector heap, read_heap(heap_address));
    links_.clear();
    VARVE_TRY(list_tree(tree_address, std::nullopt, heap));
    for (const Link& link : links_) {
      if (!visited_.insert(link.address).second) continue;
      std::string name = group.path + link.name;
      if (name.size() > kVariableNameBytesMax) return not_plain("deep groups");
      VARVE_ASSIGN(Object object, read_object(link.address));
      if (object.is_group()) {
        groups_.push_back({name + "/", std::move(object.symbol_table)});
      } else if (object.is_dataset()) {
        VARVE_TRY(add_dataset(object, std::move(name)));
      } else {
        return not_plain("an object of another kind");
      }
    }
    return {};
  }

  /// "Local Heaps": the names of a group's links.
  Result<ByteVector> read_heap(uint64_t address) {
    std::array<std::byte, 32> head;
    VARVE_TRY(read(address, head));
    const bool known = as_text(ByteSpan(head).first(4)) == "HEAP" && head[4] == std::byte{0};
    const auto bytes = load_le<uint64_t>(head.data() + 8);
    if (!known || bytes > kHeapBytesMax) return not_plain("local heap");
    VARVE_TRY(take_steps(bytes / kBytesPerStep));
    return read(load_le<uint64_t>(head.data() + 24), bytes);
  }

  enum class Tree : uint8_t { of_group = 0, of_chunks = 1 };
  struct TreeNode {
    unsigned level = 0;
    size_t count = 0;
    ByteVector entries;  ///< key and child (u64) each
  };
  /// A node of "Version 1 B-trees". `level`: the one that it must have, so that there are no loops.
  Result<TreeNode> read_tree_node(uint64_t address, Tree kind, std::optional<unsigned> level, size_t key_bytes) {
    std::array<std::byte, 24> head;
    VARVE_TRY(read(address, head));
    TreeNode node{.level = static_cast<uint8_t>(head[5]), .count = load_le<uint16_t>(head.data() + 6), .entries = {}};
    const bool known = as_text(ByteSpan(head).first(4)) == "TREE" && head[4] == static_cast<std::byte>(kind);
    if (!known || node.level > kTreeLevelMax || (level && node.level != *level)) return not_plain("tree");
    VARVE_TRY(take_steps(1 + node.count));
    VARVE_ASSIGN(node.entries, read(address + head.size(), node.count * (key_bytes + 8)));
    return node;
  }

  /// Appends the links below the node to links_, in the order of their names.
  Status list_tree(uint64_t address, std::optional<unsigned> level, ByteSpan heap) {
    constexpr size_t key_bytes = 8;
    VARVE_ASSIGN(const TreeNode node, read_tree_node(address, Tree::of_group, level, key_bytes));
    for (size_t i = 0; i < node.count; ++i) {
      const auto child = load_le<uint64_t>(node.entries.data() + i * (key_bytes + 8) + key_bytes);
      VARVE_TRY(node.level == 0 ? list_symbols(child, heap) : list_tree(child, node.level - 1, heap));
    }
    return {};
  }

  /// Appends the chunks below the node to those of the variable, in the order of their places.
  Status list_chunks(uint64_t address, std::optional<unsigned> level, Variable& variable) {
    const size_t rank = variable.shape.size();
    const size_t key_bytes = 8 + 8 * (rank + 1);  // bytes u32 | filters u32 | place u64 in each dimension, and a 0
    VARVE_ASSIGN(const TreeNode node, read_tree_node(address, Tree::of_chunks, level, key_bytes));
    for (size_t i = 0; i < node.count; ++i) {
      const std::byte* const key = node.entries.data() + i * (key_bytes + 8);
      const auto child = load_le<uint64_t>(key + key_bytes);
      if (node.level > 0) {
        VARVE_TRY(list_chunks(child, node.level - 1, variable));
        continue;
      }
      for (size_t d = 0; d < rank; ++d) {
        const auto at = load_le<uint64_t>(key + 8 + 8 * d);
        if (at >= variable.shape[d] || at % variable.run_shape[d] != 0) return not_plain("a chunk's place");
      }
      if (const auto bytes = load_le<uint32_t>(key); bytes > 0) variable.extents.push_back({child, bytes});
    }
    return {};
  }

  /// How much of a dataset with few of its chunks is looked for is the library's reader's choice.
  static Status check_density(const Variable& variable) {
    constexpr uint64_t places_per_chunk_max = 8, places_searched = 4096;
    std::vector<uint64_t> grid;
    for (size_t d = 0; d < variable.shape.size(); ++d)
      grid.push_back(variable.shape[d] / variable.run_shape[d] + (variable.shape[d] % variable.run_shape[d] != 0));
    const std::optional<uint64_t> places = array_bytes(grid, 1);
    const bool dense = places && *places <= places_per_chunk_max * variable.extents.size() + places_searched;
    return dense ? Status() : not_plain("few of many chunks");
  }

  /// "Group Symbol Table Nodes".
  Status list_symbols(uint64_t address, ByteSpan heap) {
    constexpr uint64_t entry_bytes = 40;  // name u64 | address u64 | kind u32 | reserved u32 | scratch of 16 bytes
    constexpr uint32_t kind_soft_link = 2;
    std::array<std::byte, 8> head;
    VARVE_TRY(read(address, head));
    if (as_text(ByteSpan(head).first(4)) != "SNOD" || head[4] != std::byte{1}) return not_plain("symbol node");
    const auto count = load_le<uint16_t>(head.data() + 6);
    VARVE_TRY(take_steps(1 + count));
    VARVE_ASSIGN(const ByteVector entries, read(address + head.size(), count * entry_bytes));
    for (size_t i = 0; i < count; ++i) {
      const std::byte* entry = entries.data() + i * entry_bytes;
      const auto name_at = load_le<uint64_t>(entry);
      if (name_at >= heap.size()) return not_plain("a name outside its heap");
      const ByteSpan rest = heap.subspan(name_at);
      const auto name_end = std::find(rest.begin(), rest.end(), std::byte{0});
      if (name_end == rest.begin() || name_end == rest.end()) return not_plain("a name without end");
      // Soft links lead to objects that have a hard link of their own.
      if (load_le<uint32_t>(entry + 16) == kind_soft_link) continue;
      const auto name_bytes = static_cast<size_t>(name_end - rest.begin());
      VARVE_TRY(take_steps(name_bytes / kBytesPerStep));
      links_.push_back({std::string(as_text(rest.first(name_bytes))), load_le<uint64_t>(entry + 8)});
    }
    return {};
  }

  Status add_dataset(const Object& object, std::string name) {
    Variable variable;
    variable.name = std::move(name);
    VARVE_ASSIGN(variable.shape, parse_dataspace(object.dataspace));
    VARVE_ASSIGN(variable.type, parse_datatype(object.datatype));
    VARVE_ASSIGN(DataPlace place, parse_data_layout(object.data_layout, variable.shape.size(), variable.type.bytes));
    if (const std::optional<Extent>& whole = place.contiguous) {
      if (array_bytes(variable.shape, variable.type.bytes) != whole->bytes) return not_plain("a dataset's size");
      if (whole->bytes > 0) variable.extents = {*whole};
    }
    if (!place.chunk_shape.empty()) {
      variable.run_shape = std::move(place.chunk_shape);
      if (place.chunk_tree) VARVE_TRY(list_chunks(*place.chunk_tree, std::nullopt, variable));
      VARVE_TRY(check_density(variable));
      const uint64_t run_bytes = array_bytes(variable.run_shape, variable.type.bytes).value_or(0);
      // Filtered ones are bytes; those of them that happen to be as large as a plain one, too.
      variable.encoded = object.has_filters || std::any_of(variable.extents.begin(), variable.extents.end(),
                                                           [&](const Extent& e) { return e.bytes != run_bytes; });
    }
    layout_.variables.push_back(std::move(variable));
    return {};
  }

  FileBlocks& blocks_;
  const uint64_t file_bytes_;
  uint64_t steps_left_;
  Layout layout_{.format = std::string(kHdf5Format), .variables = {}};
  std::unordered_set<uint64_t> visited_;
  std::vector<Link> links_;    ///< of the group that is being visited
  std::vector<Group> groups_;  ///< found; they wait here instead of on the stack
};

}  // namespace

Result<Layout> read_plain_hdf5(FileBlocks& blocks, uint64_t file_bytes) {
  return PlainFile(blocks, file_bytes).visit();
}

}  // namespace varve
