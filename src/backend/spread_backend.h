#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "core/sync.h"
#include "format/store_folder.h"

namespace varve {

/// Makes several places, such as servers, one backend for one store: each arena is at the place of its id's range
/// (ArenaSpread); each place's folder of index runs is there under a name of its own (index_folder_name()); everything
/// else, and so each record, is at the first place. An arena that is not where it belongs, since it was written when
/// there were fewer places, is looked for at all, and then remembered. Thread-safe.
class SpreadBackend final : public Backend {
 public:
  /// The places in their order, which all who use the store must agree on; at least one. They outlive it.
  explicit SpreadBackend(std::vector<Backend*> places);

  /// That of the first place: it stands for those of all places.
  const std::string& root() const override { return root_; }
  const ArenaSpread& spread() const { return spread_; }

  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override;
  /// The arenas' folder: what is at any place, each name once.
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override;
  Result<std::vector<std::string>> unfinished(const std::string& folder) override;
  Result<FileStatus> status(const std::string& name) override;
  Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder) override;
  /// An arena goes from all places.
  Status remove(const std::string& name) override;
  Status settle(const std::string& folder) override;

  Status publish(const std::string& name, ByteSpan contents) override { return first().publish(name, contents); }
  Status replace(const std::string& name, ByteSpan contents) override { return first().replace(name, contents); }
  Result<std::unique_ptr<HeldRecord>> hold(const std::string& name, ByteSpan contents) override {
    return first().hold(name, contents);
  }
  Status touch(const std::string& name) override { return first().touch(name); }
  Status remove_unchanged(const std::string& name, ByteSpan contents) override {
    return first().remove_unchanged(name, contents);
  }
  double late_commit_seconds() const override { return first().late_commit_seconds(); }

  Result<std::unique_ptr<PowerWatch>> watch_power() override;
  Result<int64_t> now() override { return first().now(); }
  /// The arenas' folder: all places together, as if each had a disk of its own.
  Result<uint64_t> free_bytes(const std::string& folder) override;
  /// At the place where it was last seen, else where it belongs.
  std::string shown_path(const std::string& name) const override;
  Status make_folder(const std::string& folder) override;
  Status remove_folder(const std::string& folder) override;

 private:
  /// Where a name is, and what it is called there.
  struct Home {
    uint32_t place = 0;
    std::string name;
    bool is_arena = false;  ///< so that it may be elsewhere
  };
  Backend& first() const { return *places_.front(); }
  Home home_of(const std::string& name) const;
  Backend& at(const Home& home) const { return *places_[home.place]; }
  /// `name` as a place knows it.
  std::string name_at(size_t place, const std::string& name) const;
  /// Asks the place where an arena was last seen, then the place where `name` belongs, and then, for an arena, the
  /// others.
  template <class T, class Question>
  Result<T> ask(const std::string& name, const Question& question);
  uint32_t last_place_of(const std::string& name, const Home& home) const;
  void remember(const std::string& name, const Home& home, uint32_t place);
  /// Notes that an arena was listed by a place; the one where it belongs counts most. Whether it is to be taken from
  /// this list.
  bool note_listed(const std::string& name, uint32_t place, bool is_new);
  /// Has all places act on the arenas' folder at the same time, as each waits for its own disk. `act` gets a place's
  /// number.
  template <class Act>
  Status at_all_places(const Act& act) const;
  /// The same, for what they answer. `ask` gets a place and what the folder is called there.
  template <class T, class Ask>
  Result<std::vector<T>> ask_all(const Ask& ask) const;

  const std::vector<Backend*> places_;
  const std::string root_, arenas_;
  const ArenaSpread spread_;
  mutable Mutex mutex_;
  /// By name: where those arenas are that are not at their home.
  std::unordered_map<std::string, uint32_t> away_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
