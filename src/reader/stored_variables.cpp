#include "reader/stored_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/file_system.h"
#include "core/sync.h"
#include "engine/inspect.h"
#include "format/image.h"
#include "format/set_origin.h"
#include "layout/raw_layout.h"
#include "layout/zarr_array.h"
#include "reader/npz_members.h"
#include "reader/zarr_chunks.h"

namespace varve {

namespace {
constexpr const char* kOtherNodes = "read it from a store that all nodes share, or from the other nodes' stores";

Status of_set_variable(const std::string& name, std::string message, Hint hint = {}) {
  return Status::invalid_argument(std::move(message), fmt::format("variable '{}'", name), std::move(hint));
}

std::string rank_text(const StoredPart& part) {
  return part.rank < 0 ? fmt::format("'{}'", part.file->path) : fmt::format("rank {}", part.rank);
}

/// Bytes of a file of a leaf. The reader keeps packs for the next file.
Status read_of_file(StreamReader& reader, const Leaf& leaf, const TreeFile& file, uint64_t bytes, ByteVector& into) {
  into.resize(bytes);
  const std::vector<Reference> references = FileReferences(file).of({{0, bytes}});
  return reader.read(leaf, references, 0, into);
}

/// The bytes of the tiles that a variable's array is divided into, if they are all there.
bool is_all_tiles(const Variable& variable) {
  if (variable.run_shape.size() != variable.shape.size()) return false;
  uint64_t tiles = 1;
  for (size_t d = 0; d < variable.shape.size(); ++d) {
    const uint64_t tile = variable.run_shape[d];
    if (tile == 0) return false;
    const uint64_t count = variable.shape[d] / tile + (variable.shape[d] % tile != 0 ? 1 : 0);
    if (__builtin_mul_overflow(tiles, count, &tiles)) return false;
  }
  const std::optional<uint64_t> tile_bytes = array_bytes(variable.run_shape, variable.type.bytes);
  // Readers list tiles in the order of the array only if none is missing.
  return tiles == variable.extents.size() && tile_bytes &&
         std::all_of(variable.extents.begin(), variable.extents.end(),
                     [&](const Extent& extent) { return extent.bytes == *tile_bytes; });
}
/// Whether its bytes, one extent after another, are its array: those of whole rows, if there are several.
bool is_dense(const Variable& variable) {
  if (array_bytes(variable.shape, variable.type.bytes) != variable.stored_bytes()) return false;
  const std::vector<uint64_t>& shape = variable.shape;
  const std::vector<uint64_t>& run = variable.run_shape;
  if (run.empty()) return true;
  if (run.size() != shape.size())
    return run.size() + 1 == shape.size() && std::equal(run.begin(), run.end(), shape.begin() + 1);
  return is_all_tiles(variable) && std::equal(run.begin() + 1, run.end(), shape.begin() + 1);
}
}  // namespace

CellBox StoredPart::global_box() const {
  CellBox box{global_offset, shape};
  if (box.offset.empty()) box.offset.resize(shape.size(), 0);
  return box;
}

/// Variables of which only the bytes of their files tell what they are: a file is looked at when one of its variables
/// is asked for. Any thread.
class StoredVariables::Undescribed {
 public:
  explicit Undescribed(const Store& store) : store_(store) {}

  /// It stays where it is.
  void add(StoredVariable& variable) {
    const MutexLock lock(mutex_);
    by_file_[variable.parts.front().file].push_back(&variable);
  }
  void describe_with(const StoredVariable& variable) {
    const MutexLock lock(mutex_);
    const auto found = by_file_.find(variable.parts.front().file);
    if (found == by_file_.end()) return;
    StreamReader reader(store_);
    describe(reader, found->second);
    by_file_.erase(found);
  }
  void describe_all() {
    const MutexLock lock(mutex_);
    StreamReader reader(store_);
    while (!by_file_.empty()) {
      describe(reader, by_file_.begin()->second);
      by_file_.erase(by_file_.begin());
    }
  }

 private:
  static void describe(StreamReader& reader, const std::vector<StoredVariable*>& variables) {
    std::vector<StoredPart*> parts;
    for (StoredVariable* const variable : variables) parts.push_back(&variable->parts.front());
    describe_npz_members(reader, *parts.front()->leaf, *parts.front()->file, parts);
    for (StoredVariable* const variable : variables) {
      variable->type = variable->parts.front().type;
      variable->shape = variable->parts.front().shape;
    }
  }

