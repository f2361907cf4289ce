#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/element_type.h"
#include "varve/session.h"
#include "varve/status.h"

namespace varve {

/// How a store is reached, and read. What is empty, the environment says (docs/GUIDE.md, "Options of a run").
struct CheckpointReaderOptions {
  std::optional<std::string> key_file{};     ///< what servers over TCP share with their clients
  std::optional<std::string> s3_endpoint{};  ///< "http[s]://host[:port]": where the service of buckets is
  std::optional<uint32_t> threads{};         ///< that read and decode; default: one a processor
};

/// Cells of an array: in each dimension, slowest first, `cells` of them, from `offset` on.
struct ArraySection {
  std::vector<uint64_t> offset{}, cells{};
};

/// What one rank, or one file, has of a variable: an array.
struct CheckpointPart {
  int64_t rank = -1;                      ///< -1: of a file that belongs to no rank
  std::vector<uint64_t> cells;            ///< slowest dimension first; empty: a scalar
  std::vector<uint64_t> global_cells{};   ///< of the array of which it is a part; empty: not said
  std::vector<uint64_t> global_offset{};  ///< where it lies in that
  uint64_t bytes = 0;                     ///< of `cells`
};

/// A variable of a set.
struct CheckpointVariable {
  std::string name;
  ElementType type;
  /// Whether its parts are one array, of these cells (slowest dimension first; empty: a scalar). If not, each part is
  /// one of its own, of its own size and type.
  bool is_one_array = false;
  std::vector<uint64_t> cells;
  uint64_t bytes = 0;                 ///< of `cells`
  std::vector<CheckpointPart> parts;  ///< by rank, lowest first
};

/// Reads the variables of one checkpoint set, in any program: no session, and no other ranks. In a set of a session
/// they have the names by which they were protected, and those that say where they lie in a whole
/// (ArrayShape::global_cells) are put together, of what ranks have twice from the lowest. In a set of `varve save`
/// they are called "PATH:NAME", by their file and what its format calls them, and are arrays of their own.
///
/// Bytes are given as they were saved, in the byte order that the type says, dense, slowest dimension first; each is
/// checked against its score. Only packs that hold wanted cells are read. Damage and what is not there are told by the
/// functions that read. What files' own formats have compressed is decoded; for HDF5's the first such read forks a
/// process that calls its library. One thread at a time; different readers are independent. Nothing is written, in the
/// store or elsewhere, and the set stays readable as long as nobody drops and prunes it.
class CheckpointReader {
 public:
  /// Opens a set, "JOB@STEP", or "JOB" for its newest. `store`: a folder, a server or "s3://bucket/prefix". not_found:
  /// there is no such store, or set. Keeps in memory what the set says of its files, not their bytes.
  static Result<CheckpointReader> open(std::string_view store, std::string_view set,
                                       CheckpointReaderOptions options = {});

  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  /// "job@step".
  const std::string& set() const;
  uint64_t step() const;
  /// Of the run that made the set. A store that is a node's own has only those of that node (has_all_ranks()).
  uint32_t rank_count() const;
  bool has_all_ranks() const;
  /// By name. As long as the reader lives.
  const std::vector<CheckpointVariable>& variables() const;
  /// not_found: the set has no variable of this name.
  Result<const CheckpointVariable*> variable(std::string_view name) const;

  /// Reads a variable, or a box of it, into memory of exactly that size. invalid_argument: it is no one array, the box
  /// does not lie in it, or the memory has another size; not_found: there is no such variable, or no rank saved some of
  /// the cells, or they are on another node; unsupported: the format of its file has encoded them in a way that is not
  /// known here; corrupt: they are damaged.
  Status read(std::string_view name, std::span<std::byte> into);
  Status read(std::string_view name, const ArraySection& box, std::span<std::byte> into);
  /// The same of what one rank saved of it, or a box of that. not_found also if the rank has none.
  Status read_rank(std::string_view name, uint32_t rank, std::span<std::byte> into);
  Status read_rank(std::string_view name, uint32_t rank, const ArraySection& box, std::span<std::byte> into);

  /// The same as numbers: of all of it, or of a box. invalid_argument also if it is not of this type. resource_limit:
  /// there is no memory for it.
  template <class T>
  Result<std::vector<T>> values(std::string_view name, const std::optional<ArraySection>& box = {}) {
    return values_of<T>(name, std::nullopt, box);
  }
  template <class T>
  Result<std::vector<T>> rank_values(std::string_view name, uint32_t rank,
                                     const std::optional<ArraySection>& box = {}) {
    return values_of<T>(name, rank, box);
  }

 private:
  class Impl;
  explicit CheckpointReader(std::unique_ptr<Impl> impl);
  template <class T>
  Result<std::vector<T>> values_of(std::string_view name, std::optional<uint32_t> rank,
                                   const std::optional<ArraySection>& box) {
    std::vector<T> values;
    VARVE_TRY(read_typed(name, rank, box, element_type_of<T>(), [&values](uint64_t count) {
      values.resize(count);
      return std::as_writable_bytes(std::span(values));
    }));
    return values;
  }
  Status read_typed(std::string_view name, std::optional<uint32_t> rank, const std::optional<ArraySection>& box,
                    ElementType type, const std::function<std::span<std::byte>(uint64_t count)>& make_room);

  std::unique_ptr<Impl> impl_;
};

}  // namespace varve
