#include "level/file_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "core/cell_box.h"
#include "core/file_system.h"
#include "core/thread_pool.h"
#include "layout/array_type.h"
#include "layout/layout.h"
#include "layout/zarr_array.h"

namespace varve {

namespace {
Status of_variable(const std::string& name, std::string message, Hint hint = {}) {
  return Status::invalid_argument(std::move(message), fmt::format("variable '{}'", name), std::move(hint));
}

std::string text_of(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

bool is_sidecar(std::string_view path) { return path.ends_with(kSidecarSuffix); }

/// Whether the one extent holds the array as it is, and no tile of another shape.
bool is_array(const Variable& variable) {
  const std::vector<uint64_t>&shape = variable.shape, &run = variable.run_shape;
  if (run.empty() || run == shape) return true;
  return !shape.empty() && shape[0] == 1 && std::equal(run.begin(), run.end(), shape.begin() + 1, shape.end());
}

/// Whether its bytes are the array, and can be taken as they lie in the file.
bool is_in_one_piece(const Variable& variable) {
  if (variable.encoded || variable.extents.size() > 1 || !is_array(variable)) return false;
  return array_bytes(variable.shape, variable.type.bytes) == variable.stored_bytes();
}

bool by_name(const ImageVariable& a, const ImageVariable& b) { return a.name < b.name; }

bool may_be_protected(const Variable& variable) {
  return check_variable_name(variable.name).ok() && element_type_is_possible(variable.type);
}

/// Of the files that are to be read, whether one has something that has to be decoded, or put together.
bool needs_arrays(const std::vector<std::unique_ptr<StoredImage>>& files, const StoredVariables::Wanted& wanted) {
  return std::any_of(files.begin(), files.end(), [&](const std::unique_ptr<StoredImage>& image) {
    const TreeFile& file = image->file();
    if (file.layout.format == kZarrFormat) return true;
    const auto is_needed = [&](const Variable& variable) {
      return !is_in_one_piece(variable) && (!wanted || wanted(variable));
    };
    return std::any_of(file.layout.variables.begin(), file.layout.variables.end(), is_needed) ||
           std::any_of(file.small_variables.begin(), file.small_variables.end(), is_needed);
  });
}

/// By this name a program protects what a file has of it, or an array of Zarr.
const Variable& named_by(const StoredVariable& array) { return *array.parts.front().variable; }

/// Whether it is a file's variable, which is to be read by its cells.
bool is_array_of_file(const StoredVariable& variable) {
  const StoredPart& part = variable.parts.front();
  return part.variable != nullptr && part.global_shape.empty() && !is_in_one_piece(*part.variable);
}

/// The rank of an array of Zarr that is in a folder of a rank's own; -1: it is a whole.
int64_t rank_of_chunks(const StoredVariable& array) {
  const std::string_view root = std::string_view(array.name).substr(0, array.name.find(':'));
  const int64_t rank = array.parts.front().rank;
  const bool of_rank =
      root.size() < array.name.size() && root.find_first_of("0123456789") != std::string_view::npos &&
      std::all_of(array.parts.begin(), array.parts.end(), [&](const StoredPart& chunk) { return chunk.rank == rank; });
  return of_rank ? rank : -1;
}

/// What describes arrays of Zarr, and the groups that they are in.
bool is_description_of_zarr(const std::string& path) {
  const std::string name = base_name(path);
  return name == kZarr2ArrayFile || name == kZarr3File || name == ".zattrs" || name == ".zgroup" ||
         name == ".zmetadata";
}

/// Numbers that are the same but for the order of their bytes. Longer ones are not of one format everywhere.
bool differ_in_byte_order(const ElementType& a, const ElementType& b) {
  return a.numeric() && a.kind == b.kind && a.bytes == b.bytes && a.order != b.order && a.bytes <= sizeof(uint64_t);
}

/// Whether images may have both under one name.
bool are_boxes(const ImageVariable& a, const ImageVariable& b) {
  return a.type == b.type && a.global_shape == b.global_shape && !a.global_shape.empty();
}
}  // namespace

Result<std::unique_ptr<FileParts>> FileParts::open(const Store& store, Clock& clock, const SetRecord& record, Told told,
                                                   const RankWish* wish, size_t thread_count) {
  VARVE_ASSIGN(auto files, StoredImage::open_files(store, clock, record));
  std::unique_ptr<FileParts> parts;
  if (!files) return parts;
  parts.reset(new FileParts(store, record.name, std::move(told)));
  std::set<std::string, std::less<>> names;
  StoredVariables::Wanted wanted;
  if (wish != nullptr) {
    for (const WantedVariable& each : wish->variables) names.emplace(bare_name(each.variable.name));
    wanted = [&](const Variable& variable) { return names.contains(bare_name(variable.name)); };
  }
  if (needs_arrays(*files, wanted)) {
    VARVE_ASSIGN(parts->arrays_, FileArrays::open(store, clock, record, thread_count, wanted));
  }
  VARVE_TRY(parts->add(std::move(*files), wanted));
  return parts;
}

Status FileParts::add(std::vector<std::unique_ptr<StoredImage>> files, const StoredVariables::Wanted& wanted) {
  VARVE_ASSIGN(const auto places, read_all_places(files));
  std::map<std::string, std::vector<const StoredVariable*>> arrays;  // by the path of the file
  std::vector<const StoredVariable*> of_chunks;
  std::set<std::string> of_zarr;  // paths
  static const std::vector<StoredVariable> kNone;
  for (const StoredVariable& variable : arrays_ != nullptr ? arrays_->variables().all() : kNone) {
    if (variable.is_of_chunks) {
      for (const StoredPart& chunk : variable.parts) of_zarr.insert(chunk.file->path);
    } else if (!is_array_of_file(variable)) {
      continue;
    }
    if (!may_be_protected(named_by(variable)) || (wanted && !wanted(named_by(variable)))) continue;
    (variable.is_of_chunks ? of_chunks : arrays[variable.parts.front().file->path]).push_back(&variable);
  }
  for (const StoredVariable* const array : of_chunks) {
    const int64_t rank = rank_of_chunks(*array);
    if (rank >= 0) ordinals_.emplace(rank, 0);
  }
  VARVE_TRY(add_files(std::move(files), of_zarr));
  static const Places kNoPlaces;
  for (OfRank& rank : by_rank_) {
    for (const File& file : rank.files) {
      const TreeFile& tree = file.image->file();
      const auto said = places.find(tree.path);
      OfFile of_file{tree.path, by_rank_.size() == 1 || tree.rank < 0, said == places.end() ? kNoPlaces : said->second};
      VARVE_TRY(add_variables(rank, file, of_file));
      for (const StoredVariable* const array : arrays[tree.path]) VARVE_TRY(add_array(rank, *array, of_file));
    }
  }
  for (const StoredVariable* const array : of_chunks) {
    const int64_t rank = rank_of_chunks(*array);
    OfFile of_file{array->name, by_rank_.size() == 1 || rank < 0, kNoPlaces};
    VARVE_TRY(add_array(by_rank_[rank < 0 ? 0 : ordinals_.at(rank)], *array, of_file));
  }
  for (OfRank& rank : by_rank_) std::stable_sort(rank.table.variables.begin(), rank.table.variables.end(), by_name);
  return {};
}

/// By the path of what they describe.
Result<std::map<std::string, FileParts::Places>> FileParts::read_all_places(
    const std::vector<std::unique_ptr<StoredImage>>& files) const {
  std::map<std::string, Places> places;
  for (const auto& file : files) {
    const std::string& path = file->file().path;
    if (!is_sidecar(path)) continue;
    VARVE_ASSIGN(places[path.substr(0, path.size() - kSidecarSuffix.size())], read_places(*file));
  }
  return places;
}

/// Each to its rank, but for those that arrays of Zarr consist of.
Status FileParts::add_files(std::vector<std::unique_ptr<StoredImage>> files, const std::set<std::string>& of_zarr) {
  const auto is_aside = [&](const std::string& path) {
    return of_zarr.contains(path) || (!of_zarr.empty() && is_description_of_zarr(path));
  };
  for (const auto& file : files) {
    const TreeFile& tree = file->file();
    images_.emplace(tree.path, file.get());
    if (!is_sidecar(tree.path) && !is_aside(tree.path) && tree.rank >= 0) ordinals_.emplace(tree.rank, 0);
  }
  by_rank_.resize(std::max<size_t>(ordinals_.size(), 1));
  size_t next = 0;
  for (auto& [rank, ordinal] : ordinals_) {
    // Some count from 1.
    has_gaps_ |= rank != ordinals_.begin()->first + static_cast<int64_t>(next) || rank > static_cast<int64_t>(next) + 1;
    ordinal = next++;
  }
  for (auto& file : files) {
    const TreeFile& tree = file->file();
    if (is_sidecar(tree.path)) {
      images_.erase(tree.path);
    } else if (is_aside(tree.path)) {
      chunks_.push_back(std::move(file));
    } else {
      // What is nobody's is with the first one's.
      OfRank& rank = by_rank_[tree.rank < 0 ? 0 : ordinals_.at(tree.rank)];
      const uint64_t begin = rank.file_bytes;
      if (tree.bytes > PTRDIFF_MAX - begin) return Status::corrupt("files have too many bytes", set_.to_string());
      rank.file_bytes = rank.bytes = begin + tree.bytes;
      rank.files.push_back({std::move(file), begin});
    }
  }
  return {};
}

Result<FileParts::Places> FileParts::read_places(StoredImage& sidecar) const {
  const std::string& path = sidecar.file().path;
  if (sidecar.file().bytes > kSidecarBytesMax) return Status::invalid_argument("the sidecar is too large", path);
  ByteVector json(sidecar.file().bytes);
  const Status read = sidecar.read(0, json);
  if (!read.ok()) {
    sidecar.find_faults();
    told_(sidecar.faults());
    return read;
  }
  Result<std::vector<SidecarPlace>> said = sidecar_places(as_text(json));
  if (!said.ok()) return said.status().with_context(path);
  Places places;
  for (SidecarPlace& place : *said) {
    std::string name(bare_name(place.name));
    if (places.contains(name)) return of_variable(name, fmt::format("'{}' says two places of it", path));
    places.emplace(std::move(name), std::move(place));
  }
  return places;
}

Status FileParts::add_variables(OfRank& rank, const File& file, OfFile& of_file) {
  const TreeFile& tree = file.image->file();
  for (const std::vector<Variable>* list : {&tree.layout.variables, &tree.small_variables}) {
    for (const Variable& variable : *list) {
      if (!may_be_protected(variable) || !is_in_one_piece(variable)) continue;
      const uint64_t at = variable.extents.empty() ? 0 : variable.extents.front().offset;
      VARVE_TRY(add_variable(
          rank, {variable.name, variable.type, variable.shape, {}, {}, file.begin + at, variable.stored_bytes()},
          of_file));
    }
  }
  return {};
}

Status FileParts::add_array(OfRank& rank, const StoredVariable& array, OfFile& of_file) {
  const bool is_known = std::all_of(array.parts.begin(), array.parts.end(),
                                    [](const StoredPart& part) { return part.coding != PartCoding::unknown; });
  const uint64_t bytes = array_bytes(array.shape, array.type.bytes).value_or(UINT64_MAX);
  if (!is_known || !element_type_is_possible(array.type) || bytes > PTRDIFF_MAX - rank.bytes) {
    rank.left.emplace(bare_name(named_by(array).name), &array);
    return {};
  }
  rank.arrays.push_back({&array, rank.bytes});
  rank.bytes += bytes;
  return add_variable(rank, {named_by(array).name, array.type, array.shape, {}, {}, rank.arrays.back().begin, bytes},
                      of_file);
}

/// With its place, as far as it is known.
Status FileParts::add_variable(OfRank& rank, ImageVariable image, OfFile& of_file) {
  std::string name(bare_name(image.name));
  const auto place = of_file.places.find(name);
  if (place != of_file.places.end()) {
    image.global_shape = place->second.global_shape;
    image.global_offset = place->second.global_offset;
    if (!lies_in({image.global_offset, image.shape}, image.global_shape)) {
      return of_variable(image.name, fmt::format("'{}' does not have it where the sidecar beside it says: {} "
                                                 "cells at ({}) of {}",
                                                 of_file.path, text_of(image.shape),
                                                 fmt::join(image.global_offset, ", "), text_of(image.global_shape)));
    }
    if (!of_file.placed.insert(std::move(name)).second)
      return of_variable(image.name, fmt::format("'{}' has several, and the sidecar says one place", of_file.path));
  } else if (of_file.is_whole) {
    image.global_shape = image.shape;
    image.global_offset.assign(image.shape.size(), 0);
    wholes_.insert(std::move(name));
  }
  rank.table.variables.push_back(std::move(image));
  return {};
}

Status FileParts::fit(const RankWish& wish) {
  std::vector<std::vector<ImageVariable>> fitting(by_rank_.size());
  std::set<std::string_view> names;
  for (size_t i = 0, end = 0; i < wish.variables.size(); i = end) {
    const ImageVariable& wanted = wish.variables[i].variable;
    if (!names.insert(bare_name(wanted.name)).second)
      return of_variable(wanted.name, "it is protected with a '/' before its name and without, and files have it once");
    for (end = i + 1; end < wish.variables.size() && wish.variables[end].variable.name == wanted.name;) ++end;
    VARVE_TRY(fit_variable(wish, wanted, end - i > 1, fitting));
  }
  for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
    std::stable_sort(fitting[rank].begin(), fitting[rank].end(), by_name);
    by_rank_[rank].table.variables = std::move(fitting[rank]);
  }
  return {};
}

/// What a rank has under this name, with a slash before it or without.
std::vector<ImageVariable> FileParts::find(uint32_t rank, const std::string& name) const {
  std::vector<ImageVariable> found;
  ImageVariable like;
  for (const char* const before : {"", "/"}) {
    like.name = before + std::string(bare_name(name));
    const std::vector<ImageVariable>& all = by_rank_[rank].table.variables;
    const auto [begin, end] = std::equal_range(all.begin(), all.end(), like, by_name);
    found.insert(found.end(), begin, end);
  }
  return found;
}

Status FileParts::fit_variable(const RankWish& wish, const ImageVariable& wanted, bool several,
                               std::vector<std::vector<ImageVariable>>& fitting) {
  std::vector<std::vector<ImageVariable>> found;
  bool all_are_placed = true;
  size_t count = 0;
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    const auto left = by_rank_[rank].left.find(std::string(bare_name(wanted.name)));
    if (left != by_rank_[rank].left.end()) return why_left(wanted, *left->second);
    for (ImageVariable& part : found.emplace_back(find(rank, wanted.name))) {
      VARVE_TRY(fit_part(rank, wanted, part));
      all_are_placed &= !part.global_shape.empty();
      ++count;
    }
  }
  const bool is_whole = wholes_.contains(std::string(bare_name(wanted.name)));
  if (is_whole && count > 1)
    return of_variable(wanted.name, "several files have it, one of them as a whole: it is not clear which is meant");
  const bool by_number = rank_count() > 1 && wish.rank_count == rank_count() && count > 0 &&
                         (wanted.global_shape.empty() || !all_are_placed);
  if (by_number && is_whole) {
    return of_variable(wanted.name, "it is in a file of no rank, and not said to be an array that the ranks divide",
                       "protect it with ArrayShape::global_cells, or start another number of ranks");
  }
  if (by_number && has_gaps_) {
    return of_variable(wanted.name,
                       "the numbers of the ranks in the files' names do not follow each other from 0 or 1 "
                       "on, so that it is not clear which rank's it is");
  }
  if (!wanted.global_shape.empty() && !all_are_placed) VARVE_TRY(keep_own(wish, wanted, several, found));
  for (size_t rank = 0; rank < found.size(); ++rank) {
    for (ImageVariable& variable : found[rank]) fitting[rank].push_back(std::move(variable));
  }
  return {};
}

