#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "format/set_record.h"
#include "format/tree.h"
#include "layout/layout.h"
#include "layout/zarr_array.h"
#include "store/store.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve {

/// What a file's own format has done with the cells of a part.
enum class PartCoding : uint8_t {
  none,      ///< its bytes are its cells, as `tile` says
  unknown,   ///< nobody here knows which bytes are which cell
  hdf5,      ///< the HDF5 library knows: filters, chunks that are not there, cells in the header
  zarr,      ///< all of them went through `codecs` together
  deflated,  ///< they are in one stream of RFC 1951, behind `head_bytes` of its content
};

/// What one file of a set has of a variable: an array, whose bytes lie in a stream of the file, or anywhere in it.
struct StoredPart {
  int64_t rank = -1;  ///< of the process that saved it; -1 if it belongs to none
  ElementType type;
  std::vector<uint64_t> shape;          ///< slowest dimension first
  std::vector<uint64_t> global_shape;   ///< of the whole; empty: not said
  std::vector<uint64_t> global_offset;  ///< where it lies in that; empty: at its beginning
  /// Of the arrays that its bytes consist of, one after another, which divide `shape` like tiles; empty: it is one.
  std::vector<uint64_t> tile;
  PartCoding coding = PartCoding::none;
  Status why_unknown{};                                    ///< of `unknown`; OK: nothing is known to say
  uint64_t head_bytes = 0, content_bytes = 0;              ///< of `deflated`
  uint32_t content_crc32 = 0;                              ///< of all of that, as the file says
  std::shared_ptr<const std::vector<ZarrCodec>> codecs{};  ///< of `zarr`

  std::shared_ptr<const Leaf> leaf;
  const TreeFile* file = nullptr;      ///< of the leaf
  const Variable* variable = nullptr;  ///< of the file, if it is the part
  size_t stream = 0;                   ///< that has its bytes; 0: they are in `extents` of the file
  std::vector<Extent> extents{};

  /// Which cells of the whole it has.
  CellBox global_box() const;
  /// In its own array.
  CellBox own_box() const { return {std::vector<uint64_t>(shape.size(), 0), shape}; }
};

/// A variable of a set, with what each rank has of it.
struct StoredVariable {
  std::string name;
  ElementType type;
  /// OK: the parts are one array of `shape`, so far as they are there. Else why not; then each is an array of its own.
  Status one_array;
  std::vector<uint64_t> shape;
  std::vector<StoredPart> parts;  ///< lowest rank first
  /// What numbers are that no part has, or pairs of them; empty: such cells cannot be had.
  ByteVector fill{};
  bool is_in_whole = false;   ///< another one of the set has it, with what other files have
  bool is_of_chunks = false;  ///< an array of Zarr, whose chunks, each a file of its own, are the parts
};

/// The variables of a set, without their bytes.
///
/// In a set that a session made, a variable has the name by which it was protected, and a part of each rank that
/// protected it. In any other set, each variable of each file is one of its own, "PATH:NAME"; small ones that are only
/// counted are not there. What sidecars say that files have of a whole is one by its own name, besides. The chunks of
/// an array of Zarr are parts of one, by the folder of its outermost group: "out.zarr:/ocean/heat"; without that
/// folder, if the group is the set. Immutable, so it may be read by several threads.
class StoredVariables {
 public:
  /// Whether somebody wants a variable of a file.
  using Wanted = std::function<bool(const Variable&)>;

  /// Reads the set's tree and what the images in it say of themselves; keeps the tree in memory. Fails if anything of
  /// these cannot be read. What files have compressed so that only their bytes tell what it is (npz) is looked at if it
  /// is `wanted`, or that is empty: for that, `store` has to be there as long as this is.
  static Result<StoredVariables> read(const Store& store, const SetRecord& record, const Wanted& wanted = {});
  StoredVariables();
  StoredVariables(StoredVariables&&) noexcept;
  StoredVariables& operator=(StoredVariables&&) noexcept;
  ~StoredVariables();

  /// By name; names may repeat in files. Looks at all of them whose bytes tell what they are, where find() looks at one
  /// file's.
  const std::vector<StoredVariable>& all() const;
  size_t count() const { return variables_.size(); }
  /// Of what find() gave, its place in all().
  size_t ordinal_of(const StoredVariable& variable) const { return static_cast<size_t>(&variable - variables_.data()); }
  /// The first of this name; null if there is none.
  const StoredVariable* find(std::string_view name) const;
  /// The same, but not_found says where to look.
  Result<const StoredVariable*> get(std::string_view name) const;
  /// What a rank has of one of them; not_found: nothing.
  Result<const StoredPart*> part_of(const StoredVariable& variable, uint64_t rank) const;

  const SetName& set() const { return set_; }
  /// Of the run that made the set, on all nodes; else how many ranks its files are of.
  uint32_t rank_count() const { return rank_count_; }
  /// Whether the set has what all ranks saved: in a store of a node's own, only those of that node are.
  bool has_all_ranks() const { return has_all_ranks_; }

  /// Why cells are missing, from the first of them on.
  Status missing(const StoredVariable& variable, const CellBox& first_missing) const;

 private:
  class Collector;
  class Undescribed;

  SetName set_;
  uint32_t rank_count_ = 0, ranks_here_ = 0;
  bool has_all_ranks_ = true;
  std::vector<StoredVariable> variables_;
  std::unique_ptr<Undescribed> undescribed_;  ///< of these; null: all say what they are
};

}  // namespace varve
