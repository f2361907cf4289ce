#include "level/file_arrays.h"

#include <algorithm>
#include <utility>

namespace varve {

namespace {
/// What is decoded at a time of what goes elsewhere then.
constexpr uint64_t kDecodedAtOnceBytes = 64_MiB;

CellBox whole_box(const StoredVariable& array) { return {std::vector<uint64_t>(array.shape.size(), 0), array.shape}; }

/// That no file has some cells is not mended by another set.
Status refused(const Status& status) {
  return status.code() == StatusCode::not_found ? status.with_code(StatusCode::invalid_argument) : status;
}
}  // namespace

Result<std::unique_ptr<FileArrays>> FileArrays::open(const Store& store, Clock& clock, const SetRecord& record,
                                                     size_t thread_count, const StoredVariables::Wanted& wanted) {
  PatientReads reads(store, clock);
  VARVE_ASSIGN(StoredVariables variables, reads([&] { return StoredVariables::read(store, record, wanted); }));
  return std::unique_ptr<FileArrays>(new FileArrays(store, clock, std::move(variables), thread_count));
}

Status FileArrays::check(const StoredVariable& array) {
  return refused(reads_([&] { return reader_.check(array, whole_box(array)); }));
}

Status FileArrays::read_box(const StoredVariable& array, const CellBox& box, MutableByteSpan into) {
  return refused(reads_([&] { return reader_.read(array, box, into); }));
}

Status FileArrays::read(const StoredVariable& array, uint64_t offset, MutableByteSpan into) {
  if (into.empty()) return {};
  const uint64_t element = array.type.bytes;
  const uint64_t first = offset / element, end = (offset + into.size() - 1) / element + 1;
  // Of the elements at both ends, part may be wanted.
  const bool whole = first * element == offset && (end - first) * element == into.size();
  ByteVector elements(whole ? 0 : (end - first) * element);
  MutableByteSpan rest = whole ? into : MutableByteSpan(elements);
  VARVE_TRY(for_each_box_of_run(array.shape, first, end - first, [&](const CellBox& box) {
    const MutableByteSpan of_box = rest.first(box.cell_count() * element);
    rest = rest.subspan(of_box.size());
    return read_box(array, box, of_box);
  }));
  if (!whole)
    std::copy_n(elements.begin() + static_cast<ptrdiff_t>(offset - first * element), into.size(), into.begin());
  return {};
}

Status FileArrays::load(const StoredVariable& array, const CellBox& box, uint64_t begin, ImageTarget& target) {
  if (box.cells.size() == array.shape.size()) return load_box(array, box, begin, target);
  if (box.cells.size() != 1) return Status::internal("a box of other dimensions than its array");
  return for_each_box_of_run(array.shape, box.offset[0], box.cells[0],
                             [&](const CellBox& of_run) { return load_box(array, of_run, begin, target); });
}

Status FileArrays::load_box(const StoredVariable& array, const CellBox& box, uint64_t begin, ImageTarget& target) {
  const uint64_t element = array.type.bytes;
  const CellBox whole = whole_box(array);
  ByteVector decoded;
  return for_each_slab(box, std::max<uint64_t>(kDecodedAtOnceBytes / element, 1), [&](const CellBox& slab) -> Status {
    decoded.resize(slab.cell_count() * element);
    VARVE_TRY(read_box(array, slab, decoded));
    return for_each_cell_run(slab, slab, whole, [&](const CellRun& run) {
      target.put(begin + run.to * element, ByteSpan(decoded).subspan(run.from * element, run.cells * element));
      return Status();
    });
  });
}

}  // namespace varve