  const Store& store_;
  Mutex mutex_;
  std::map<const TreeFile*, std::vector<StoredVariable*>> by_file_ VARVE_GUARDED_BY(mutex_);
};

StoredVariables::StoredVariables() = default;
StoredVariables::StoredVariables(StoredVariables&&) noexcept = default;
StoredVariables& StoredVariables::operator=(StoredVariables&&) noexcept = default;
StoredVariables::~StoredVariables() = default;

const std::vector<StoredVariable>& StoredVariables::all() const {
  if (undescribed_ != nullptr) undescribed_->describe_all();
  return variables_;
}

/// Goes through the leaves of a set's tree.
class StoredVariables::Collector {
 public:
  Collector(const Store& store, StoredVariables& found, const Wanted& wanted)
      : store_(store), reader_(store), found_(found), wanted_(wanted) {}

  Status add(const std::shared_ptr<const Leaf>& leaf) {
    for (const TreeFile& file : leaf->files) {
      if (file.type != FileType::regular) continue;
      VARVE_ASSIGN(const bool known, add_origin(*leaf, file));
      if (known) continue;
      VARVE_ASSIGN(const bool image, add_image(leaf, file));
      if (image) continue;
      VARVE_TRY(add_zarr_description(*leaf, file));
      VARVE_TRY(add_sidecar(*leaf, file));
      if (file.layout.format == kZarrFormat) {
        zarr_chunks_.emplace_back(leaf, &file);
      } else {
        add_file(leaf, file);
        if (base_name(file.path).find_first_not_of("c.0123456789") == std::string::npos)
          called_like_chunks_.push_back(file.path);
      }
    }
    return {};
  }

  void finish(const SetRecord& record) {
    found_.set_ = record.name;
    found_.ranks_here_ = images_ > 0 ? images_ : static_cast<uint32_t>(record.rank_count);
    found_.rank_count_ = origin_ ? origin_->rank_count
                                 : static_cast<uint32_t>(std::max<uint64_t>(record.rank_count, found_.ranks_here_));
    found_.has_all_ranks_ = images_ == 0 || found_.ranks_here_ >= found_.rank_count_;
    for (auto& [name, parts] : of_images_) {
      std::stable_sort(parts.begin(), parts.end(),
                       [](const StoredPart& a, const StoredPart& b) { return a.rank < b.rank; });
      found_.variables_.push_back(make_one(name, std::move(parts)));
    }
    add_zarr_arrays();
    describe_placed();
    add_wholes();
    for (auto& [name, part] : of_files_) {
      StoredVariable variable{std::move(name), part.type, {}, part.shape, {}};
      variable.is_in_whole = in_wholes_.contains(variable.name);
      variable.parts.push_back(std::move(part));
      found_.variables_.push_back(std::move(variable));
    }
    std::stable_sort(found_.variables_.begin(), found_.variables_.end(),
                     [](const StoredVariable& a, const StoredVariable& b) { return a.name < b.name; });
    for (StoredVariable& variable : found_.variables_) {
      const StoredPart& part = variable.parts.front();
      if (!is_undescribed(part) || described_.contains(part.file)) continue;
      if (found_.undescribed_ == nullptr) found_.undescribed_ = std::make_unique<Undescribed>(store_);
      found_.undescribed_->add(variable);
    }
  }

 private:
  Result<bool> add_origin(const Leaf& leaf, const TreeFile& file) {
    if (!SetOrigin::is_file_name(file.path) || file.bytes > SetOrigin::kBytesMax) return false;
    ByteVector text;
    VARVE_TRY(read_of_file(reader_, leaf, file, file.bytes, text));
    const Result<SetOrigin> origin = SetOrigin::parse(as_text(text));
    if (!origin.ok()) return false;  // a file that only is called so
    origin_ = *origin;
    return true;
  }

  Result<bool> add_image(const std::shared_ptr<const Leaf>& leaf, const TreeFile& file) {
    const std::optional<uint32_t> rank = rank_of_image(file.path);
    if (!rank || file.bytes < kImagePrefixBytes) return false;
    ByteVector header;
    VARVE_TRY(read_of_file(reader_, *leaf, file, kImagePrefixBytes, header));
    const Result<uint64_t> header_bytes = image_header_bytes(header, file.bytes);
    if (header_bytes.status().code() == StatusCode::corrupt) return false;  // as above
    VARVE_TRY(header_bytes.status());
    VARVE_TRY(read_of_file(reader_, *leaf, file, *header_bytes, header));
    Result<ImageTable> table = decode_image_header(header, file.bytes);
    if (!table.ok()) return table.status().with_subject(file.path);
    add_variables(*rank, leaf, file, std::move(*table));
    ++images_;
    return true;
  }

