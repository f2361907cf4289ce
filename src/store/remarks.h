#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "format/set_record.h"
#include "store/store.h"

namespace varve {

/// What people say of a set, beside what is in it.
struct SetRemarks {
  bool pinned = false;  ///< nobody drops it
  bool has_note = false;
  std::set<std::string, std::less<>> tags;
};

/// 1 to 100 letters, digits, '-', '_' and '.', and no step or time.
Status check_tag(std::string_view tag);

inline constexpr uint64_t kNoteBytesMax = 64_KiB;

/// What a file in `remarks/` is, by its name.
enum class RemarkFile : uint8_t {
  none,     ///< of no form that FORMAT.md knows
  draft,    ///< it is being written
  pinning,  ///< it becomes a pin
  remark,
};
RemarkFile remark_file_of(std::string_view name);

/// The remarks of a store's sets (FORMAT.md, "Remarks"): a file each, which says by its name what it says. They belong
/// to the store, and do not go with a set that is copied to another one. Stateless, as Catalog; several may work at the
/// same time, on several machines. What changes something is durable when it returns.
class Remarks {
 public:
  explicit Remarks(const Store& store) : store_(store) {}

  /// Of all sets of which something is said; some of them may be gone.
  Result<std::map<SetName, SetRemarks>> all() const;
  /// Of one set, or none.
  Result<SetRemarks> of(const SetName& name) const;
  Result<std::set<SetName>> pinned() const;

  /// From its return on the set is there until it is unpinned, whoever drops it, even if he had begun to before
  /// (COMMIT.md, "Pinning"). not_found: there is no such set, or it has just been dropped.
  Status pin(const SetName& name) const;
  /// False: it was not pinned. One that was hidden by a late drop is there again then, but if it is damaged, in which
  /// case this gives it up.
  Result<bool> unpin(const SetName& name) const;
  /// permission_denied: the set is pinned, whole as far as its record and roots tell, and `by` is another one.
  Status check_may_replace(const SetName& name, const SetRecord* by) const;

  /// not_found: there is no such set. OK if it has the tag already.
  Status add_tag(const SetName& name, std::string_view tag) const;
  /// False: it did not have it.
  Result<bool> remove_tag(const SetName& name, std::string_view tag) const;

  /// In the place of an earlier one. An empty text removes it.
  Status write_note(const SetName& name, std::string_view text) const;
  /// Empty: there is none.
  Result<std::string> note(const SetName& name) const;

  /// Forgets what was said of sets that are gone.
  Status forget(const std::set<SetName>& gone) const;
  /// For a prune: brings pinned sets back that somebody has dropped who had begun to before they were pinned, or warns
  /// why not, and forgets what is said of sets that are gone. Returns how many files it has removed.
  Result<uint64_t> tidy(ProgressSink& progress) const;

  /// The records of pinned sets, and of those that are being pinned: what they refer to is needed. One
  /// that is being pinned, and then is pinned, may be missed by one list, but not by two.
  struct PinnedRecord {
    SetName name;
    bool sure = false;  ///< else it is being pinned, and may be gone
    ByteVector raw;
  };
  Result<std::vector<PinnedRecord>> pinned_records(int lists) const;

 private:
  std::string path() const { return join_path(store_.path(), "remarks"); }
  std::string file_path(const SetName& name, std::string_view kind) const;
  Status check_is_there(const SetName& name) const;
  Result<ByteVector> read_record_of(const SetName& name) const;
  Status pin_once(const SetName& name) const;
  Result<bool> is_gone(const SetName& name) const;
  Result<bool> is_gone_for_good(const SetName& name) const;
  Result<bool> is_old(const std::string& file) const;
  Result<uint64_t> remove_old_drafts(const std::vector<DirectoryEntry>& entries) const;
  Status publish(const std::string& file, ByteSpan contents) const;
  Result<bool> remove(const std::string& file) const;
  Status bring_back(const SetName& name) const;

  const Store& store_;
};

}  // namespace varve
