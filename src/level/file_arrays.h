#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "core/clock.h"
#include "format/image.h"
#include "format/set_record.h"
#include "level/stored_image.h"
#include "reader/stored_variables.h"
#include "reader/variable_reader.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Arrays of a saved set's files that do not lie there as they are, since the files' own formats have compressed them
/// or keep them in pieces. They are read by cells (VariableReader); to a restart they are bytes all the same: those of
/// their cells, one after another. What cannot be read is tried again for a while (PatientReads). One thread at a time.
class FileArrays {
 public:
  /// `store` and `clock` outlive it. `wanted`: as in StoredVariables::read().
  static Result<std::unique_ptr<FileArrays>> open(const Store& store, Clock& clock, const SetRecord& record,
                                                  size_t thread_count, const StoredVariables::Wanted& wanted);

  const StoredVariables& variables() const { return variables_; }

  // Of one of these, which is one array. unsupported: nobody here knows how it was encoded. invalid_argument: cells of
  // it are in no file. corrupt: the store is damaged, or the file was.

  /// Whether it can be read, as far as can be told without reading any.
  Status check(const StoredVariable& array);
  Status read(const StoredVariable& array, uint64_t offset, MutableByteSpan into);
  /// Puts cells where they belong, if the array begins with byte `begin`. `box`: as PartBox::cells.
  Status load(const StoredVariable& array, const CellBox& box, uint64_t begin, ImageTarget& target);

 private:
  FileArrays(const Store& store, Clock& clock, StoredVariables variables, size_t thread_count)
      : reads_(store, clock), variables_(std::move(variables)), reader_(store, variables_, thread_count) {}

  Status read_box(const StoredVariable& array, const CellBox& box, MutableByteSpan into);
  Status load_box(const StoredVariable& array, const CellBox& box, uint64_t begin, ImageTarget& target);

  PatientReads reads_;
  const StoredVariables variables_;
  VariableReader reader_;
};

}  // namespace varve