/// Of an array that cannot be had.
Status FileParts::why_left(const ImageVariable& wanted, const StoredVariable& array) {
  const Status why = with_faults(array, arrays_->check(array));
  note_faults();
  VARVE_TRY(why);
  return of_variable(wanted.name, fmt::format("'{}' takes more bytes than memory can have", array.name));
}

/// One of the wanted name and type.
Status FileParts::fit_part(uint32_t rank, const ImageVariable& wanted, ImageVariable& part) {
  if (differ_in_byte_order(part.type, wanted.type)) {
    by_rank_[rank].swaps.add({part.offset, part.bytes}, part.type.bytes);
    part.type = wanted.type;
  }
  if (part.type != wanted.type) {
    return of_variable(wanted.name,
                       fmt::format("it is {} in the files, but protected as {}", part.type.name(), wanted.type.name()));
  }
  part.name = wanted.name;
  // Some programs write a number as an array of one.
  if (wanted.shape.empty() && wanted.global_shape.empty() && part.bytes == part.type.bytes)
    part.shape = part.global_shape = part.global_offset = {};
  return {};
}

/// Where it is not said of all parts where they lie in the whole: of as many ranks, the rank's own, and nothing else.
Status FileParts::keep_own(const RankWish& wish, const ImageVariable& wanted, bool several,
                           std::vector<std::vector<ImageVariable>>& found) const {
  std::vector<ImageVariable>* const own = wish.rank_count == rank_count() ? &found[wish.rank] : nullptr;
  if (own == nullptr || several || own->size() != 1) {
    return of_variable(
        wanted.name,
        fmt::format("the files of {} ranks do not say where their parts of it lie in the whole", rank_count()),
        fmt::format("start {} ranks that have the same parts, or say it beside each file before it is "
                    "saved: global_shape and global_offset in a sidecar, FILE{}",
                    rank_count(), kSidecarSuffix));
  }
  ImageVariable& part = own->front();
  if (part.shape != wanted.shape) {
    return of_variable(wanted.name, fmt::format("the rank's part is {} in its file, but protected as {}",
                                                text_of(part.shape), text_of(wanted.shape)));
  }
  // What says it after all has to be right.
  if (part.global_shape.empty()) {
    part.global_shape = wanted.global_shape;
    part.global_offset = wanted.global_offset;
  }
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (rank != wish.rank) found[rank].clear();
  }
  return {};
}

