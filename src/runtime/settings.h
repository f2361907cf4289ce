#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/chooser.h"
#include "core/bytes.h"
#include "core/file_system.h"
#include "engine/scheme.h"
#include "level/level_spec.h"
#include "runtime/cadence.h"
#include "runtime/stop_requests.h"
#include "service/location.h"
#include "varve/communicator.h"
#include "varve/session.h"

namespace varve {

/// Which ranks share a checkpoint thread.
struct GroupRule {
  enum class Kind : uint8_t { rank, socket, node, count } kind = Kind::node;
  uint32_t count = 0;  ///< of ranks, for `count`
  /// Groups of a given number of ranks are split where they would cross nodes: each node has a store of its own.
  bool stay_on_nodes = false;
};

/// Where an option's value came from; a later one wins over an earlier one.
enum class OptionOrigin : uint8_t { preset = 0, code = 1, file = 2, environment = 3, command_line = 4 };

/// An option as it was said.
struct EffectiveOption {
  std::string name;  ///< of the member of SessionOptions
  std::string text;  ///< the value, as the options file would say it; "none" where there is none
  OptionOrigin origin = OptionOrigin::preset;
  std::string where;  ///< "default", "the program", "varve.toml, line 3", "VARVE_STORE", "--levels"
};

/// How snapshots are made.
struct SnapshotRule {
  std::string shared_memory;  ///< the folder
  std::string spill_folder;   ///< for what has no room there; or "auto", or "none"
  WhenBusy when_busy = WhenBusy::automatic;
  double wait_limit = 0;  ///< seconds: for stage 2, and of that for other groups
};

/// How they become sets, and how much of the machine that takes.
struct SavingRule {
  CodecPolicy codec;
  bool adapts_effort = false;  ///< it is for when there is time
  Scheme scheme = Scheme::aware;
  std::optional<uint64_t> threads;
  uint64_t memory_bytes = 0;
  bool low_priority = true;
};

/// The options of a run with their meanings, checked. The defaults are in option_table.cpp, and in docs/GUIDE.md.
struct Settings {
  std::string store;              ///< as it was said; empty if levels were
  std::vector<LevelSpec> levels;  ///< also if a store was said; keep_last and write_bytes_per_second are in them
  ReachOptions reach;             ///< of servers and buckets
  std::string job;
  GroupRule group;
  SnapshotRule snapshots;
  SavingRule saving;
  CadenceRule cadence;
  StopRule stop;
  std::optional<uint64_t> keep_last;
  std::optional<double> write_bytes_per_second;
  std::string note_file;  ///< where rank 0 writes a RunNote; empty: nowhere
  bool take_over = false;
  bool variables_may_change = false;
  std::map<std::string, Redistribution> redistribution;  ///< by variable, in place of what the program says
  bool print_warnings = true;
  std::string metrics_file;  ///< or a folder; empty: none
  std::string timeline;      ///< the folder of the log; or "auto", or "none"

  /// All of them, in the order of docs/GUIDE.md.
  /// Whichever of store and levels counts.
  std::vector<EffectiveOption> options;
  /// What looks like a mistake and does not stop us, such as a variable named almost as one of ours.
  std::vector<Status> warnings;
};

/// What options are taken from, beside the program's own.
struct SettingsSources {
  /// By the options' names: what `varve` was told by its own options, of which --key-file is key_file.
  std::map<std::string, std::string> command_line{};
  std::map<std::string, std::string> environment;
  std::string program;          ///< its name, for `job`
  FileSystem* files = nullptr;  ///< where the options file is
  /// What VARVE_NODE says (placement.h); empty: nothing.
  std::string node() const;
  /// What this process was given.
  static SettingsSources of_process();
};

/// Resolves the options: command line, environment, file, code, default, the first that says something. Of store and
/// levels the one counts that was said by who comes first. invalid_argument: a value makes no sense, both of these were
/// said in one place, or the file has a key that is none; says which, and where. not_found: the options file that was
/// named is not there.
Result<Settings> resolve_settings(const SessionOptions& code, const SettingsSources& sources);

/// The same for all ranks: what rank 0 finds, or the failure that it meets. Collective.
Result<Settings> agree_on_settings(Communicator& ranks, const SessionOptions& code, const SettingsSources& sources);

/// The options in effect, one a line, with where each came from; can be used as an options file.
std::string effective_options(const Settings& settings);

}  // namespace varve
