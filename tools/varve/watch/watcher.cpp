#include "watch/watcher.h"

#include <algorithm>
#include <filesystem>

#include "core/file_system.h"
#include "engine/folder_source.h"
#include "watch/originals.h"

namespace varve {

namespace {
using Clock = SetTracker::Clock;
/// How long a request to stop may go unnoticed, and how close changes may follow one another that are looked at one by
/// one.
constexpr std::chrono::milliseconds kNapMax(250), kSettle(200);
constexpr const char* kHowToKnow =
    "have the program write a file when it is done with a set, and name it with --end-marker";

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Status check_all_unchanged(const FoundSet& set) {
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::regular) VARVE_TRY(check_unchanged(set.folder, file));
  }
  return {};
}
}  // namespace

Watcher::Watcher(const Store& store, WatchOptions options, WatchDuty duty, WatchListener& listener, FolderEvents events)
    : store_(store),
      options_(std::move(options)),
      duty_(std::move(duty)),
      listener_(listener),
      events_(std::move(events)),
      tracker_(milliseconds_of(options_.quiet_seconds), [this](const FoundSet& set, bool has_changed) {
        return options_.completeness.quiet_from(set, has_changed ? std::nullopt : std::optional(calendar_seconds()));
      }) {}

Result<std::unique_ptr<Watcher>> Watcher::open(const Store& store, WatchOptions options, WatchDuty duty,
                                               WatchListener& listener) {
  VARVE_ASSIGN(FolderEvents events, FolderEvents::open());
  std::unique_ptr<Watcher> watcher(
      new Watcher(store, std::move(options), std::move(duty), listener, std::move(events)));
  for (const std::string& folder : watcher->options_.folders) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(folder, error);
    if (error) return Status::from_errno(error.value(), "watch", folder);
    const std::string job = watcher->options_.job.empty() ? path.filename().string() : watcher->options_.job;
    VARVE_TRY(check_job_name(job).with_hint(Remedy::name_the_job));
    for (size_t i = 0; i < watcher->finders_.size(); ++i) {
      const std::string& other = watcher->finders_[i].folder();
      if (is_below(path.string(), other) || is_below(other, path.string()))
        return Status::invalid_argument("one watched folder lies in another", folder);
      if (watcher->jobs_[i] == job)
        return Status::invalid_argument("two watched folders would give sets of the same name", job,
                                        "watch each by a `varve watch` of its own, with --job");
    }
    VARVE_TRY(watcher->events_.add(path.string()));
    watcher->finders_.emplace_back(path.string(), watcher->options_.patterns, watcher->options_.rank_regex,
                                   watcher->options_.completeness.rank_count);
    watcher->jobs_.push_back(job);
  }
  return watcher;
}

std::vector<std::string> Watcher::folders() const {
  std::vector<std::string> folders;
  for (const SetFinder& finder : finders_) folders.push_back(finder.folder());
  return folders;
}

Status Watcher::run(bool once, ProgressSink& progress) {
  const auto rescan = milliseconds_of(options_.rescan_seconds);
  auto next_rescan = Clock::now();
  while (!progress.cancelled()) {
    if (Clock::now() >= next_rescan) {
      lost_ = true;
      next_rescan = Clock::now() + rescan;
    }
    VARVE_TRY(look_everywhere(progress));
    serve_due(progress);
    const auto next = tracker_.next_time(next_rescan);
    listener_.rests(tracker_);
    if (once && !anything_to_wait_for()) return {};
    auto nap = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    nap = std::clamp(nap, std::chrono::milliseconds(0), kNapMax);
    note(events_.wait(nap));
    if (!changed_.empty()) note(events_.wait(kSettle));  // what comes together is looked at once
  }
  return {};
}

bool Watcher::anything_to_wait_for() const {
  return std::any_of(tracker_.entries().begin(), tracker_.entries().end(), [](const auto& item) {
    return item.second.state == WatchState::waiting && item.second.lacking.empty();
  });
}

void Watcher::note(const FolderEvents::Changes& changes) {
  changed_.insert(changes.folders.begin(), changes.folders.end());
  lost_ = lost_ || changes.lost;
}

Status Watcher::look_everywhere(ProgressSink& progress) {
  if (!lost_ && changed_.empty()) return {};
  for (size_t where = 0; where < finders_.size(); ++where) {
    const Status looked = look(where, lost_, progress);
    // What vanishes while it is looked at is told as a change, and looked at anew.
    if (looked.code() == StatusCode::not_found && posix_file_system().stat(finders_[where].folder()).ok()) continue;
    VARVE_TRY(looked);
  }
  lost_ = false;
  changed_.clear();
  return {};
}