Result<std::map<uint32_t, ImageTable>> FileParts::tables() const {
  std::map<uint32_t, ImageTable> tables;
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    std::vector<ImageVariable> clear;
    const std::vector<ImageVariable>& all = by_rank_[rank].table.variables;
    for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
      const auto differs = [&](const ImageVariable& other) { return other.name != all[begin].name; };
      end = static_cast<size_t>(std::find_if(all.begin() + static_cast<ptrdiff_t>(begin), all.end(), differs) -
                                all.begin());
      const auto same = std::span(all).subspan(begin, end - begin);
      const bool boxes =
          std::all_of(same.begin(), same.end(), [&](const ImageVariable& box) { return are_boxes(box, same[0]); });
      if (same.size() == 1 || boxes) clear.insert(clear.end(), same.begin(), same.end());
    }
    VARVE_ASSIGN(tables[rank], plan_image(std::move(clear)));
  }
  return tables;
}

std::vector<uint32_t> FileParts::ranks() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < rank_count(); ++rank) ranks.push_back(rank);
  return ranks;
}

void FileParts::note_faults() {
  for (const OfRank& rank : by_rank_) {
    for (const File& file : rank.files) told_(file.image->faults());
  }
  for (const auto& chunk : chunks_) told_(chunk->faults());
}

