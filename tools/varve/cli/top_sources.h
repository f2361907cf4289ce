#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/json.h"
#include "varve/status.h"

namespace varve::cli {

/// A level of a run, as it tells itself.
struct TopLevel {
  std::string name{};
  std::optional<double> step{};  ///< newest there
  double lag_seconds = 0, waiting = 0, failures = 0, given_up = 0;
};

/// A run.
struct TopRun {
  std::string job{}, run{}, host{}, store{}, source{};
  uint32_t process = 0;
  std::string state{};  ///< "running", "ended", "failed", "killed", "silent"
  double ranks = 0, begin = 0, updated = 0, blocked_seconds = 0, queue_bytes = 0;
  double raw_bytes = 0, stored_bytes = 0, snapshot_bytes = 0;
  std::optional<double> step{};
  std::optional<double> bytes_per_second{};  ///< of raw bytes that come to the store: lately, or since the begin
  std::map<std::string, double> checkpoints{}, blocked{};  ///< by outcome, by cause
  std::vector<TopLevel> levels{};
};

struct TopWatcher {
  std::string from{}, to{}, newest{}, source{};
  std::string state{};  ///< "running", "ended", "silent"
  double saved = 0, raw_bytes = 0, stored_bytes = 0, failures = 0;
  std::optional<double> lag_seconds{};      ///< of the level that is farthest behind, if it is told
  std::map<std::string, double> pending{};  ///< sets, by what they wait for
};

struct TopServer {
  std::string source{}, address{}, store{};
  std::string state{};  ///< as of a watcher
  double connections = 0, requests = 0, failures = 0, received_bytes = 0, sent_bytes = 0, begin = 0;
};

/// What there is at one moment.
struct TopView {
  double at = 0;  ///< seconds since 1970
  std::vector<TopRun> runs{};
  std::vector<TopWatcher> watchers{};
  std::vector<TopServer> servers{};
  std::vector<std::pair<std::string, Status>> unread{};  ///< places, and why
};

/// What runs, watchers and servers tell. `is_dead`: whoever told it does not live any more.
void add_metrics(TopView& view, std::string_view text, const std::string& source, bool is_dead = false);

/// What the runs and servers of this node, as far as this user may look at them, and the watchers of this user are at.
/// `memory`: the folder of the node's memory.
TopView view_of_node(const std::string& memory);
/// What others tell: files, folders of files, "http://host:port/metrics", "host:port", or a port of this machine.
TopView view_of_places(const std::vector<std::string>& places);
/// Rates come from what was so some time before.
void add_rates(TopView& view, const TopView* before);

Json to_json(const TopView& view);
/// The same for people, without the first line.
std::string top_text(const TopView& view);

}  // namespace varve::cli
