#include "runtime/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <utility>

#include "core/status_codec.h"
#include "format/set_record.h"
#include "runtime/option_table.h"

#ifdef VARVE_WITH_TOML
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>
#endif

namespace varve {

namespace {
constexpr const char* kDefaultFile = "varve.toml";
constexpr const char* kFileVariable = "VARVE_OPTIONS_FILE";
/// Says on which node a process is to count (placement.h), and so is no option.
constexpr const char* kNodeVariable = "VARVE_NODE";
constexpr const char* kFallbackJob = "run";
constexpr uint64_t kFileBytesMax = 1_MiB;

/// What one place says about an option.
struct SaidOption {
  std::string text;
  std::string where;
};
using SaidOptions = std::map<std::string, SaidOption, std::less<>>;

// The options file.

#ifdef VARVE_WITH_TOML
std::string place(const std::string& path, uint64_t line) { return fmt::format("{}, line {}", path, line); }

Status unknown_option(const std::string& name, const std::string& where) {
  const std::string_view nearest = nearest_option(name);
  return Status::invalid_argument(
      where + ": no such option", name,
      nearest.empty() ? "docs/GUIDE.md lists them, \"Options of a run\"" : fmt::format("did you mean {}?", nearest));
}

/// The strings of an array, joined as parse_levels() takes them; none if something else is in it.
std::optional<std::string> joined(const toml::array& array) {
  std::string text;
  for (const toml::node& element : array) {
    const auto* string = element.as_string();
    if (string == nullptr) return std::nullopt;
    text += (text.empty() ? "" : "; ") + string->get();
  }
  return text;
}

/// A value as text; none if its type is not one in which this option is written.
std::optional<std::string> text_of(const toml::node& value, OptionForm form) {
  using enum OptionForm;
  if (const auto* string = value.as_string()) return string->get();
  const bool counts = form == number || form == size || form == duration || form == rate || form == word;
  if (const auto* integer = value.as_integer(); integer != nullptr && counts) return fmt::format("{}", integer->get());
  const bool measures = form == duration || form == rate;
  if (const auto* floating = value.as_floating_point(); floating != nullptr && measures)
    return fmt::format("{}", floating->get());
  if (const auto* boolean = value.as_boolean(); boolean != nullptr && form == yes_no)
    return boolean->get() ? "true" : "false";
  if (const auto* array = value.as_array(); array != nullptr && form == list) return joined(*array);
  return std::nullopt;
}

Result<SaidOptions> parse_options(std::string_view contents, const std::string& path) {
  const toml::parse_result parsed = toml::parse(contents, path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status::invalid_argument(
        fmt::format("{}: not TOML: {}", place(path, error.source().begin.line), error.description()));
  }
  SaidOptions options;
  for (const auto& [key, value] : parsed.table()) {
    const std::string name(key.str());
    const std::string where = place(path, key.source().begin.line);
    const OptionRule* rule = find_option(name);
    if (rule == nullptr) return unknown_option(name, where);
    std::optional<std::string> text = text_of(value, rule->form);
    if (!text) return Status::invalid_argument(where + ": a value of another type is wanted", name);
    options[name] = {*std::move(text), where};
  }
  return options;
}
#else
Result<SaidOptions> parse_options(std::string_view, const std::string& path) {
  return Status::unsupported("this build reads no options files", path, "build with VARVE_WITH_TOML");
}
#endif

Result<SaidOptions> read_options_file(const SessionOptions& code, const SettingsSources& sources) {
  FileSystem& files = sources.files != nullptr ? *sources.files : posix_file_system();
  std::string path = kDefaultFile;
  bool named = code.options_file.has_value();
  if (named) path = *code.options_file;
  if (const auto variable = sources.environment.find(kFileVariable);
      variable != sources.environment.end() && !variable->second.empty()) {
    path = variable->second;
    named = true;
  }
  const Result<ByteVector> contents = read_file(files, path, kFileBytesMax);
  if (!contents.ok() && contents.status().code() == StatusCode::not_found && !named) return SaidOptions();
  if (!contents.ok()) return contents.status().with_context("cannot read the options file");
  return parse_options(as_text(*contents), path);
}

// Putting the places together.

std::string default_text(const OptionRule& rule, const SettingsSources& sources) {
  if (!rule.preset.empty()) return std::string(rule.preset);
  return check_job_name(sources.program).ok() ? sources.program : kFallbackJob;
}

/// As the command line of `varve` has an option: "--key-file" for key_file.
std::string command_line_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

EffectiveOption resolve_option(const OptionRule& rule, const SessionOptions& code, const SettingsSources& sources,
                               const SaidOptions& file) {
  const std::string name(rule.name), variable = environment_name(rule.name);
  if (const auto said = sources.command_line.find(name); said != sources.command_line.end() && !said->second.empty())
    return {name, said->second, OptionOrigin::command_line, command_line_name(name)};
  if (const auto said = sources.environment.find(variable); said != sources.environment.end() && !said->second.empty())
    return {name, said->second, OptionOrigin::environment, variable};
  if (const auto said = file.find(name); said != file.end())
    return {name, said->second.text, OptionOrigin::file, said->second.where};
  if (std::optional<std::string> said = rule.said_by(code))
    return {name, *std::move(said), OptionOrigin::code, "the program"};
  return {name, default_text(rule, sources), OptionOrigin::preset, "default"};
}

/// A codec replaces an effort, unless the effort was said by who has the last word.
void let_effort_win(std::vector<EffectiveOption>& options) {
  const auto find = [&](std::string_view name) {
    return std::find_if(options.begin(), options.end(),
                        [&](const EffectiveOption& option) { return option.name == name; });
  };
  const auto effort = find("effort"), codec = find("codec");
  if (effort == options.end() || codec == options.end() || effort->origin <= codec->origin) return;
  *codec = {codec->name, "none", effort->origin, effort->where};
}

/// Leaves only the one of store and levels that counts.
Status choose_store_or_levels(std::vector<EffectiveOption>& options) {
  const auto find = [&](std::string_view name) {
    return std::find_if(options.begin(), options.end(),
                        [&](const EffectiveOption& option) { return option.name == name; });
  };
  const auto store = find("store"), levels = find("levels");
  if (levels->text != "none" && levels->origin == store->origin) {
    return Status::invalid_argument(fmt::format("the options store ({}) and levels ({}) say both where checkpoints go",
                                                store->where, levels->where),
                                    {}, "a store is short for the levels \"memory; dir:STORE\"");
  }
  options.erase(levels->text == "none" || levels->origin < store->origin ? levels : store);
  return {};
}

/// What is said of all levels holds for those that say nothing else themselves.
void complete_levels(Settings& settings) {
  for (LevelSpec& level : settings.levels) {
    if (!level.holds_sets()) continue;
    if (!level.keep) level.keep = settings.keep_last;
    if (!level.bytes_per_second && settings.write_bytes_per_second)
      level.bytes_per_second = static_cast<uint64_t>(std::max(1.0, *settings.write_bytes_per_second));
  }
}

/// Gives the options their meaning.
Result<Settings> interpret(std::vector<EffectiveOption> options) {
  Settings settings;
  for (const EffectiveOption& option : options) {
    const OptionRule* rule = find_option(option.name);
    if (rule == nullptr) return Status::internal("an option that is none", option.name);
    if (Status taken = rule->take(settings, option.text); !taken.ok())
      return taken.with_context(fmt::format("the option {} ({})", option.name, option.where));
  }
  complete_levels(settings);
  settings.options = std::move(options);
  return settings;
}

std::vector<Status> misspelt_variables(const SettingsSources& sources) {
  std::vector<Status> warnings;
  for (const auto& [variable, value] : sources.environment) {
    if (!variable.starts_with("VARVE_") || variable == kFileVariable || variable == kNodeVariable) continue;
    std::string name = variable.substr(6);
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (find_option(name) != nullptr) continue;
    const std::string_view nearest = nearest_option(name);
    if (nearest.empty()) continue;
    warnings.push_back(Status::invalid_argument("no option of this name, so it has no effect", variable,
                                                fmt::format("did you mean {}?", environment_name(nearest))));
  }
  return warnings;
}

// From rank 0 to the others: a Status; if it is ok, count varint | count times: name, text, origin u8, where, the
// former as texts.

ByteVector encode(const Result<Settings>& settings) {
  ByteVector bytes = encode_status(settings.status());
  if (!settings.ok()) return bytes;
  ByteWriter out(bytes);
  out.varint(settings->options.size());
  for (const EffectiveOption& option : settings->options) {
    out.text(option.name);
    out.text(option.text);
    out.u8(static_cast<uint8_t>(option.origin));
    out.text(option.where);
  }
  return bytes;
}

Result<Settings> decode(ByteSpan bytes) {
  ByteReader in(bytes);
  Status failure;
  VARVE_TRY(get_status(in, failure));
  VARVE_TRY(failure);
  VARVE_ASSIGN(const uint64_t count, in.count(4));
  std::vector<EffectiveOption> options;
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(const std::string_view name, in.text());
    VARVE_ASSIGN(const std::string_view text, in.text());
    VARVE_ASSIGN(const uint8_t origin, in.u8());
    VARVE_ASSIGN(const std::string_view where, in.text());
    if (origin > static_cast<uint8_t>(OptionOrigin::command_line)) return Status::corrupt("rank 0 sent no options");
    options.push_back({std::string(name), std::string(text), static_cast<OptionOrigin>(origin), std::string(where)});
  }
  return interpret(std::move(options));
}

// Printing.

std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (code < 0x20 || code == 0x7F) {
      quoted += fmt::format("\\u{:04X}", code);
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

/// ["memory", "dir:/x"] of "memory; dir:/x".
std::string quoted_list(std::string_view text) {
  std::string list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    std::string_view element = text.substr(begin, end - begin);
    element.remove_prefix(std::min(element.find_first_not_of(' '), element.size()));
    list += (list.empty() ? "" : ", ") + in_quotes(element);
    begin = end + 1;
  }
  return "[" + list + "]";
}

std::string as_toml(const EffectiveOption& option) {
  const OptionRule* rule = find_option(option.name);
  if (rule != nullptr && rule->form == OptionForm::list && option.text != "none") return quoted_list(option.text);
  const bool number = rule != nullptr && rule->form == OptionForm::number &&
                      option.text.find_first_not_of("0123456789") == std::string::npos;
  return number || option.text == "true" || option.text == "false" ? option.text : in_quotes(option.text);
}
}  // namespace

