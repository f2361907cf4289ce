#include "report/study_report.h"

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

namespace {
using Json = nlohmann::ordered_json;

Json to_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
}

Json to_json(const Spread& spread) { return {{"least", spread.least}, {"most", spread.most}, {"mean", spread.mean}}; }

Json to_json(const Contents& contents) {
  Json sets = Json::array(), classes = Json::array();
  for (const SetContents& set : contents.sets) {
    sets.push_back({{"label", set.label},
                    {"file_count", set.file_count},
                    {"rank_count", set.rank_count},
                    {"bytes", set.bytes},
                    {"file_bytes", to_json(set.file_bytes)},
                    {"variable_count", set.variable_count},
                    {"variables_per_file", to_json(set.variables_per_file)},
                    {"doubles", set.doubles},
                    {"singles", set.singles},
                    {"other", set.other},
                    {"skeleton", set.skeleton},
                    {"formats", set.formats}});
  }
  for (const ClassContents& each : contents.classes) {
    classes.push_back({{"class_key", each.class_key},
                       {"type", each.type},
                       {"stream_count", each.stream_count},
                       {"bytes", each.bytes}});
  }
  return {{"sets", std::move(sets)}, {"classes", std::move(classes)}};
}

Json to_json(const ShareCount& count) {
  return {{"chunks", count.chunks},
          {"bytes", count.bytes},
          {"unique_chunks", to_json(count.unique_chunks)},
          {"unique_bytes", to_json(count.unique_bytes)},
          {"duplicate_chunks", to_json(count.duplicate_chunks())}};
}

constexpr std::pair<const char*, ShareScope> kScopes[] = {{"within", ShareScope::within},
                                                          {"ranks", ShareScope::ranks},
                                                          {"sets", ShareScope::sets},
                                                          {"both", ShareScope::both}};

Json to_json(const DedupMethod& method) {
  Json total, sets = Json::array(), sizes = Json::array();
  for (const auto& [name, scope] : kScopes) total[name] = to_json(method.total(scope));
  for (const auto& set : method.sets) {
    Json scopes;
    for (const auto& [name, scope] : kScopes) scopes[name] = to_json(set[static_cast<size_t>(scope)]);
    sets.push_back(std::move(scopes));
  }
  for (const SizeBin& bin : method.sizes) {
    sizes.push_back({{"bytes_from", bin.bytes_from}, {"chunks", bin.chunks}, {"bytes", bin.bytes}});
  }
  return {{"name", method.name},
          {"of_files", method.of_files},
          {"sampled_one_in", method.sampled_one_in},
          {"processor_seconds", method.processor_seconds},
          {"total", std::move(total)},
          {"sets", std::move(sets)},
          {"sizes", std::move(sizes)}};
}

Json to_json(const Dedup& dedup) {
  Json methods = Json::array(), classes = Json::array();
  for (const DedupMethod& method : dedup.methods) methods.push_back(to_json(method));
  for (const ClassChange& change : dedup.classes) {
    classes.push_back(
        {{"class_key", change.class_key}, {"bytes", change.bytes}, {"changed_bytes", change.changed_bytes}});
  }
  return {{"sets_done", dedup.sets_done},
          {"sampled_share", dedup.sampled_share},
          {"methods", std::move(methods)},
          {"change_block_bytes", kChangeBlockBytes},
          {"classes", std::move(classes)}};
}

Json to_json(const ChangeMap& map) {
  Json changes = Json::array(), labels = Json::array(), shared_by = Json::array();
  for (const ChangeMap::Cell& cell : map.cells) {
    // Three digits: half of the page is this list.
    changes.push_back(static_cast<double>(static_cast<int64_t>(cell.changes * 1000 + 0.5F)) / 1000);
    labels.push_back(cell.label);
    shared_by.push_back(cell.shared_by);
  }
  return {{"order", map.order},
          {"cell_bytes", map.cell_bytes},
          {"block_bytes", map.block_bytes},
          {"compared_one_in", map.compared_one_in},
          {"comparisons", map.comparisons},
          {"labels", map.labels},
          {"cell_changes", std::move(changes)},
          {"cell_labels", std::move(labels)},
          {"cell_shared_by", std::move(shared_by)}};
}

Json to_json(const std::vector<CompressionPoint>& points) {
  Json list = Json::array();
  for (const CompressionPoint& point : points) {
    list.push_back({{"set", point.set},
                    {"scheme", scheme_name(point.scheme)},
                    {"method", point.method},
                    {"passes", point.passes},
                    {"group_size", point.group_size},
                    {"block_bytes", point.block_bytes},
                    {"raw_bytes", point.raw_bytes},
                    {"stored_bytes", to_json(point.stored_bytes)},
                    {"ratio", to_json(point.ratio())},
                    {"encode_bytes_per_second", point.encode_bytes_per_second},
                    {"decode_bytes_per_second", point.decode_bytes_per_second},
                    {"order_bytes_per_second", point.order_bytes_per_second}});
  }
  return list;
}