/// Bytes of one file, told as those of all files of the rank, in the byte order that is wanted.
class FileParts::Turned final : public ImageTarget {
 public:
  Turned(ImageTarget& target, const ByteSwaps& swaps, uint64_t by) : target_(target), swaps_(swaps), by_(by) {}
  void put(uint64_t offset, ByteSpan bytes) override { swaps_.put(by_ + offset, bytes, target_); }
  MutableByteSpan memory(uint64_t offset, uint64_t bytes) override {
    return swaps_.empty() ? target_.memory(by_ + offset, bytes) : MutableByteSpan();
  }

 private:
  ImageTarget& target_;
  const ByteSwaps& swaps_;
  const uint64_t by_;
};

/// The ordinal of the last that begins there or before; there is one.
size_t FileParts::array_at(const OfRank& rank, uint64_t offset) {
  const auto after = std::upper_bound(rank.arrays.begin(), rank.arrays.end(), offset,
                                      [](uint64_t at, const Array& array) { return at < array.begin; });
  return static_cast<size_t>(after - rank.arrays.begin()) - 1;
}

/// Finds what of the store is damaged; it may be a file that is, as it was saved.
Status FileParts::with_faults(const StoredVariable& array, Status outcome) {
  const bool is_damaged = outcome.code() == StatusCode::corrupt && outcome.remedy() != Remedy::none;
  if (!is_damaged && outcome.code() != StatusCode::io_error) return outcome;
  for (const StoredPart& part : array.parts) {
    const auto image = images_.find(part.file->path);
    if (image != images_.end()) image->second->find_faults();
  }
  return outcome;
}

