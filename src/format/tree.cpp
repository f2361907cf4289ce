#include "format/tree.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/file_system.h"

namespace varve {

namespace {
constexpr uint8_t kLeafKind = 'L';
constexpr uint8_t kNamingLeafKind = 'M';  ///< describes small variables, too
constexpr uint8_t kRootKind = 'R';
constexpr uint8_t kPiecesKind = 'P';      ///< lists the pieces of a leaf
constexpr uint8_t kPieceKind = 'C';       ///< a piece
constexpr uint8_t kColumnLeafKind = 'F';  ///< a leaf of many files, whose fields are in columns

// FORMAT.md, "Leaf": a reference's first number. Bit 0 tells patterns from packs.
constexpr uint64_t kPatternTag = 1;

/// Arenas named as hints, each once.
class ArenaTable {
 public:
  uint64_t ordinal(const ArenaId& id) {
    auto [found, added] = ordinals_.emplace(id, ids_.size());
    if (added) ids_.push_back(id);
    return found->second;
  }
  const std::vector<ArenaId>& ids() const { return ids_; }

 private:
  std::map<ArenaId, uint64_t> ordinals_;
  std::vector<ArenaId> ids_;
};

void write_arena_table(ByteWriter& w, const ArenaTable& table) {
  w.varint(table.ids().size());
  for (const ArenaId& id : table.ids()) w.bytes(id.bytes);
}

Result<std::vector<ArenaId>> read_arena_table(ByteReader& reader) {
  VARVE_ASSIGN(uint64_t count, reader.count(16));
  std::vector<ArenaId> ids(count);
  for (ArenaId& id : ids) {
    VARVE_ASSIGN(id, ArenaId::read(reader));
  }
  return ids;
}

Result<ArenaId> read_hint(ByteReader& reader, const std::vector<ArenaId>& arenas) {
  VARVE_ASSIGN(uint64_t ordinal, reader.varint());
  if (ordinal >= arenas.size()) return Status::corrupt("a tree names an arena that its table lacks");
  return arenas[ordinal];
}

void write_shape(ByteWriter& w, const std::vector<uint64_t>& shape) {
  w.varint(shape.size());
  for (uint64_t extent : shape) w.varint(extent);
}

Result<std::vector<uint64_t>> read_shape(ByteReader& reader) {
  VARVE_ASSIGN(uint64_t count, reader.count());
  if (count > kDimensionsMax) return Status::corrupt("a variable has too many dimensions");
  std::vector<uint64_t> shape(count);
  for (uint64_t& extent : shape) {
    VARVE_ASSIGN(extent, reader.varint());
  }
  return shape;
}

/// All of a variable but its name. `file_cursor`: where the extent before ends.
void write_description(ByteWriter& w, const Variable& variable, uint64_t& file_cursor) {
  w.u8(static_cast<uint8_t>(static_cast<uint8_t>(variable.type.kind) | static_cast<uint8_t>(variable.type.order) << 4 |
                            (variable.encoded ? 0x80 : 0)));
  w.varint(variable.type.bytes);
  write_shape(w, variable.shape);
  write_shape(w, variable.run_shape);
  w.varint(variable.extents.size());
  for (const Extent& extent : variable.extents) {
    w.signed_varint(static_cast<int64_t>(extent.offset - file_cursor));
    w.varint(extent.bytes);
    file_cursor = extent.offset + extent.bytes;
  }
}

Status read_description(ByteReader& reader, Variable& variable, uint64_t& file_cursor) {
  VARVE_ASSIGN(uint8_t type, reader.u8());
  if ((type & 0x0f) > static_cast<uint8_t>(ElementKind::text) || (type & 0x70) > 0x10) {
    return Status::corrupt("a variable is of unknown type");
  }
  variable.type.kind = static_cast<ElementKind>(type & 0x0f);
  variable.type.order = static_cast<ByteOrder>(type >> 4 & 0x07);
  variable.encoded = (type & 0x80) != 0;
  VARVE_ASSIGN(uint64_t element_bytes, reader.varint());
  if (element_bytes == 0 || element_bytes > UINT32_MAX)
    return Status::corrupt("a variable's elements have an impossible size");
  variable.type.bytes = static_cast<uint32_t>(element_bytes);
  VARVE_ASSIGN(variable.shape, read_shape(reader));
  VARVE_ASSIGN(variable.run_shape, read_shape(reader));
  VARVE_ASSIGN(uint64_t extent_count, reader.count(2));
  variable.extents.resize(extent_count);
  for (Extent& extent : variable.extents) {
    VARVE_ASSIGN(int64_t step, reader.signed_varint());
    VARVE_ASSIGN(extent.bytes, reader.varint());
    extent.offset = file_cursor + static_cast<uint64_t>(step);
    file_cursor = extent.offset + extent.bytes;
  }
  return {};
}

/// How many variables follow, each of so many bytes at least.
Result<uint64_t> read_variable_count(ByteReader& reader, size_t bytes_min) {
  VARVE_ASSIGN(uint64_t count, reader.count(bytes_min));
  if (count > kVariablesPerFileMax) return Status::corrupt("a file has too many variables");
  return count;
}

Status read_variables(ByteReader& reader, uint64_t class_count, TreeFile& file) {
  VARVE_ASSIGN(uint64_t count, read_variable_count(reader, 7));
  uint64_t file_cursor = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Variable variable;
    VARVE_ASSIGN(variable.name, reader.text());
    VARVE_ASSIGN(uint64_t ordinal, reader.varint());
    if (ordinal >= class_count) return Status::corrupt("a variable names a class that its leaf lacks");
    VARVE_TRY(read_description(reader, variable, file_cursor));
    file.layout.variables.push_back(std::move(variable));
    file.class_of.push_back(static_cast<uint32_t>(ordinal));
  }
  return {};
}

Status read_small_variables(ByteReader& reader, TreeFile& file) {
  VARVE_ASSIGN(uint64_t count, read_variable_count(reader, 6));
  uint64_t file_cursor = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Variable variable;
    VARVE_ASSIGN(variable.name, reader.text());
    VARVE_TRY(read_description(reader, variable, file_cursor));
    file.small_variables.push_back(std::move(variable));
  }
  return {};
}