Status Watcher::look(size_t where, bool everything, ProgressSink& progress) {
  SetFinder& finder = finders_[where];
  if (!everything && !may_have_changed(finder.folder())) return {};
  const bool knew_rank_folders = finder.rank_folder_count() > 0;
  VARVE_ASSIGN(const std::vector<std::string> others, finder.choose_pattern());
  if (!knew_rank_folders && finder.rank_folder_count() > 0)
    progress.warning(Status::unsupported("folders that are called as ranks are, by the pattern '" +
                                             finder.pattern().text() + "', are not watched as a set each",
                                         finder.folder(), "any --pattern is taken as it is"));
  for (const std::string& other : others)
    progress.warning(
        Status::unsupported("what fits '" + other + "' is not watched, but what fits '" + finder.pattern().text() + "'",
                            finder.folder(), "name one pattern, and watch the rest as another job"));
  if (options_.remove_originals && !finder.pattern().has_step())
    return Status::invalid_argument("files that tell no step are not removed: the program goes on with them",
                                    finder.pattern().text());
  // The store may be far away: it is asked when everything is looked at, not with each change. What is found in between
  // says it itself.
  if (everything && finder.pattern().is_default()) {
    const Result<bool> has_times = Catalog(store_).has_times(jobs_[where]);
    if (has_times.ok() && *has_times) finder.note_times();
  }
  Result<std::vector<FoundSet>> sets =
      finder.pattern().folder_depth() == 0 ? finder.find(progress) : look_into_folders(where, everything, progress);
  VARVE_TRY(sets.status());
  std::vector<FoundSet> unknown;
  for (const FoundSet& set : *sets) {
    if (tracker_.find(where, set) == nullptr) unknown.push_back({set.folder, set.step, {}, set.goes_by_time});
  }
  tracker_.update(where, jobs_[where], std::move(*sets), Clock::now());
  for (const FoundSet& set : unknown) listener_.happened({WatchEvent::Kind::found, *tracker_.find(where, set)});
  return {};
}