Status FileParts::will_load(uint32_t rank) {
  OfRank& of_rank = by_rank_[rank];
  for (const ImageVariable& variable : of_rank.table.variables) {
    if (variable.offset < of_rank.file_bytes || variable.bytes == 0) continue;
    Array& array = of_rank.arrays[array_at(of_rank, variable.offset)];
    if (!array.is_checked) VARVE_TRY(with_faults(*array.variable, arrays_->check(*array.variable)));
    array.is_checked = true;
  }
  return {};
}

/// No variable is in two files.
Status FileParts::read_part(const PartRead& read) {
  if (read.into.empty()) return {};
  const OfRank& rank = by_rank_[read.rank];
  if (read.offset >= rank.file_bytes) {
    if (rank.arrays.empty()) return Status::internal("bytes behind all files were asked for");
    const Array& array = rank.arrays[array_at(rank, read.offset)];
    return with_faults(*array.variable,
                       rank.swaps.read(read.offset, read.into, [&](uint64_t offset, MutableByteSpan into) {
                         return arrays_->read(*array.variable, offset - array.begin, into);
                       }));
  }
  const auto after = std::upper_bound(rank.files.begin(), rank.files.end(), read.offset,
                                      [](uint64_t at, const File& file) { return at < file.begin; });
  if (after == rank.files.begin()) return Status::internal("bytes before all files were asked for");
  // Empty files begin where the next one does.
  const File& file = *std::prev(after);
  const Status outcome = rank.swaps.read(read.offset, read.into, [&](uint64_t offset, MutableByteSpan into) {
    return file.image->read(offset - file.begin, into);
  });
  if (!outcome.ok()) file.image->find_faults();
  return outcome;
}