/// All that the file says of its variables.
Status check_variables(TreeFile& file) {
  std::vector<Variable>&variables = file.layout.variables, &small = file.small_variables;
  const auto count = static_cast<ptrdiff_t>(variables.size());
  variables.insert(variables.end(), std::make_move_iterator(small.begin()), std::make_move_iterator(small.end()));
  const Status valid = validate_layout(file.layout, file.bytes);
  std::move(variables.begin() + count, variables.end(), small.begin());
  variables.erase(variables.begin() + count, variables.end());
  return valid;
}

/// Where the next reference to each pack is expected to begin: right after the last.
using PackCursors = std::vector<uint64_t>;

void write_stream(ByteWriter& w, const std::vector<Reference>& stream, PackCursors& cursors, uint32_t& last_pack) {
  w.varint(stream.size());
  for (size_t i = 0; i < stream.size(); ++i) {
    const Reference& reference = stream[i];
    if (reference.pack == Reference::kPattern) {
      w.varint(kPatternTag);
      w.le64(reference.offset);
    } else {
      auto step = static_cast<int64_t>(reference.pack) - static_cast<int64_t>(last_pack);
      w.varint(((static_cast<uint64_t>(step) << 1) ^ static_cast<uint64_t>(step >> 63)) << 1);
      w.signed_varint(static_cast<int64_t>(reference.offset - cursors[reference.pack]));
      cursors[reference.pack] = reference.offset + reference.bytes;
      last_pack = reference.pack;
    }
    // The last one's length follows from the stream's.
    if (i + 1 < stream.size()) w.varint(reference.bytes);
  }
}

