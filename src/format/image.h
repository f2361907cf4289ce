#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "layout/layout.h"
#include "varve/element_type.h"

namespace varve {

/// A variable in a snapshot's image, or one of the boxes that a rank has of it. Shapes in elements, slowest dimension
/// first.
struct ImageVariable {
  std::string name;                     ///< as it was protected
  ElementType type;                     ///< of its elements
  std::vector<uint64_t> shape;          ///< of what is saved; empty for a scalar
  std::vector<uint64_t> global_shape;   ///< of the array of which this is a part; empty: not said
  std::vector<uint64_t> global_offset;  ///< where this part lies in it; empty: not said
  uint64_t offset = 0;                  ///< of its first byte in the image, a multiple of kImageAlignmentBytes
  uint64_t bytes = 0;                   ///< in the image, dense
  bool operator==(const ImageVariable&) const = default;
};

/// What an image holds (FORMAT.md, "Snapshot image"): a header with this table, then each variable's bytes. The same
/// table always gives the same bytes: neither step nor time nor rank is in it.
struct ImageTable {
  /// In the order of their names. Several of one name, which follow each other, are boxes of one whole.
  std::vector<ImageVariable> variables;
  uint64_t header_bytes = 0;  ///< header, table and padding: where the first variable begins
  uint64_t image_bytes = 0;
  bool operator==(const ImageTable&) const = default;
};

/// Where the bytes of an image go, which come in any order. Any number of threads, for bytes apart from each other.
class ImageTarget {
 public:
  virtual ~ImageTarget() = default;
  /// Bytes of the image from `offset` on. What is nobody's is dropped.
  virtual void put(uint64_t offset, ByteSpan bytes) = 0;
  /// The memory of these bytes, if they lie together there: who fills it need not put() them. Else empty.
  virtual MutableByteSpan memory(uint64_t /*offset*/, uint64_t /*bytes*/) { return {}; }
};

inline constexpr uint64_t kImageAlignmentBytes = 64;
inline constexpr uint64_t kImageTableBytesMax = 1_GiB;
/// As much of an image as image_header_bytes() needs.
inline constexpr size_t kImagePrefixBytes = 24;
inline constexpr size_t kImageNameBytesMax = 1'000;

/// Whether a variable can have this name: 1 to kImageNameBytesMax bytes, no control characters.
Status check_variable_name(std::string_view name);

/// Whether elements of an image can be of this type.
bool element_type_is_possible(const ElementType& type);

/// The image's file of a rank in a set: "rank-000007.varve".
std::string image_file_name(uint32_t rank);

/// The rank whose image has this name; none: it is no image's.
std::optional<uint32_t> rank_of_image(std::string_view file_name);

/// Gives the variables, which are in the order of their names and have shape and bytes, their places. resource_limit:
/// the image or its table would be too large.
Result<ImageTable> plan_image(std::vector<ImageVariable> variables);

/// The image's first header_bytes.
ByteVector encode_image_header(const ImageTable& table);

/// How many of an image's bytes decode_image_header() needs, from its first kImagePrefixBytes. corrupt: it is no image;
/// unsupported: of a newer version.
Result<uint64_t> image_header_bytes(ByteSpan prefix, uint64_t image_bytes);

/// The table, from at least image_header_bytes() of an image of `image_bytes`. What it returns is consistent: variables
/// follow each other in the order of their names, lie in the image, and have as many bytes as type and shape say.
Result<ImageTable> decode_image_header(ByteSpan header, uint64_t image_bytes);

/// For the engine: one Variable per entry, with a leading "/" in its name. Header, table and padding are its skeleton.
Layout image_layout(const ImageTable& table);

}  // namespace varve