/// What one rank has is read by one thread, but for what is to be decoded: that is read by all.
Status FileParts::load(std::span<const PartLoad> loads, size_t thread_count) {
  VARVE_TRY(parallel_for(loads.size(), thread_count, [&](size_t i) { return load_part(loads[i]); }));
  for (const PartLoad& load : loads) VARVE_TRY(load_arrays(load));
  return {};
}

Status FileParts::load_arrays(const PartLoad& load) {
  const OfRank& rank = by_rank_[load.rank];
  Turned target(*load.target, rank.swaps, 0);
  for (const PartBox& box : load.boxes) {
    if (box.offset < rank.file_bytes || box.cells.empty()) continue;
    const Array& array = rank.arrays[array_at(rank, box.offset)];
    VARVE_TRY(with_faults(*array.variable, arrays_->load(*array.variable, box.cells, array.begin, target)));
  }
  return {};
}

Status FileParts::load_part(const PartLoad& load) {
  for (const File& file : by_rank_[load.rank].files) {
    const uint64_t end = file.begin + file.image->file().bytes;
    std::vector<Extent> wanted;
    for (const Extent& extent : load.wanted) {
      const uint64_t from = std::max(extent.offset, file.begin), to = std::min(extent.offset + extent.bytes, end);
      if (from < to) wanted.push_back({from - file.begin, to - from});
    }
    if (wanted.empty()) continue;
    Turned target(*load.target, by_rank_[load.rank].swaps, file.begin);
    VARVE_TRY(file.image->load(1, wanted, target));
  }
  return {};
}

}  // namespace varve
