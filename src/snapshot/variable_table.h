#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "format/image.h"
#include "varve/session.h"

namespace varve {

/// Rows of one dimension: how many, and how far apart.
struct RowStep {
  uint64_t count = 0;
  uint64_t stride_bytes = 0;
  bool operator==(const RowStep&) const = default;
};

/// Bytes that lie in equal rows at regular distances, as an array does whose ghost cells are left out. Its dense form
/// is the rows one after another, the last step fastest. Offsets count from a base address that is given where needed,
/// as shared memory lies elsewhere in every process.
struct StridedRegion {
  uint64_t first_byte = 0;     ///< of the first row, from the base
  uint64_t row_bytes = 0;      ///< that follow each other
  std::vector<RowStep> steps;  ///< slowest first; empty: one row
  bool operator==(const StridedRegion&) const = default;

  /// In the dense form.
  uint64_t bytes() const;
  bool dense() const { return steps.empty(); }
  /// The bytes from the base to the end of the last row; 0 if it is empty, nothing if 64 bits do not hold them.
  std::optional<uint64_t> extent_bytes() const;
  /// Where the byte `dense_offset` of the dense form lies, from the base, and in `run_bytes` how many follow it there.
  /// dense_offset < bytes().
  uint64_t locate(uint64_t dense_offset, uint64_t& run_bytes) const;
};

/// One row.
inline StridedRegion dense_region(uint64_t bytes) { return {.first_byte = 0, .row_bytes = bytes, .steps = {}}; }

/// The saved cells of an array of `shape`, of elements of `element_bytes`, from the array's first byte. Dimensions
/// without ghost cells are joined to longer rows. The shape has been checked.
StridedRegion saved_region(const ArrayShape& shape, uint64_t element_bytes);

/// Copies a part of the dense form out of the region: bytes [dense_offset, dense_offset + into.size()), which exist.
void gather(const std::byte* base, const StridedRegion& region, uint64_t dense_offset, MutableByteSpan into);
/// The reverse.
void scatter(std::byte* base, const StridedRegion& region, uint64_t dense_offset, ByteSpan from);

/// Memory of a grid that was lent in place of a variable's own.
struct LentGrid {
  uint32_t grid = 0;  ///< its number in the GridPool
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

/// Where a variable's bytes are at this checkpoint.
struct VariableMemory {
  std::byte* base = nullptr;  ///< the saved cells lie in `region` from here
  StridedRegion region;
  std::optional<uint32_t> lent_grid;  ///< they are in this grid, and need no copy
};

/// How a vector, and what belongs to it, is divided by its elements' owners.
struct OwnerRule {
  std::string key;  ///< the vector whose elements are asked
  ElementOwners owners;
};

/// A variable as a rank wants it back, or one box of it.
struct WantedVariable {
  ImageVariable variable;  ///< without its place; the shape of what has any size does not count
  bool any_size = false;   ///< a vector or an object
  Redistribution redistribution = Redistribution::none;
  std::shared_ptr<const OwnerRule> owners{};             ///< in place of that, if there is one
  DimensionOrder order = DimensionOrder::slowest_first;  ///< in which the program speaks of its cells
};

/// What a program protects, and the rules about it. One thread at a time.
///
/// Rules (invalid_argument unless said): a name is one (check_variable_name()); protecting it again takes the place of
/// what was there, with the same element type, and neither turns an object into data nor data into an object; an
/// array's shape fits its count; null memory has no elements; lent is only what is protected as an array of as many
/// bytes, and once a variable was lent, each later checkpoint needs it lent or protected anew, since the memory that
/// was protected then need not hold its content any more.
class VariableTable {
 public:
  Status protect_array(std::string_view name, ElementType type, void* data, uint64_t count, const ArrayShape& shape);
  /// Several boxes, of bytes, of a whole of so many cells.
  Status protect_boxes(std::string_view name, ElementType type, const std::vector<uint64_t>& global_cells,
                       const std::vector<ArrayBox<std::byte>>& boxes, DimensionOrder order);
  Status protect_scalar(std::string_view name, ElementType type, void* data);
  Status protect_vector(std::string_view name, ElementType type, std::function<ByteSpan()> bytes,
                        std::function<MutableByteSpan(uint64_t count)> resize);
  Status protect_object(std::string_view name, std::function<Status(ByteVector&)> save,
                        std::function<Status(ByteSpan)> load);
  /// not_found if it is not protected.
  Status unprotect(std::string_view name);
  /// Whether lend() would take it.
  Status check_lend(std::string_view name, const LentGrid& grid) const;
  /// The next checkpoint takes the variable from this grid, in place of one that was lent before and not used.
  Status lend(std::string_view name, const LentGrid& grid);
  /// The grid that is lent for the next checkpoint.
  std::optional<uint32_t> lent_grid(std::string_view name) const;
  /// After a checkpoint took the grids, or was left out: returns those that were lent, which are not any longer.
  std::vector<uint32_t> take_lent();

