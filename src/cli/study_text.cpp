#include "cli/study_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/text.h"

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

}  // namespace varve::cli
