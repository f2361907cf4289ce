#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/chooser.h"
#include "format/frame.h"
#include "layout/layout.h"

namespace varve {

/// The key of the class that the skeletons of files of a format are in. Those of variables do not begin like that:
/// names begin with a slash.
inline std::string skeleton_class(std::string_view format) { return "skeleton/" + std::string(format); }

inline PackContents contents_of_class(std::string_view class_key) {
  return class_key.starts_with("skeleton/") ? PackContents::skeletons : PackContents::variables;
}

/// The type of the elements in packs of this class, BYTES if its key names none.
inline ElementType element_type_of_class(std::string_view class_key) {
  const size_t mark = class_key.rfind("_Array");
  if (mark == std::string_view::npos || mark == 0) return {};
  const size_t begin = class_key.rfind('_', mark - 1) + 1;
  const Result<ElementType> named = ElementType::parse(class_key.substr(begin, mark - begin));
  return named.ok() ? *named : ElementType{};
}

/// Consecutive bytes of a stream: a range of a pack, or a pattern of eight bytes repeated.
struct Reference {
  static constexpr uint32_t kPattern = UINT32_MAX;
  uint32_t pack = 0;    ///< ordinal in the leaf's table of packs, or kPattern
  uint64_t offset = 0;  ///< in the pack's raw bytes; of a pattern its eight bytes, little-endian
  uint64_t bytes = 0;
  bool operator==(const Reference&) const = default;
};

/// A pack that a leaf refers to. `hint` is the arena it was in when the leaf was written; prune may have moved it
/// since.
struct PackLink {
  Score score;
  ArenaId hint;
};

enum class FileType : uint8_t { regular = 0, directory = 1, symlink = 2 };

/// One file of a checkpoint set as a leaf describes it.
///
/// A regular file's bytes are its streams: first the skeleton (the bytes of no variable, in file order), then each
/// variable's stored bytes in the order of its extents. Each stream is a list of references that covers it exactly.
struct TreeFile {
  std::string path;  ///< relative to the set's folder, '/'-separated, no empty, "." or ".." components
  FileType type = FileType::regular;
  uint32_t mode = 0644;    ///< permission bits, including set-user-id and the like
  int64_t modified_s = 0;  ///< since 1970
  uint32_t modified_ns = 0;
  int64_t rank = -1;        ///< of the process that wrote it, -1 if it belongs to none
  std::string link_target;  ///< symlinks only
  uint64_t bytes = 0;       ///< regular files only, as are the rest
  Layout layout;            ///< without the small variables, which are in the skeleton
  std::vector<Variable> small_variables;
  uint64_t unnamed_variable_count = 0;          ///< further small ones, that are only counted
  std::vector<uint32_t> class_of;               ///< of each variable: ordinal in the leaf's class keys
  std::vector<std::vector<Reference>> streams;  ///< layout.variables.size() + 1
};

/// A regular file's mode for who need not be its owner: without set-user-id and set-group-id, by which a program would
/// get the rights of whoever brings it back.
constexpr uint32_t mode_for_anyone(uint32_t mode) { return mode & ~06000U; }

/// What the description of a variable takes in a leaf, about.
inline uint64_t described_bytes(const Variable& variable) {
  return 24 + variable.name.size() + 6 * variable.extents.size();
}

/// Small ones too.
inline uint64_t variable_count(const TreeFile& file) {
  return file.layout.variables.size() + file.small_variables.size() + file.unnamed_variable_count;
}

/// A node of a set's tree that another one names, and where it may be.
struct NodeLink {
  Score score;
  ArenaId hint;
};

/// A leaf of a set's tree: some files of one group and the packs that hold their bytes (FORMAT.md, "Leaf").
struct Leaf {
  std::vector<PackLink> packs;
  std::vector<std::string> class_keys;
  std::vector<TreeFile> files;
  std::vector<NodeLink> pieces{};  ///< the nodes that hold it, if it was too long for one; set by reading
};

/// A leaf as the root of a group's tree names it.
struct LeafLink {
  Score score;
  ArenaId hint;
  uint64_t file_count = 0;
  uint64_t bytes = 0;  ///< of its regular files
};

/// The root of a group's tree (FORMAT.md, "Root").
struct Root {
  std::vector<LeafLink> leaves;
};

ByteVector encode_leaf(const Leaf& leaf, size_t score_bytes);
/// From bytes that match their score but may still be hostile: everything is checked, so that every reference is within
/// its table, streams have the length that the layout gives them, and paths are safe.
Result<Leaf> decode_leaf(ByteSpan raw, size_t score_bytes);

/// A leaf that is too long for one node lies in several (FORMAT.md, "Leaf in pieces"): here its encoding, cut, and the
/// node that lists the pieces, which takes the leaf's place in the root.
struct LeafPieces {
  uint64_t bytes = 0;  ///< of the leaf's encoding
  std::vector<NodeLink> pieces;
};
ByteVector encode_leaf_piece(ByteSpan part_of_leaf);
ByteVector encode_leaf_pieces(const LeafPieces& pieces, size_t score_bytes);

/// The content of a node, by its score and where it may be; nothing if it is to be left out.
using ReadNode = std::function<Result<std::optional<ByteVector>>(const Score& score, const ArenaId& hint)>;
/// The leaf that a root names: `node` is the content of that node, `read` is asked for each piece if it lists such.
/// Nothing if a piece was left out. As decode_leaf().
Result<std::optional<Leaf>> decode_leaf_of(ByteVector node, size_t score_bytes, const ReadNode& read);

ByteVector encode_root(const Root& root, size_t score_bytes);
Result<Root> decode_root(ByteSpan raw, size_t score_bytes);

/// The extents of stream `stream` of `file`: the skeleton's for 0, else variable `stream - 1`'s.
std::vector<Extent> stream_extents(const TreeFile& file, size_t stream);

/// Whether `path` may be written below a restore folder: relative, no empty, "." or ".." component, no NUL, not too
/// long.
bool path_is_safe(std::string_view path);

inline constexpr size_t kPathBytesMax = 4095;
inline constexpr uint64_t kTreeFileBytesMax = uint64_t{1} << 62;
inline constexpr uint64_t kFilesPerLeafMax = 1'000'000;
inline constexpr uint64_t kClassesPerLeafMax = 1'000'000;
/// A leaf's encoding, in however many nodes.
inline constexpr uint64_t kLeafBytesMax = 1_GiB;

}  // namespace varve