  /// What becomes of it at a restart with another number of ranks. not_found: it is not protected.
  Status redistribute(std::string_view name, Redistribution how);
  /// The same of several vectors.
  Status redistribute(std::string_view key, ElementOwners owners, const std::vector<std::string>& together);
  /// What whoever starts the program says of variables, by their names: that goes before what the program says.
  void overrule(std::map<std::string, Redistribution> by_name) { overruled_ = std::move(by_name); }
  /// invalid_argument: a variable of such a name cannot be divided so, or is divided by owners.
  Status check_overruled() const;
  /// The names, and whether such a variable is protected.
  std::map<std::string, bool> overruled() const;
  /// What is loaded need not have the same variables: from now on added ones keep what they hold, and removed ones are
  /// left out.
  void let_change() { may_change_ = true; }
  bool may_change() const { return may_change_; }

  bool empty() const { return entries_.empty(); }
  /// Whether all that is protected may be loaded into where it is. invalid_argument naming a variable that was lent,
  /// and not protected anew: what was protected before may be another snapshot's by now.
  Status check_own_memory() const;

  /// Looks where everything is now and how large: asks the vectors, runs the objects' save callbacks. Returns the
  /// image's table, which stays the same object, with the same number, while nothing changed its size or place.
  /// Allocates only when something did, or an object grew. Fails as a callback does, and by the rules above.
  Status refresh();
  /// As long as one lives, refresh() finds what the last load has brought, and nothing else: it takes objects as they
  /// were loaded, without a save callback, and fails for a vector that is not any more where it was loaded. For saving
  /// once more what was loaded, while the program need not have taken it over yet.
  class AsLoaded {
   public:
    explicit AsLoaded(VariableTable& table) : table_(table) { table_.as_loaded_ = true; }
    AsLoaded(const AsLoaded&) = delete;
    AsLoaded& operator=(const AsLoaded&) = delete;
    ~AsLoaded() { table_.as_loaded_ = false; }

   private:
    VariableTable& table_;
  };
  /// As of the last refresh(), both in the order of names.
  const ImageTable& image() const { return image_; }
  const std::vector<VariableMemory>& memory() const { return memory_; }
  /// The encoded header of image(), image().header_bytes long.
  const ByteVector& image_header() const { return image_header_; }
  /// Grows when image() changes, or which of the variables are lent.
  uint64_t image_number() const { return image_number_; }

  /// All that is protected, as it is now, in the order of names, and of one variable in the order of its boxes. Asks
  /// neither vectors nor callbacks.
  std::vector<WantedVariable> wanted() const;
  /// Whether what an image holds can be loaded: the same names, types and shapes (vectors and objects may have any
  /// size), but for what may be missing. invalid_argument naming the variable and both sides. Writes nothing.
  Status check_loadable(const ImageTable& image) const;
  /// What an image that can be loaded does not bring back: added variables but for those that are `ignored`, and
  /// removed ones, in words.
  std::vector<Status> changes(const ImageTable& image, const std::set<std::string>& ignored = {}) const;
  /// Whether the image has a variable that is not protected.
  bool leaves_out(const ImageTable& image) const;
  /// Makes what is protected ready to take an image's bytes: check_loadable() first, then resizes vectors. From here on
  /// it is neither as it was nor as it was saved. What is returned is good until the next call of this or of
  /// finish_load().
  Result<ImageTarget*> begin_load(const ImageTable& image);
  /// All bytes are there, and right: runs the load callbacks, in the order of names.
  Status finish_load();
  /// What was loaded last is of no use: a variable that the next checkpoint to be loaded lacks holds nothing.
  void note_rejected();
  /// All hold what the program begins with.
  void note_begun_anew();

 private:
  struct Entry;
  class Loading;
  struct LoadingDeleter {
    void operator()(Loading* loading) const;
  };
  struct EntryDeleter {
    void operator()(Entry* entry) const;
  };
  using EntryPointer = std::unique_ptr<Entry, EntryDeleter>;

  /// What of an image is whose.
  struct Match {
    struct Pair {
      Entry* entry = nullptr;
      std::span<const ImageVariable> saved;
    };
    std::vector<Pair> pairs;
    std::vector<Status> changes;
  };
  Result<Match> match(const ImageTable& image, const std::set<std::string>& ignored = {}) const;
  Status put(std::string_view name, EntryPointer entry);
  /// What is said of it, by whoever has the last word.
  Redistribution redistribution_of(const std::string& name, const Entry& entry) const;

  std::map<std::string, EntryPointer, std::less<>> entries_;
  bool changed_ = true;  ///< what is protected, since the last plan
  bool may_change_ = false;
  bool as_loaded_ = false;  ///< AsLoaded
  std::map<std::string, Redistribution> overruled_;
  ImageTable image_;
  ByteVector image_header_;
  std::vector<VariableMemory> memory_;
  uint64_t image_number_ = 0;
  std::unique_ptr<Loading, LoadingDeleter> loading_;  ///< between begin_load() and finish_load()
};

}  // namespace varve