  void add_variables(uint32_t rank, const std::shared_ptr<const Leaf>& leaf, const TreeFile& file, ImageTable table) {
    std::map<uint64_t, size_t> stream_at;  // of variables that are not small, by offset
    for (size_t i = 0; i < file.layout.variables.size(); ++i) {
      const std::vector<Extent>& extents = file.layout.variables[i].extents;
      if (extents.size() == 1) stream_at.emplace(extents.front().offset, i + 1);
    }
    for (ImageVariable& variable : table.variables) {
      StoredPart part{.rank = rank,
                      .type = variable.type,
                      .shape = std::move(variable.shape),
                      .global_shape = std::move(variable.global_shape),
                      .global_offset = std::move(variable.global_offset),
                      .tile = {},
                      .leaf = leaf,
                      .file = &file};
      const auto stream = stream_at.find(variable.offset);
      const bool alone = stream != stream_at.end() &&
                         file.layout.variables[stream->second - 1].extents.front().bytes == variable.bytes;
      if (alone) part.stream = stream->second;
      if (!alone && variable.bytes > 0) part.extents = {{variable.offset, variable.bytes}};
      of_images_[std::move(variable.name)].push_back(std::move(part));
    }
  }

  void add_file(const std::shared_ptr<const Leaf>& leaf, const TreeFile& file) {
    for (size_t i = 0; i < file.layout.variables.size(); ++i) add_variable(leaf, file, file.layout.variables[i], i + 1);
    for (const Variable& small : file.small_variables) add_variable(leaf, file, small, 0);
  }

  /// Whether its file's bytes have to tell what it is.
  bool is_undescribed(const StoredPart& part) const {
    return part.coding == PartCoding::unknown && part.variable != nullptr && part.file->layout.format == kNpzFormat &&
           (!wanted_ || wanted_(*part.variable));
  }

  /// Those of files of which sidecars say something: what they are decides what wholes there are.
  void describe_placed() {
    std::map<const TreeFile*, std::vector<StoredPart*>> placed;
    for (auto& [name, part] : of_files_) {
      const auto place = places_.lower_bound({part.file->path, {}});
      if (place == places_.end() || place->first.first != part.file->path || !is_undescribed(part)) continue;
      placed[part.file].push_back(&part);
    }
    for (const auto& [file, parts] : placed) {
      describe_npz_members(reader_, *parts.front()->leaf, *file, parts);
      described_.insert(file);
    }
  }

  void add_variable(const std::shared_ptr<const Leaf>& leaf, const TreeFile& file, const Variable& variable,
                    size_t stream) {
    StoredPart part{.rank = file.rank,
                    .type = variable.type,
                    .shape = variable.shape,
                    .global_shape = {},
                    .global_offset = {},
                    .tile = {},
                    .leaf = leaf,
                    .file = &file,
                    .variable = &variable,
                    .stream = stream};
    if (stream == 0) part.extents = variable.extents;
    const bool dense = is_dense(variable);
    if (variable.encoded || (!dense && !is_all_tiles(variable))) {
      part.coding = file.layout.format == kHdf5Format ? PartCoding::hdf5 : PartCoding::unknown;
    } else if (!dense) {
      part.tile = variable.run_shape;
    }
    of_files_.emplace_back(file.path + ":" + variable.name, std::move(part));
  }

  Status add_sidecar(const Leaf& leaf, const TreeFile& file) {
    if (!file.path.ends_with(kSidecarSuffix) || file.bytes > kSidecarBytesMax) return {};
    ByteVector text;
    VARVE_TRY(read_of_file(reader_, leaf, file, file.bytes, text));
    const Result<std::vector<SidecarPlace>> places = sidecar_places(as_text(text));
    if (!places.ok()) return {};  // a file that only is called so
    const std::string described = file.path.substr(0, file.path.size() - kSidecarSuffix.size());
    for (const SidecarPlace& place : *places)
      places_.insert_or_assign({described, std::string(bare_name(place.name))}, place);
    return {};
  }