Result<std::vector<Reference>> read_stream(ByteReader& reader, uint64_t stream_bytes, PackCursors& cursors,
                                           uint32_t& last_pack) {
  VARVE_ASSIGN(uint64_t count, reader.count(2));
  // Grown as references turn out to be there: one takes more room here than it may take there.
  std::vector<Reference> stream;
  stream.reserve(std::min<uint64_t>(count, 4096));
  uint64_t left = stream_bytes;
  for (uint64_t i = 0; i < count; ++i) {
    Reference reference;
    VARVE_ASSIGN(uint64_t tag, reader.varint());
    int64_t step = 0;
    if ((tag & 1) == kPatternTag) {
      if (tag != kPatternTag) return Status::corrupt("a reference is malformed");
      reference.pack = Reference::kPattern;
      VARVE_ASSIGN(reference.offset, reader.le64());
    } else {
      uint64_t folded = tag >> 1;
      auto pack = static_cast<int64_t>(last_pack) + static_cast<int64_t>((folded >> 1) ^ (~(folded & 1) + 1));
      if (pack < 0 || static_cast<uint64_t>(pack) >= cursors.size()) {
        return Status::corrupt("a reference names a pack that its leaf lacks");
      }
      reference.pack = static_cast<uint32_t>(pack);
      VARVE_ASSIGN(step, reader.signed_varint());
    }
    if (i + 1 < count) {
      VARVE_ASSIGN(reference.bytes, reader.varint());
    } else {
      reference.bytes = left;
    }
    if (reference.bytes == 0 || reference.bytes > left)
      return Status::corrupt("the references of a stream do not add up to it");
    left -= reference.bytes;
    if (reference.pack != Reference::kPattern) {
      reference.offset = cursors[reference.pack] + static_cast<uint64_t>(step);
      if (reference.offset > UINT32_MAX || reference.bytes > UINT32_MAX) {
        return Status::corrupt("a reference points beyond the largest possible pack");
      }
      cursors[reference.pack] = reference.offset + reference.bytes;
      last_pack = reference.pack;
    }
    stream.push_back(reference);
  }
  if (left != 0) return Status::corrupt("the references of a stream do not add up to it");
  return stream;
}

/// What files of a leaf share while they are written.
struct WriteContext {
  bool naming;
  PackCursors cursors;
  uint32_t last_pack = 0;
};

void write_streams(ByteWriter& w, const TreeFile& file, WriteContext& leaf) {
  for (const std::vector<Reference>& stream : file.streams) write_stream(w, stream, leaf.cursors, leaf.last_pack);
}

/// All of a regular file but its size.
void write_content(ByteWriter& w, const TreeFile& file, WriteContext& leaf) {
  w.text(file.layout.format);
  w.varint(file.unnamed_variable_count);
  if (leaf.naming) {
    w.varint(file.small_variables.size());
    uint64_t small_cursor = 0;
    for (const Variable& variable : file.small_variables) {
      w.text(variable.name);
      write_description(w, variable, small_cursor);
    }
  }
  w.varint(file.layout.variables.size());
  uint64_t file_cursor = 0;
  for (size_t i = 0; i < file.layout.variables.size(); ++i) {
    w.text(file.layout.variables[i].name);
    w.varint(file.class_of[i]);
    write_description(w, file.layout.variables[i], file_cursor);
  }
  write_streams(w, file, leaf);
}

void write_file(ByteWriter& w, const TreeFile& file, WriteContext& leaf) {
  w.text(file.path);
  w.u8(static_cast<uint8_t>(file.type));
  w.varint(file.mode);
  w.signed_varint(file.modified_s);
  w.varint(file.modified_ns);
  w.signed_varint(file.rank);
  if (file.type == FileType::symlink) w.text(file.link_target);
  if (file.type != FileType::regular) return;
  w.varint(file.bytes);
  write_content(w, file, leaf);
}

/// What files of a leaf share while they are read.
struct LeafContext {
  uint64_t class_count;
  bool naming;
  PackCursors cursors;
  uint32_t last_pack = 0;
};

