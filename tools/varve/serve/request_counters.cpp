#include "serve/request_counters.h"

#include <algorithm>
#include <string_view>

namespace varve {

namespace {
/// In the order of AnyRequest.
constexpr std::string_view kRequestNames[] = {"hello",
                                              "ping",
                                              "goodbye",
                                              "open",
                                              "create",
                                              "resume",
                                              "read",
                                              "write",
                                              "truncate",
                                              "sync",
                                              "size",
                                              "close",
                                              "stat",
                                              "list",
                                              "create_directory",
                                              "remove",
                                              "remove_directory",
                                              "rename",
                                              "touch",
                                              "sync_directory",
                                              "find",
                                              "push",
                                              "pull",
                                              "offer",
                                              "answer",
                                              "room"};
static_assert(std::size(kRequestNames) == std::variant_size_v<AnyRequest>);
}  // namespace

void RequestCounters::note(size_t kind, bool done, double seconds, uint64_t received_bytes, uint64_t sent_bytes) {
  Kind& counted = kinds_[kind];
  (done ? counted.done : counted.refused).fetch_add(1, std::memory_order_relaxed);
  counted.nanoseconds.fetch_add(static_cast<uint64_t>(seconds * 1e9), std::memory_order_relaxed);
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  counted.spread[static_cast<size_t>(bound - kBounds.begin())].fetch_add(1, std::memory_order_relaxed);
  received_bytes_.fetch_add(received_bytes, std::memory_order_relaxed);
  sent_bytes_.fetch_add(sent_bytes, std::memory_order_relaxed);
}

void RequestCounters::tell(Metrics& metrics) const {
  metrics.counter("varve_server_requests",
                  "Requests that were carried out, by kind; refused are those with an error as the answer, such as "
                  "that a file is not there.");
  for (size_t i = 0; i < kKinds; ++i) {
    const auto name = std::string(kRequestNames[i]);
    metrics.sample(static_cast<double>(kinds_[i].done), {{"request", name}, {"outcome", "done"}});
    metrics.sample(static_cast<double>(kinds_[i].refused), {{"request", name}, {"outcome", "refused"}});
  }
  metrics.histogram("varve_server_request_seconds", "How long requests took at the server, by kind.");
  for (size_t i = 0; i < kKinds; ++i) {
    std::vector<uint64_t> counts(kinds_[i].spread.begin(), kinds_[i].spread.end());
    if (std::all_of(counts.begin(), counts.end(), [](uint64_t count) { return count == 0; })) continue;
    metrics.spread({kBounds.begin(), kBounds.end()}, counts, static_cast<double>(kinds_[i].nanoseconds) * 1e-9,
                   {{"request", std::string(kRequestNames[i])}});
  }
  metrics.counter("varve_server_received_bytes", "Data that came with requests.")
      .sample(static_cast<double>(received_bytes_));
  metrics.counter("varve_server_sent_bytes", "Data that went with answers.").sample(static_cast<double>(sent_bytes_));
}

}  // namespace varve
