#include "reader/variable_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/thread_pool.h"
#include "reader/part_stream.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// Packs that each thread keeps.
constexpr size_t kPacksKept = 8;
/// What one thread reads at a time, so that all have something to do.
constexpr uint64_t kWorkBytes = 8_MiB;
/// What is decoded at a time of what goes elsewhere then.
constexpr uint64_t kDecodedBytes = 32_MiB;
/// What of each rank is compared at a time.
constexpr uint64_t kComparedBytes = 1_MiB;
/// What several threads decode of chunks at a time, unless one is larger.
constexpr uint64_t kDecodedChunksBytes = 1_GiB;

std::string array_text(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

Status of_array(StatusCode code, const StoredVariable& variable, std::string message, Hint hint = {}) {
  return {code, std::move(message), fmt::format("variable '{}'", variable.name), std::move(hint)};
}

/// A failure of reading it, with its name.
Status of_variable(const StoredVariable& variable, const Status& status) {
  if (status.ok()) return status;
  const std::string name = fmt::format("variable '{}'", variable.name);
  return status.subject().empty() ? status.with_subject(name) : status.with_context(name);
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

/// With what cells are that no part has.
void fill_box(const StoredVariable& variable, const CellBox& box, MutableByteSpan into) {
  ByteSpan fill = variable.fill;
  // Of pairs, the box may have one number alone.
  if (fill.size() > variable.type.bytes && box.cells.back() == 1)
    fill = fill.subspan(box.offset.back() * variable.type.bytes, variable.type.bytes);
  for (size_t at = 0; at < into.size(); at += fill.size()) std::copy(fill.begin(), fill.end(), &into[at]);
}

/// What chunks have of the wanted cells. They have none in common, and there may be very many of which some are not
/// there: what is missing is told as all cells.
CellShares share_chunks(const CellBox& wanted, const std::vector<CellBox>& chunks) {
  CellShares found;
  uint64_t cells = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    std::optional<CellBox> common = overlap(wanted, chunks[i]);
    if (!common) continue;
    cells += common->cell_count();
    found.shares.push_back({i, std::move(*common)});
  }
  if (cells < wanted.cell_count()) found.missing.push_back(wanted);
  return found;
}

std::vector<CellBox> boxes_of(const StoredVariable& variable) {
  std::vector<CellBox> boxes;
  for (const StoredPart& part : variable.parts) boxes.push_back(part.global_box());
  return boxes;
}
}  // namespace

/// Cells that lie in one array of a part.
struct VariableReader::Work {
  const StoredPart* part = nullptr;
  CellBox cells;
  CellBox has;      ///< what that array has
  uint64_t at = 0;  ///< of it in the part, in bytes
  const PartStream* stream = nullptr;
};

VariableReader::VariableReader(const Store& store, const StoredVariables& variables, size_t thread_count)
    : store_(store),
      variables_(variables),
      decoder_(std::make_unique<PartDecoder>(store)),
      chunks_(std::make_unique<ZarrChunks>()) {
  for (size_t i = 0; i < std::max<size_t>(thread_count, 1); ++i)
    readers_.push_back(std::make_unique<StreamReader>(store, kPacksKept));
}

Result<CellShares> VariableReader::shares_of(const StoredVariable& variable, const std::vector<CellBox>& boxes,
                                             const CellBox& wanted) const {
  VARVE_TRY(variable.one_array);
  VARVE_TRY(check_box(variable, wanted, variable.shape, variable.type.bytes));
  if (variable.is_of_chunks && !variable.fill.empty()) return share_chunks(wanted, boxes);
  Result<CellShares> found = share_cells(wanted, boxes);
  if (!found.ok() || found->missing.empty() || !variable.fill.empty()) return found;
  return variables_.missing(variable, found->missing.front());
}

Status VariableReader::check(const StoredVariable& variable, const CellBox& box) const {
  if (variable.one_array.ok() && is_lone(variable)) return check_part(variable, variable.parts.front(), box);
  VARVE_ASSIGN(const CellShares found, shares_of(variable, boxes_of(variable), box));
  for (const CellShare& share : found.shares)
    VARVE_TRY(of_variable(variable, decoder_->check(variable.parts[share.box])));
  return {};
}

Status VariableReader::read(const StoredVariable& variable, const CellBox& box, MutableByteSpan into) {
  if (variable.one_array.ok() && is_lone(variable)) return read_part(variable, variable.parts.front(), box, into);
  const std::vector<CellBox> boxes = boxes_of(variable);
  VARVE_ASSIGN(CellShares found, shares_of(variable, boxes, box));
  VARVE_TRY(check_size(variable, box, variable.type.bytes, into.size()));
  if (!found.missing.empty()) fill_box(variable, box, into);
  std::vector<Work> works;
  for (CellShare& share : found.shares)
    works.push_back({&variable.parts[share.box], std::move(share.cells), boxes[share.box], 0});
  return copy_all(variable, std::move(works), box, into);
}

Status VariableReader::check_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box) const {
  VARVE_TRY(check_box(variable, box, part.shape, part.type.bytes));
  return of_variable(variable, decoder_->check(part));
}