Status read_streams(ByteReader& reader, LeafContext& leaf, TreeFile& file) {
  VARVE_TRY(check_variables(file));
  uint64_t skeleton_bytes = file.bytes;
  for (const Variable& variable : file.layout.variables) skeleton_bytes -= variable.stored_bytes();
  for (size_t i = 0; i <= file.layout.variables.size(); ++i) {
    uint64_t stream_bytes = i == 0 ? skeleton_bytes : file.layout.variables[i - 1].stored_bytes();
    VARVE_ASSIGN(std::vector<Reference> stream, read_stream(reader, stream_bytes, leaf.cursors, leaf.last_pack));
    file.streams.push_back(std::move(stream));
  }
  return {};
}

Status read_content(ByteReader& reader, LeafContext& leaf, TreeFile& file) {
  VARVE_ASSIGN(std::string_view format, reader.text());
  file.layout.format = format;
  VARVE_ASSIGN(file.unnamed_variable_count, reader.varint());
  if (leaf.naming) VARVE_TRY(read_small_variables(reader, file));
  VARVE_TRY(read_variables(reader, leaf.class_count, file));
  return read_streams(reader, leaf, file);
}

Status check_path(const TreeFile& file) {
  if (path_is_safe(file.path)) return {};
  return Status::corrupt("a set names a path outside its folder", file.path,
                         "this store was tampered with; do not trust it");
}

Status set_type(TreeFile& file, uint8_t type) {
  if (type > static_cast<uint8_t>(FileType::symlink)) return Status::corrupt("a file is of unknown type", file.path);
  file.type = static_cast<FileType>(type);
  return {};
}

Status set_mode(TreeFile& file, uint64_t mode) {
  if (mode > 07777) return Status::corrupt("a file has impossible permissions", file.path);
  file.mode = static_cast<uint32_t>(mode);
  return {};
}

Status set_nanoseconds(TreeFile& file, uint64_t nanoseconds) {
  if (nanoseconds > 999'999'999) return Status::corrupt("a file has an impossible time", file.path);
  file.modified_ns = static_cast<uint32_t>(nanoseconds);
  return {};
}

Status set_bytes(TreeFile& file, uint64_t bytes) {
  if (bytes > kTreeFileBytesMax || (bytes > 0 && file.type != FileType::regular))
    return Status::corrupt("a file has an impossible size", file.path);
  file.bytes = bytes;
  return {};
}

Status read_link_target(ByteReader& reader, TreeFile& file) {
  VARVE_ASSIGN(std::string_view target, reader.text());
  if (target.empty() || target.size() > kPathBytesMax || target.find('\0') != std::string_view::npos)
    return Status::corrupt("a symbolic link has an impossible target", file.path);
  file.link_target = target;
  return {};
}

Result<TreeFile> read_file_entry(ByteReader& reader, LeafContext& leaf) {
  TreeFile file;
  VARVE_ASSIGN(std::string_view path, reader.text());
  file.path = path;
  VARVE_TRY(check_path(file));
  VARVE_ASSIGN(uint8_t type, reader.u8());
  VARVE_TRY(set_type(file, type));
  VARVE_ASSIGN(const uint64_t mode, reader.varint());
  VARVE_TRY(set_mode(file, mode));
  VARVE_ASSIGN(file.modified_s, reader.signed_varint());
  VARVE_ASSIGN(const uint64_t nanoseconds, reader.varint());
  VARVE_TRY(set_nanoseconds(file, nanoseconds));
  VARVE_ASSIGN(file.rank, reader.signed_varint());
  if (file.type == FileType::symlink) VARVE_TRY(read_link_target(reader, file));
  if (file.type == FileType::regular) {
    VARVE_ASSIGN(const uint64_t bytes, reader.varint());
    VARVE_TRY(set_bytes(file, bytes));
    VARVE_TRY(read_content(reader, leaf, file));
  }
  return file;
}

// Files by column (FORMAT.md): where there are many, most fields of a file are those of the file before, or nearly.

/// From so many files on.
constexpr size_t kColumnFilesMin = 256;
/// What paths take together of the paths before them is no more: so much memory few bytes can cost who reads them.
constexpr uint64_t kSharedPathBytesMax = 16_MiB;
/// In the column of types: a regular file of which only its size and its class are said.
constexpr uint8_t kUnknownContent = 3;

