#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "cli/command.h"
#include "cli/heap.h"
#include "cli/save_options.h"
#include "cli/study_text.h"
#include "cli/text.h"
#include "core/sync.h"
#include "report/heat_map_png.h"
#include "report/study_csv.h"
#include "report/study_page.h"
#include "study/stored_series.h"
#include "study/study.h"

namespace varve::cli {

namespace {
constexpr unsigned kReaderProcessesMax = 4;

class StudyCommand final : public Command {
 public:
  std::string_view name() const override { return "study"; }
  std::string_view summary() const override { return "look at what checkpoints would gain, and how"; }

  void declare(Arguments& arguments) override {
    arguments.optional_positional_list(
        "DIR", paths_,
        "consecutive sets, oldest first: folders, single\nfiles, or a folder whose folders are "
        "the sets");
    arguments.text("--output", "FILE", page_path_, "the page (varve-study.html)");
    arguments.text("--json-file", "FILE", json_path_, "all figures as JSON, too");
    arguments.text("--csv", "FILE", csv_path_, "the figures as one long table, too");
    arguments.text("--png", "FILE", png_path_, "the heat map of changes as a picture, too");
    arguments.text("--job", "NAME", job_, "study this job's sets in the store, not folders");
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
    reading.worker_count = std::clamp(processor_count(), 1u, kReaderProcessesMax);
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
                    "bytes on which each codec is tried; settings are\ntried on 8 times, duplicates looked for in 128\n"
                    "times as many; or all (32MiB)");
    arguments.memory("--memory", options_.memory_bytes, "memory that is used at most, about (512MiB)");
    arguments.threads(options_.thread_count, "threads (as many as processors)");
    arguments.count("--group-size", "G", options_.group_size, "ranks whose data are laid together (32)");
    declare_rank_regex(arguments, save_.rank_regex, "how a file's path tells its rank, as in save");
    auto take_match = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(save_.match, MatchRule::parse(text));
      return {};
    };
    arguments.value("--match", "RULE", take_match, "which variables mean the same, as in save");
    auto take_raw = [this](const std::string& text) -> Status {
      VARVE_ASSIGN(save_.layouts.raw, parse_raw_description(text));
      return {};
    };
    arguments.value("--raw", "TYPE:NX,NY,NZ", take_raw, "what files of unknown format hold, as in save");
  }

  void declare_assumptions(Arguments& arguments) {
    RunAssumptions& said = options_.assumptions;
    arguments.bandwidth("--bandwidth", said.io_bytes_per_second, "of the file system, all nodes together (1GB/s)");
    arguments.bandwidth("--network", said.network_bytes_per_second, "into the node that gathers a group (1GB/s)");
    arguments.bandwidth("--memory-bandwidth", said.memory_bytes_per_second, "of a node's memory (40GB/s)");
    arguments.number("--nodes", "N", nodes_, "of the run; the checkpoint grows with them (one\nfor each rank)");
    arguments.duration("--mtbf", said.mean_time_between_failures, "mean time between failures of the job (24h)");
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