  /// What sidecars say that files have of wholes, by the names that restarts know them by.
  void add_wholes() {
    std::map<std::string, std::vector<StoredPart>> wholes;
    std::map<std::string, std::vector<std::string>> full_names;
    for (const auto& [full_name, part] : of_files_) {
      const std::string name(bare_name(std::string_view(full_name).substr(part.file->path.size() + 1)));
      const auto place = places_.find({part.file->path, name});
      if (place == places_.end() || part.coding == PartCoding::unknown || !part.tile.empty()) continue;
      StoredPart& of_whole = wholes[name].emplace_back(part);
      of_whole.global_shape = place->second.global_shape;
      of_whole.global_offset = place->second.global_offset;
      full_names[name].push_back(full_name);
    }
    for (auto& [name, parts] : wholes) {
      std::stable_sort(parts.begin(), parts.end(),
                       [](const StoredPart& a, const StoredPart& b) { return a.rank < b.rank; });
      // Files of several wholes may call them alike, in folders of their own.
      if (!lie_apart(parts)) continue;
      in_wholes_.insert(full_names[name].begin(), full_names[name].end());
      found_.variables_.push_back(make_one(name, std::move(parts)));
    }
  }

  /// Whether no two have a cell of a whole in common, of not too many.
  static bool lie_apart(const std::vector<StoredPart>& parts) {
    constexpr size_t parts_max = 20'000;
    std::vector<CellBox> boxes;
    for (const StoredPart& part : parts) {
      CellBox box = part.global_box();
      if (box.cells.size() != box.offset.size() || !lies_in(box, part.global_shape)) return false;
      if (!boxes.empty() && box.cells.size() != boxes.front().cells.size()) return false;
      for (const CellBox& other : boxes) {
        if (have_common_cells(box, other)) return false;
      }
      if (boxes.size() >= parts_max) return false;
      boxes.push_back(std::move(box));
    }
    return true;
  }

  Status add_zarr_description(const Leaf& leaf, const TreeFile& file) {
    const std::string name = base_name(file.path);
    const bool is_old = name == kZarr2ArrayFile;
    if ((!is_old && name != kZarr3File) || file.bytes > kZarrDescriptionBytesMax) return {};
    ByteVector text;
    VARVE_TRY(read_of_file(reader_, leaf, file, file.bytes, text));
    Result<ZarrArray> array = is_old ? parse_zarr2_array(as_text(text)) : parse_zarr3_array(as_text(text));
    if (!array.ok()) return {};
    const auto [known, added] = zarr_arrays_.try_emplace(folder_of(file.path), *array);
    if (!added && is_old) known->second = std::move(*array);
    return {};
  }

  /// The chunks, each array as one variable; all others as files. Where an array has a chunk that does not fit, or one
  /// twice, nobody can tell which cells it has, and all its chunks are files.
  void add_zarr_arrays() {
    std::map<std::string, StoredVariable> found;  // by folder
    std::set<std::string> unfit;                  // folders
    for (const auto& [leaf, file] : zarr_chunks_) {
      if (add_zarr_chunk(leaf, *file, found)) continue;
      unfit.insert(zarr_folder_of(file->path));
      add_file(leaf, *file);
    }
    // An empty file, or one that was no chunk when it was saved, is not what is missing either.
    for (const std::string& path : called_like_chunks_) {
      if (place_in_zarr(path)) unfit.insert(zarr_folder_of(path));
    }
    std::set<std::string> whole;  // folders
    for (auto& [folder, variable] : found) {
      std::vector<StoredPart>& parts = variable.parts;
      std::stable_sort(parts.begin(), parts.end(),
                       [](const StoredPart& a, const StoredPart& b) { return a.global_offset < b.global_offset; });
      // Who writes the array has more than one way to call its chunks, and has left some of the other: 0.1 and 0/1.
      const auto twice = std::adjacent_find(parts.begin(), parts.end(), [](const StoredPart& a, const StoredPart& b) {
        return a.global_offset == b.global_offset;
      });
      if (twice == parts.end() && !unfit.contains(folder)) {
        found_.variables_.push_back(std::move(variable));
        whole.insert(folder);
        continue;
      }
      for (const StoredPart& part : parts) add_file(part.leaf, *part.file);
    }
    std::erase_if(of_files_, [&](const auto& named) {
      const std::string& path = named.second.file->path;
      return is_zarr_description(path) && whole.contains(folder_of(path));
    });
  }

