#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/stored_files.h"
#include "varve/status.h"

namespace CLI {
class App;
}

namespace varve::cli {

/// What a user can write for a store, for the help (service/location.h).
inline constexpr const char* kStoreForms = "a folder, unix:PATH, tcp://HOST:PORT or s3://BUCKET/PREFIX";
/// The same for a set (Catalog::resolve()).
inline constexpr const char* kSetForms = "JOB@STEP or JOB@TAG, or JOB for its newest set";

/// What a sub-command takes, while it declares it. What is bound is written when the command line is parsed, and must
/// live until then; it keeps its value where nothing is given. Names are as on the command line ("--job"); `value_name`
/// is what the help calls the value ("NAME").
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  /// Arguments that stand alone, in order of declaration. Newer versions of CLI11 refuse names with ':', '=' or '{'.
  void positional(const std::string& name, std::string& into, const std::string& help);
  void optional_positional(const std::string& name, std::string& into, const std::string& help);
  void positional_list(const std::string& name, std::vector<std::string>& into, const std::string& help);

  void optional_positional_list(const std::string& name, std::vector<std::string>& into, const std::string& help);

  void flag(const std::string& name, bool& into, const std::string& help);
  void text(const std::string& name, const std::string& value_name, std::string& into, const std::string& help);
  /// May be given several times.
  void list(const std::string& name, const std::string& value_name, std::vector<std::string>& into,
            const std::string& help);
  void size(const std::string& name, uint64_t& into_bytes, const std::string& help, uint64_t bytes_min = 0,
            uint64_t bytes_max = INT64_MAX);
  /// "--memory" and the like: as much as the engine needs at least.
  void memory(const std::string& name, uint64_t& into_bytes, const std::string& help);
  void number(const std::string& name, const std::string& value_name, std::optional<uint64_t>& into,
              const std::string& help);
  /// From 1.
  void count(const std::string& name, const std::string& value_name, uint32_t& into, const std::string& help,
             uint32_t max = INT32_MAX);
  /// --threads
  void threads(uint32_t& into, const std::string& help);
  /// From 0 on, with or without units: "30", "5min".
  void seconds(const std::string& name, double& into, const std::string& help);
  /// Seconds above 0, with units: "90", "30min".
  void duration(const std::string& name, double& into_seconds, const std::string& help);
  /// Bytes of a calculation above 0, in 1024s or 1000s: "6.1G", "6.25GB".
  void amount(const std::string& name, double& into_bytes, const std::string& help);
  /// --metrics: where facts for monitoring go (MetricsOutlet::open()).
  void metrics(std::string& into);
  /// Bytes per second: "40G", "100MB/s".
  void bandwidth(const std::string& name, double& into_bytes_per_second, const std::string& help);
  /// Anything else: `take` makes sense of the value, or says what is wrong with it.
  void value(const std::string& name, const std::string& value_name, std::function<Status(const std::string&)> take,
             const std::string& help);

  /// Says by examples how the command is used; `lines` end with newlines.
  void examples(const std::string& lines);

 private:
  CLI::App& app_;
};

}  // namespace varve::cli

namespace varve::cli {

/// Declares --rank and --files, which choose among the files of a set.
void declare_file_filter(Arguments& arguments, FileFilter& filter);

/// Of shell patterns. invalid_argument: a bracket of one is not closed, which fnmatch() takes for a character, as
/// hardly anybody means.
Status check_patterns(const std::vector<std::string>& globs);

}  // namespace varve::cli