SettingsSources SettingsSources::of_process() {
  SettingsSources sources;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if ((text.starts_with("VARVE_") || text.starts_with("TMPDIR=")) && equals != std::string_view::npos)
      sources.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  sources.program = ::program_invocation_short_name;
  return sources;
}

std::string SettingsSources::node() const {
  const auto said = environment.find(kNodeVariable);
  return said == environment.end() ? std::string() : said->second;
}

Result<Settings> resolve_settings(const SessionOptions& code, const SettingsSources& sources) {
  VARVE_ASSIGN(const SaidOptions file, read_options_file(code, sources));
  std::vector<EffectiveOption> options;
  for (const OptionRule& rule : option_rules()) options.push_back(resolve_option(rule, code, sources, file));
  let_effort_win(options);
  VARVE_TRY(choose_store_or_levels(options));
  VARVE_ASSIGN(Settings settings, interpret(std::move(options)));
  settings.warnings = misspelt_variables(sources);
  return settings;
}

Result<Settings> agree_on_settings(Communicator& ranks, const SessionOptions& code, const SettingsSources& sources) {
  if (ranks.rank() == 0) {
    Result<Settings> settings = resolve_settings(code, sources);
    VARVE_TRY(ranks.broadcast(encode(settings), 0).status());
    return settings;
  }
  VARVE_ASSIGN(const ByteVector bytes, ranks.broadcast({}, 0));
  return decode(bytes);
}

std::string effective_options(const Settings& settings) {
  size_t width = 0;
  for (const EffectiveOption& option : settings.options)
    width = std::max(width, option.name.size() + as_toml(option).size());
  std::string text;
  for (const EffectiveOption& option : settings.options) {
    const std::string value = as_toml(option);
    const std::string padding(width - option.name.size() - value.size(), ' ');
    text += fmt::format("{} = {}{}  # {}\n", option.name, value, padding, option.where);
  }
  return text;
}

}  // namespace varve