/// Whether nothing is known of what it holds.
bool has_unknown_content(const TreeFile& file) {
  return file.type == FileType::regular && file.bytes > 0 && file.unnamed_variable_count == 0 &&
         file.small_variables.empty() && file.layout == opaque_layout(file.bytes, "/" + base_name(file.path));
}

/// What a path has in common with the one before it, at their beginnings and at their ends.
struct SharedPath {
  size_t begin = 0, end = 0;
  SharedPath(std::string_view before, std::string_view path) {
    const size_t most = std::min(before.size(), path.size());
    begin = static_cast<size_t>(std::mismatch(path.begin(), path.begin() + most, before.begin()).first - path.begin());
    end = static_cast<size_t>(std::mismatch(path.rbegin(), path.rbegin() + (most - begin), before.rbegin()).first -
                              path.rbegin());
  }
};

bool goes_by_column(const std::vector<TreeFile>& files) {
  uint64_t path_bytes = 0;
  for (const TreeFile& file : files) path_bytes += file.path.size();
  return files.size() >= kColumnFilesMin && path_bytes <= kSharedPathBytesMax;
}

/// Numbers as they are written in a column: how much each is more than the one before.
class Differences {
 public:
  void write(ByteWriter& w, uint64_t value) {
    w.signed_varint(static_cast<int64_t>(value - before_));
    before_ = value;
  }
  Result<uint64_t> read(ByteReader& reader) {
    VARVE_ASSIGN(const int64_t more, reader.signed_varint());
    return before_ += static_cast<uint64_t>(more);
  }

 private:
  uint64_t before_ = 0;
};

void write_paths(ByteWriter& w, const std::vector<TreeFile>& files) {
  std::vector<SharedPath> shared;
  std::string_view before;
  for (const TreeFile& file : files) shared.emplace_back(std::exchange(before, file.path), file.path);
  const auto own_bytes = [&](size_t i) { return files[i].path.size() - shared[i].begin - shared[i].end; };
  for (const SharedPath& one : shared) w.varint(one.begin);
  for (const SharedPath& one : shared) w.varint(one.end);
  for (size_t i = 0; i < files.size(); ++i) w.varint(own_bytes(i));
  for (size_t i = 0; i < files.size(); ++i)
    w.bytes(as_bytes(std::string_view(files[i].path).substr(shared[i].begin, own_bytes(i))));
}

void write_by_column(ByteWriter& w, const std::vector<TreeFile>& files, WriteContext& leaf) {
  write_paths(w, files);
  std::vector<bool> is_unknown;
  for (const TreeFile& file : files) {
    is_unknown.push_back(has_unknown_content(file));
    w.u8(is_unknown.back() ? kUnknownContent : static_cast<uint8_t>(file.type));
  }
  const auto column = [&](const auto& value_of) {
    Differences values;
    for (const TreeFile& file : files) values.write(w, static_cast<uint64_t>(value_of(file)));
  };
  column([](const TreeFile& file) { return file.mode; });
  column([](const TreeFile& file) { return file.modified_s; });
  column([](const TreeFile& file) { return file.modified_ns; });
  column([](const TreeFile& file) { return file.rank; });
  column([](const TreeFile& file) { return file.bytes; });
  Differences classes;
  for (size_t i = 0; i < files.size(); ++i)
    if (is_unknown[i]) classes.write(w, files[i].class_of.front());
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_unknown[i]) {
      write_streams(w, files[i], leaf);
    } else if (files[i].type == FileType::regular) {
      write_content(w, files[i], leaf);
    } else if (files[i].type == FileType::symlink) {
      w.text(files[i].link_target);
    }
  }
}

