#pragma once

#include <string_view>
#include <vector>

#include "runtime/processors.h"
#include "varve/communicator.h"

namespace varve {

/// The processors that this process may be allowed to use, even if it is bound to some of them: those of its control
/// group. Empty if that is not known (built without hwloc).
std::vector<Processor> usable_processors();

/// The processors that the calling thread is bound to.
Result<ProcessorSet> bound_processors();

/// The processors on which this rank's checkpoint threads are out of the program's way, if it leads a group; empty if
/// there are none, or that is not known. The program is taken to use what its ranks are bound to: on the whole machine,
/// if they are not bound. `node` is the same text for the ranks that share a machine. To be called by the program's
/// thread. Collective.
Result<ProcessorSet> agree_on_free_processors(Communicator& ranks, std::string_view node, bool leads_group);

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
