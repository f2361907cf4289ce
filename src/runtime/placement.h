#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/group_plan.h"
#include "varve/communicator.h"
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

/// Where the calling thread runs. Ranks are on the same node if they see the same folder of shared memory, so that
/// containers of one machine that do not count as several. not_found: the folder is not there.
Result<RankPlace> find_rank_place(const std::string& shared_folder);

/// Where it runs according to VARVE_NODE, a name of a node: ranks of one place that say different names are on
/// different nodes then, as if they were on different machines, which one machine can be tried out with.
/// invalid_argument: it is no name (1 to 64 letters, digits, '.', '-' and '_', not '.' first).
Result<RankPlace> at_named_node(RankPlace place, const std::string& name);

/// The processors that this process may be allowed to use, even if it is bound to some of them: those of its control
/// group. Empty if that is not known: without hwloc, when it was built or now.
std::vector<Processor> usable_processors();

/// The processors that the calling thread is bound to.
Result<ProcessorSet> bound_processors();

/// The processors on which this rank's checkpoint threads are out of the program's way, if it leads a group; empty if
/// there are none, or that is not known. The program is taken to use what its ranks are bound to: on the whole machine,
/// if they are not bound. To be called by the program's thread. Collective, with the plan on each rank.
Result<ProcessorSet> agree_on_free_processors(Communicator& ranks, const GroupPlan& plan);

/// Keeps the calling thread, and those that it starts afterwards, out of the program's way: on `free` processors, if
/// there are any; else with low priority, if `low_priority`. Threads of low priority run at full speed on what is idle.
Status place_calling_thread(const ProcessorSet& free, bool low_priority);

/// While it lives, the calling thread, if it has low priority, does not push a thread aside that wakes it up: a rank
/// that hands a checkpoint over would wait for a whole slice of what comes of it. Not for a thread that is at work:
/// waking up again and again, it would wait for a rank's whole slice each time.
class GentleWaking {
 public:
  GentleWaking();
  GentleWaking(const GentleWaking&) = delete;
  GentleWaking& operator=(const GentleWaking&) = delete;
  ~GentleWaking();

 private:
  bool changed_ = false;
};

}  // namespace varve