Status read_paths(ByteReader& reader, std::vector<TreeFile>& files) {
  std::vector<std::array<uint64_t, 3>> parts(files.size());  // from the beginning of the one before, its end, its own
  for (const size_t part : {0, 1, 2}) {
    for (std::array<uint64_t, 3>& bytes : parts) {
      VARVE_ASSIGN(bytes[part], reader.varint());
    }
  }
  uint64_t shared_bytes = 0;
  std::string_view before;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto [begin, end, own] = parts[i];
    if (begin > before.size() || end > before.size() - begin || own > kPathBytesMax)
      return Status::corrupt("a path takes more of the one before it than that has", files[i].path);
    shared_bytes += begin + end;
    if (shared_bytes > kSharedPathBytesMax) return Status::corrupt("paths of a leaf are longer than they may be");
    VARVE_ASSIGN(const ByteSpan between, reader.bytes(own));
    std::string& path = files[i].path;
    path.append(before.substr(0, begin)).append(as_text(between)).append(before.substr(before.size() - end));
    VARVE_TRY(check_path(files[i]));
    before = path;
  }
  return {};
}

Status read_by_column(ByteReader& reader, LeafContext& leaf, std::vector<TreeFile>& files) {
  VARVE_TRY(read_paths(reader, files));
  std::vector<bool> is_unknown;
  for (TreeFile& file : files) {
    VARVE_ASSIGN(const uint8_t type, reader.u8());
    is_unknown.push_back(type == kUnknownContent);
    VARVE_TRY(set_type(file, is_unknown.back() ? static_cast<uint8_t>(FileType::regular) : type));
  }
  const auto column = [&](const auto& set) -> Status {
    Differences values;
    for (TreeFile& file : files) {
      VARVE_ASSIGN(const uint64_t value, values.read(reader));
      VARVE_TRY(set(file, value));
    }
    return {};
  };
  VARVE_TRY(column(set_mode));
  VARVE_TRY(column([](TreeFile& file, uint64_t value) {
    file.modified_s = static_cast<int64_t>(value);
    return Status();
  }));
  VARVE_TRY(column(set_nanoseconds));
  VARVE_TRY(column([](TreeFile& file, uint64_t value) {
    file.rank = static_cast<int64_t>(value);
    return Status();
  }));
  VARVE_TRY(column(set_bytes));
  Differences classes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!is_unknown[i]) continue;
    TreeFile& file = files[i];
    VARVE_ASSIGN(const uint64_t ordinal, classes.read(reader));
    if (file.bytes == 0 || ordinal >= leaf.class_count)
      return Status::corrupt("a file of unknown content is impossible", file.path);
    file.layout = opaque_layout(file.bytes, "/" + base_name(file.path));
    file.class_of = {static_cast<uint32_t>(ordinal)};
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_unknown[i]) {
      VARVE_TRY(read_streams(reader, leaf, files[i]));
    } else if (files[i].type == FileType::regular) {
      VARVE_TRY(read_content(reader, leaf, files[i]));
    } else if (files[i].type == FileType::symlink) {
      VARVE_TRY(read_link_target(reader, files[i]));
    }
  }
  return {};
}

/// Nodes match their scores when they are decoded: it is no damage.
Status unknown_kind() {
  return Status::unsupported("a set's tree has a node of a kind that this Varve does not know", "",
                             "use a newer Varve");
}
}  // namespace

