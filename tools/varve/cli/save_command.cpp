#include "cli/save_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/text.h"
#include "comm/agreement.h"
#include "core/step_text.h"
#include "core/sync.h"
#include "engine/folder_scan.h"
#include "engine/save.h"
#include "engine/scheme.h"
#include "runtime/command_levels.h"
#include "runtime/settings.h"
#include "store/catalog.h"
#include "store/remarks.h"

namespace varve::cli {

namespace {
/// An arena for each 32 of very many small files would be more files than data.
constexpr uint64_t kGroupBytesMin = 16_MiB;
}  // namespace

void declare_rank_regex(Arguments& arguments, std::string& into, const std::string& help) {
  auto take = [&into](const std::string& text) -> Status {
    into = text;
    return check_rank_regex(text);
  };
  arguments.value("--rank-regex", "REGEX", take, help);
}

std::string doubt_of_ranks(uint64_t count) {
  return fmt::format(
      "{} numbers in names are not taken for ranks, as most would have little data; --rank-regex says "
      "where ranks are",
      count);
}

void SaveArguments::declare_grouping(Arguments& arguments) {
  declare_rank_regex(arguments, options.ranks.rank_regex,
                     "regular expression whose first group is the rank in a file's path (default: the number that "
                     "differs among files)");
  arguments.count("--group-size", "G", group_size_,
                  "ranks whose data are laid together (default: 32, or as many as have 16 MiB; fewer if several "
                  "processes save)");
  auto take_raw = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.variables.layouts.raw, parse_raw_description(text));
    return {};
  };
  arguments.value(
      "--raw", "TYPE:NX,NY,NZ", take_raw,
      "what files of unknown format hold, e.g. f64:128,128,64, or f32be:1000@512 after a header of 512 bytes");
}

void SaveArguments::declare_shrinking(Arguments& arguments) {
  auto take_scheme = [this](const std::string& text) -> Status {
    scheme_given_ = true;
    VARVE_ASSIGN(options.scheme, parse_scheme(text));
    return {};
  };
  arguments.value("--scheme", "SCHEME", take_scheme,
                  "order in which new data are laid down: agnostic, agnostic-block, aware (default) or aware-block");
  arguments.size("--block-bytes", options.block_bytes, "block size of the block schemes (default: 64KiB)", 1, 1_GiB);
  auto take_effort = [this](const std::string& text) -> Status {
    effort_given_ = true;
    VARVE_ASSIGN(options.codec, CodecPolicy::of_effort(text));
    return {};
  };
  arguments.value("--effort", "EFFORT", take_effort,
                  "how much processor time a smaller store is worth: fast, balanced (default) or best");
  auto take_codec = [this](const std::string& text) -> Status {
    codec_given_ = true;
    VARVE_ASSIGN(options.codec, CodecPolicy::parse(text));
    return {};
  };
  arguments.value("--codec", "CHAIN", take_codec,
                  "one codec chain for all data, e.g. store (no compression), lorenzo+shuffle+zstd:1, or paper "
                  "(mcrEngine's choice)");
  auto take_match = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.variables.match, MatchRule::parse(text));
    return {};
  };
  arguments.value(
      "--match", "RULE", take_match,
      "which variables mean the same: exact (the same name), digits (default: numbers in names of groups may "
      "differ), or a regular expression of what to ignore");
  auto take_chunker = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.chunker, parse_chunker(text));
    return {};
  };
  arguments.value("--chunker", "CHUNKER", take_chunker,
                  "how data are cut into chunks: fixed:8192 (default), gear:AVERAGE or rabin:MIN,AVERAGE,MAX");
}

void SaveArguments::fill_from(const Settings& run) {
  if (!effort_given_ && !codec_given_ && (is_said(run, "effort") || is_said(run, "codec")))
    options.codec = run.saving.codec;
  if (!scheme_given_ && is_said(run, "scheme")) options.scheme = run.saving.scheme;
  if (options.thread_count == 0 && run.saving.threads)
    options.thread_count = static_cast<uint32_t>(*run.saving.threads);
  if (options.memory_bytes == SaveOptions().memory_bytes && is_said(run, "memory_bytes"))
    options.memory_bytes = run.saving.memory_bytes;
  if (options.job.empty() && is_said(run, "job")) options.job = run.job;
}