Json to_json(const Compression& compression) {
  Json improvements = Json::array();
  for (const Improvement& each : compression.improvements) {
    improvements.push_back({{"scheme", scheme_name(each.scheme)},
                            {"method", each.method},
                            {"best", each.best},
                            {"best_group_size", each.best_group_size},
                            {"worst", each.worst},
                            {"worst_group_size", each.worst_group_size}});
  }
  return {{"set", compression.set},
          {"rank_count", compression.rank_count},
          {"sampled_share", compression.sampled_share},
          {"baseline", kBaselineMethod},
          {"methods", to_json(compression.methods)},
          {"groups", to_json(compression.groups)},
          {"blocks", to_json(compression.blocks)},
          {"series", to_json(compression.series)},
          {"improvements", std::move(improvements)}};
}

Json to_json(const TrialSeries& trial) {
  Json sets = Json::array();
  for (const TrialSet& set : trial.sets) {
    sets.push_back({{"label", set.label}, {"raw_bytes", set.raw_bytes}, {"stored_bytes", to_json(set.stored_bytes)}});
  }
  return {{"scheme", trial.scheme},
          {"policy", trial.policy},
          {"chunker", trial.chunker},
          {"raw_bytes", trial.raw_bytes()},
          {"stored_bytes", to_json(trial.stored_bytes())},
          {"sampled_share", trial.sampled_share},
          {"seconds", trial.seconds},
          {"processor_seconds", trial.processor_seconds},
          {"saved_bytes", trial.saved_bytes},
          {"sets", std::move(sets)}};
}

Json to_json(const Advice& advice) {
  Json trials = Json::array();
  for (const TrialSeries& trial : advice.trials) trials.push_back(to_json(trial));
  return {{"trials", std::move(trials)},
          {"chosen", advice.chosen},
          {"reasons", advice.reasons},
          {"save_command", advice.save_command},
          {"options_file", advice.options_file}};
}

Json to_json(const std::vector<TimedStep>& steps) {
  Json list = Json::array();
  for (const TimedStep& step : steps) list.push_back({{"name", step.name}, {"seconds", step.seconds}});
  return list;
}

Json to_json(const Timing& timing) {
  Json configurations = Json::array();
  for (const TimedConfiguration& each : timing.configurations) {
    configurations.push_back({{"name", each.name},
                              {"description", each.description},
                              {"written_bytes", each.written_bytes},
                              {"checkpoint", to_json(each.checkpoint)},
                              {"checkpoint_seconds", each.checkpoint_seconds()},
                              {"restart", to_json(each.restart)},
                              {"restart_seconds", each.restart_seconds()},
                              {"interval_seconds", each.interval_seconds},
                              {"waste", each.waste},
                              {"asynchronous_interval_seconds", each.asynchronous_interval_seconds},
                              {"asynchronous_waste", each.asynchronous_waste}});
  }
  const RunAssumptions& said = timing.assumptions;
  return {{"io_bytes_per_second", said.io_bytes_per_second},
          {"network_bytes_per_second", said.network_bytes_per_second},
          {"memory_bytes_per_second", said.memory_bytes_per_second},
          {"node_count", said.node_count},
          {"mean_time_between_failures", said.mean_time_between_failures},
          {"node_bytes", timing.node_bytes},
          {"group_size", timing.group_size},
          {"asynchronous_seconds", timing.asynchronous_seconds},
          {"configurations", std::move(configurations)}};
}

template <class Part>
Json part_or_null(const std::optional<Part>& part) {
  return part ? to_json(*part) : Json();
}
}  // namespace

Json study_json(const StudyResult& result) {
  Json stages = Json::array();
  for (const StudyStage& stage : result.stages) {
    stages.push_back({{"name", stage.name}, {"seconds", stage.seconds}, {"complete", stage.complete}});
  }
  return {{"sets", result.sets},
          {"raw_bytes", result.raw_bytes},
          {"complete", result.complete},
          {"stages", std::move(stages)},
          {"contents", part_or_null(result.contents)},
          {"dedup", part_or_null(result.dedup)},
          {"changes", part_or_null(result.changes)},
          {"compression", part_or_null(result.compression)},
          {"timing", part_or_null(result.timing)},
          {"advice", part_or_null(result.advice)}};
}

bool has_charts() { return !page_charts().empty(); }

Result<std::string> study_page(const nlohmann::ordered_json& study, const std::string& text) {
  if (!has_charts()) {
    return Status::unsupported("this program was built without the charting library, so it cannot make the page", "",
                               "write --json or --csv instead, or build it with ./run build where npm works");
  }
  return fill_page(page_template(), [&](std::string_view name) -> std::string {
    if (name == "style") return std::string(page_style());
    if (name == "charts") return std::string(page_charts());
    if (name == "script") return std::string(page_script());
    if (name == "data") return json_in_script(study);
    return name == "text" ? escape_html(text) : "";
  });
}

}  // namespace varve