  /// What says something of an array, or its attributes.
  static bool is_zarr_description(const std::string& path) {
    const std::string name = base_name(path);
    return name == kZarr2ArrayFile || name == kZarr3File || name == ".zattrs";
  }

  /// Of the array whose chunk it may be; empty: there is none.
  std::string zarr_folder_of(const std::string& path) const {
    std::string folder = folder_of(path);
    while (!zarr_arrays_.contains(folder) && !folder.empty()) folder = folder_of(folder);
    return folder;
  }

  /// Which chunk of that array is called so.
  std::optional<std::vector<uint64_t>> place_in_zarr(const std::string& path) const {
    const std::string folder = zarr_folder_of(path);
    const auto array = zarr_arrays_.find(folder);
    if (array == zarr_arrays_.end()) return std::nullopt;
    return zarr_chunk_place(array->second, path.substr(folder.empty() ? 0 : folder.size() + 1));
  }

  /// Whether the file is a chunk of cells of an array that the set describes.
  bool add_zarr_chunk(const std::shared_ptr<const Leaf>& leaf, const TreeFile& file,
                      std::map<std::string, StoredVariable>& found) const {
    if (file.layout.variables.size() != 1) return false;
    const Variable& chunk = file.layout.variables.front();
    const std::string folder = zarr_folder_of(file.path);
    const auto array = zarr_arrays_.find(folder);
    if (array == zarr_arrays_.end() || !array->second.type || chunk.encoded != array->second.encoded) return false;
    std::optional<std::vector<uint64_t>> offset = place_in_zarr(file.path);
    std::vector<uint64_t> whole = array->second.shape, cells = array->second.chunk_shape;
    if (!offset) return false;
    for (size_t d = 0; d < whole.size(); ++d) {
      if (__builtin_mul_overflow((*offset)[d], cells[d], &(*offset)[d]) || (*offset)[d] >= whole[d]) return false;
    }
    if (array->second.type->pairs) {
      for (std::vector<uint64_t>* const extents : {&whole, &cells}) extents->push_back(2);
      offset->push_back(0);
    }
    const ElementType& type = array->second.type->type;
    const bool fits = chunk.encoded || (chunk.type == type && chunk.shape == cells);
    if (!fits || array_bytes(whole, type.bytes).value_or(UINT64_MAX) > PTRDIFF_MAX) return false;
    StoredVariable& variable = found[folder];
    if (variable.parts.empty()) {
      variable = {zarr_name(folder, chunk.name), type, {}, whole, {}};
      variable.is_of_chunks = true;
      if (array->second.fill) variable.fill = *array->second.fill;
    }
    StoredPart part{.rank = file.rank,
                    .type = type,
                    .shape = std::move(cells),
                    .global_shape = std::move(whole),
                    .global_offset = std::move(*offset),
                    .tile = {},
                    .leaf = leaf,
                    .file = &file,
                    .variable = &chunk,
                    .stream = 1};
    if (chunk.encoded) {
      // All chunks share what the first of them says.
      if (!variable.parts.empty()) part.codecs = variable.parts.front().codecs;
      if (part.codecs == nullptr) part.codecs = std::make_shared<const std::vector<ZarrCodec>>(array->second.codecs);
      part.why_unknown = check_zarr_codecs(*part.codecs);
      part.coding = part.why_unknown.ok() ? PartCoding::zarr : PartCoding::unknown;
    }
    variable.parts.push_back(std::move(part));
    return true;
  }

  /// Of an array in a folder, whose name begins with '/' and has the groups that it is in.
  static std::string zarr_name(const std::string& folder, const std::string& name) {
    if ("/" + folder == name) return name;
    const std::string root = folder.ends_with(name) ? folder.substr(0, folder.size() - name.size()) : folder;
    return root.empty() ? name : root + ":" + name;
  }

  static std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
  }

  StoredVariable make_one(const std::string& name, std::vector<StoredPart> parts) const {
    const StoredPart& first = parts.front();
    StoredVariable variable{name, first.type, {}, first.global_shape, {}};
    if (parts.size() == 1 && first.global_shape.empty() && found_.has_all_ranks_) {
      variable.shape = first.shape;
    } else {
      variable.one_array = check_one(name, parts);
    }
    variable.parts = std::move(parts);
    return variable;
  }

