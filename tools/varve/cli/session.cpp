#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "runtime/settings.h"

namespace varve::cli {

bool is_said(const Settings& run, std::string_view name) {
  return std::any_of(run.options.begin(), run.options.end(), [&](const EffectiveOption& option) {
    return option.name == name && option.origin != OptionOrigin::preset && option.text != "none";
  });
}

Result<std::string> Session::store_path() const {
  if (!options_.store.empty()) return options_.store;
  const char* environment = std::getenv("VARVE_STORE");
  if (environment != nullptr && *environment != '\0') return std::string(environment);
  VARVE_ASSIGN(const Settings run, resolve_settings({}, SettingsSources::of_process()));
  if (is_said(run, "store")) return run.store;
  if (is_said(run, "levels"))
    return Status::invalid_argument("levels are named, and no store", to_string(run.levels),
                                    "give --store with the place of one of them; `varve levels` shows what they have");
  return Status::invalid_argument(
      "no store is named", "", "give --store STORE, or `export VARVE_STORE=STORE`; `varve init DIR` makes a new one");
}

Result<std::unique_ptr<Store>> Session::open_store() {
  VARVE_ASSIGN(const std::string location, store_path());
  return open_store(location);
}

Result<std::unique_ptr<Store>> Session::open_store(const std::string& location) {
  VARVE_ASSIGN(StorePlace* const place, open_place(location));
  VARVE_ASSIGN(std::unique_ptr<Store> store, varve::open_store(*place));
  store->watch_damage(damage_[place]);
  return store;
}

void Session::mark_damage() {
  constexpr const char* kMend = "`varve repair` mends it, with --from STORE if another one has what is lost";
  for (const auto& [place, found] : damage_) {
    if (found.empty()) continue;
    const Result<std::unique_ptr<Store>> store = varve::open_store(*place);
    const Result<std::set<ArenaId>> marked = store.ok() ? found.condemn(**store) : store.status();
    if (marked.ok() && marked->empty()) continue;
    const std::string& where = place->backend().root();
    if (marked.ok()) {
      warn(Status::corrupt(
          fmt::format("{} damaged, and marked: what is saved from now on does not rest on that",
                      marked->size() == 1 ? "an arena is" : fmt::format("{} arenas are", marked->size())),
          where, kMend));
    } else if (marked.status().code() != StatusCode::permission_denied) {
      warn(Status::corrupt(
          "what is damaged could not be marked, so that new sets may rest on it: " + marked.status().to_string(), where,
          kMend));
    }
  }
}

Result<std::unique_ptr<Store>> Session::open_source(const std::string& location) {
  Result<std::unique_ptr<Store>> store = open_store(location);
  if (store.status().code() != StatusCode::not_found) return store;
  const Status& missing = store.status();
  return Status::not_found(std::string(missing.message()), std::string(missing.subject()),
                           "name a store that has the sets");
}

Result<std::unique_ptr<CommandLevels>> Session::open_levels(const std::string& text, CommandLevels::Use use) {
  VARVE_ASSIGN(std::unique_ptr<CommandLevels> levels, CommandLevels::open({text, said_store(), reach()}, use));
  for (const Status& warning : levels->take_warnings()) warn(warning);
  return levels;
}

ReachOptions Session::reach_of(const std::string& location) const {
  ReachOptions reach = options_.reach;
  const char* environment = std::getenv("VARVE_STORE");
  if (!options_.store.empty() || (environment != nullptr && *environment != '\0')) return reach;
  const Result<Settings> run = resolve_settings({}, SettingsSources::of_process());
  if (!run.ok() || !is_said(*run, "store") || run->store != location) return reach;
  if (reach.key_file.empty() && is_said(*run, "key_file")) reach.key_file = run->reach.key_file;
  if (reach.s3_endpoint.empty() && is_said(*run, "s3_endpoint")) reach.s3_endpoint = run->reach.s3_endpoint;
  return reach;
}

Result<StorePlace*> Session::open_place(const std::string& location) {
  return keep(open_location(location, {.reach = reach_of(location)}));
}

Result<StorePlace*> Session::open_any_servers(const std::string& location) {
  return keep(open_location(location, {.reach = reach_of(location), .any_servers = true}));
}

Result<StorePlace*> Session::keep(Result<std::unique_ptr<StorePlace>> opened) {
  VARVE_TRY(opened.status());
  places_.push_back(std::move(*opened));
  return places_.back().get();
}

Result<Communicator*> Session::join() {
  VARVE_ASSIGN(Communicator* const ranks, ranks_.join());
  silent_ = ranks->rank() != 0;
  messages_.be_silent(silent_);
  return ranks;
}

Status Session::give_up(const Status& why) {
  messages_.be_silent(false);
  const Result<Communicator*> ranks = ranks_.join();
  if (!ranks.ok() || (*ranks)->rank_count() == 1) return why;
  messages_.error(why);
  ranks_.give_up(exit_code_of(why.code()));
  return why;
}

void Session::print(std::string_view text) {
  if (silent_) return;
  errno = 0;
  // Later calls succeed again, as what was not written is thrown away.
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && print_errno_ == 0) print_errno_ = errno;
}

void Session::announce(std::string_view line, const Json& facts) {
  if (log_form() != LogForm::text) return log(line, facts);
  print(std::string(line) + "\n");
}

Status Session::finish_printing() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  if (print_errno_ == 0) print_errno_ = errno != 0 ? errno : EIO;
  return failed_standard_output(print_errno_);
}

ProgressSink& Session::begin_progress() {
  progress_ = std::make_unique<ProgressBar>(messages_);
  return *progress_;
}

}  // namespace varve::cli
