#include "runtime/command_levels.h"

namespace varve {

namespace {
/// Whether the nearest level can be saved to, set by set.
Status check_nearest(const LevelSpec& spec) {
  if (spec.every == 1) return {};
  return Status::invalid_argument("every= of the nearest level counts checkpoints, which a running program alone makes",
                                  spec.to_string(), "leave it out: each set is saved there");
}
}  // namespace

Result<std::unique_ptr<CommandLevels>> CommandLevels::open(const Said& said, Use use, World world) {
  SettingsSources& sources = world.sources;
  sources.command_line = {{"levels", said.levels},
                          {"store", said.store},
                          {"key_file", said.reach.key_file},
                          {"s3_endpoint", said.reach.s3_endpoint}};
  VARVE_ASSIGN(const Settings settings, resolve_settings({}, sources));
  std::unique_ptr<CommandLevels> opened(new CommandLevels(settings, world));
  if (use != Use::look) VARVE_TRY(check_nearest(opened->levels_.nearest().spec()));
  for (StoreLevel* const level : opened->levels_.stores()) {
    if (use == Use::help && !level->access().is_nearest()) continue;
    const Status reached = level->access().reach(/*makes=*/use == Use::save);
    // What makes no sense will make none later, either.
    const bool has_to_be_there = level->access().is_nearest() || reached.code() == StatusCode::invalid_argument;
    if (use != Use::look && has_to_be_there) VARVE_TRY(reached.with_context("level " + level->name()));
  }
  if (use != Use::look) VARVE_TRY(opened->levels_.check_are_different());
  opened->levels_.tell_what_was_made();
  return opened;
}

CommandLevels::CommandLevels(const Settings& settings, const World& world)
    : world_{.ranks = *alone_,
             .files = *world.files,
             .clock = *world.clock,
             .warnings = warnings_,
             .sets = sets_,
             .left_runs = left_runs_,
             .job = settings.job,
             .reach = settings.reach,
             .node = world.sources.node(),
             .shared_memory = settings.snapshots.shared_memory},
      levels_(settings.levels, world_) {}

}  // namespace varve