  static Status check_one(const std::string& name, const std::vector<StoredPart>& parts) {
    const StoredPart& first = parts.front();
    for (const StoredPart& part : parts) {
      if (part.global_shape.empty()) {
        return of_set_variable(
            name, fmt::format("{} has not said, when it saved it, where its part lies in the whole", rank_text(part)),
            "read what one rank has of it, or save it with ArrayShape::global_cells");
      }
      if (part.type != first.type || part.global_shape != first.global_shape) {
        return of_set_variable(
            name,
            fmt::format("{} and {} do not say the same of its type and whole shape", rank_text(first), rank_text(part)),
            "read what one rank has of it");
      }
      if (!lies_in(part.global_box(), part.global_shape)) {
        return of_set_variable(name, fmt::format("what {} has of it does not lie in the whole", rank_text(part)),
                               "read what one rank has of it");
      }
    }
    return {};
  }

  const Store& store_;
  StreamReader reader_;
  StoredVariables& found_;
  const Wanted& wanted_;
  std::optional<SetOrigin> origin_;
  uint32_t images_ = 0;
  std::map<std::string, std::vector<StoredPart>> of_images_;
  std::vector<std::pair<std::string, StoredPart>> of_files_;
  std::set<const TreeFile*> described_;                                 ///< by their own bytes
  std::set<std::string> in_wholes_;                                     ///< names of `of_files_`
  std::map<std::pair<std::string, std::string>, SidecarPlace> places_;  ///< by file and variable
  std::map<std::string, ZarrArray> zarr_arrays_;                        ///< by folder
  std::vector<std::pair<std::shared_ptr<const Leaf>, const TreeFile*>> zarr_chunks_;
  std::vector<std::string> called_like_chunks_;  ///< of other files, paths
};

Result<StoredVariables> StoredVariables::read(const Store& store, const SetRecord& record, const Wanted& wanted) {
  StoredVariables found;
  Collector collector(store, found, wanted);
  VARVE_TRY(for_each_leaf(store, record,
                          [&](const Leaf& leaf) { return collector.add(std::make_shared<const Leaf>(leaf)); }));
  collector.finish(record);
  return found;
}

const StoredVariable* StoredVariables::find(std::string_view name) const {
  const auto found =
      std::lower_bound(variables_.begin(), variables_.end(), name,
                       [](const StoredVariable& at, std::string_view wanted) { return at.name < wanted; });
  if (found == variables_.end() || found->name != name) return nullptr;
  if (undescribed_ != nullptr) undescribed_->describe_with(*found);
  return &*found;
}

Result<const StoredVariable*> StoredVariables::get(std::string_view name) const {
  const StoredVariable* const found = find(name);
  if (found != nullptr) return found;
  return Status::not_found("the set has no such variable", set_.to_string() + ":" + std::string(name),
                           {Remedy::list_variables, set_.to_string()});
}

Result<const StoredPart*> StoredVariables::part_of(const StoredVariable& variable, uint64_t rank) const {
  const std::string subject = fmt::format("variable '{}'", variable.name);
  const StoredPart* found = nullptr;
  for (const StoredPart& part : variable.parts) {
    if (part.rank < 0 || static_cast<uint64_t>(part.rank) != rank) continue;
    if (found != nullptr) {
      return Status::invalid_argument(fmt::format("rank {} has several boxes of it", rank), subject,
                                      "read a box of the whole array instead");
    }
    found = &part;
  }
  if (found != nullptr) return found;
  if (has_all_ranks_) return Status::not_found(fmt::format("rank {} has saved nothing of it", rank), subject);
  return Status::not_found(fmt::format("rank {} is on another node: the set was made by {} ranks, and this store has "
                                       "{} of them",
                                       rank, rank_count_, ranks_here_),
                           subject, kOtherNodes);
}

Status StoredVariables::missing(const StoredVariable& variable, const CellBox& first_missing) const {
  const std::string first = fmt::format("{}", fmt::join(first_missing.offset, ", "));
  const std::string subject = fmt::format("variable '{}'", variable.name);
  if (has_all_ranks_) {
    const bool is_of_files = !variable.parts.empty() && variable.parts.front().rank < 0;
    return Status::not_found(
        fmt::format("no {} its cells from ({}) on{}", is_of_files ? "file has" : "rank has saved", first,
                    variable.is_of_chunks ? ", and the fill value that its description names is not understood" : ""),
        subject);
  }
  return Status::not_found(
      fmt::format("its cells from ({}) on are on another node: the set was made by {} ranks, and this store has {} of "
                  "them",
                  first, rank_count_, ranks_here_),
      subject, kOtherNodes);
}

}  // namespace varve
