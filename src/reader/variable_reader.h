#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "engine/stored_files.h"
#include "reader/part_decoder.h"
#include "reader/stored_variables.h"
#include "reader/zarr_chunks.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Reads cells of a set's variables, dense, slowest dimension first, as they were saved. Only packs that hold some of
/// them are read, each chunk checked against its score; the last few packs are kept for the next call. What a file's
/// own format has encoded is decoded (PartDecoder, ZarrChunks). One thread at a time, though it works with several.
class VariableReader {
 public:
  /// All outlive it. `thread_count`: at least 1.
  VariableReader(const Store& store, const StoredVariables& variables, size_t thread_count);

  /// Cells of the whole array into memory of exactly their size. invalid_argument: they do not lie in it, or the
  /// variable is no one array; not_found: no rank saved some of them, or they are on another node; unsupported: its
  /// bytes are encoded, in a way that nobody here knows. corrupt: they are damaged.
  Status read(const StoredVariable& variable, const CellBox& box, MutableByteSpan into);
  /// Whether that can be, as far as can be told without reading them: before memory is made for it.
  Status check(const StoredVariable& variable, const CellBox& box) const;
  /// The same of what one rank, or file, has of it.
  Status read_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box, MutableByteSpan into);
  Status check_part(const StoredVariable& variable, const StoredPart& part, const CellBox& box) const;
  /// Of a variable that is no one array: what each of the set's ranks has saved of it alike, to the last byte. Null:
  /// they have not, or not all of them are here. Reads as much as it takes to tell.
  Result<const StoredPart*> common_part(const StoredVariable& variable);

 private:
  struct Work;

  Result<CellShares> shares_of(const StoredVariable& variable, const std::vector<CellBox>& boxes,
                               const CellBox& wanted) const;
  Status copy_all(const StoredVariable& variable, std::vector<Work> works, const CellBox& to, MutableByteSpan into);
  Status decode(const Work& work, const CellBox& to, MutableByteSpan into);
  Status copy_chunks(const std::vector<Work>& works, const CellBox& to, MutableByteSpan into);
  Status copy_plain(std::vector<Work> works, const CellBox& to, MutableByteSpan into);

  const Store& store_;
  const StoredVariables& variables_;
  std::vector<std::unique_ptr<StreamReader>> readers_;  ///< one for each thread
  std::unique_ptr<PartDecoder> decoder_;
  std::unique_ptr<ZarrChunks> chunks_;
};

}  // namespace varve