bool path_is_safe(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax || path.find('\0') != std::string_view::npos) return false;
  while (true) {
    size_t slash = path.find('/');
    std::string_view component = path.substr(0, slash);
    if (component.empty() || component == "." || component == ".." || component.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

ByteVector encode_leaf(const Leaf& leaf, size_t score_bytes) {
  ByteVector out;
  ByteWriter w(out);
  const bool naming = std::any_of(leaf.files.begin(), leaf.files.end(),
                                  [](const TreeFile& file) { return !file.small_variables.empty(); });
  const bool by_column = goes_by_column(leaf.files);
  w.u8(by_column ? kColumnLeafKind : naming ? kNamingLeafKind : kLeafKind);
  ArenaTable arenas;
  for (const PackLink& pack : leaf.packs) arenas.ordinal(pack.hint);
  write_arena_table(w, arenas);
  w.varint(leaf.packs.size());
  for (const PackLink& pack : leaf.packs) {
    write_score(w, pack.score, score_bytes);
    w.varint(arenas.ordinal(pack.hint));
  }
  w.varint(leaf.class_keys.size());
  for (const std::string& key : leaf.class_keys) w.text(key);
  w.varint(leaf.files.size());
  WriteContext context{naming || by_column, PackCursors(leaf.packs.size(), 0)};
  if (by_column) {
    write_by_column(w, leaf.files, context);
  } else {
    for (const TreeFile& file : leaf.files) write_file(w, file, context);
  }
  return out;
}

Result<Leaf> decode_leaf(ByteSpan raw, size_t score_bytes) {
  ByteReader reader(raw);
  VARVE_ASSIGN(uint8_t kind, reader.u8());
  if (kind == kRootKind) return Status::corrupt("a leaf of a set's tree was expected, its root is there");
  if (kind == kPiecesKind || kind == kPieceKind)
    return Status::corrupt("a leaf of a set's tree was expected, a piece of one is there");
  const bool by_column = kind == kColumnLeafKind;
  if (kind != kLeafKind && kind != kNamingLeafKind && !by_column) return unknown_kind();
  Leaf leaf;
  VARVE_ASSIGN(std::vector<ArenaId> arenas, read_arena_table(reader));
  VARVE_ASSIGN(uint64_t pack_count, reader.count(score_bytes + 1));
  leaf.packs.resize(pack_count);
  for (PackLink& pack : leaf.packs) {
    VARVE_ASSIGN(pack.score, read_score(reader, score_bytes));
    VARVE_ASSIGN(pack.hint, read_hint(reader, arenas));
  }
  VARVE_ASSIGN(uint64_t class_count, reader.count());
  if (class_count > kClassesPerLeafMax) return Status::corrupt("a leaf has too many similarity classes");
  for (uint64_t i = 0; i < class_count; ++i) {
    VARVE_ASSIGN(std::string_view key, reader.text());
    leaf.class_keys.emplace_back(key);
  }
  VARVE_ASSIGN(uint64_t file_count, reader.count(by_column ? 9 : 6));
  if (file_count > kFilesPerLeafMax) return Status::corrupt("a leaf has too many files");
  LeafContext context{class_count, kind != kLeafKind, PackCursors(leaf.packs.size(), 0)};
  if (by_column) {
    leaf.files.resize(file_count);
    VARVE_TRY(read_by_column(reader, context, leaf.files));
  } else {
    for (uint64_t i = 0; i < file_count; ++i) {
      VARVE_ASSIGN(TreeFile file, read_file_entry(reader, context));
      leaf.files.push_back(std::move(file));
    }
  }
  if (!reader.at_end()) return Status::corrupt("a leaf is longer than its files");
  return leaf;
}

ByteVector encode_leaf_piece(ByteSpan part_of_leaf) {
  ByteVector out;
  out.reserve(part_of_leaf.size() + 1);
  ByteWriter w(out);
  w.u8(kPieceKind);
  w.bytes(part_of_leaf);
  return out;
}

ByteVector encode_leaf_pieces(const LeafPieces& pieces, size_t score_bytes) {
  ByteVector out;
  ByteWriter w(out);
  w.u8(kPiecesKind);
  ArenaTable arenas;
  for (const NodeLink& piece : pieces.pieces) arenas.ordinal(piece.hint);
  write_arena_table(w, arenas);
  w.varint(pieces.bytes);
  w.varint(pieces.pieces.size());
  for (const NodeLink& piece : pieces.pieces) {
    write_score(w, piece.score, score_bytes);
    w.varint(arenas.ordinal(piece.hint));
  }
  return out;
}

namespace {
Result<LeafPieces> decode_leaf_pieces(ByteSpan raw, size_t score_bytes) {
  ByteReader reader(raw);
  VARVE_TRY(reader.u8().status());  // the kind
  LeafPieces pieces;
  VARVE_ASSIGN(const std::vector<ArenaId> arenas, read_arena_table(reader));
  VARVE_ASSIGN(pieces.bytes, reader.varint());
  if (pieces.bytes > kLeafBytesMax) return Status::corrupt("a leaf in pieces has an impossible size");
  VARVE_ASSIGN(const uint64_t count, reader.count(score_bytes + 1));
  pieces.pieces.resize(count);
  for (NodeLink& piece : pieces.pieces) {
    VARVE_ASSIGN(piece.score, read_score(reader, score_bytes));
    VARVE_ASSIGN(piece.hint, read_hint(reader, arenas));
  }
  if (!reader.at_end()) return Status::corrupt("a list of a leaf's pieces is longer than it says");
  return pieces;
}
}  // namespace

Result<std::optional<Leaf>> decode_leaf_of(ByteVector node, size_t score_bytes, const ReadNode& read) {
  if (node.empty() || static_cast<uint8_t>(node[0]) != kPiecesKind) {
    VARVE_ASSIGN(Leaf leaf, decode_leaf(node, score_bytes));
    return std::optional(std::move(leaf));
  }
  VARVE_ASSIGN(LeafPieces list, decode_leaf_pieces(node, score_bytes));
  ByteVector whole;  // grows as pieces turn out to be there
  bool left_out = false;
  for (const NodeLink& link : list.pieces) {
    // All are asked for: who mends what is lacking mends them all.
    VARVE_ASSIGN(const std::optional<ByteVector> piece, read(link.score, link.hint));
    left_out = left_out || !piece;
    if (left_out) continue;
    // An empty one would be read for nothing, as often as it is listed.
    if (piece->size() < 2 || static_cast<uint8_t>(piece->front()) != kPieceKind)
      return Status::corrupt("a piece of a leaf of a set's tree was expected, something else is there");
    if (piece->size() - 1 > list.bytes - whole.size())
      return Status::corrupt("the pieces of a leaf do not add up to it");
    whole.insert(whole.end(), piece->begin() + 1, piece->end());
  }
  if (left_out) return std::optional<Leaf>();
  if (whole.size() != list.bytes) return Status::corrupt("the pieces of a leaf do not add up to it");
  VARVE_ASSIGN(Leaf leaf, decode_leaf(whole, score_bytes));
  leaf.pieces = std::move(list.pieces);
  return std::optional(std::move(leaf));
}

ByteVector encode_root(const Root& root, size_t score_bytes) {
  ByteVector out;
  ByteWriter w(out);
  w.u8(kRootKind);
  ArenaTable arenas;
  for (const LeafLink& leaf : root.leaves) arenas.ordinal(leaf.hint);
  write_arena_table(w, arenas);
  w.varint(root.leaves.size());
  for (const LeafLink& leaf : root.leaves) {
    write_score(w, leaf.score, score_bytes);
    w.varint(arenas.ordinal(leaf.hint));
    w.varint(leaf.file_count);
    w.varint(leaf.bytes);
  }
  return out;
}

Result<Root> decode_root(ByteSpan raw, size_t score_bytes) {
  ByteReader reader(raw);
  VARVE_ASSIGN(uint8_t kind, reader.u8());
  if (kind == kLeafKind || kind == kNamingLeafKind || kind == kColumnLeafKind || kind == kPiecesKind ||
      kind == kPieceKind)
    return Status::corrupt("the root of a set's tree was expected, a leaf is there");
  if (kind != kRootKind) return unknown_kind();
  Root root;
  VARVE_ASSIGN(std::vector<ArenaId> arenas, read_arena_table(reader));
  VARVE_ASSIGN(uint64_t leaf_count, reader.count(score_bytes + 3));
  root.leaves.resize(leaf_count);
  for (LeafLink& leaf : root.leaves) {
    VARVE_ASSIGN(leaf.score, read_score(reader, score_bytes));
    VARVE_ASSIGN(leaf.hint, read_hint(reader, arenas));
    VARVE_ASSIGN(leaf.file_count, reader.varint());
    VARVE_ASSIGN(leaf.bytes, reader.varint());
  }
  if (!reader.at_end()) return Status::corrupt("a root is longer than its leaves");
  return root;
}

std::vector<Extent> stream_extents(const TreeFile& file, size_t stream) {
  return stream == 0 ? skeleton_extents(file.layout, file.bytes) : file.layout.variables[stream - 1].extents;
}

}  // namespace varve