Result<SaveOptions> SaveArguments::take(bool several) const {
  if (effort_given_ && codec_given_) return Status::invalid_argument("--effort and --codec exclude one another");
  SaveOptions taken = options;
  taken.ranks.smaller_groups = several && group_size_ == 0;
  taken.ranks.group_bytes_min = group_size_ > 0 ? 0 : kGroupBytesMin;
  if (group_size_ > 0) taken.ranks.group_size = group_size_;
  return taken;
}

namespace {
class SaveCommand final : public Command {
 public:
  std::string_view name() const override { return "save"; }
  std::string_view summary() const override { return "save a folder, or one file, as a checkpoint set"; }

  bool works_together() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.optional_positional("DIR", folder_, "the folder that holds the checkpoint, or the file that is one");
    declare_naming(arguments);
    saving_.declare_shrinking(arguments);
    arguments.text("--levels", "LEVELS", levels_,
                   "levels to save to, in place of --store, nearest first, separated by \";\": the set is saved to the "
                   "first, and copied to the others as often as their every=K says");
    arguments.memory("--memory", saving_.options.memory_bytes, "memory to use at most, about (default: 512MiB)");
    arguments.threads(saving_.options.thread_count, "threads (default: one per processor)");
    arguments.examples(
        "  varve save run/dump0007                          the set run@7\n"
        "  varve save output --job heat --step 40           the set heat@40\n"
        "  varve save case/0.02                             the set case@0.02\n"
        "  varve save output --job heat --tag before-merge  its next step, called heat@before-merge as well\n"
        "  varve save md/state.cpt --job md                 one file; the next step of the job\n"
        "  varve save run --exclude '*.log' --exclude old\n"
        "  pg_dump base | varve save --stdin base.sql --job base\n"
        "  varve save output --job heat --effort best       smaller, and slower\n"
        "  varve save output --store s3://checkpoints/me    into a bucket\n"
        "  varve save output --levels 'local:/nvme/me keep=2; s3://checkpoints/me every=10'\n"
        "  varve save restarts --raw f64:128,128,64         files of plain numbers\n"
        "  varve save images --chunker gear:8192            data that move, as in process images\n");
  }

  Result<ExitCode> run(Session& session) override {
    const auto begin = MonotonicClock::now();
    SaveOptions options;
    std::unique_ptr<LayoutService> layouts;
    const Status ready = make_ready(session, options, layouts);
    keep_freed_memory();
    VARVE_ASSIGN(Communicator* const ranks, session.join());
    // What is wrong on one process, with its environment or its options file, they all say.
    VARVE_TRY(agree(*ranks, ready));
    VARVE_TRY(follow_first(*ranks, ranks->rank() == 0 ? look_at_what_is_named() : Status()));
    std::unique_ptr<Store> own;             // unless levels were named
    std::unique_ptr<CommandLevels> levels;  // if they were
    const Status opened = open(session, *ranks, own, levels);
    VARVE_TRY(agree(*ranks, opened));
    const Store& store = own ? *own : levels->for_saving();
    if (levels) options.next_number = [&levels](const std::string& job) { return levels->next_number(job); };
    std::optional<InputFile> input;
    if (!stdin_name_.empty()) {
      VARVE_TRY(name_input(Catalog(store), options));
      note_interrupts();
      VARVE_ASSIGN(input, InputFile::read(stdin_name_));
      folder_ = input->path();
      if (input->is_empty()) session.warn(Status::not_found("standard input is empty", stdin_name_));
    }
    ProgressSink& progress = session.begin_progress();
    VARVE_ASSIGN(SaveReport report, save_folder_together(store, folder_, options, *layouts, *ranks, progress));
    const Status tagged = ranks->rank() == 0 ? tag(store, report.record.name) : Status();
    Onward onward;
    if (levels && ranks->rank() == 0) onward = levels->bring_along(report.record.name.job, progress);
    session.end_progress();
    print(session, report, onward.copies, std::chrono::duration<double>(MonotonicClock::now() - begin).count());
    for (const Status& given_up : onward.given_up) session.warn(given_up);
    for (size_t i = 1; i < onward.failures.size(); ++i) session.warn(onward.failures[i]);
    VARVE_TRY(follow_first(*ranks, tagged));
    VARVE_TRY(follow_first(*ranks, onward.failures.empty() ? Status() : onward.failures.front()));
    return ExitCode::success;
  }

