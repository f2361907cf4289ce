#include "runtime/processors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "core/sync.h"

namespace varve {
namespace {

constexpr uint32_t kProcessorNumberMax = 65'535;

bool contains(const ProcessorSet& processors, uint32_t number) {
  return std::binary_search(processors.begin(), processors.end(), number);
}

Result<uint32_t> parse_number(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > kProcessorNumberMax) {
    return Status::invalid_argument("not the number of a processor", std::string(text));
  }
  return number;
}

/// How good a place is; the lowest is the best.
enum class Nearness { free_core_here, sibling_here, free_core_elsewhere, sibling_elsewhere };

Nearness nearness(const Processor& processor, const std::set<uint32_t>& busy_cores, uint32_t socket) {
  const bool busy = busy_cores.contains(processor.core);
  if (processor.socket == socket) return busy ? Nearness::sibling_here : Nearness::free_core_here;
  return busy ? Nearness::sibling_elsewhere : Nearness::free_core_elsewhere;
}

}  // namespace

std::string processors_text(const ProcessorSet& processors) {
  std::string text;
  for (size_t i = 0; i < processors.size();) {
    size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    if (i > 0) text += ',';
    text += last == i ? fmt::format("{}", processors[i]) : fmt::format("{}-{}", processors[i], processors[last]);
    i = last + 1;
  }
  return text;
}

Result<ProcessorSet> parse_processors(std::string_view text) {
  std::set<uint32_t> processors;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view range = text.substr(0, comma);
    const size_t dash = range.find('-');
    VARVE_ASSIGN(const uint32_t first, parse_number(range.substr(0, dash)));
    uint32_t last = first;
    if (dash != std::string_view::npos) {
      VARVE_ASSIGN(last, parse_number(range.substr(dash + 1)));
    }
    for (uint32_t number = first; number <= last; ++number) processors.insert(number);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return Status::invalid_argument("a set of processors ends with a comma");
  }
  return ProcessorSet(processors.begin(), processors.end());
}

uint32_t socket_of(const std::vector<Processor>& machine, const ProcessorSet& bound) {
  std::map<uint32_t, size_t> count_by_socket;
  for (const Processor& processor : machine) {
    if (contains(bound, processor.number)) ++count_by_socket[processor.socket];
  }
  const auto most = std::max_element(count_by_socket.begin(), count_by_socket.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == count_by_socket.end() ? 0 : most->first;
}

ProcessorSet choose_free_processors(const std::vector<Processor>& machine, const ProcessorSet& taken,
                                    const ProcessorSet& own, uint32_t ordinal, uint32_t sharers) {
  const uint32_t socket = socket_of(machine, own);
  std::set<uint32_t> busy_cores;
  for (const Processor& processor : machine) {
    if (contains(taken, processor.number)) busy_cores.insert(processor.core);
  }
  std::map<Nearness, std::vector<Processor>> found;
  for (const Processor& processor : machine) {
    if (!contains(taken, processor.number)) found[nearness(processor, busy_cores, socket)].push_back(processor);
  }
  if (found.empty()) return {};
  std::vector<Processor>& best = found.begin()->second;
  std::sort(best.begin(), best.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.socket, a.core, a.number) < std::tie(b.socket, b.core, b.number);
  });
  // Neighbours in this order share a core, so that each sharer gets a run of them.
  size_t first = 0, last = best.size();
  if (sharers > 0 && best.size() >= sharers) {
    first = best.size() * ordinal / sharers;
    last = best.size() * (ordinal + size_t{1}) / sharers;
  }
  ProcessorSet chosen;
  for (size_t i = first; i < last; ++i) chosen.push_back(best[i].number);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace varve
