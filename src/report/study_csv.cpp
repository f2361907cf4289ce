#include "report/study_csv.h"

#include <fmt/format.h>

namespace varve {

namespace {
constexpr const char* kHeader = "part,set,scheme,method,group_size,block_bytes,item,measure,value,low,high\n";

/// What a figure is of; empty or 0: does not apply.
struct Subject {
  std::string part{}, set{}, scheme{}, method{};
  uint64_t group_size = 0, block_bytes = 0;
  std::string item{};
};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char byte : text) {
    if (byte == '"') quoted += '"';
    quoted += byte;
  }
  return quoted + '"';
}

std::string number_or_empty(uint64_t number) { return number == 0 ? "" : std::to_string(number); }

class Table {
 public:
  void add(const Subject& of, const char* measure, const Estimate& estimate) {
    text_ += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", of.part, quoted(of.set), of.scheme, quoted(of.method),
                         number_or_empty(of.group_size), number_or_empty(of.block_bytes), quoted(of.item), measure,
                         estimate.value, estimate.low, estimate.high);
  }
  void add(const Subject& of, const char* measure, double value) { add(of, measure, Estimate::exact(value)); }
  void add(const Subject& of, const char* measure, uint64_t value) { add(of, measure, static_cast<double>(value)); }

  void add(const Contents& contents) {
    for (const SetContents& set : contents.sets) {
      const Subject of{.part = "contents", .set = set.label};
      add(of, "files", set.file_count);
      add(of, "ranks", set.rank_count);
      add(of, "bytes", set.bytes);
      add(of, "file_bytes", Estimate{set.file_bytes.mean, set.file_bytes.least, set.file_bytes.most});
      add(of, "variables", set.variable_count);
      add(of, "variables_per_file",
          Estimate{set.variables_per_file.mean, set.variables_per_file.least, set.variables_per_file.most});
      add(of, "doubles", set.doubles);
      add(of, "singles", set.singles);
      add(of, "other", set.other);
      add(of, "skeleton", set.skeleton);
    }
  }

  void add(const Dedup& dedup, const std::vector<std::string>& labels) {
    for (const DedupMethod& method : dedup.methods) {
      const std::string name = method.of_files ? "files:" + method.name : method.name;
      for (size_t set = 0; set < method.sets.size(); ++set) {
        constexpr const char* scopes[] = {"within", "ranks", "sets", "both"};
        for (size_t scope = 0; scope < kShareScopes; ++scope) {
          const ShareCount& count = method.sets[set][scope];
          const Subject of{.part = "dedup", .set = labels[set], .method = name, .item = scopes[scope]};
          add(of, "bytes", count.bytes);
          add(of, "chunks", count.chunks);
          add(of, "unique_bytes", count.unique_bytes);
          add(of, "unique_chunks", count.unique_chunks);
        }
      }
      for (const SizeBin& bin : method.sizes) {
        const Subject of{.part = "chunk_sizes", .method = name, .block_bytes = bin.bytes_from};
        add(of, "chunks", bin.chunks);
        add(of, "bytes", bin.bytes);
      }
    }
    for (const ClassChange& change : dedup.classes) {
      const Subject of{.part = "changes", .block_bytes = kChangeBlockBytes, .item = change.class_key};
      add(of, "bytes", change.bytes);
      add(of, "changed_bytes", change.changed_bytes);
    }
  }

  void add(const char* figure, const std::vector<CompressionPoint>& points) {
    for (const CompressionPoint& point : points) {
      const Subject of{.part = figure,
                       .set = point.set,
                       .scheme = std::string(scheme_name(point.scheme)),
                       .method = point.method,
                       .group_size = point.group_size,
                       .block_bytes = point.block_bytes};
      add(of, "ratio", point.ratio());
      add(of, "encode_bytes_per_second", point.encode_bytes_per_second);
      add(of, "decode_bytes_per_second", point.decode_bytes_per_second);
    }
  }

  void add(const Timing& timing) {
    for (const TimedConfiguration& each : timing.configurations) {
      const Subject of{.part = "time", .method = each.name};
      add(of, "written_bytes", each.written_bytes);
      for (const TimedStep& step : each.checkpoint)
        add({.part = "checkpoint", .method = each.name, .item = step.name}, "seconds", step.seconds);
      for (const TimedStep& step : each.restart)
        add({.part = "restart", .method = each.name, .item = step.name}, "seconds", step.seconds);
      add(of, "interval_seconds", each.interval_seconds);
      add(of, "waste", each.waste);
      add(of, "asynchronous_interval_seconds", each.asynchronous_interval_seconds);
      add(of, "asynchronous_waste", each.asynchronous_waste);
    }
  }

  void add(const Advice& advice) {
    for (const TrialSeries& trial : advice.trials) {
      for (const TrialSet& set : trial.sets) {
        const Subject of{
            .part = "advice", .set = set.label, .scheme = trial.scheme, .method = trial.policy, .item = trial.chunker};
        add(of, "raw_bytes", set.raw_bytes);
        add(of, "stored_bytes", set.stored_bytes);
      }
    }
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_ = kHeader;
};
}  // namespace

std::string study_csv(const StudyResult& result) {
  Table table;
  if (result.contents) table.add(*result.contents);
  if (result.dedup) table.add(*result.dedup, result.sets);
  if (result.compression) {
    table.add("methods", result.compression->methods);
    table.add("groups", result.compression->groups);
    table.add("blocks", result.compression->blocks);
    table.add("series", result.compression->series);
  }
  if (result.timing) table.add(*result.timing);
  if (result.advice) table.add(*result.advice);
  return table.take();
}

}  // namespace varve
