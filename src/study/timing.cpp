#include "study/timing.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "runtime/overhead_model.h"

namespace varve {

namespace {
double sum_of(const std::vector<TimedStep>& steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0,
                         [](double sum, const TimedStep& step) { return sum + step.seconds; });
}

const CompressionPoint* find_point(const std::vector<CompressionPoint>& points, Scheme scheme, std::string_view method,
                                   uint32_t group_size) {
  for (const CompressionPoint& point : points) {
    if (point.scheme == scheme && point.method == method && point.group_size == group_size) return &point;
  }
  return nullptr;
}

double over(double bytes, double bytes_per_second) { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }

class Timer {
 public:
  Timer(const StudySeries& series, const Compression& compression, const TrialSeries& trial,
        const RunAssumptions& assumptions)
      : compression_(compression), trial_(trial) {
    timing_.assumptions = assumptions;
    const uint64_t ranks = series.rank_count();
    if (timing_.assumptions.node_count == 0) timing_.assumptions.node_count = ranks;
    timing_.node_bytes = static_cast<double>(series.set_bytes_max()) / static_cast<double>(ranks);
  }

  Timing run() {
    uint32_t group_size = 0;  // the largest that was tried
    for (const CompressionPoint& point : compression_.groups) group_size = std::max(group_size, point.group_size);
    const CompressionPoint* alone = find_point(compression_.groups, Scheme::agnostic, kBaselineMethod, 1);
    const CompressionPoint* agnostic = find_point(compression_.groups, Scheme::agnostic, kBaselineMethod, group_size);
    const CompressionPoint* aware = find_point(compression_.groups, Scheme::aware, "by-type+gzip:6", group_size);
    if (alone == nullptr || agnostic == nullptr || aware == nullptr) return std::move(timing_);
    timing_.group_size = static_cast<uint32_t>(std::min<uint64_t>(group_size, timing_.assumptions.node_count));

    add_plain();
    add_alone(*alone);
    add_gathered();
    add_merged("Agnostic+Agg", "files of a group one after another, gzip", *agnostic, false);
    add_merged("Aware+Agg", "variables side by side, mcrEngine's codecs and gzip", *aware, true);
    add_own();
    add_intervals();
    return std::move(timing_);
  }

 private:
  double node_bytes() const { return timing_.node_bytes; }
  double group_bytes() const { return timing_.node_bytes * timing_.group_size; }
  double all_bytes() const { return timing_.node_bytes * static_cast<double>(timing_.assumptions.node_count); }
  double transfer(double bytes) const { return over(bytes, timing_.assumptions.io_bytes_per_second); }
  double fetch() const { return over(group_bytes(), timing_.assumptions.network_bytes_per_second); }

  TimedConfiguration& add(std::string name, std::string description, double written_bytes) {
    TimedConfiguration configuration;
    configuration.name = std::move(name);
    configuration.description = std::move(description);
    configuration.written_bytes = written_bytes;
    return timing_.configurations.emplace_back(std::move(configuration));
  }

  void add_plain() {
    TimedConfiguration& plain = add("NoC+NoAgg", "every rank writes its file as it is", all_bytes());
    plain.checkpoint = {{"write", transfer(all_bytes())}};
    plain.restart = {{"read", transfer(all_bytes())}};
  }

  void add_alone(const CompressionPoint& point) {
    const double bytes = all_bytes() / point.ratio().value;
    TimedConfiguration& alone = add("C+NoAgg", "every rank compresses its file with gzip", bytes);
    alone.checkpoint = {{"compress", over(node_bytes(), point.encode_bytes_per_second)}, {"write", transfer(bytes)}};
    alone.restart = {{"read", transfer(bytes)}, {"decompress", over(node_bytes(), point.decode_bytes_per_second)}};
  }

  void add_gathered() {
    TimedConfiguration& gathered = add("NoC+Agg", "the files of a group in one, as they are", all_bytes());
    gathered.checkpoint = {{"fetch", fetch()}, {"write", transfer(all_bytes())}};
    gathered.restart = {{"read", transfer(all_bytes())}, {"send", fetch()}};
  }

  void add_merged(const char* name, const char* description, const CompressionPoint& point, bool aware) {
    const double bytes = all_bytes() / point.ratio().value;
    const char* merge = aware ? "classify and merge" : "merge";
    const char* split = aware ? "split" : "separate";
    TimedConfiguration& merged = add(name, description, bytes);
    merged.checkpoint = {{"fetch", fetch()},
                         {merge, over(group_bytes(), point.order_bytes_per_second)},
                         {"compress", over(group_bytes(), point.encode_bytes_per_second)},
                         {"write", transfer(bytes)}};
    merged.restart = {{"read", transfer(bytes)},
                      {"decompress", over(group_bytes(), point.decode_bytes_per_second)},
                      {split, over(group_bytes(), point.order_bytes_per_second)},
                      {"send", fetch()}};
  }

  /// Each node takes its own data apart and writes what is new; a restart reads all of it.
  void add_own() {
    if (trial_.sets.empty() || trial_.saved_bytes == 0 || trial_.processor_seconds <= 0) return;
    const CompressionPoint* point = nullptr;
    for (const CompressionPoint& each : compression_.methods) {
      if (each.scheme == Scheme::aware && each.method == trial_.policy) point = &each;
    }
    if (point == nullptr) return;
    const double speed = static_cast<double>(trial_.saved_bytes) / trial_.processor_seconds;
    // The newest set: the first one has nothing to share with.
    const TrialSet& newest = trial_.sets.back();
    const double bytes = all_bytes() * newest.stored_bytes.value / static_cast<double>(newest.raw_bytes);
    const double whole = all_bytes() / point->ratio().value;
    TimedConfiguration& own = add("Varve", "every node stores what is new of its own data", bytes);
    own.checkpoint = {{"cut, look up, compress", over(node_bytes(), speed)}, {"write", transfer(bytes)}};
    own.restart = {{"read", transfer(whole)},
                   {"decompress", over(node_bytes(), point->decode_bytes_per_second)},
                   {"lay in place", over(node_bytes(), point->order_bytes_per_second)}};
  }

  void add_intervals() {
    const RunAssumptions& said = timing_.assumptions;
    OverheadModel model;
    model.node_bytes = timing_.node_bytes;
    model.memory_bytes_per_second = said.memory_bytes_per_second;
    model.io_bytes_per_second = said.io_bytes_per_second;
    model.node_count = said.node_count;
    timing_.asynchronous_seconds = model.asynchronous_seconds();
    for (TimedConfiguration& each : timing_.configurations) {
      const double mtbf = said.mean_time_between_failures, cost = each.checkpoint_seconds();
      each.interval_seconds = best_interval_seconds(cost, mtbf);
      each.waste = expected_waste(each.interval_seconds, cost, mtbf);
      // One cannot begin before the one before is written.
      each.asynchronous_interval_seconds = std::max(best_interval_seconds(timing_.asynchronous_seconds, mtbf), cost);
      each.asynchronous_waste = expected_waste(each.asynchronous_interval_seconds, timing_.asynchronous_seconds, mtbf);
    }
  }

  const Compression& compression_;
  const TrialSeries& trial_;
  Timing timing_;
};
}  // namespace

double TimedConfiguration::checkpoint_seconds() const { return sum_of(checkpoint); }
double TimedConfiguration::restart_seconds() const { return sum_of(restart); }

Timing study_timing(const StudySeries& series, const Compression& compression, const TrialSeries& trial,
                    const RunAssumptions& assumptions) {
  return Timer(series, compression, trial, assumptions).run();
}

}  // namespace varve
