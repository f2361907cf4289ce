#include "level/file_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "core/cell_box.h"
#include "core/thread_pool.h"
#include "layout/layout.h"

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

bool is_in_one_piece(const Variable& variable) {
  if (variable.encoded || variable.extents.size() > 1 || !is_array(variable)) return false;
  return array_bytes(variable.shape, variable.type.bytes) == variable.stored_bytes();
}

bool by_name(const ImageVariable& a, const ImageVariable& b) { return a.name < b.name; }

/// Numbers that are the same but for the order of their bytes. Longer ones are not of one format everywhere.
bool differ_in_byte_order(const ElementType& a, const ElementType& b) {
  return a.numeric() && a.kind == b.kind && a.bytes == b.bytes && a.order != b.order && a.bytes <= sizeof(uint64_t);
}

/// Whether images may have both under one name.
bool are_boxes(const ImageVariable& a, const ImageVariable& b) {
  return a.type == b.type && a.global_shape == b.global_shape && !a.global_shape.empty();
}
}  // namespace

Result<std::unique_ptr<FileParts>> FileParts::open(const Store& store, Clock& clock, const SetRecord& record,
                                                   Told told) {
  VARVE_ASSIGN(auto files, StoredImage::open_files(store, clock, record));
  std::unique_ptr<FileParts> parts;
  if (!files) return parts;
  parts.reset(new FileParts(store, record.name, std::move(told)));
  VARVE_TRY(parts->add(std::move(*files)));
  return parts;
}

Status FileParts::add(std::vector<std::unique_ptr<StoredImage>> files) {
  std::map<std::string, Places> places;  // by the path of what they describe
  std::map<int64_t, size_t> ordinals;    // of ranks
  for (const auto& file : files) {
    const std::string& path = file->file().path;
    if (is_sidecar(path)) {
      VARVE_ASSIGN(places[path.substr(0, path.size() - kSidecarSuffix.size())], read_places(*file));
    } else if (file->file().rank >= 0) {
      ordinals.emplace(file->file().rank, 0);
    }
  }
  by_rank_.resize(std::max<size_t>(ordinals.size(), 1));
  size_t next = 0;
  for (auto& [rank, ordinal] : ordinals) {
    // Some count from 1.
    has_gaps_ |= rank != ordinals.begin()->first + static_cast<int64_t>(next) || rank > static_cast<int64_t>(next) + 1;
    ordinal = next++;
  }
  for (auto& file : files) {
    if (is_sidecar(file->file().path)) continue;
    // What is nobody's is with the first one's.
    const bool is_whole = by_rank_.size() == 1 || file->file().rank < 0;
    OfRank& rank = by_rank_[file->file().rank < 0 ? 0 : ordinals.at(file->file().rank)];
    uint64_t begin = 0;
    if (!rank.files.empty()) begin = rank.files.back().begin + rank.files.back().image->file().bytes;
    if (file->file().bytes > PTRDIFF_MAX - begin) return Status::corrupt("files have too many bytes", set_.to_string());
    rank.files.push_back({std::move(file), begin});
    VARVE_TRY(add_variables(rank, rank.files.back(), places[rank.files.back().image->file().path], is_whole));
  }
  for (OfRank& rank : by_rank_) std::stable_sort(rank.table.variables.begin(), rank.table.variables.end(), by_name);
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

Status FileParts::add_variables(OfRank& rank, const File& file, const Places& places, bool is_whole) {
  const TreeFile& tree = file.image->file();
  std::set<std::string> placed;
  for (const std::vector<Variable>* list : {&tree.layout.variables, &tree.small_variables}) {
    for (const Variable& variable : *list) {
      if (!check_variable_name(variable.name).ok() || !element_type_is_possible(variable.type)) continue;
      std::string name(bare_name(variable.name));
      if (!is_in_one_piece(variable)) {
        rank.left.emplace(std::move(name), tree.path);
        continue;
      }
      const uint64_t at = variable.extents.empty() ? 0 : variable.extents.front().offset;
      ImageVariable& image = rank.table.variables.emplace_back();
      image = {variable.name, variable.type, variable.shape, {}, {}, file.begin + at, variable.stored_bytes()};
      const auto place = places.find(name);
      if (place != places.end()) {
        image.global_shape = place->second.global_shape;
        image.global_offset = place->second.global_offset;
        if (!lies_in({image.global_offset, image.shape}, image.global_shape)) {
          return of_variable(variable.name,
                             fmt::format("'{}' does not have it where the sidecar beside it says: {} "
                                         "cells at ({}) of {}",
                                         tree.path, text_of(image.shape), fmt::join(image.global_offset, ", "),
                                         text_of(image.global_shape)));
        }
        if (!placed.insert(std::move(name)).second)
          return of_variable(variable.name, fmt::format("'{}' has several, and the sidecar says one place", tree.path));
      } else if (is_whole) {
        image.global_shape = image.shape;
        image.global_offset.assign(image.shape.size(), 0);
        wholes_.insert(std::move(name));
      }
    }
  }
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
    if (left != by_rank_[rank].left.end()) {
      return of_variable(wanted.name,
                         fmt::format("in '{}' it is compressed, or in pieces, by the file's own format", left->second),
                         "restore the files, and have the program read them");
    }
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

/// No variable is in two files.
Status FileParts::read_part(const PartRead& read) {
  if (read.into.empty()) return {};
  const OfRank& rank = by_rank_[read.rank];
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

/// What one rank has is read by one thread.
Status FileParts::load(std::span<const PartLoad> loads, size_t thread_count) {
  return parallel_for(loads.size(), thread_count, [&](size_t i) { return load_part(loads[i]); });
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
