#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cli/completion.h"
#include "cli/help_text.h"
#include "cli/manual_page.h"
#include "cli/process.h"
#include "core/nearest.h"
#include "varve/version.h"

namespace varve::cli {

namespace {
constexpr const char* kDescription =
    "Varve keeps checkpoints of parallel programs. It stores only what is new in each, and compresses it.";
constexpr const char* kExamples =
    "Examples:\n"
    "  export VARVE_STORE=/scratch/store\n"
    "  varve init                    make the store\n"
    "  varve save run/dump0007       save a folder as the set run@7\n"
    "  varve list\n"
    "  varve restore run@7 back      get it back, byte for byte\n"
    "  varve help save               all options of a command\n";

std::vector<const CLI::App*> commands_in(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// Whether `app`, or else a command, has an option of this name that takes a value, so that the next argument is not a
/// command.
bool takes_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option != nullptr) return option->get_expected_min() > 0;
  const std::vector<const CLI::App*> commands = commands_in(app);
  return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* command) {
    const CLI::Option* const own = command->get_option_no_throw(name);
    return own != nullptr && own->get_expected_min() > 0;
  });
}

/// The command, which is the first argument that is no option; empty if there is none. What stands before it and is an
/// option of commands alone goes behind it, where CLI11 looks for it.
std::string bring_forward_command(const CLI::App& app, std::vector<std::string>& arguments) {
  std::vector<std::string> ordered, of_command;
  size_t next = 0;
  while (next < arguments.size() && arguments[next].starts_with('-')) {
    const std::string& option = arguments[next];
    const bool is_common = app.get_option_no_throw(option.substr(0, option.find('='))) != nullptr;
    const size_t count = takes_value(app, option) && next + 1 < arguments.size() ? 2 : 1;
    std::vector<std::string>& into = is_common ? ordered : of_command;
    for (const size_t end = next + count; next < end; ++next) into.push_back(arguments[next]);
  }
  if (next == arguments.size()) return {};
  const std::string command = arguments[next];
  ordered.push_back(command);
  ordered.insert(ordered.end(), of_command.begin(), of_command.end());
  ordered.insert(ordered.end(), arguments.begin() + static_cast<std::ptrdiff_t>(next) + 1, arguments.end());
  arguments = std::move(ordered);
  return command;
}

/// What other programs call our commands.
struct Synonym {
  std::string_view word, command;
};
constexpr Synonym kSynonyms[] = {
    {"ls", "list"},  {"dir", "list"},    {"cp", "restore"},   {"get", "restore"}, {"checkout", "restore"},
    {"rm", "drop"},  {"delete", "drop"}, {"forget", "drop"},  {"backup", "save"}, {"commit", "save"},
    {"add", "save"}, {"gc", "prune"},    {"check", "verify"}, {"fsck", "verify"},
};

class Parser {
 public:
  /// For these arguments: only the command that they begin with has its options, since to declare those of all takes
  /// longer than many a command.
  Parser(const std::vector<std::unique_ptr<Command>>& commands, CommonOptions& common,
         const std::vector<std::string>& arguments)
      : app_(kDescription, "varve"), common_(common) {
    app_.set_help_flag("-h,--help", "print this help");
    app_.set_version_flag("--version", "varve " VARVE_VERSION_TEXT, "print the version");
    add_store_option(app_);
    app_.formatter_fn(
        [](const CLI::App* app, const std::string& name, CLI::AppFormatMode) { return help_text(*app, name); });
    app_.require_subcommand(0, 1);
    app_.footer(kExamples + std::string("\n") + std::string(exit_code_help()));
    const std::string word = first_command(arguments);
    const bool known =
        std::any_of(commands.begin(), commands.end(), [&word](const auto& command) { return command->name() == word; });
    for (const auto& command : commands) add(*command, !known || command->name() == word);
    help_ = app_.add_subcommand("help", "print this help, or that of a command");
    help_->add_option("COMMAND", help_topic_, "the command")->type_name("");
    help_->add_flag("--man", as_manual_page_, "as a manual page, for `man -l -`");
    help_->footer(
        "Examples:\n"
        "  varve help save\n"
        "  varve help --man save | man -l -\n");
    completion_ = app_.add_subcommand("completion", "print what a shell needs to complete commands and options");
    completion_->add_option("SHELL", shell_, "bash, zsh or fish")->type_name("")->required();
    completion_->footer(
        "Examples:\n"
        "  source <(varve completion bash)\n"
        "  varve completion zsh > ~/.zfunc/_varve\n"
        "  varve completion fish > ~/.config/fish/completions/varve.fish\n");
    version_ = app_.add_subcommand("version", "print the version");
    version_->footer("Examples:\n  varve version\n");
    for (CLI::App* const own : {help_, completion_, version_}) own->set_help_flag("-h,--help", "print this help");
  }

