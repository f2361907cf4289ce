#pragma once

#include <memory>
#include <string>
#include <vector>

#include "level/level_push.h"
#include "level/store_level.h"

namespace varve {

/// A store behind the nearest one. In a run, sets are brought there in the background: by the rank that speaks for the
/// node, if each has a store of its own, else by rank 0.
class FartherLevel final : public StoreLevel {
 public:
  FartherLevel(const LevelSpec& spec, LevelWorld& world, const Levels& all)
      : StoreLevel(spec, world, /*is_nearest=*/false), all_(all) {}

  Status start() override;
  void accept(const NewSet& set) override;
  void forget(uint64_t step) override;
  bool owes(uint64_t step, uint64_t number) const override;
  std::string what_waits() const override;
  LevelProgress progress(const RunNews& run) const override;
  Status finish(const std::optional<NewSet>& last, Moment end) override;
  Status end() override;

  OwedSteps bring_all(const std::string& job, Onward& onward, ProgressSink& progress) override;

 private:
  std::function<Result<const Store*>()> store_to_push_to();

  const Levels& all_;
  std::unique_ptr<LevelPush> push_;  ///< none: another rank's
};

}  // namespace varve
