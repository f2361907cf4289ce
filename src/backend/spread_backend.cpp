#include "backend/spread_backend.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "core/thread_pool.h"

namespace varve {

namespace {
/// Of places that are asked at the same time.
constexpr size_t kThreadsMax = 16;

/// Of all places: what one of them has lost may be what is at another is about.
struct SpreadWatch final : PowerWatch {
  std::vector<std::unique_ptr<PowerWatch>> watches;
};
}  // namespace

SpreadPlaces::SpreadPlaces(std::vector<Backend*> places)
    : places_(std::move(places)),
      root_(places_.front()->root()),
      arenas_(join_path(root_, "arenas")),
      spread_(static_cast<uint32_t>(places_.size())) {}

SpreadPlaces::Home SpreadPlaces::home_of(const std::string& name) const {
  if (parent_path(name) == arenas_) {
    const std::string base = base_name(name);
    const Result<ArenaId> arena = ArenaId::parse(std::string_view(base).substr(0, base.find('.')));
    const uint32_t place = arena.ok() ? spread_.place_of(*arena) : 0;
    return {place, name_at(place, name), arena.ok()};
  }
  // An index folder or what is in it.
  for (const std::string& folder : {name, parent_path(name)}) {
    if (parent_path(folder) != root_) continue;
    const std::optional<uint32_t> place = index_folder_place(base_name(folder), spread_.places());
    if (!place) continue;
    return {*place, join_path(places_[*place]->root(), index_folder_name(0)) + name.substr(folder.size()), false};
  }
  return {0, name, false};
}

std::string SpreadPlaces::name_at(size_t place, const std::string& name) const {
  return places_[place]->root() + name.substr(root_.size());
}

template <class Act>
Status SpreadPlaces::at_all(const Act& act) const {
  return parallel_for(places_.size(), std::min(places_.size(), kThreadsMax),
                      [&](size_t place) -> Status { return act(*places_[place], name_at(place, arenas_)); });
}

template <class T, class Ask>
Result<std::vector<T>> SpreadPlaces::ask_all(const Ask& ask) const {
  std::vector<T> answers(places_.size());
  const Status asked = parallel_for(places_.size(), std::min(places_.size(), kThreadsMax), [&](size_t place) -> Status {
    VARVE_ASSIGN(answers[place], ask(*places_[place], name_at(place, arenas_)));
    return {};
  });
  VARVE_TRY(asked);
  return answers;
}

uint32_t StrayArenas::place_of(const std::string& name, const SpreadPlaces::Home& home) const {
  const MutexLock lock(mutex_);
  const auto found = places_.find(base_name(name));
  return found == places_.end() ? home.place : found->second;
}

void StrayArenas::remember(const std::string& name, const SpreadPlaces::Home& home, uint32_t place) {
  const MutexLock lock(mutex_);
  if (place == home.place) {
    places_.erase(base_name(name));
  } else {
    places_[base_name(name)] = place;
  }
}

template <class T, class Question>
Result<T> SpreadBackend::ask(const std::string& name, const Question& question) {
  const SpreadPlaces::Home home = places_.home_of(name);
  if (!home.is_arena) return question(places_.at(home), home.name);
  const uint32_t count = spread().places();
  std::vector<uint32_t> order = {stray_.place_of(name, home), home.place};
  for (uint32_t place = 0; place < count; ++place) order.push_back(place);
  std::vector<bool> asked(count);
  Status missing;
  for (const uint32_t place : order) {
    if (asked[place]) continue;
    asked[place] = true;
    Result<T> found = question(places_[place], places_.name_at(place, name));
    if (found.ok()) stray_.remember(name, home, place);
    // A place that cannot answer may be the one that has it.
    if (found.status().code() != StatusCode::not_found) return found;
    if (place == home.place) missing = found.status();
  }
  return missing;
}

bool SpreadBackend::note_listed(const std::string& name, uint32_t place, bool is_new) {
  const SpreadPlaces::Home home = places_.home_of(name);
  const bool taken = is_new || (home.is_arena && home.place == place);
  if (home.is_arena && taken) stray_.remember(name, home, place);
  return taken;
}

// Objects

Result<std::unique_ptr<ObjectWriter>> SpreadBackend::put(const std::string& name, PutOptions options) {
  const SpreadPlaces::Home home = places_.home_of(name);
  return places_.at(home).put(home.name, options);
}

Result<std::unique_ptr<RangeReader>> SpreadBackend::open(const std::string& name) {
  return ask<std::unique_ptr<RangeReader>>(name,
                                           [](Backend& place, const std::string& there) { return place.open(there); });
}

Result<FileStatus> SpreadBackend::status(const std::string& name) {
  return ask<FileStatus>(name, [](Backend& place, const std::string& there) { return place.status(there); });
}

Result<std::vector<DirectoryEntry>> SpreadBackend::list(const std::string& folder) {
  if (folder != places_.arenas()) {
    const SpreadPlaces::Home home = places_.home_of(folder);
    return places_.at(home).list(home.name);
  }
  using Entries = std::vector<DirectoryEntry>;
  VARVE_ASSIGN(const std::vector<Entries> listed,
               places_.ask_all<Entries>([](Backend& place, const std::string& there) { return place.list(there); }));
  Entries all;
  std::set<std::string> names;
  for (uint32_t place = 0; place < listed.size(); ++place) {
    for (const DirectoryEntry& entry : listed[place]) {
      const bool is_new = names.insert(entry.name).second;
      note_listed(join_path(folder, entry.name), place, is_new);
      if (is_new) all.push_back(entry);
    }
  }
  return all;
}

Result<std::map<std::string, Result<FileStatus>>> SpreadBackend::list_with_status(const std::string& folder) {
  if (folder != places_.arenas()) {
    const SpreadPlaces::Home home = places_.home_of(folder);
    return places_.at(home).list_with_status(home.name);
  }
  using Objects = std::map<std::string, Result<FileStatus>>;
  VARVE_ASSIGN(std::vector<Objects> listed, places_.ask_all<Objects>([](Backend& place, const std::string& there) {
    return place.list_with_status(there);
  }));
  Objects all;
  for (uint32_t place = 0; place < listed.size(); ++place) {
    for (auto& [name, status] : listed[place]) {
      if (note_listed(join_path(folder, name), place, !all.contains(name))) all.insert_or_assign(name, status);
    }
  }
  return all;
}

Result<std::vector<std::string>> SpreadBackend::unfinished(const std::string& folder) {
  const SpreadPlaces::Home home = places_.home_of(folder);
  using Names = std::vector<std::string>;
  std::vector<Names> found(1);
  if (folder == places_.arenas()) {
    VARVE_ASSIGN(found, places_.ask_all<Names>(
                            [](Backend& place, const std::string& there) { return place.unfinished(there); }));
  } else {
    VARVE_ASSIGN(found[0], places_.at(home).unfinished(home.name));
  }
  std::set<std::string> names;
  for (const Names& there : found) {
    for (const std::string& name : there) names.insert(join_path(folder, base_name(name)));
  }
  return Names(names.begin(), names.end());
}

Status SpreadBackend::remove(const std::string& name) {
  const SpreadPlaces::Home home = places_.home_of(name);
  if (!home.is_arena) return places_.at(home).remove(home.name);
  Status failure = Status::not_found("there is no such arena", name);
  bool removed = false;
  stray_.remember(name, home, home.place);
  for (uint32_t place = 0; place < spread().places(); ++place) {
    const Status outcome = places_[place].remove(places_.name_at(place, name));
    removed = removed || outcome.ok();
    if (!outcome.ok() && outcome.code() != StatusCode::not_found) failure = outcome;
  }
  return removed && failure.code() == StatusCode::not_found ? Status() : failure;
}

// What concerns folders

Status SpreadBackend::settle(const std::string& folder) {
  if (folder == places_.arenas())
    return places_.at_all([](Backend& place, const std::string& there) { return place.settle(there); });
  const SpreadPlaces::Home home = places_.home_of(folder);
  return places_.at(home).settle(home.name);
}

Result<std::unique_ptr<PowerWatch>> SpreadBackend::watch_power() {
  auto all = std::make_unique<SpreadWatch>();
  VARVE_ASSIGN(all->watches, places_.ask_all<std::unique_ptr<PowerWatch>>(
                                 [](Backend& place, const std::string&) { return place.watch_power(); }));
  return std::unique_ptr<PowerWatch>(std::move(all));
}

Result<uint64_t> SpreadBackend::free_bytes(const std::string& folder) {
  if (folder != places_.arenas()) {
    const SpreadPlaces::Home home = places_.home_of(folder);
    return places_.at(home).free_bytes(home.name);
  }
  VARVE_ASSIGN(
      const std::vector<uint64_t> bytes,
      places_.ask_all<uint64_t>([](Backend& place, const std::string& there) { return place.free_bytes(there); }));
  const uint64_t least = *std::min_element(bytes.begin(), bytes.end());
  return least > UINT64_MAX / bytes.size() ? UINT64_MAX : least * bytes.size();
}

std::string SpreadBackend::shown_path(const std::string& name) const {
  const SpreadPlaces::Home home = places_.home_of(name);
  if (!home.is_arena) return places_.at(home).shown_path(home.name);
  const uint32_t place = stray_.place_of(name, home);
  return places_[place].shown_path(places_.name_at(place, name));
}

Status SpreadBackend::make_folder(const std::string& folder) {
  if (folder == places_.arenas())
    return places_.at_all([](Backend& place, const std::string& there) { return place.make_folder(there); });
  const SpreadPlaces::Home home = places_.home_of(folder);
  return places_.at(home).make_folder(home.name);
}

Status SpreadBackend::remove_folder(const std::string& folder) {
  const SpreadPlaces::Home home = places_.home_of(folder);
  return places_.at(home).remove_folder(home.name);
}

}  // namespace varve
