#include "reader/variable_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/thread_pool.h"
#include "engine/inspect.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// Packs that each thread keeps.
constexpr size_t kPacksKept = 8;
/// What one thread reads at a time, so that all have something to do.
constexpr uint64_t kWorkBytes = 8_MiB;

std::string array_text(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

Status of_array(StatusCode code, const StoredVariable& variable, std::string message, Hint hint = {}) {
  return {code, std::move(message), fmt::format("variable '{}'", variable.name), std::move(hint)};
}

/// invalid_argument unless the cells lie in the array.
Status check_box(const StoredVariable& variable, const CellBox& box, const std::vector<uint64_t>& shape,
                 uint64_t element_bytes) {
  using enum StatusCode;
  if (box.offset.size() != shape.size() || box.cells.size() != shape.size()) {
    return of_array(
        invalid_argument, variable,
        fmt::format("a box of {} dimensions was asked for, and it is {}", box.cells.size(), array_text(shape)));
  }
  if (!lies_in(box, shape)) {
    return of_array(invalid_argument, variable,
                    fmt::format("the box of {} cells from ({}) on does not lie in it: it is {}", array_text(box.cells),
                                fmt::join(box.offset, ", "), array_text(shape)));
  }
  if (array_bytes(box.cells, element_bytes).value_or(UINT64_MAX) <= PTRDIFF_MAX) return {};
  return of_array(resource_limit, variable, "the cells take more bytes than memory can have");
}

/// For a box that was checked.
Status check_size(const StoredVariable& variable, const CellBox& box, uint64_t element_bytes, uint64_t bytes) {
  const uint64_t wanted = *array_bytes(box.cells, element_bytes);
  if (bytes == wanted) return {};
  return of_array(StatusCode::invalid_argument, variable,
                  fmt::format("there is memory for {} bytes, and the cells take {}", bytes, wanted));
}

/// Whether the variable is the array of its only part, which says nothing of a whole.
bool is_lone(const StoredVariable& variable) {
  return variable.parts.size() == 1 && variable.parts.front().global_shape.empty();
}

std::vector<CellBox> boxes_of(const StoredVariable& variable) {
  std::vector<CellBox> boxes;
  for (const StoredPart& part : variable.parts) boxes.push_back(part.global_box());
  return boxes;
}
}  // namespace

/// A part's bytes, to be read anywhere.
class VariableReader::PartStream {
 public:
  explicit PartStream(const StoredPart& part) : leaf_(*part.leaf) {
    if (part.stream > 0) {
      references_ = &part.file->streams[part.stream];
    } else {
      own_ = FileReferences(*part.file).of(part.extents);
    }
    uint64_t end = 0;
    for (const Reference& reference : references()) ends_.push_back(end += reference.bytes);
  }

  /// Any thread, each with a reader of its own.
  Status read(StreamReader& reader, uint64_t offset, MutableByteSpan into) const {
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin();
    for (; !into.empty(); ++i) {
      if (i == ends_.size()) return Status::corrupt("a variable is shorter than its description says");
      const Reference& reference = references()[i];
      const uint64_t skip = offset - (ends_[i] - reference.bytes);
      const size_t bytes = std::min<uint64_t>(into.size(), reference.bytes - skip);
      // As a stream of its own: the reader would look for it from the stream's beginning.
      VARVE_TRY(reader.read(leaf_, {reference}, skip, into.first(bytes)));
      into = into.subspan(bytes);
      offset += bytes;
    }
    return {};
  }

 private:
  const std::vector<Reference>& references() const { return references_ != nullptr ? *references_ : own_; }

  const Leaf& leaf_;
  const std::vector<Reference>* references_ = nullptr;  ///< null: `own_`
  std::vector<Reference> own_;
  std::vector<uint64_t> ends_;
};

/// Cells that lie in one array of a part.
struct VariableReader::Work {
  const StoredPart* part = nullptr;
  CellBox cells;
  CellBox has;      ///< what that array has
  uint64_t at = 0;  ///< of it in the part, in bytes
  const PartStream* stream = nullptr;
};

VariableReader::VariableReader(const Store& store, const StoredVariables& variables, size_t thread_count)
    : store_(store), variables_(variables) {
  for (size_t i = 0; i < std::max<size_t>(thread_count, 1); ++i)
    readers_.push_back(std::make_unique<StreamReader>(store, kPacksKept));
}

Result<CellShares> VariableReader::shares_of(const StoredVariable& variable, const std::vector<CellBox>& boxes,
                                             const CellBox& wanted) const {
  VARVE_TRY(variable.one_array);
  VARVE_TRY(check_box(variable, wanted, variable.shape, variable.type.bytes));
  Result<CellShares> found = share_cells(wanted, boxes);
  if (!found.ok() || found->missing.empty() || !variable.fill.empty()) return found;
  return variables_.missing(variable, found->missing.front());
}