Status VariableReader::read_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box,
                                 MutableByteSpan into) {
  VARVE_TRY(check_box(variable, box, part.shape, part.type.bytes));
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

Result<const StoredPart*> VariableReader::common_part(const StoredVariable& variable) {
  const std::vector<StoredPart>& parts = variable.parts;
  if (!variables_.has_all_ranks() || parts.size() != variables_.rank_count() || parts.empty()) return nullptr;
  const StoredPart& first = parts.front();
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_alike = parts[i].rank == static_cast<int64_t>(i) && parts[i].global_shape.empty() &&
                          parts[i].type == first.type && parts[i].shape == first.shape;
    if (!is_alike) return nullptr;
  }
  VARVE_TRY(check_part(variable, first, first.own_box()));
  ByteVector wanted, here;
  bool is_same = true;
  const auto compare = [&](const CellBox& slab) -> Status {
    if (!is_same) return {};
    wanted.resize(slab.cell_count() * first.type.bytes);
    here.resize(wanted.size());
    VARVE_TRY(read_part(variable, first, slab, wanted));
    for (size_t i = 1; i < parts.size() && is_same; ++i) {
      VARVE_TRY(read_part(variable, parts[i], slab, here));
      is_same = here == wanted;
    }
    return {};
  };
  VARVE_TRY(for_each_slab(first.own_box(), std::max<uint64_t>(kComparedBytes / first.type.bytes, 1), compare));
  return is_same ? &first : nullptr;
}

Status VariableReader::copy_all(const StoredVariable& variable, std::vector<Work> works, const CellBox& to,
                                MutableByteSpan into) {
  const auto is_plain = [](const Work& work) { return work.part->coding == PartCoding::none; };
  const auto is_chunk = [](const Work& work) { return work.part->coding == PartCoding::zarr; };
  const auto chunks = std::stable_partition(works.begin(), works.end(), std::not_fn(is_chunk));
  const auto encoded = std::stable_partition(works.begin(), chunks, is_plain);
  Status copied;
  for (auto work = encoded; work != chunks && copied.ok(); ++work) copied = decode(*work, to, into);
  if (copied.ok()) copied = copy_chunks({chunks, works.end()}, to, into);
  works.erase(encoded, works.end());
  if (copied.ok()) copied = copy_plain(std::move(works), to, into);
  // What is damaged may be the file, as it was saved: then no pack is.
  if (copied.code() != StatusCode::corrupt || copied.remedy() == Remedy::none) return of_variable(variable, copied);
  return Catalog(store_).unless_dropped(variables_.set(), of_variable(variable, copied));
}

Status VariableReader::decode(const Work& work, const CellBox& to, MutableByteSpan into) {
  const auto in_part = [&](CellBox cells) {
    for (size_t d = 0; d < cells.offset.size(); ++d) cells.offset[d] -= work.has.offset[d];
    return cells;
  };
  if (work.cells == to) return decoder_->read(*work.part, in_part(to), into);
  const uint64_t element = work.part->type.bytes;
  ByteVector decoded;
  return for_each_slab(work.cells, std::max<uint64_t>(kDecodedBytes / element, 1), [&](const CellBox& slab) -> Status {
    decoded.resize(slab.cell_count() * element);
    VARVE_TRY(decoder_->read(*work.part, in_part(slab), decoded));
    return for_each_cell_run(slab, slab, to, [&](const CellRun& run) {
      std::copy_n(decoded.data() + run.from * element, run.cells * element, into.data() + run.to * element);
      return Status();
    });
  });
}

Status VariableReader::copy_chunks(const std::vector<Work>& works, const CellBox& to, MutableByteSpan into) {
  if (works.empty()) return {};
  const uint64_t element = works.front().part->type.bytes;
  const uint64_t chunk_bytes = array_bytes(works.front().part->shape, element).value_or(kDecodedChunksBytes);
  const uint64_t at_once = std::max<uint64_t>(kDecodedChunksBytes / std::max<uint64_t>(chunk_bytes, 1), 1);
  const size_t shares = std::min<uint64_t>({readers_.size(), works.size(), at_once});
  return parallel_for(shares, shares, [&](size_t share) -> Status {
    const size_t end = works.size() * (share + 1) / shares;
    for (size_t i = works.size() * share / shares; i < end; ++i) {
      const Work& work = works[i];
      VARVE_ASSIGN(const ZarrChunks::Cells cells,
                   chunks_->cells(*work.part, *readers_[share], /*keep=*/work.cells != work.has));
      VARVE_TRY(for_each_cell_run(work.cells, work.has, to, [&](const CellRun& run) {
        std::copy_n(cells->data() + run.from * element, run.cells * element, into.data() + run.to * element);
        return Status();
      }));
    }
    return {};
  });
}

Status VariableReader::copy_plain(std::vector<Work> works, const CellBox& to, MutableByteSpan into) {
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
  return parallel_for(shares, shares, [&](size_t share) -> Status {
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
}

}  // namespace varve