 private:
  /// Before any thread, as the services of layouts fork.
  Status make_ready(Session& session, SaveOptions& options, std::unique_ptr<LayoutService>& layouts) {
    VARVE_TRY(heed_options_of_runs(session));
    VARVE_ASSIGN(options, saving_.take(true));
    VARVE_TRY(check_source(options));
    LayoutServiceOptions reading;
    reading.worker_count = std::clamp(processor_count(), 1u, kUsefulReaderProcesses);
    VARVE_ASSIGN(layouts, LayoutService::start(std::move(reading)));
    return {};
  }

  /// What the environment and the options file say to a run holds here, too, where the command line says nothing.
  Status heed_options_of_runs(Session& session) {
    SettingsSources sources = SettingsSources::of_process();
    sources.command_line = {{"levels", levels_}, {"store", session.said_store()}};
    VARVE_ASSIGN(const Settings run, resolve_settings({}, sources));
    for (const Status& warning : run.warnings) session.warn(warning);
    saving_.fill_from(run);
    has_levels_ = is_said(run, "levels");
    for (const EffectiveOption& option : run.options) {
      if (has_levels_ && option.name == "levels") all_levels_ = option.text;
    }
    return {};
  }

  Status tag(const Store& store, const SetName& name) const {
    for (const std::string& tag : tags_) {
      VARVE_TRY(
          Remarks(store).add_tag(name, tag).with_context("the set " + name.to_string() + " is saved, without its tag"));
    }
    return {};
  }

  Status check_source(const SaveOptions& options) const {
    for (const std::string& tag : tags_) VARVE_TRY(check_tag(tag));
    VARVE_TRY(check_patterns(options.choice.exclude));
    VARVE_TRY(check_patterns(options.choice.include));
    if (folder_.empty() == stdin_name_.empty())
      return Status::invalid_argument("one thing is to be saved: a folder, a file, or --stdin NAME", folder_);
    if (stdin_name_.empty()) return {};
    if (stdin_name_.find('/') != std::string::npos || !path_is_safe(stdin_name_))
      return Status::invalid_argument("--stdin names a file, without a folder", stdin_name_);
    if (options.job.empty())
      return Status::invalid_argument("nothing tells what job the input is of", stdin_name_, Remedy::name_the_job);
    if (find_launch().process_count > 1)
      return Status::invalid_argument("standard input is of one process", stdin_name_);
    return {};
  }

  /// Before anything is said of stores: who mistypes the folder often names none, and nothing is made for it.
  Status look_at_what_is_named() const { return stdin_name_.empty() ? look_at_source(folder_).status() : Status(); }

