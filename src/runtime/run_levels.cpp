// The levels of a run: which of them this rank has open, and which are away.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "comm/agreement.h"
#include "core/sync.h"
#include "runtime/job_memory.h"
#include "runtime/run_session.h"

namespace varve {

namespace {
/// How long a store may take to be made by another rank, and how often to look.
constexpr std::chrono::milliseconds kMakingPatience(5000), kMakingPause(50);

/// Opens a level that another rank makes, perhaps just now. busy: it is not there yet.
Result<std::unique_ptr<StoreLevel>> open_when_made(const std::function<Result<std::unique_ptr<StoreLevel>>()>& open) {
  Status failure;
  for (std::chrono::milliseconds waited(0); waited < kMakingPatience; waited += kMakingPause) {
    Result<std::unique_ptr<StoreLevel>> opened = open();
    failure = opened.status();
    // Of several places, some may be made.
    if (failure.code() != StatusCode::not_found && failure.code() != StatusCode::invalid_argument) return opened;
    sleep_for(kMakingPause);
  }
  return Status(StatusCode::busy, std::string(failure.message()), std::string(failure.subject()),
                std::string(failure.hint()));
}
}  // namespace

Status RunSession::prepare_shared_levels() {
  for (const LevelSpec& spec : settings_.levels) {
    if (spec.holds_sets()) level_places_.push_back({spec, {}, /*away=*/spec.kind != LevelSpec::Kind::local, {}});
  }
  levels_.resize(level_places_.size());
  const Result<UniqueId> run = ranks_->rank() == 0 ? UniqueId::random() : UniqueId();
  VARVE_TRY(agree(*ranks_, run.status()));
  VARVE_ASSIGN(const ByteVector told, ranks_->broadcast(run->bytes, 0));
  VARVE_ASSIGN(const ByteSpan id, ByteReader(told).bytes(run_.bytes.size()));
  std::copy(id.begin(), id.end(), run_.bytes.begin());
  VARVE_TRY(look_for_away_levels());
  const LevelPlace& nearest = level_places_.front();
  family_ = job_memory(settings_.shared_memory, settings_.job, nearest.spec, nearest.path, node_name_);
  return {};
}

/// Looks for the stores that all ranks share and that are away, as all are at first. Rank 0 makes those that are not
/// there yet. One behind the nearest may stay away. Collective.
Status RunSession::look_for_away_levels() {
  Status looked;
  ByteVector mine;
  ByteWriter out(mine);
  for (size_t level = 0; level < level_places_.size() && ranks_->rank() == 0 && looked.ok(); ++level) {
    LevelPlace& place = level_places_[level];
    if (!place.away) continue;
    const Result<std::string> path =
        StoreLevel::prepare(*environment_.files, place.spec, StoreLevel::path_of(place.spec, {}), settings_.key_file);
    out.text(path.ok() ? *path : std::string());
    if (path.ok()) {
      place.why_away = {};
    } else if (level > 0 && StoreLevel::is_away(path.status())) {
      note_away(level, path.status());
    } else {
      looked = path.status();
    }
  }
  VARVE_TRY(agree(*ranks_, looked));
  VARVE_ASSIGN(const ByteVector told, ranks_->broadcast(mine, 0));
  ByteReader in(told);
  for (LevelPlace& place : level_places_) {
    if (!place.away) continue;
    VARVE_ASSIGN(place.path, in.text());
    place.away = place.path.empty();
  }
  return {};
}

/// Whether this rank has to do with a level also while it computes. Servers need not know those who have not.
bool RunSession::works_on(uint32_t level) const {
  if (!level_places_[level].spec.is_on_servers() || ranks_->rank() == 0) return true;
  return level == 0 ? plan_.own_group().leader() == ranks_->rank() : has_node_level() && speaks_for_node();
}

/// Opens that with which this rank works, unless it is open. Collective.
Status RunSession::open_levels() {
  Status opened;
  for (uint32_t level = 0; level < levels_.size() && opened.ok(); ++level) {
    LevelPlace& place = level_places_[level];
    if (place.away || !works_on(level)) continue;
    const Status made = open_level(level).status();
    if (!made.ok() && level > 0 && speaks_for(level) && StoreLevel::is_away(made)) {
      note_away(level, made);
    } else {
      opened = made;
    }
  }
  VARVE_TRY(agree(*ranks_, opened));
  return agree_on_away();
}

/// By this rank, when it needs the level.
Result<const Store*> RunSession::open_level(size_t level) {
  const LevelPlace& place = level_places_[level];
  if (place.away) return Status::io_error("the level cannot be reached", place.spec.name());
  if (!levels_[level]) {
    VARVE_ASSIGN(levels_[level],
                 StoreLevel::open(*environment_.files, place.spec, place.path, settings_.key_file, clock_));
  }
  return &levels_[level]->store();
}

/// By the rank that speaks for the level, and then by all in agree_on_away().
void RunSession::note_away(size_t level, const Status& why) {
  LevelPlace& place = level_places_[level];
  const bool told = !place.why_away.ok();
  place.away = true;
  place.why_away = why;
  if (told) return;
  warnings_.add(why.with_context(fmt::format("the run goes on without {} until it can be reached", place.spec.name())));
}

/// Collective.
Status RunSession::agree_on_away() {
  std::vector<uint64_t> away;
  for (const LevelPlace& place : level_places_) away.push_back(place.away ? 1 : 0);
  VARVE_TRY(ranks_->all_max(away));
  for (size_t level = 0; level < away.size(); ++level) level_places_[level].away = away[level] != 0;
  return {};
}

void RunSession::close_idle_levels() {
  for (uint32_t level = 0; level < levels_.size(); ++level) {
    if (!works_on(level)) levels_[level].reset();
  }
}

/// The store of a level; one that is away is opened when it is back.
std::function<Result<const Store*>()> RunSession::store_to_push_to(size_t level) const {
  if (levels_[level]) return [store = &levels_[level]->slowed()]() -> Result<const Store*> { return store; };
  const LevelSpec& spec = level_places_[level].spec;
  // The program may be in another folder by then.
  const std::string path =
      spec.is_on_servers() ? spec.name() : std::filesystem::absolute(StoreLevel::path_of(spec, {})).string();
  return [this, spec, path, makes = speaks_for(level),
          opened = std::shared_ptr<StoreLevel>()]() mutable -> Result<const Store*> {
    FileSystem& files = *environment_.files;
    const std::string& key_file = settings_.key_file;
    // One rank makes it, and the others wait for that.
    if (makes) VARVE_TRY(StoreLevel::prepare(files, spec, path, key_file).status());
    VARVE_ASSIGN(opened, open_when_made([&] { return StoreLevel::open(files, spec, path, key_file, clock_); }));
    return &opened->slowed();
  };
}

/// Whether there is no whole checkpoint, rather than none that can be reached: a run that starts anew would do it all
/// again. Collective.
Status RunSession::check_all_were_reached() {
  const auto away =
      std::find_if(level_places_.begin(), level_places_.end(), [](const LevelPlace& place) { return place.away; });
  if (away == level_places_.end()) return {};
  return follow_first(
      *ranks_,
      Status::io_error(fmt::format("no whole checkpoint is in the levels that can be reached, and {} cannot: {}",
                                   away->spec.name(), away->why_away.message()),
                       std::string(away->why_away.subject()),
                       "try again when it is there, or take it out of the levels to start anew"));
}

}  // namespace varve
