#pragma once

#include <memory>
#include <optional>

#include "level/levels.h"
#include "runtime/restart.h"
#include "snapshot/variable_table.h"

namespace varve {

/// A rank's side of a restart, from whatever level.
class RankRestart final : public RestartSide {
 public:
  RankRestart(Levels& levels, VariableTable& variables) : levels_(levels), variables_(variables) {}

  Status look(const RestartCandidate& candidate) override;
  Status check() override;
  std::optional<SetOrigin> origin() const override { return image_ ? image_->origin() : std::nullopt; }
  Status load() override;
  Status mend(const RestartCandidate& candidate) override;

 private:
  Levels& levels_;
  VariableTable& variables_;
  std::unique_ptr<RankImage> image_;  ///< what was looked at last
};

}  // namespace varve