  Result<ParsedCommandLine> parse(std::vector<std::string> arguments) {
    const std::string word = bring_forward_command(app_, arguments);
    if (!word.empty() && find(word) == nullptr) return unknown_command(word);
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants the last one first
    } catch (const CLI::Success& wanted) {
      std::ostringstream out, err;
      app_.exit(wanted, out, err);
      return ParsedCommandLine{nullptr, out.str()};
    } catch (const CLI::ExtrasError& failure) {
      const auto& [given, meant] = meant_option(word, arguments);
      return Status::invalid_argument(given.empty() ? failure.what() : "no such option: " + given, "",
                                      meant.empty() ? hint_for_more(word) : fmt::format("did you mean `--{}`?", meant));
    } catch (const CLI::Error& failure) {
      return Status::invalid_argument(failure.what(), "", hint(word));
    }
    if (help_->parsed()) return help();
    if (version_->parsed()) return ParsedCommandLine{nullptr, "varve " VARVE_VERSION_TEXT "\n"};
    if (completion_->parsed()) {
      VARVE_ASSIGN(std::string script, completion_script(app_, shell_));
      return ParsedCommandLine{nullptr, std::move(script)};
    }
    for (const auto& [command, sub] : subs_) {
      if (!sub->parsed()) continue;
      if (!command->works_on_store() && !common_.store.empty())
        return Status::invalid_argument("this command takes no --store", std::string(command->name()), hint(word));
      return ParsedCommandLine{command, {}};
    }
    return Status::invalid_argument("a command is wanted", "", hint(""));
  }

 private:
  /// The command, if nothing but options of the program, with their values, stands before it.
  std::string first_command(const std::vector<std::string>& arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (!argument.starts_with('-')) return argument;
      const CLI::Option* const option = app_.get_option_no_throw(argument);
      if (option == nullptr || option->get_expected_min() == 0) return {};
      ++i;
    }
    return {};
  }

  void add(Command& command, bool with_options) {
    CLI::App* sub = app_.add_subcommand(std::string(command.name()), std::string(command.summary()));
    if (!with_options) return;
    sub->set_help_flag("-h,--help", "print this help");
    Arguments arguments(*sub);
    command.declare(arguments);
    if (command.works_on_store()) add_store_option(*sub);
    if (command.uses_servers()) add_reach_options(*sub);
    add_log_options(*sub);
    if (command.prints_facts()) {
      sub->add_flag("--json", common_.json, "print one JSON object instead of text");
      sub->add_flag("--progress", common_.progress,
                    "with --json: say on standard error how far it is, one JSON object a line");
    }
    subs_.emplace_back(&command, sub);
  }

  void add_store_option(CLI::App& app) {
    app.add_option("--store", common_.store, std::string("the store: ") + kStoreForms + " (default: $VARVE_STORE)")
        ->type_name("STORE");
  }

  void add_log_options(CLI::App& app) {
    const auto take_form = [this](const std::string& text) -> std::string {
      const Result<LogForm> form = parse_log_form(text);
      if (!form.ok()) return fmt::format("{} (--log, or VARVE_LOG), not '{}'", form.status().message(), text);
      common_.log.form = *form;
      return {};
    };
    app.add_option("--log", log_form_, "how messages are written: text (default), logfmt or json (default: $VARVE_LOG)")
        ->type_name("FORM")
        ->envname("VARVE_LOG")
        ->check(take_form, "", "");
    app.add_flag("-q", common_.log.quiet, "no warnings");
    app.add_flag("-v", common_.log.verbose, "say what is being done, and how long it took");
  }

  void add_reach_options(CLI::App& app) {
    app.add_option("--key-file", common_.reach.key_file, "the key for servers over TCP (default: $VARVE_KEY_FILE)")
        ->type_name("FILE");
    app.add_option("--s3-endpoint", common_.reach.s3_endpoint,
                   "the service that has the bucket, http[s]://host[:port] (default: $VARVE_S3_ENDPOINT, "
                   "$AWS_ENDPOINT_URL_S3)")
        ->type_name("URL");
  }

  Result<ParsedCommandLine> help() const {
    const CLI::App* const topic = help_topic_.empty() ? &app_ : find(help_topic_);
    if (topic == nullptr) return unknown_command(help_topic_);
    const std::string name = topic == &app_ ? app_.get_name() : app_.get_name() + " " + topic->get_name();
    return ParsedCommandLine{nullptr, as_manual_page_ ? manual_page(*topic, name) : help_text(*topic, name)};
  }

  const CLI::App* find(const std::string& name) const {
    const std::vector<const CLI::App*> named =
        app_.get_subcommands([&name](const CLI::App* command) { return command->get_name() == name; });
    return named.empty() ? nullptr : named.front();
  }

  Status unknown_command(const std::string& word) const {
    std::vector<std::string> names;
    for (const CLI::App* const command : commands_in(app_)) names.push_back(command->get_name());
    const auto synonym = std::find_if(std::begin(kSynonyms), std::end(kSynonyms),
                                      [&word](const Synonym& known) { return known.word == word; });
    const std::string_view meant = synonym != std::end(kSynonyms)
                                       ? synonym->command
                                       : nearest_word(word, std::vector<std::string_view>(names.begin(), names.end()));
    return Status::invalid_argument("no such command", word,
                                    meant.empty() ? std::string("`varve help` lists the commands")
                                                  : fmt::format("did you mean `varve {}`?", meant));
  }

  /// The first option that the command does not have, and which one was meant; empty: none is near.
  std::pair<std::string, std::string> meant_option(const std::string& word,
                                                   const std::vector<std::string>& arguments) const {
    const CLI::App* const command = word.empty() ? &app_ : find(word);
    if (command == nullptr) return {};
    for (const std::string& argument : arguments) {
      if (argument == "--") return {};
      const std::string given = argument.substr(0, argument.find('='));
      if (!given.starts_with("--") || command->get_option_no_throw(given) || app_.get_option_no_throw(given)) continue;
      std::vector<std::string> names;
      for (const CLI::Option* const option : command->get_options()) {
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
      }
      return {given,
              std::string(nearest_word(given.substr(2), std::vector<std::string_view>(names.begin(), names.end())))};
    }
    return {};
  }

  std::string hint_for_more(const std::string& word) const {
    const auto meant =
        std::find_if(subs_.begin(), subs_.end(), [&word](const auto& sub) { return sub.first->name() == word; });
    const std::string_view own = meant == subs_.end() ? std::string_view() : meant->first->hint_for_more();
    return own.empty() ? hint(word) : std::string(own);
  }

  static std::string hint(const std::string& word) {
    return word.empty() ? "`varve help` lists the commands"
                        : fmt::format("`varve help {}` shows the options, with examples", word);
  }

  CLI::App app_;
  CommonOptions& common_;
  std::string log_form_;
  CLI::App* help_ = nullptr;
  std::string help_topic_;
  bool as_manual_page_ = false;
  CLI::App* completion_ = nullptr;
  std::string shell_;
  CLI::App* version_ = nullptr;
  std::vector<std::pair<Command*, CLI::App*>> subs_;
};
}  // namespace

Result<ParsedCommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                             const std::vector<std::unique_ptr<Command>>& commands,
                                             CommonOptions& common) {
  // Known beforehand, as errors of parsing are printed as JSON, too.
  common.json = std::find(arguments.begin(), std::find(arguments.begin(), arguments.end(), "--"), "--json") !=
                std::find(arguments.begin(), arguments.end(), "--");
  return Parser(commands, common, arguments).parse(arguments);
}

}  // namespace varve::cli
