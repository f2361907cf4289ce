// The levels of a run: which of them this rank has open, and which are away.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "comm/agreement.h"
#include "runtime/job_memory.h"
#include "runtime/run_session.h"

namespace varve {

namespace {
/// How long a store may take to be made by another rank, and how often to look.
constexpr std::chrono::milliseconds kMakingPatience(5000), kMakingPause(50);

/// What rank 0 decides for all.
struct SharedStart {
  struct Place {
    std::string path;  ///< empty for those that each node has
    bool away = false;
    Status why_away;  ///< on rank 0
  };
  UniqueId run;
  std::vector<Place> places;  ///< of the stores
};

/// Makes the stores that all ranks share. One behind the nearest may be away.
Result<SharedStart> prepare_start(FileSystem& files, const std::vector<LevelSpec>& stores,
                                  const std::string& key_file) {
  SharedStart start;
  VARVE_ASSIGN(start.run, UniqueId::random());
  for (const LevelSpec& spec : stores) {
    SharedStart::Place& place = start.places.emplace_back();
    if (spec.kind == LevelSpec::Kind::local) continue;
    Result<std::string> path = StoreLevel::prepare(files, spec, StoreLevel::path_of(spec, {}), key_file);
    if (path.ok()) {
      place.path = std::move(*path);
      continue;
    }
    if (start.places.size() == 1 || !StoreLevel::is_away(path.status())) return path.status();
    place.why_away = path.status();
  }
  return start;
}

Result<SharedStart> agree_on_start(Communicator& ranks, FileSystem& files, const std::vector<LevelSpec>& stores,
                                   const std::string& key_file) {
  Result<SharedStart> prepared = ranks.rank() == 0 ? prepare_start(files, stores, key_file) : SharedStart();
  VARVE_TRY(agree(ranks, prepared.status()));
  SharedStart start = std::move(*prepared);
  ByteVector mine;
  ByteWriter out(mine);
  out.bytes(start.run.bytes);
  for (const SharedStart::Place& place : start.places) {
    out.text(place.path);
    out.u8(place.why_away.ok() ? 0 : 1);
  }
  VARVE_ASSIGN(const ByteVector bytes, ranks.broadcast(mine, 0));
  ByteReader in(bytes);
  VARVE_ASSIGN(const ByteSpan run, in.bytes(start.run.bytes.size()));
  std::copy(run.begin(), run.end(), start.run.bytes.begin());
  start.places.resize(stores.size());
  for (SharedStart::Place& place : start.places) {
    VARVE_ASSIGN(const std::string_view path, in.text());
    VARVE_ASSIGN(const uint8_t away, in.u8());
    place.path = path;
    place.away = away != 0;
  }
  return start;
}

/// Opens a level that another rank makes, perhaps just now. busy: it is not there yet.
Result<std::unique_ptr<StoreLevel>> open_when_made(const std::function<Result<std::unique_ptr<StoreLevel>>()>& open) {
  Status failure;
  for (std::chrono::milliseconds waited(0); waited < kMakingPatience; waited += kMakingPause) {
    Result<std::unique_ptr<StoreLevel>> opened = open();
    failure = opened.status();
    // Of several places, some may be made.
    if (failure.code() != StatusCode::not_found && failure.code() != StatusCode::invalid_argument) return opened;
    std::this_thread::sleep_for(kMakingPause);
  }
  return Status(StatusCode::busy, std::string(failure.message()), std::string(failure.subject()),
                std::string(failure.hint()));
}
}  // namespace

Status RunSession::prepare_shared_levels() {
  FileSystem& files = *environment_.files;
  std::vector<LevelSpec> stores;
  std::copy_if(settings_.levels.begin(), settings_.levels.end(), std::back_inserter(stores),
               [](const LevelSpec& spec) { return spec.holds_sets(); });
  VARVE_ASSIGN(const SharedStart start, agree_on_start(*ranks_, files, stores, settings_.key_file));
  run_ = start.run;
  for (size_t i = 0; i < stores.size(); ++i) {
    const SharedStart::Place& place = start.places[i];
    level_places_.push_back({stores[i], place.path, place.away, {}});
    if (!place.why_away.ok()) note_away(i, place.why_away);
  }
  levels_.resize(stores.size());
  family_ = job_memory(settings_.shared_memory, settings_.job, stores.front(), start.places.front().path, node_name_);
  return {};
}

/// Whether this rank has to do with a level also while it computes. Servers need not know those who have not.
bool RunSession::works_on(uint32_t level) const {
  if (!level_places_[level].spec.is_on_servers() || ranks_->rank() == 0) return true;
  return level == 0 ? plan_.own_group().leader() == ranks_->rank() : has_node_level() && speaks_for_node();
}

/// Opens what is not open, or only that with which this rank works. Collective.
Status RunSession::open_levels(bool all) {
  Status opened;
  for (uint32_t level = 0; level < levels_.size() && opened.ok(); ++level) {
    LevelPlace& place = level_places_[level];
    if (levels_[level] || place.away || (!all && !works_on(level))) continue;
    Result<std::unique_ptr<StoreLevel>> made =
        StoreLevel::open(*environment_.files, place.spec, place.path, settings_.key_file, clock_);
    if (made.ok()) {
      levels_[level] = std::move(*made);
    } else if (level > 0 && speaks_for(level) && StoreLevel::is_away(made.status())) {
      note_away(level, made.status());
    } else {
      opened = made.status();
    }
  }
  VARVE_TRY(agree(*ranks_, opened));
  return agree_on_away();
}

/// By the rank that speaks for the level, and then by all in agree_on_away().
void RunSession::note_away(size_t level, const Status& why) {
  LevelPlace& place = level_places_[level];
  place.away = true;
  place.why_away = why;
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

/// Looks once more for what was away when the session was opened. Collective.
Status RunSession::look_for_away_levels() {
  for (LevelPlace& place : level_places_) {
    if (!place.away) continue;
    ByteVector mine;
    if (ranks_->rank() == 0) {
      const Result<std::string> path =
          StoreLevel::prepare(*environment_.files, place.spec, StoreLevel::path_of(place.spec, {}), settings_.key_file);
      if (path.ok()) ByteWriter(mine).bytes(as_bytes(*path));
    }
    VARVE_ASSIGN(const ByteVector path, ranks_->broadcast(mine, 0));
    if (path.empty()) continue;
    place.path = as_text(path);
    place.away = false;
  }
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
