#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/set_record.h"
#include "store/store.h"

namespace varve {

/// What the name of a folder below a job's says: the step, as choose_set_name() finds it, and whether it ends in
/// ".tmp": then its program has not finished, whatever else is to be seen.
struct StepName {
  uint64_t step = 0;
  bool temporary = false;
  /// It is the very name that the set has once it is committed.
  bool canonical = false;
};

/// None: it is not a name of a step. 1 to 100 bytes with a number, without '@' and control characters, not beginning
/// with '.' or '-'. `among_times`: a number alone is a time (core/step_text.h).
std::optional<StepName> parse_step_name(std::string_view name, bool among_times = false);

/// The names of a committed set as a tree of folders, without what its files hold. Immutable.
class SetListing {
 public:
  static constexpr uint32_t kTop = 0;  ///< the set's own folder
  struct Entry {
    std::string name;  ///< last component
    uint32_t parent = 0;
    FileType type = FileType::directory;
    uint32_t mode = 0755;
    int64_t modified_s = 0;
    uint32_t modified_ns = 0;
    uint64_t bytes = 0;
    std::string link_target;
    uint32_t leaf = 0, file = 0;     ///< where it is described: ordinals of the leaf, and in it
    std::vector<uint32_t> children;  ///< of a folder, by name
  };

  /// Reads all leaves of the set, one after the other, and keeps the names.
  static Result<std::shared_ptr<SetListing>> read(const Store& store, const SetRecord& record);

  const Entry& entry(uint32_t ordinal) const { return entries_[ordinal]; }
  uint32_t count() const { return static_cast<uint32_t>(entries_.size()); }
  std::optional<uint32_t> find(uint32_t folder, std::string_view name) const;
  /// By its path from the top, "" being the top.
  std::optional<uint32_t> find_path(std::string_view path) const;
  std::string path(uint32_t ordinal) const;
  const LeafLink& leaf(uint32_t ordinal) const { return leaves_[ordinal]; }
  uint64_t memory_bytes() const;

 private:
  friend class ListingMaker;
  std::vector<Entry> entries_;
  std::vector<LeafLink> leaves_;
};

}  // namespace varve
