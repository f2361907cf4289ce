#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

/// Processors (hardware threads) by the system's numbers, ascending, none twice.
using ProcessorSet = std::vector<uint32_t>;

/// One processor, and what it is a part of. Cores and sockets are counted over the whole machine.
struct Processor {
  uint32_t number = 0;
  uint32_t core = 0;
  uint32_t socket = 0;
  bool operator==(const Processor&) const = default;
};

/// "0-3,8", as the kernel writes such sets; "" for none.
std::string processors_text(const ProcessorSet& processors);
/// The reverse. invalid_argument: it is none, or names processors above 65,535.
Result<ProcessorSet> parse_processors(std::string_view text);

/// The socket with most of `bound`, the lower one of equals; 0 if `machine` has none of them.
uint32_t socket_of(const std::vector<Processor>& machine, const ProcessorSet& bound);

/// Where one group's checkpoint threads are out of the way of a program that runs on `taken`, of which this rank has
/// `own`: on cores of its socket that nobody uses; if there are none, on free SMT siblings of cores there; if there are
/// none, the same on the other sockets. Only the best kind is given, since threads on another would be the slowest.
/// Empty if the program uses all of the machine.
///
/// `sharers` groups share what is found, of which this one is number `ordinal`: if there is enough, each has its own.
ProcessorSet choose_free_processors(const std::vector<Processor>& machine, const ProcessorSet& taken,
                                    const ProcessorSet& own, uint32_t ordinal, uint32_t sharers);

}  // namespace varve