  /// The next step of the job, unless one is said: digits in the name of what comes are nobody's step. Before anything
  /// is read.
  static Status name_input(const Catalog& catalog, SaveOptions& options) {
    if (!options.step) {
      VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(options.job));
      options.step = steps.empty() ? 0 : steps.back() + 1;
      if (time_of_step(*options.step))
        return Status::invalid_argument("no step comes next after the newest",
                                        SetName{options.job, steps.back()}.to_string(), Remedy::name_the_step);
    }
    const SetName name{options.job, *options.step};
    return catalog.check_is_new(name, {Remedy::choose_another_step, name.to_string()});
  }

  /// A set with the store in it would have all sets in it: the store may lie there only if it is left out.
  Status check_store_is_elsewhere(const Session& session) const {
    if (!stdin_name_.empty()) return {};
    VARVE_ASSIGN(const std::string named, session.store_path());
    VARVE_ASSIGN(const Location location, Location::parse(named));
    if (!location.is_folder()) return {};
    std::error_code error;
    const std::filesystem::path store = std::filesystem::weakly_canonical(location.folder, error);
    const std::filesystem::path folder = std::filesystem::weakly_canonical(folder_, error);
    const std::filesystem::path below = store.lexically_relative(folder);
    if (below.empty() || *below.begin() == "..") return {};
    const bool is_the_folder = below == ".";
    if (!is_the_folder && !may_take(saving_.options.choice, below.string())) return {};
    return Status::invalid_argument("the store lies in the folder that is to be saved", location.folder,
                                    is_the_folder ? "keep the store elsewhere, or save a folder beside it"
                                                  : "keep the store elsewhere, or leave its folder out with --exclude");
  }

  /// One set goes to one place: processes on other nodes may have another environment, or options file. Collective.
  Status check_levels_of_first(Communicator& ranks) const {
    VARVE_ASSIGN(const ByteVector told, told_by_first(ranks, [this]() -> Result<ByteVector> {
                   const ByteSpan said = as_bytes(all_levels_);
                   return ByteVector(said.begin(), said.end());
                 }));
    return agree(
        ranks, as_text(told) == all_levels_
                   ? Status()
                   : Status::invalid_argument("the option levels says something else here than to the first process",
                                              all_levels_.empty() ? "nothing" : all_levels_, "name them by --levels"));
  }

  /// The first process makes levels that are not there, and is the one that brings sets along.
  Status open(Session& session, Communicator& ranks, std::unique_ptr<Store>& own,
              std::unique_ptr<CommandLevels>& levels) const {
    VARVE_TRY(check_levels_of_first(ranks));
    if (!has_levels_) {
      VARVE_TRY(check_store_is_elsewhere(session));
      VARVE_ASSIGN(own, session.open_store());
      return {};
    }
    if (ranks.rank() == 0) {
      Result<std::unique_ptr<CommandLevels>> made = session.open_levels(levels_, CommandLevels::Use::save);
      VARVE_TRY(follow_first(ranks, made.status()));
      levels = std::move(*made);
      return {};
    }
    VARVE_TRY(follow_first(ranks, {}));
    VARVE_ASSIGN(levels, session.open_levels(levels_, CommandLevels::Use::help));
    return {};
  }

  void declare_naming(Arguments& arguments) {
    FileChoice& choice = saving_.options.choice;
    arguments.list("--exclude", "GLOB", choice.exclude,
                   "leave out what matches this shell pattern, files or whole folders; one with a / matches paths from "
                   "DIR on; several may be given");
    arguments.list("--include", "GLOB", choice.include, "save nothing but what matches, likewise");
    arguments.text("--stdin", "NAME", stdin_name_, "save what comes on standard input, as a file of this name; no DIR");
    arguments.text("--job", "NAME", saving_.options.job, "the job's name (default: from the folder's path)");
    auto take_step = [this](const std::string& text) -> Status {
      saving_.options.step = parse_step(text);
      if (saving_.options.step) return {};
      return Status::invalid_argument("a step is a number, or a time such as 0.02; a text is a tag (--tag)", text);
    };
    arguments.value("--step", "N", take_step,
                    "the step's number, or a time such as 0.02 (default: the number or time that the folder is called, "
                    "or the last number in its name, else the next)");
    arguments.list("--tag", "TAG", tags_,
                   "give the set this tag, by which it can be called, as run@final; several may be given");
    saving_.declare_grouping(arguments);
  }

  static void print(Session& session, const SaveReport& report, const std::vector<LevelCopy>& copies, double seconds) {
    const SetRecord& record = report.record;
    if (session.json()) {
      Json copied = Json::array();
      for (const LevelCopy& to : copies) copied.push_back(to_json(to));
      session.print_facts(Json{{"record", to_json(record)},
                               {"variable_count", report.variable_count},
                               {"pattern_bytes", report.pattern_bytes},
                               {"known_bytes", report.known_bytes},
                               {"doubted_ranks", report.doubted_ranks},
                               {"copied_to", std::move(copied)},
                               {"seconds", seconds}});
      return;
    }
    session.print(fmt::format("saved {}: {}, {}, {} → {} stored ({}), {}\n", quote_name(record.name.to_string()),
                              format_count(record.file_count, "file", "files"),
                              format_count(record.rank_count, "rank", "ranks"), format_size(record.raw_bytes),
                              format_size(record.stored_bytes()), format_ratio(record.raw_bytes, record.stored_bytes()),
                              format_seconds(seconds)));
    session.print(fmt::format("  {} new, {} known, {} constant; {}\n", format_size(record.new_bytes),
                              format_size(report.known_bytes), format_size(report.pattern_bytes),
                              format_count(report.variable_count, "variable", "variables")));
    if (report.doubted_ranks > 0) session.print("  " + doubt_of_ranks(report.doubted_ranks) + "\n");
    for (const LevelCopy& to : copies) session.print("  " + line_of(to));
  }

  std::string folder_;
  std::string stdin_name_;  ///< empty: standard input is not what is saved
  SaveArguments saving_;
  std::vector<std::string> tags_;
  std::string levels_;
  bool has_levels_ = false;  ///< said here, or to runs
  std::string all_levels_;   ///< wherever they were said
};
}  // namespace

std::unique_ptr<Command> make_save_command() { return std::make_unique<SaveCommand>(); }

}  // namespace varve::cli
