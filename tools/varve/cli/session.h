#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "cli/program.h"
#include "cli/progress_bar.h"
#include "runtime/command_levels.h"
#include "service/location.h"
#include "store/condemn.h"
#include "store/store.h"

namespace varve {
struct Settings;
}

namespace varve::cli {

/// Whether the command line, the environment or the options file says it.
bool is_said(const Settings& run, std::string_view name);

/// What the command line says to all sub-commands.
struct CommonOptions {
  std::string store;  ///< empty: what runs are told (Session::store_path())
  ReachOptions reach;
  bool json = false;
  bool progress = false;  ///< with `json`: how far a long operation is, too
  LogRule log;
};

/// What a sub-command works with: the store that the user named, and the ways to tell the user something. One thread.
class Session {
 public:
  Session(const CommonOptions& options, MessageWriter& messages, ProgramRanks& ranks)
      : options_(options), messages_(messages), ranks_(ranks) {}

  bool json() const { return options_.json; }
  /// Empty where the command line does not say it.
  const ReachOptions& reach() const { return options_.reach; }
  /// Of --store; empty unless the command line says it.
  const std::string& said_store() const { return options_.store; }
  /// Where the store is (service/location.h): as --store, the environment or the options file has it. invalid_argument:
  /// nobody said, or levels were.
  Result<std::string> store_path() const;
  /// The store that the user named, or another one. What reaches it is kept as long as the session. May start threads.
  Result<std::unique_ptr<Store>> open_store();
  Result<std::unique_ptr<Store>> open_store(const std::string& location);
  /// One that has something to give, and so is of no use if it is made anew.
  Result<std::unique_ptr<Store>> open_source(const std::string& location);
  Result<StorePlace*> open_place(const std::string& location);
  /// The levels of this text, or of --store, or of what runs are told.
  Result<std::unique_ptr<CommandLevels>> open_levels(const std::string& text, CommandLevels::Use use);
  /// The servers that are named, whatever they have, or the one folder.
  Result<StorePlace*> open_any_servers(const std::string& location);

  /// The processes that do the command together, if it works_together(); what forks has to be done before. From then on
  /// only the first one prints, and whatever fails must be agreed on (comm/agreement.h). Collective.
  Result<Communicator*> join();
  /// Fails in the middle of what processes do together: if there are several, all are ended.
  Status give_up(const Status& why);

  /// Text for a person to standard output; Json for a program.
  void print(std::string_view text);
  void print_facts(const Json& facts) { print(json_line(facts)); }
  void warn(const Status& what) { messages_.warning(what); }
  /// A line of a log, on standard error. From any thread.
  void log(std::string_view event, const Json& facts = Json::object(), LogLevel level = LogLevel::info) {
    messages_.event(event, facts, level);
  }
  /// Text: messages are for people, and what a program that lives long says of itself goes to standard output. Else
  /// programs read that as they read its log, of which it is a line.
  LogForm log_form() const { return messages_.form(); }
  /// Such a word: in text without what the log says with it.
  void announce(std::string_view line, const Json& facts);
  bool is_verbose() const { return messages_.is_verbose(); }
  /// Marks what the stores that were opened have damaged, as far as the command has come across it, so that no later
  /// save rests on that.
  void mark_damage();
  /// Whether all that was printed has reached standard output.
  Status finish_printing();

  /// From now on until end_progress() a bar is shown, and signals are noted instead of ending the program. May start a
  /// thread.
  ProgressSink& begin_progress();
  void end_progress() { progress_.reset(); }

 private:
  /// As the command line has it, or else the options file, if that has named the store: it reaches no other one.
  ReachOptions reach_of(const std::string& location) const;
  Result<StorePlace*> keep(Result<std::unique_ptr<StorePlace>> opened);

  const CommonOptions& options_;
  MessageWriter& messages_;
  ProgramRanks& ranks_;
  bool silent_ = false;
  int print_errno_ = 0;  ///< why something did not reach standard output
  std::unique_ptr<ProgressBar> progress_;
  std::vector<std::unique_ptr<StorePlace>> places_;
  std::map<StorePlace*, FoundDamage> damage_;  ///< of what was read there
};

}  // namespace varve::cli