Status VariableReader::check(const StoredVariable& variable, const CellBox& box) const {
  if (variable.one_array.ok() && is_lone(variable)) return check_part(variable, variable.parts.front(), box);
  return shares_of(variable, boxes_of(variable), box).status();
}

Status VariableReader::read(const StoredVariable& variable, const CellBox& box, MutableByteSpan into) {
  if (variable.one_array.ok() && is_lone(variable)) return read_part(variable, variable.parts.front(), box, into);
  const std::vector<CellBox> boxes = boxes_of(variable);
  VARVE_ASSIGN(CellShares found, shares_of(variable, boxes, box));
  VARVE_TRY(check_size(variable, box, variable.type.bytes, into.size()));
  if (!found.missing.empty()) {
    const ByteVector& fill = variable.fill;
    for (size_t at = 0; at < into.size(); at += fill.size()) std::copy(fill.begin(), fill.end(), &into[at]);
  }
  std::vector<Work> works;
  for (CellShare& share : found.shares)
    works.push_back({&variable.parts[share.box], std::move(share.cells), boxes[share.box], 0});
  return copy_all(variable, std::move(works), box, into);
}

Status VariableReader::check_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box) {
  VARVE_TRY(check_box(variable, box, part.shape, part.type.bytes));
  if (!part.encoded) return {};
  return of_array(StatusCode::unsupported, variable,
                  "its bytes in the file are compressed, or in pieces, by the file's own format",
                  "take the whole file, and read it with its format's library");
}

Status VariableReader::read_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box,
                                 MutableByteSpan into) {
  VARVE_TRY(check_part(variable, part, box));
  VARVE_TRY(check_size(variable, box, part.type.bytes, into.size()));
  if (box.empty()) return {};
  if (part.tile.empty()) return copy_all(variable, {{&part, box, part.own_box(), 0}}, box, into);
  // Those tiles that hold some of it.
  CellBox tiles;
  std::vector<uint64_t> grid;
  for (size_t d = 0; d < part.tile.size(); ++d) {
    const uint64_t first = box.offset[d] / part.tile[d], last = (box.offset[d] + box.cells[d] - 1) / part.tile[d];
    tiles.offset.push_back(first);
    tiles.cells.push_back(last - first + 1);
    grid.push_back(part.shape[d] / part.tile[d] + (part.shape[d] % part.tile[d] != 0 ? 1 : 0));
  }
  const CellBox all_tiles{std::vector<uint64_t>(grid.size(), 0), grid};
  const uint64_t tile_bytes = array_bytes(part.tile, part.type.bytes).value_or(0);
  std::vector<Work> works;
  VARVE_TRY(for_each_slab(tiles, 1, [&](const CellBox& place) -> Status {
    CellBox has{place.offset, part.tile};
    for (size_t d = 0; d < has.offset.size(); ++d) has.offset[d] *= part.tile[d];
    works.push_back({&part, *overlap(has, box), has, cell_ordinal(all_tiles, place.offset) * tile_bytes});
    return {};
  }));
  return copy_all(variable, std::move(works), box, into);
}

Status VariableReader::copy_all(const StoredVariable& variable, std::vector<Work> works, const CellBox& to,
                                MutableByteSpan into) {
  if (works.empty()) return {};
  const uint64_t element = works.front().part->type.bytes;
  std::map<const StoredPart*, PartStream> streams;
  std::vector<Work> pieces;
  for (Work& work : works) {
    work.stream = &streams.try_emplace(work.part, *work.part).first->second;
    VARVE_TRY(for_each_slab(work.cells, std::max<uint64_t>(kWorkBytes / element, 1), [&](const CellBox& slab) {
      pieces.push_back({work.part, slab, work.has, work.at, work.stream});
      return Status();
    }));
  }
  // Neighbours are mostly in the same packs: each thread does those that follow each other, and keeps what it decoded.
  const size_t shares = std::min(readers_.size(), pieces.size());
  const Status copied = parallel_for(shares, shares, [&](size_t share) -> Status {
    const size_t end = pieces.size() * (share + 1) / shares;
    for (size_t i = pieces.size() * share / shares; i < end; ++i) {
      const Work& piece = pieces[i];
      VARVE_TRY(for_each_cell_run(piece.cells, piece.has, to, [&](const CellRun& run) {
        return piece.stream->read(*readers_[share], piece.at + run.from * element,
                                  into.subspan(run.to * element, run.cells * element));
      }));
    }
    return {};
  });
  if (copied.code() != StatusCode::corrupt) return copied;
  return Catalog(store_).unless_dropped(
      variables_.set(),
      copied.with_context(fmt::format("variable '{}'", variable.name)).with_hint(Remedy::verify_and_replace_arena));
}

}  // namespace varve