Result<std::vector<FoundSet>> Watcher::look_into_folders(size_t where, bool everything, ProgressSink& progress) {
  VARVE_ASSIGN(std::vector<FoundSet> folders, finders_[where].find_folders());
  std::vector<FoundSet> sets;
  for (FoundSet& set : folders) {
    const SetTracker::Entry* const known = tracker_.find(where, set);
    if (known != nullptr && !everything && !may_have_changed(set.folder)) {
      set.files = known->found.files;
    } else {
      const Status looked = finders_[where].look_into(set, progress);
      if (looked.code() == StatusCode::not_found) continue;
      VARVE_TRY(looked);
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

bool Watcher::may_have_changed(const std::string& folder) const {
  return std::any_of(changed_.begin(), changed_.end(),
                     [&](const std::string& changed) { return is_below(changed, folder); });
}

void Watcher::serve_due(ProgressSink& progress) {
  while (!progress.cancelled()) {
    SetTracker::Entry* const entry = tracker_.next_due(Clock::now());
    if (entry == nullptr) return;
    const Status served = serve(*entry, progress);
    if (served.ok() || served.code() == StatusCode::cancelled) continue;
    if (served.code() == StatusCode::busy || served.code() == StatusCode::not_found) {
      tracker_.wait(*entry, std::string(served.message()), Clock::now());
      continue;
    }
    const bool told = entry->state == WatchState::failed && entry->failure.to_string() == served.to_string();
    tracker_.fail(*entry, served, Clock::now());
    if (!told) listener_.happened({WatchEvent::Kind::failed, *entry});
  }
}

const SetFinder& Watcher::finder_of(const FoundSet& set) const {
  const auto finder = std::find_if(finders_.begin(), finders_.end(),
                                   [&](const SetFinder& one) { return is_below(set.folder, one.folder()); });
  return *finder;
}

Result<FoundSet> Watcher::look_again(const FoundSet& found, ProgressSink& progress) const {
  const SetFinder& finder = finder_of(found);
  FoundSet now = {found.folder, found.step, {}, found.goes_by_time};
  if (finder.pattern().folder_depth() > 0) {
    VARVE_TRY(finder.look_into(now, progress));
    return now;
  }
  VARVE_ASSIGN(std::vector<FoundSet> all, finder.find(progress));
  for (FoundSet& one : all) {
    if (one.step == found.step || one.goes_by_time) now = std::move(one);
  }
  return now;
}

Status Watcher::check_as_found(const FoundSet& found) const {
  VARVE_ASSIGN(const FoundSet now, look_again(found, null_progress()));
  return are_unchanged(found.files, now.files) ? Status() : changed_while_saved(found.folder);
}

Status Watcher::serve(SetTracker::Entry& entry, ProgressSink& progress) {
  // It may have changed without our being told.
  VARVE_ASSIGN(FoundSet now, look_again(entry.found, progress));
  if (!tracker_.update(entry, std::move(now), Clock::now())) return {};

  // Also of a set that is saved: what is written into a file that is removed would be lost.
  VARVE_ASSIGN(std::string lacking, being_written(entry.found));
  std::optional<bool> saved = false;
  if (lacking.empty()) {
    VARVE_ASSIGN(saved, is_saved(entry));
    if (!saved) return {};
  }
  if (lacking.empty() && !*saved) {
    VARVE_ASSIGN(lacking, options_.completeness.lacking(entry.found));
  }
  if (!lacking.empty()) {
    tracker_.wait(entry, std::move(lacking), Clock::now());
    return {};
  }
  if (!*saved) VARVE_TRY(save(entry, progress));
  VARVE_TRY(bring_along(entry.name, progress));
  if (options_.remove_originals) VARVE_TRY(remove(entry, progress));
  SetTracker::settle(entry, WatchState::saved);
  return {};
}

Result<std::optional<bool>> Watcher::is_saved(SetTracker::Entry& entry) {
  const std::optional<bool> not_now;
  VARVE_ASSIGN(const std::optional<FolderMatch> match, match_with_saved(entry));
  VARVE_ASSIGN(const std::string note, find_removal_note(finder_of(entry.found).folder(), entry.found, entry.name.job));
  auto wait = [&](std::string lacking) {
    tracker_.wait(entry, std::move(lacking), Clock::now(), milliseconds_of(options_.rescan_seconds));
    return not_now;
  };
  if (match != FolderMatch::whole) {
    VARVE_ASSIGN(const std::string restoring, find_restoring_note(finder_of(entry.found).folder(), entry.found));
    if (!restoring.empty())
      return wait("a set is being restored there, or a restore was stopped, says " + restoring +
                  "; restore it once more, or remove this note to save what is there");
  }
  if (match == FolderMatch::differs) {
    SetTracker::settle(entry, WatchState::differs,
                       Status::already_exists("the store has another set of that name", entry.name.to_string(),
                                              "drop it with `varve drop`, or watch with another --job"));
    listener_.happened({WatchEvent::Kind::differs, entry});
    return not_now;
  }
  // What is left of a set whose removal was stopped looks like what a program has of it that makes it anew.
  if (match == FolderMatch::part && note.empty()) {
    // Of a set of several nodes all that is here may be but a share, once the program has written all of that.
    std::string lacking = "some of the set's files are there";
    if (duty_.saves_with_others) {
      VARVE_ASSIGN(lacking, options_.completeness.lacking(entry.found));
    }
    if (!lacking.empty()) return wait(std::move(lacking));
  }
  if (!match && !note.empty()) {
    VARVE_TRY(find(entry.name).status());  // whoever has all of it may be away
    return wait("its files are being removed, says " + note + "; remove this note to save what is left");
  }
  // One that failed was told of before: it is its way to other levels that is tried again.
  if (match && entry.failure.ok()) listener_.happened({WatchEvent::Kind::was_saved, entry});
  return std::optional(match.has_value());
}

Result<const Store*> Watcher::find(const SetName& name) const {
  if (!duty_.find) return nullptr;
  return duty_.find(name);
}

const Store& Watcher::store_of(const SetName& name) const {
  // Sets go on to be saved to the nearest store while a farther one cannot be asked.
  const Result<const Store*> found = find(name);
  return found.ok() && *found != nullptr ? **found : store_;
}

Result<std::optional<FolderMatch>> Watcher::match_with(const SetName& name, const FoundSet& found) const {
  const Store& store = store_of(name);
  const Result<SetRecord> record = Catalog(store).read(name);
  if (record.status().code() == StatusCode::not_found) return std::optional<FolderMatch>();
  VARVE_TRY(record.status());
  VARVE_ASSIGN(const FolderMatch match, match_folder(store, *record, found.files));
  return std::optional(match);
}

Result<std::optional<FolderMatch>> Watcher::match_with_saved(SetTracker::Entry& entry) const {
  if (entry.found.goes_by_time) return match_with_newest(entry);
  VARVE_ASSIGN(const std::optional<FolderMatch> match, match_with(entry.name, entry.found));
  if (match) return match;
  return match_with_count(entry);
}

Result<std::optional<FolderMatch>> Watcher::match_with_count(SetTracker::Entry& entry) const {
  const std::optional<FolderMatch> none;
  const bool is_time = time_of_step(entry.name.step).has_value();
  const std::optional<uint64_t> count = is_time ? namesake_of_step(entry.name.step) : std::nullopt;
  if (!count) return none;
  const SetName name{entry.name.job, *count};
  VARVE_ASSIGN(const std::optional<FolderMatch> match, match_with(name, entry.found));
  if (!match || match == FolderMatch::differs) return none;
  entry.name = name;
  return match;
}

Result<std::optional<FolderMatch>> Watcher::match_with_newest(SetTracker::Entry& entry) const {
  const Catalog catalog(store_);
  VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(entry.name.job));
  entry.name.step = entry.found.step;
  if (steps.empty()) return std::optional<FolderMatch>();
  VARVE_ASSIGN(const SetRecord newest, catalog.read({entry.name.job, steps.back()}));
  VARVE_ASSIGN(const FolderMatch match, match_folder(store_, newest, entry.found.files));
  if (match == FolderMatch::differs) {
    // The clock of the files may stand, or go back; what is there now is the newest all the same.
    if (time_of_step(steps.back() + 1))
      return Status::invalid_argument("no step comes next after the newest", newest.name.to_string(),
                                      Remedy::name_the_job);
    entry.name.step = std::max(entry.found.step, steps.back() + 1);
    return std::optional<FolderMatch>();
  }
  entry.name.step = steps.back();
  return std::optional(FolderMatch::whole);  // nobody removes any of them
}

Status Watcher::save(SetTracker::Entry& entry, ProgressSink& progress) {
  const auto begin = Clock::now();
  listener_.begins(entry.name);
  const SetToSave set = {entry.found, [&] { return check_as_found(entry.found); }};
  VARVE_ASSIGN(const SaveReport report, duty_.save(set, entry.name, progress));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  listener_.happened({WatchEvent::Kind::saved, entry, &report, seconds});
  return {};
}

Status Watcher::bring_along(const SetName& name, ProgressSink& progress) const {
  if (!duty_.bring_along) return {};
  Status brought = duty_.bring_along(name, progress);
  const StatusCode code = brought.code();
  if (code != StatusCode::busy && code != StatusCode::not_found) return brought;
  // These would mean that the set is not whole yet.
  return brought.with_code(StatusCode::io_error);
}

Status Watcher::remove(SetTracker::Entry& entry, ProgressSink& progress) {
  const Store& store = store_of(entry.name);
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store.backend().watch_power());
  VARVE_ASSIGN(const SetRecord record, Catalog(store).read(entry.name));
  VARVE_TRY(Catalog(store).make_durable(entry.name.job));
  SourceReader originals(entry.found.folder, entry.found.files);
  const Status compared = check_saved(store, record, originals, progress);
  // What a program has changed meanwhile differs, and nothing is wrong with it.
  if (compared.code() == StatusCode::corrupt) VARVE_TRY(check_all_unchanged(entry.found));
  VARVE_TRY(compared);
  // On some network file systems what is open stays in its folder when it is removed.
  originals.close_all();
  // What has come since it was found is not in the saved set.
  VARVE_TRY(check_as_found(entry.found));
  const OriginalsRules rules{.known_to_be_closed = !options_.completeness.end_marker.empty(),
                             .check_bytes = [&](uint32_t file) { return originals.check_unnoticed(file); }};
  const Status removed = remove_originals(finder_of(entry.found).folder(), entry.found, entry.name.job, rules);
  if (removed.code() == StatusCode::unsupported) {
    if (!warned_of_kept_) progress.warning(removed.with_context("the originals are kept").with_hint(kHowToKnow));
    warned_of_kept_ = true;
    return {};
  }
  VARVE_TRY(removed);
  listener_.happened({WatchEvent::Kind::removed, entry});
  return {};
}

}  // namespace varve
