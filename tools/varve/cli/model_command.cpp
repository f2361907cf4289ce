#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/command.h"
#include "cli/text.h"
#include "runtime/report.h"

namespace varve::cli {

namespace {
constexpr size_t kNodeCountsMax = 1000;
constexpr uint64_t kNodesMax = 1'000'000'000;
/// Sizes are printed as whole numbers.
constexpr double kCheckpointBytesMax = 1e19;

/// What the model says about a run on so many nodes.
struct Forecast {
  OverheadModel model;
  double mean_time_between_failures = 0;
  double synchronous_interval = 0;   ///< the best one, in seconds
  double asynchronous_interval = 0;  ///< not shorter than one checkpoint takes to be written
};

class ModelCommand final : public Command {
 public:
  std::string_view name() const override { return "model"; }
  std::string_view summary() const override {
    return "predict what checkpoints cost a run, and how often to make them";
  }

  bool works_on_store() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.amount("--size", node_.node_bytes, "size of a checkpoint on each node");
    arguments.bandwidth("--memory-bandwidth", node_.memory_bytes_per_second, "memory bandwidth of a node");
    arguments.bandwidth("--io-bandwidth", node_.io_bytes_per_second,
                        "bandwidth of the file system, for all nodes together");
    arguments.count("--checkpoints", "N", checkpoint_count_, "number of checkpoints in the run (default: 1)");
    arguments.duration("--runtime", run_seconds_, "length of the run without checkpoints (default: 1h)");
    auto take_nodes = [this](const std::string& text) { return take_node_counts(text); };
    arguments.value("--nodes", "N,N,...", take_nodes,
                    "numbers of nodes to compare: checkpoints grow with them, the file system does not (default: 1)");
    auto take_passes = [this](const std::string& text) -> Status {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), node_.memory_passes);
      const bool whole = error == std::errc() && end == text.data() + text.size();
      if (whole && std::isfinite(node_.memory_passes) && node_.memory_passes > 0) return {};
      return Status::invalid_argument("a number above 0 is wanted", text);
    };
    arguments.value("--m", "M", take_passes,
                    "how often each byte passes through memory until it is written (default: 7)");
    arguments.duration("--mtbf", job_mtbf_, "mean time between failures of the job (default: 24h)");
    arguments.duration("--node-mtbf", node_mtbf_, "mean time between failures of one node, in place of --mtbf");
    arguments.examples(
        "  varve model --size 6.1G --memory-bandwidth 40G --io-bandwidth 3G\n"
        "  varve model --size 6.25GB --memory-bandwidth 40GB/s --io-bandwidth 3GB/s \\\n"
        "    --checkpoints 4 --runtime 1h --nodes 1,8,64,128 --node-mtbf 1000d\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_TRY(check());
    std::vector<Forecast> forecasts;
    for (const uint64_t node_count : node_counts_) forecasts.push_back(forecast(node_count));
    if (session.json()) {
      print_json(session, forecasts);
    } else {
      print_text(session, forecasts);
    }
    return ExitCode::success;
  }

