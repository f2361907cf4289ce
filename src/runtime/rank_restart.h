#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/restart.h"
#include "runtime/stored_image.h"
#include "runtime/warning_list.h"
#include "snapshot/snapshot_discovery.h"
#include "snapshot/snapshot_reader.h"
#include "snapshot/variable_table.h"
#include "store/store.h"

namespace varve {

/// A rank's side of a restart from the snapshots of dead runs on its node, and from the sets of a store. Arenas that it
/// finds damaged are condemned, so that the run, which will compute the same again, does not refer to them.
class RankRestart final : public RestartSide {
 public:
  struct Place {
    std::string job;
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    uint32_t group = 0;           ///< ordinal of its group, where its image is most likely
    size_t thread_count = 1;      ///< for checking
    uint64_t kept_bytes_max = 0;  ///< of a set's image, so that it need not be decoded twice
  };
  RankRestart(const Store& store, Place place, std::vector<LeftSnapshot> left, VariableTable& variables,
              WarningList& warnings)
      : store_(store), warnings_(warnings), place_(std::move(place)), left_(std::move(left)), variables_(variables) {}

  /// What agree_on_candidates() is told of this rank.
  std::vector<MemoryStep> memory_steps() const;

  Status check(const RestartCandidate& candidate) override;
  Status load() override;

 private:
  Status check_stored(const RestartCandidate& candidate);
  Status check_memory(const RestartCandidate& candidate);
  Status check_store(const RestartCandidate& candidate);

  const Store& store_;
  WarningList& warnings_;
  const Place place_;
  const std::vector<LeftSnapshot> left_;  ///< of this rank
  VariableTable& variables_;
  std::unique_ptr<SnapshotReader> memory_;  ///< what was checked last: one of these
  std::unique_ptr<StoredImage> stored_;
};

}  // namespace varve
