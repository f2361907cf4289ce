#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/remedies.h"
#include "cli/text.h"
#include "core/bytes.h"

namespace varve::cli {

namespace {
/// More than any machine runs at a time, and few enough for the system to give them.
constexpr uint32_t kThreadsMax = 1024;
/// Of whatever uses memory; saving takes twice as much in any case.
constexpr uint64_t kMemoryBytesMin = 16_MiB;
/// Thirty years.
constexpr double kSecondsMax = 1e9;

/// CLI11 knows failures as exceptions; parse_command_line() catches them.
template <class T>
T value_or_throw(const std::string& name, Result<T> result) {
  if (result.ok()) return std::move(result).value();
  throw CLI::ValidationError(name, in_one_line(result.status()));
}

/// An empty text is nobody's name: it comes from a variable of a script that is not set.
CLI::Validator is_something() {
  return CLI::Validator([](const std::string& given) { return given.empty() ? "it is empty" : ""; }, "");
}
}  // namespace

void Arguments::positional(const std::string& name, std::string& into, const std::string& help) {
  app_.add_option(name, into, help)->required()->type_name("")->check(is_something());
}

void Arguments::optional_positional(const std::string& name, std::string& into, const std::string& help) {
  app_.add_option(name, into, help)->type_name("")->check(is_something());
}

void Arguments::positional_list(const std::string& name, std::vector<std::string>& into, const std::string& help) {
  app_.add_option(name, into, help)->required()->type_name("")->check(is_something());
}

void Arguments::optional_positional_list(const std::string& name, std::vector<std::string>& into,
                                         const std::string& help) {
  app_.add_option(name, into, help)->type_name("");
}

void Arguments::flag(const std::string& name, bool& into, const std::string& help) { app_.add_flag(name, into, help); }

void Arguments::text(const std::string& name, const std::string& value_name, std::string& into,
                     const std::string& help) {
  app_.add_option(name, into, help)->type_name(value_name);
}

void Arguments::list(const std::string& name, const std::string& value_name, std::vector<std::string>& into,
                     const std::string& help) {
  app_.add_option(name, into, help)->type_name(value_name)->allow_extra_args(false);
}

void Arguments::size(const std::string& name, uint64_t& into_bytes, const std::string& help, uint64_t bytes_min,
                     uint64_t bytes_max) {
  auto take = [name, &into_bytes, bytes_min, bytes_max](const std::string& given) {
    into_bytes = value_or_throw(name, parse_size(given));
    if (into_bytes >= bytes_min && into_bytes <= bytes_max) return;
    const std::string wanted = bytes_max == INT64_MAX
                                   ? fmt::format("at least {} is wanted", format_size(bytes_min))
                                   : fmt::format("{} to {} are wanted", format_size(bytes_min), format_size(bytes_max));
    throw CLI::ValidationError(name, wanted + ": " + given);
  };
  app_.add_option_function<std::string>(name, take, help)->type_name("SIZE");
}

void Arguments::memory(const std::string& name, uint64_t& into_bytes, const std::string& help) {
  size(name, into_bytes, help, kMemoryBytesMin);
}

void Arguments::number(const std::string& name, const std::string& value_name, std::optional<uint64_t>& into,
                       const std::string& help) {
  auto take = [name, &into](const std::string& given) { into = value_or_throw(name, parse_number(given)); };
  app_.add_option_function<std::string>(name, take, help)->type_name(value_name);
}

void Arguments::count(const std::string& name, const std::string& value_name, uint32_t& into, const std::string& help,
                      uint32_t max) {
  auto take = [name, &into, max](const std::string& given) {
    into = static_cast<uint32_t>(value_or_throw(name, parse_number(given, max)));
    if (into == 0) throw CLI::ValidationError(name, "at least 1 is wanted");
  };
  app_.add_option_function<std::string>(name, take, help)->type_name(value_name);
}

void Arguments::threads(uint32_t& into, const std::string& help) { count("--threads", "N", into, help, kThreadsMax); }

void Arguments::seconds(const std::string& name, double& into, const std::string& help) {
  auto take = [name, &into](const std::string& given) {
    into = value_or_throw(name, parse_duration(given));
    if (into > kSecondsMax) throw CLI::ValidationError(name, "seconds up to 1000000000 are wanted: " + given);
  };
  app_.add_option_function<std::string>(name, take, help)->type_name("SECONDS");
}

void Arguments::duration(const std::string& name, double& into_seconds, const std::string& help) {
  auto take = [name, &into_seconds](const std::string& given) {
    into_seconds = value_or_throw(name, parse_duration(given));
    if (into_seconds <= 0) throw CLI::ValidationError(name, "a duration above 0 is wanted");
  };
  app_.add_option_function<std::string>(name, take, help)->type_name("DURATION");
}

void Arguments::amount(const std::string& name, double& into_bytes, const std::string& help) {
  auto take = [name, &into_bytes](const std::string& given) {
    into_bytes = value_or_throw(name, parse_amount(given));
    if (into_bytes <= 0) throw CLI::ValidationError(name, "a size above 0 is wanted");
  };
  app_.add_option_function<std::string>(name, take, help)->type_name("SIZE");
}

void Arguments::bandwidth(const std::string& name, double& into_bytes_per_second, const std::string& help) {
  auto take = [name, &into_bytes_per_second](const std::string& given) {
    into_bytes_per_second = value_or_throw(name, parse_rate(given));
  };
  app_.add_option_function<std::string>(name, take, help)->type_name("RATE");
}

void Arguments::metrics(std::string& into) {
  text("--metrics", "PLACE", into,
       "say what it does, for Prometheus: into a file (of node_exporter's textfile collector), at a port of this "
       "machine (9117), or at HOST:PORT, over HTTP");
}

void Arguments::value(const std::string& name, const std::string& value_name,
                      std::function<Status(const std::string&)> take, const std::string& help) {
  auto checked = [name, take = std::move(take)](const std::string& given) {
    if (Status taken = take(given); !taken.ok()) throw CLI::ValidationError(name, in_one_line(taken));
  };
  app_.add_option_function<std::string>(name, checked, help)->type_name(value_name);
}

void Arguments::examples(const std::string& lines) { app_.footer("Examples:\n" + lines); }

void declare_file_filter(Arguments& arguments, FileFilter& filter) {
  auto take_rank = [&filter](const std::string& text) -> Status {
    VARVE_ASSIGN(uint64_t rank, parse_number(text, INT64_MAX));
    filter.rank = static_cast<int64_t>(rank);
    return {};
  };
  arguments.value("--rank", "N", take_rank, "only files of this rank");
  arguments.list(
      "--files", "GLOB", filter.globs,
      "only files that match; a pattern without '/' is compared with the last part of the path; several may be given");
}

namespace {
Status check_pattern(const std::string& glob) {
  for (size_t at = 0; at < glob.size(); ++at) {
    if (glob[at] == '\\') {
      ++at;
    } else if (glob[at] == '[') {
      size_t first = at + 1;
      if (first < glob.size() && (glob[first] == '!' || glob[first] == '^')) ++first;
      at = glob.find(']', first + 1);  // one that comes first is itself among the characters
      if (at == std::string::npos)
        return Status::invalid_argument("a [ of the pattern is not closed", glob, "\\[ is the character itself");
    }
  }
  return {};
}
}  // namespace

Status check_patterns(const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) VARVE_TRY(check_pattern(glob));
  return {};
}

}  // namespace varve::cli