 private:
  Status take_node_counts(const std::string& text) {
    node_counts_.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      VARVE_ASSIGN(const uint64_t count, parse_number(std::string_view(text).substr(begin, end - begin), kNodesMax));
      if (count == 0 || node_counts_.size() == kNodeCountsMax)
        return Status::invalid_argument("up to 1000 node counts from 1 on are wanted", text);
      node_counts_.push_back(count);
      begin = end + 1;
    }
    return {};
  }

  Status check() const {
    const std::pair<const char*, double> wanted[] = {{"--size", node_.node_bytes},
                                                     {"--memory-bandwidth", node_.memory_bytes_per_second},
                                                     {"--io-bandwidth", node_.io_bytes_per_second}};
    for (const auto& [option, value] : wanted) {
      if (value <= 0)
        return Status::invalid_argument("the model needs this option", option, "`varve help model` has examples");
    }
    const uint64_t nodes_max = *std::max_element(node_counts_.begin(), node_counts_.end());
    if (node_.node_bytes * static_cast<double>(nodes_max) > kCheckpointBytesMax)
      return Status::invalid_argument("a checkpoint of more than ten exabytes", "--size");
    if (job_mtbf_ > 0 && node_mtbf_ > 0) return Status::invalid_argument("--mtbf and --node-mtbf exclude one another");
    return {};
  }

  Forecast forecast(uint64_t node_count) const {
    Forecast forecast{.model = node_};
    forecast.model.node_count = node_count;
    const double job_mtbf = job_mtbf_ > 0 ? job_mtbf_ : 86'400;
    const double mtbf = node_mtbf_ > 0 ? node_mtbf_ / static_cast<double>(node_count) : job_mtbf;
    forecast.mean_time_between_failures = mtbf;
    forecast.synchronous_interval = best_interval_seconds(forecast.model.synchronous_seconds(), mtbf);
    forecast.asynchronous_interval =
        std::max(best_interval_seconds(forecast.model.asynchronous_seconds(), mtbf), forecast.model.io_seconds());
    return forecast;
  }

  static double synchronous_waste(const Forecast& forecast) {
    return expected_waste(forecast.synchronous_interval, forecast.model.synchronous_seconds(),
                          forecast.mean_time_between_failures);
  }
  static double asynchronous_waste(const Forecast& forecast) {
    return expected_waste(forecast.asynchronous_interval, forecast.model.asynchronous_seconds(),
                          forecast.mean_time_between_failures);
  }

  void print_json(Session& session, const std::vector<Forecast>& forecasts) const {
    Json nodes = Json::array();
    for (const Forecast& forecast : forecasts) {
      const OverheadModel& model = forecast.model;
      const double synchronous = checkpoint_count_ * model.synchronous_seconds();
      const double asynchronous = checkpoint_count_ * model.asynchronous_seconds();
      nodes.push_back({{"node_count", model.node_count},
                       {"checkpoint_bytes", static_cast<uint64_t>(model.checkpoint_bytes())},
                       {"write_seconds", model.io_seconds()},
                       {"synchronous_seconds", synchronous},
                       {"synchronous_share", synchronous / run_seconds_},
                       {"asynchronous_seconds", asynchronous},
                       {"asynchronous_share", asynchronous / run_seconds_},
                       {"asynchronous_checkpoints_max", model.asynchronous_checkpoints_max(run_seconds_)},
                       {"mean_time_between_failures", forecast.mean_time_between_failures},
                       {"synchronous_interval_seconds", forecast.synchronous_interval},
                       {"synchronous_waste", synchronous_waste(forecast)},
                       {"asynchronous_interval_seconds", forecast.asynchronous_interval},
                       {"asynchronous_waste", asynchronous_waste(forecast)}});
    }
    session.print_facts(Json{{"checkpoint_count", checkpoint_count_},
                             {"run_seconds", run_seconds_},
                             {"node_bytes", static_cast<uint64_t>(node_.node_bytes)},
                             {"memory_bytes_per_second", node_.memory_bytes_per_second},
                             {"io_bytes_per_second", node_.io_bytes_per_second},
                             {"memory_passes", node_.memory_passes},
                             {"nodes", std::move(nodes)}});
  }

  void print_text(Session& session, const std::vector<Forecast>& forecasts) const {
    using enum Table::Align;
    Table costs({{"nodes", right},
                 {"checkpoint", right},
                 {"written in", right},
                 {"synchronous", right},
                 {"", right},
                 {"asynchronous", right},
                 {"", right},
                 {"at most", right}});
    Table intervals({{"nodes", right},
                     {"failure every", right},
                     {"synchronous", right},
                     {"lost", right},
                     {"asynchronous", right},
                     {"lost", right}});
    for (const Forecast& forecast : forecasts) {
      const OverheadModel& model = forecast.model;
      const double synchronous = checkpoint_count_ * model.synchronous_seconds();
      const double asynchronous = checkpoint_count_ * model.asynchronous_seconds();
      const std::string nodes = std::to_string(model.node_count);
      costs.add_row({nodes, format_size(static_cast<uint64_t>(model.checkpoint_bytes())),
                     format_duration(model.io_seconds()), format_duration(synchronous),
                     format_percent(synchronous / run_seconds_), format_duration(asynchronous),
                     format_percent(asynchronous / run_seconds_),
                     std::to_string(model.asynchronous_checkpoints_max(run_seconds_))});
      intervals.add_row({nodes, format_duration(forecast.mean_time_between_failures),
                         format_duration(forecast.synchronous_interval), format_percent(synchronous_waste(forecast)),
                         format_duration(forecast.asynchronous_interval),
                         format_percent(asynchronous_waste(forecast))});
    }
    session.print(fmt::format("the cost of {} in a run of {}, and how many asynchronous ones it can have\n",
                              format_count(checkpoint_count_, "checkpoint", "checkpoints"),
                              format_duration(run_seconds_)));
    session.print(costs.render());
    session.print("\nthe best interval between checkpoints, and what is lost to them and to failures\n");
    session.print(intervals.render());
    print_limit(session, forecasts);
  }

  /// The model of asynchronous checkpoints holds only while each is written before the next begins.
  void print_limit(Session& session, const std::vector<Forecast>& forecasts) const {
    const auto over = std::find_if(forecasts.begin(), forecasts.end(), [this](const Forecast& forecast) {
      return forecast.model.asynchronous_checkpoints_max(run_seconds_) < checkpoint_count_;
    });
    if (over == forecasts.end()) return;
    session.print(fmt::format("\non {}, asynchronous checkpoints would have to wait for one another\n",
                              format_count(over->model.node_count, "node", "nodes")));
  }

  OverheadModel node_;  ///< of one node
  std::vector<uint64_t> node_counts_{1};
  uint32_t checkpoint_count_ = 1;
  double run_seconds_ = 3600;
  double job_mtbf_ = 0;   ///< 0: not said
  double node_mtbf_ = 0;  ///< 0: not said
};
}  // namespace

std::unique_ptr<Command> make_model_command() { return std::make_unique<ModelCommand>(); }

}  // namespace varve::cli
