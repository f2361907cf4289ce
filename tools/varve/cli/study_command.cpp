#include "cli/study_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/save_command.h"
#include "cli/text.h"
#include "core/sync.h"
#include "report/heat_map_png.h"
#include "report/study_report.h"
#include "study/study.h"
#include "study/study_set.h"

namespace varve::cli {

namespace {
using enum Table::Align;
constexpr size_t kClassesMax = 12;

std::string size_text(double bytes) { return format_size(static_cast<uint64_t>(std::max(bytes, 0.0))); }

/// "3.20x", or "3.20x ±0.05" if it is an estimate.
std::string ratio_text(const Estimate& ratio) {
  std::string text = fmt::format("{:.2f}x", ratio.value);
  if (ratio.is_exact()) return text;
  return text + fmt::format(" ±{:.2f}", (ratio.high - ratio.low) / 2);
}

std::string speed_text(double bytes_per_second) { return fmt::format("{:.0f}", bytes_per_second / 1e6); }

std::string contents_text(const Contents& contents) {
  Table table({{"set"},
               {"files", right},
               {"bytes", right},
               {"bytes a file", right},
               {"variables a file", right},
               {"doubles", right},
               {"singles", right},
               {"other", right},
               {"skeleton", right}});
  for (const SetContents& set : contents.sets) {
    const Spread& bytes = set.file_bytes;
    const Spread& variables = set.variables_per_file;
    table.add_row({quote_name(set.label), std::to_string(set.file_count), format_size(set.bytes),
                   bytes.least == bytes.most ? size_text(bytes.mean)
                                             : fmt::format("{} to {}, mean {}", size_text(bytes.least),
                                                           size_text(bytes.most), size_text(bytes.mean)),
                   variables.least == variables.most
                       ? fmt::format("{:.0f}", variables.mean)
                       : fmt::format("{:.0f} to {:.0f}, mean {:.0f}", variables.least, variables.most, variables.mean),
                   format_percent(set.doubles), format_percent(set.singles), format_percent(set.other),
                   format_percent(set.skeleton)});
  }
  return "what is in it\n" + table.render("  ");
}

double share_left(const DedupMethod& method, ShareScope scope) {
  const ShareCount count = method.total(scope);
  return count.bytes == 0 ? 1 : count.unique_bytes.value / static_cast<double>(count.bytes);
}

std::string dedup_text(const Dedup& dedup) {
  Table table({{"cut"},
               {"within a rank", right},
               {"across ranks", right},
               {"across sets", right},
               {"both", right},
               {"mean chunk", right}});
  for (const DedupMethod& method : dedup.methods) {
    const ShareCount count = method.total(ShareScope::both);
    table.add_row(
        {method.name + (method.of_files ? ", whole files" : "") +
             (method.sampled_one_in > 1 ? fmt::format(" (1 in {})", method.sampled_one_in) : ""),
         format_percent(share_left(method, ShareScope::within)), format_percent(share_left(method, ShareScope::ranks)),
         format_percent(share_left(method, ShareScope::sets)), format_percent(share_left(method, ShareScope::both)),
         count.chunks == 0 ? "-" : format_size(count.bytes / count.chunks)});
  }
  std::string text = "\nwhat is left of the bytes after deduplication\n" + table.render("  ");
  Table changes({{"changes"}, {"of", right}, {"variables"}});
  size_t rows = 0;
  for (const ClassChange& change : dedup.classes) {
    if (change.bytes == 0) continue;
    const double share = static_cast<double>(change.changed_bytes) / static_cast<double>(change.bytes);
    changes.add_row({format_percent(share), format_size(change.bytes), quote_name(change.class_key)});
    if (++rows == kClassesMax) break;
  }
  if (!changes.empty())
    text += fmt::format("\nwhat changes from one set to the next, in blocks of {}\n", format_size(kChangeBlockBytes)) +
            changes.render("  ");
  return text;
}

std::string percent_gain(double gain) { return fmt::format("{:+.1f} %", 100 * gain); }

std::string compression_text(const Compression& compression) {
  std::string text = fmt::format(
      "\ncompression of {}, {}{}\n", quote_name(compression.set), format_count(compression.rank_count, "rank", "ranks"),
      compression.sampled_share < 1 ? fmt::format(", a sample of {}", format_percent(compression.sampled_share)) : "");
  Table table({{"scheme"}, {"codecs"}, {"ratio", right}, {"MB/s in", right}, {"out", right}});
  for (const CompressionPoint& point : compression.methods) {
    table.add_row({std::string(scheme_name(point.scheme)), point.method, ratio_text(point.ratio()),
                   speed_text(point.encode_bytes_per_second), speed_text(point.decode_bytes_per_second)});
  }
  text += table.render("  ");
  if (compression.improvements.empty()) return text;
  Table gains({{"over agnostic + gzip"},
               {"codecs"},
               {"best", right},
               {"of ranks", right},
               {"worst", right},
               {"of ranks", right}});
  for (const Improvement& each : compression.improvements) {
    gains.add_row({std::string(scheme_name(each.scheme)), each.method, percent_gain(each.best),
                   std::to_string(each.best_group_size), percent_gain(each.worst),
                   std::to_string(each.worst_group_size)});
  }
  return text + "\n" + gains.render("  ");
}

std::string timing_text(const Timing& timing) {
  if (timing.configurations.empty()) return "";
  const RunAssumptions& said = timing.assumptions;
  std::string text =
      fmt::format("\ntime, on {} of {} each, {} to the file system, a failure every {}\n",
                  format_count(said.node_count, "node", "nodes"), size_text(timing.node_bytes),
                  format_rate(said.io_bytes_per_second), format_duration(said.mean_time_between_failures));
  Table table({{""},
               {"written", right},
               {"checkpoint", right},
               {"restart", right},
               {"every", right},
               {"lost", right},
               {"asynchronous: every", right},
               {"lost", right}});
  for (const TimedConfiguration& each : timing.configurations) {
    table.add_row({each.name, size_text(each.written_bytes), format_duration(each.checkpoint_seconds()),
                   format_duration(each.restart_seconds()), format_duration(each.interval_seconds),
                   format_percent(each.waste), format_duration(each.asynchronous_interval_seconds),
                   format_percent(each.asynchronous_waste)});
  }
  return text + table.render("  ");
}

std::string advice_text(const Advice& advice) {
  Table table({{"chunks"}, {"scheme"}, {"effort"}, {"stored", right}, {"ratio", right}, {"MB/s", right}, {""}});
  for (size_t i = 0; i < advice.trials.size(); ++i) {
    const TrialSeries& trial = advice.trials[i];
    const auto stored = static_cast<uint64_t>(trial.stored_bytes().value);
    const double speed =
        trial.processor_seconds > 0 ? static_cast<double>(trial.saved_bytes) / trial.processor_seconds : 0;
    table.add_row({trial.chunker, trial.scheme, trial.policy, format_size(stored),
                   format_ratio(trial.raw_bytes(), stored), speed_text(speed), i == advice.chosen ? "chosen" : ""});
  }
  std::string text = "\nwhat a store would take\n" + table.render("  ");
  for (const std::string& reason : advice.reasons) text += "  " + reason + "\n";
  return text + "\nadvice\n  " + advice.save_command + "\n";
}
}  // namespace

std::string study_text(const StudyResult& result) {
  std::string text;
  if (result.contents) text += contents_text(*result.contents);
  if (result.dedup) text += dedup_text(*result.dedup);
  if (result.compression) text += compression_text(*result.compression);
  if (result.timing) text += timing_text(*result.timing);
  if (result.advice) text += advice_text(*result.advice);
  if (!result.complete) text += "\nstopped before the end: the figures above are of a part\n";
  return text;
}

namespace {
class StudyCommand final : public Command {
 public:
  std::string_view name() const override { return "study"; }
  std::string_view summary() const override {
    return "measure what deduplication and compression would gain on your data";
  }

