#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/text.h"
#include "engine/inspect.h"

namespace varve::cli {

namespace {
/// Sets that a set shares with, which are named to a person.
constexpr size_t kSetsShownMax = 5;

std::string_view file_type_name(FileType type) {
  switch (type) {
    case FileType::regular: return "regular";
    case FileType::directory: return "directory";
    case FileType::symlink: return "symlink";
  }
  return "unknown";
}

/// The variables of a set that fall into one class.
struct ClassSummary {
  std::string type, shape;
  uint64_t variable_count = 0, bytes = 0;
};

class ShowCommand final : public Command {
 public:
  std::string_view name() const override { return "show"; }
  std::string_view summary() const override {
    return "show what a set consists of, and what it shares with other sets";
  }

  void declare(Arguments& arguments) override {
    arguments.positional("SET", set_, kSetForms);
    declare_file_filter(arguments, filter_);
    arguments.flag("--variables", variables_, "list each variable of each file, not only the classes");
    arguments.examples(
        "  varve show run@7\n"
        "  varve show run@7 --rank 3 --variables\n"
        "  varve show run@7 --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_TRY(check_patterns(filter_.globs));
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    VARVE_ASSIGN(SetName name, Catalog(*store).resolve(set_));
    VARVE_ASSIGN(SetDetails details, inspect_set(*store, name, filter_, session.begin_progress()));
    session.end_progress();
    VARVE_ASSIGN(remarks_, Remarks(*store).of(name));
    if (remarks_.has_note) {
      VARVE_ASSIGN(note_, Remarks(*store).note(name));
    }
    if (details.files.empty() && !filter_.all()) {
      return Status::not_found("no file of the set matches", name.to_string(),
                               "`varve show " + name.to_string() + "` lists its files");
    }
    warn_of_idle_patterns(session, details);
    if (session.json()) {
      print_json(session, details);
    } else {
      print_text(session, details);
    }
    return ExitCode::success;
  }

 private:
  void warn_of_idle_patterns(Session& session, const SetDetails& details) const {
    IdlePatterns idle(filter_);
    for (const FileDetails& file : details.files) {
      TreeFile found;
      found.path = file.path;
      found.rank = file.rank;
      idle.note(found);
    }
    for (const Status& warning : idle.warnings()) session.warn(warning);
  }

  static Json file_json(const FileDetails& file) {
    Json variables = Json::array();
    for (const VariableDetails& variable : file.variables) {
      variables.push_back({{"name", variable.name},
                           {"type", variable.type.name()},
                           {"shape", variable.shape},
                           {"class_key", variable.class_key},
                           {"bytes", variable.bytes},
                           {"encoded", variable.encoded}});
    }
    return {{"path", file.path},
            {"type", file_type_name(file.type)},
            {"rank", file.rank},
            {"bytes", file.bytes},
            {"modified_s", file.modified_s},
            {"format", file.format},
            {"skeleton_bytes", file.skeleton_bytes},
            {"unnamed_variable_count", file.unnamed_variable_count},
            {"variables", std::move(variables)}};
  }

  static Json shared_json(const SetDetails& details) {
    Json shared = Json::object();
    for (const auto& [set, bytes] : details.shared_with) shared[set.to_string()] = bytes;
    return shared;
  }

  void print_json(Session& session, const SetDetails& details) const {
    Json files = Json::array();
    for (const FileDetails& file : details.files) files.push_back(file_json(file));
    session.print_facts(Json{{"record", to_json(details.record)},
                             {"pinned", remarks_.pinned},
                             {"tags", remarks_.tags},
                             {"note", note_},
                             {"pattern_bytes", details.pattern_bytes},
                             {"own_bytes", details.own_bytes},
                             {"shared_bytes", details.shared_bytes},
                             {"shared_with", shared_json(details)},
                             {"files", std::move(files)}});
  }

  void print_text(Session& session, const SetDetails& details) const {
    print_summary(session, details);
    print_files(session, details);
    if (variables_ || details.files.size() == 1) {
      print_variables(session, details);
    } else {
      print_classes(session, details);
    }
  }

  void print_summary(Session& session, const SetDetails& details) const {
    const SetRecord& record = details.record;
    std::set<ArenaId> arenas;
    for (const GroupRecord& group : record.groups) arenas.insert(group.hint);
    session.print(fmt::format("{}: {}, {}, {}, saved {}\n", quote_name(record.name.to_string()),
                              format_count(record.file_count, "file", "files"),
                              format_count(record.rank_count, "rank", "ranks"), format_size(record.raw_bytes),
                              format_time(record.created_s)));
    if (const std::string said = pin_and_tags_of(remarks_); !said.empty()) session.print("  tags     " + said + "\n");
    if (!note_.empty()) session.print("  note     " + escape_text(note_) + "\n");
    session.print(fmt::format("  stored   {} ({}) in {}\n", format_size(record.stored_bytes()),
                              format_ratio(record.raw_bytes, record.stored_bytes()),
                              format_count(arenas.size(), "arena", "arenas")));
    session.print(escape_text(fmt::format("  options  scheme {}, codec {}, chunker {}, match {}", record.scheme,
                                          record.policy, record.chunker, record.match)) +
                  "\n");
    session.print(fmt::format("  {}  {} of its own, {} shared with earlier sets, {} constant\n",
                              filter_.all() ? "bytes  " : "of these", format_size(details.own_bytes),
                              format_size(details.shared_bytes), format_size(details.pattern_bytes)));
    print_shared(session, details);
  }

  /// The sets that have most of it first, of these the latest.
  static void print_shared(Session& session, const SetDetails& details) {
    std::vector<std::pair<uint64_t, SetName>> sets;
    for (const auto& [set, bytes] : details.shared_with) sets.emplace_back(bytes, set);
    std::sort(sets.rbegin(), sets.rend());
    for (size_t i = 0; i < std::min(sets.size(), kSetsShownMax); ++i) {
      session.print(
          fmt::format("           {} with {}\n", format_size(sets[i].first), quote_name(sets[i].second.to_string())));
    }
    if (sets.size() > kSetsShownMax)
      session.print(fmt::format("           and with {} more (--json has all)\n", sets.size() - kSetsShownMax));
  }

  static void print_files(Session& session, const SetDetails& details) {
    using enum Table::Align;
    Table table({{"file"},
                 {"rank", right},
                 {"size", right},
                 {"changed"},
                 {"format"},
                 {"variables", right},
                 {"skeleton", right}});
    for (const FileDetails& file : details.files) {
      const std::string rank = file.rank < 0 ? "-" : std::to_string(file.rank);
      if (file.type != FileType::regular) {
        table.add_row({quote_name(file.path), rank, "-", format_time(file.modified_s),
                       std::string(file_type_name(file.type)), "-", "-"});
        continue;
      }
      const uint64_t count = file.variables.size() + file.unnamed_variable_count;
      table.add_row({quote_name(file.path), rank, format_size(file.bytes), format_time(file.modified_s),
                     escape_text(file.format), std::to_string(count), format_size(file.skeleton_bytes)});
    }
    if (!table.empty()) session.print("\n" + table.render());
  }

  static void print_variables(Session& session, const SetDetails& details) {
    using enum Table::Align;
    for (const FileDetails& file : details.files) {
      if (file.variables.empty()) continue;
      Table table({{"variable"}, {"type"}, {"shape"}, {"size", right}, {"class"}});
      for (const VariableDetails& variable : file.variables) {
        table.add_row({quote_name(variable.name), variable.type.name() + (variable.encoded ? ", encoded" : ""),
                       format_shape(variable.shape), format_size(variable.bytes), quote_name(variable.class_key)});
      }
      session.print("\n" + quote_name(file.path) + "\n" + table.render("  "));
      if (file.unnamed_variable_count > 0) {
        session.print(fmt::format("  and {} in the skeleton\n",
                                  format_count(file.unnamed_variable_count, "small variable", "small variables")));
      }
    }
  }

  static void print_classes(Session& session, const SetDetails& details) {
    std::map<std::string, ClassSummary> classes;
    for (const FileDetails& file : details.files) {
      for (const VariableDetails& variable : file.variables) {
        ClassSummary& summary = classes[variable.class_key];
        const std::string shape = format_shape(variable.shape);
        const std::string type = variable.type.name();
        summary.type = summary.variable_count == 0 || summary.type == type ? type : "various";
        summary.shape = summary.variable_count == 0 || summary.shape == shape ? shape : "various";
        ++summary.variable_count;
        summary.bytes += variable.bytes;
      }
    }
    using enum Table::Align;
    Table table({{"class"}, {"type"}, {"shape"}, {"variables", right}, {"size", right}});
    for (const auto& [key, summary] : classes) {
      table.add_row({quote_name(key), summary.type, summary.shape, std::to_string(summary.variable_count),
                     format_size(summary.bytes)});
    }
    if (!table.empty()) session.print("\n" + table.render());
  }

  std::string set_;
  FileFilter filter_;
  SetRemarks remarks_;
  std::string note_;
  bool variables_ = false;
};
}  // namespace

std::unique_ptr<Command> make_show_command() { return std::make_unique<ShowCommand>(); }

}  // namespace varve::cli