  void declare(Arguments& arguments) override {
    arguments.optional_positional_list(
        "DIR", paths_,
        "consecutive sets, oldest first: folders, single files, or one folder that holds a folder for each set");
    arguments.text("--output", "FILE", page_path_, "the HTML page to write (default: varve-study.html)");
    arguments.text("--json-file", "FILE", json_path_, "also write all figures as JSON");
    arguments.text("--csv", "FILE", csv_path_, "also write the figures as one long table");
    arguments.text("--png", "FILE", png_path_, "also write the heat map of changes as a picture");
    arguments.text("--job", "NAME", job_, "study the sets of this job in the store, in place of folders");
    declare_measuring(arguments);
    declare_assumptions(arguments);
    arguments.examples(
        "  varve study run                                  all sets in the folder run: run/dump0001, ...\n"
        "  varve study run/dump0001 run/dump0002 --output two.html\n"
        "  varve study core.1 core.2 core.3                 images of one process\n"
        "  varve study --store /scratch/store --job run     sets that are saved already\n"
        "  varve study run --sample 256M --bandwidth 30GB/s --nodes 15408 --mtbf 6h\n");
  }

  Result<ExitCode> run(Session& session) override {
    // It forks, so it comes before any thread.
    LayoutServiceOptions reading;
    reading.worker_count = std::clamp(processor_count(), 1u, kUsefulReaderProcesses);
    VARVE_ASSIGN(const std::unique_ptr<LayoutService> layouts, LayoutService::start(std::move(reading)));
    keep_freed_memory();
    options_.assumptions.node_count = nodes_.value_or(0);
    if (paths_.empty() == job_.empty()) {
      return Status::invalid_argument("either folders or --job says what to study", "",
                                      "`varve help study` has examples");
    }
    VARVE_TRY(check_outputs());
    std::unique_ptr<Store> store;
    if (!job_.empty()) {
      VARVE_ASSIGN(store, session.open_store());
    }
    ProgressSink& progress = session.begin_progress();
    progress.phase("looking");
    VARVE_ASSIGN(const StudySeries series, open(store.get(), *layouts, progress));
    VARVE_ASSIGN(const StudyResult result, run_study(series, options_, progress));
    session.end_progress();
    const Json facts = study_json(result);
    const std::string text = study_text(result);
    VARVE_TRY(write_files(session, result, facts, text));
    if (session.json()) {
      session.print_facts(facts);
    } else {
      session.print(text);
      for (const std::string& path : written_) session.print(fmt::format("\nwrote {}", quote_name(path)));
      session.print("\n");
    }
    return result.complete ? ExitCode::success : ExitCode::interrupted;
  }

 private:
  Result<StudySeries> open(const Store* store, LayoutService& layouts, ProgressSink& progress) const {
    if (store != nullptr) return open_stored_series(*store, job_, save_, progress);
    VARVE_ASSIGN(const std::vector<SetPlace> places, find_series(paths_));
    return open_series(places, save_, layouts, progress);
  }

  /// What this build cannot write is said before the work, not after it.
  Status check_outputs() const {
    if (!page_path_.empty() && !has_charts()) return study_page({}, {}).status();
    if (!png_path_.empty()) return heat_map_png({}).status();
    return {};
  }

  Status write_files(Session& session, const StudyResult& result, const Json& facts, const std::string& text) {
    const bool page_wanted = !page_path_.empty();
    if (page_wanted || has_charts()) {
      VARVE_ASSIGN(const std::string page, study_page(facts, text));
      VARVE_TRY(write(page_wanted ? page_path_ : "varve-study.html", page));
    } else {
      session.warn(study_page(facts, text).status());
    }
    if (!json_path_.empty()) VARVE_TRY(write(json_path_, json_text(facts, 1) + "\n"));
    if (!csv_path_.empty()) VARVE_TRY(write(csv_path_, study_csv(result)));
    if (!png_path_.empty() && result.changes) {
      VARVE_ASSIGN(const std::string png, heat_map_png(*result.changes));
      VARVE_TRY(write(png_path_, png));
    }
    return {};
  }

  Status write(const std::string& path, std::string_view contents) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    file.close();
    if (!file) return Status::from_errno(errno != 0 ? errno : EIO, "write", path);
    written_.push_back(path);
    return {};
  }

  void declare_measuring(Arguments& arguments) {
    auto take_sample = [this](const std::string& text) -> Status {
      if (text == "all") {
        options_.sample_bytes = UINT64_MAX;
        return {};
      }
      VARVE_ASSIGN(options_.sample_bytes, parse_size(text));
      return options_.sample_bytes > 0 ? Status() : Status::invalid_argument("a sample has bytes", text);
    };
    arguments.value("--sample", "SIZE", take_sample,
                    "bytes to try each codec on, or all (default: 32MiB); settings are tried on 8 times as many, and "
                    "duplicates looked for in 128 times as many");
    arguments.memory("--memory", options_.memory_bytes, "memory to use at most, about (default: 512MiB)");
    arguments.threads(options_.thread_count, "threads (default: one per processor)");
    arguments.count("--group-size", "G", options_.group_size, "ranks whose data are laid together (default: 32)");
    declare_rank_regex(arguments, save_.ranks.rank_regex, "how a file's path tells its rank, as in save");
    auto take_match = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(save_.variables.match, MatchRule::parse(text));
      return {};
    };
    arguments.value("--match", "RULE", take_match, "which variables mean the same, as in save");
    auto take_raw = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(save_.variables.layouts.raw, parse_raw_description(text));
      return {};
    };
    arguments.value("--raw", "TYPE:NX,NY,NZ", take_raw, "what files of unknown format hold, as in save");
  }

  void declare_assumptions(Arguments& arguments) {
    RunAssumptions& said = options_.assumptions;
    arguments.bandwidth("--bandwidth", said.io_bytes_per_second,
                        "bandwidth of the file system, for all nodes together (default: 1GB/s)");
    arguments.bandwidth("--network", said.network_bytes_per_second,
                        "network bandwidth into the node that gathers a group (default: 1GB/s)");
    arguments.bandwidth("--memory-bandwidth", said.memory_bytes_per_second,
                        "memory bandwidth of a node (default: 40GB/s)");
    arguments.number("--nodes", "N", nodes_,
                     "nodes of the run, with one rank's share of the largest set on each (default: one per rank)");
    arguments.duration("--mtbf", said.mean_time_between_failures,
                       "mean time between failures of the job (default: 24h)");
  }

  std::vector<std::string> paths_;
  std::string page_path_, json_path_, csv_path_, png_path_;
  std::string job_;
  std::vector<std::string> written_;
  SaveOptions save_;
  StudyOptions options_;
  std::optional<uint64_t> nodes_;
};
}  // namespace

std::unique_ptr<Command> make_study_command() { return std::make_unique<StudyCommand>(); }

}  // namespace varve::cli
