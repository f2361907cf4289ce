#include "runtime/placement.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <climits>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "comm/communicators.h"
#include "core/bytes.h"
#include "core/loaded_library.h"
#include "core/process.h"
#include "core/process_identity.h"
#include "core/sync.h"

#ifdef VARVE_WITH_HWLOC
#include <hwloc.h>
#endif

namespace varve {

namespace {

constexpr uint32_t kProcessorNumberMax = 65'535;
/// Of messages between the ranks of a node, and the one behind it.
constexpr uint32_t kNodeTag = 768;

bool contains(const ProcessorSet& processors, uint32_t number) {
  return std::binary_search(processors.begin(), processors.end(), number);
}

Result<uint32_t> parse_processor(std::string_view text) {
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
    VARVE_ASSIGN(const uint32_t first, parse_processor(range.substr(0, dash)));
    uint32_t last = first;
    if (dash != std::string_view::npos) {
      VARVE_ASSIGN(last, parse_processor(range.substr(dash + 1)));
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

namespace {
constexpr size_t kNodeNameBytesMax = 64;

/// 0 where the system does not say.
uint32_t current_socket() {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", ::sched_getcpu()));
  int64_t socket = 0;
  return file >> socket && socket >= 0 ? static_cast<uint32_t>(socket) : 0;
}
}  // namespace

Result<RankPlace> find_rank_place(const std::string& shared_folder) {
  VARVE_ASSIGN(const ProcessIdentity process, ProcessIdentity::own());
  struct stat folder = {};
  if (::stat(shared_folder.c_str(), &folder) != 0) return Status::from_errno(errno, "look at", shared_folder);
  // The number of a memory file system is this kernel's, so the kernel's start goes with it.
  return RankPlace{fmt::format("{}.{}.{}", process.boot.hex(), folder.st_dev, folder.st_ino), current_socket(),
                   host_name()};
}

Result<RankPlace> at_named_node(RankPlace place, const std::string& name) {
  const auto fits = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '-' || letter == '_';
  };
  if (name.empty() || name.size() > kNodeNameBytesMax || name[0] == '.' ||
      !std::all_of(name.begin(), name.end(), fits)) {
    return Status::invalid_argument("VARVE_NODE is no name of a node", name,
                                    "1 to 64 letters, digits, '.', '-' and '_', not '.' first");
  }
  place.node += "/" + name;
  place.name = name;
  return place;
}

namespace {

/// Against a program at nice 0 this is a quarter of a processor: enough to get on beside ranks that never sleep while
/// they wait for messages, little enough not to be felt.
constexpr int kLowPriorityNice = 5;

/// A set of processors as the kernel takes it, for any number of them.
class KernelSet {
 public:
  explicit KernelSet(size_t processor_count)
      : bytes_(CPU_ALLOC_SIZE(processor_count)), set_(CPU_ALLOC(processor_count)) {
    CPU_ZERO_S(bytes_, set_.get());
  }
  size_t bytes() const { return bytes_; }
  cpu_set_t* get() { return set_.get(); }
  void add(uint32_t number) { CPU_SET_S(number, bytes_, set_.get()); }
  ProcessorSet numbers() const {
    ProcessorSet numbers;
    for (uint32_t number = 0; number < bytes_ * 8; ++number) {
      if (CPU_ISSET_S(number, bytes_, set_.get())) numbers.push_back(number);
    }
    return numbers;
  }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  size_t bytes_;
  std::unique_ptr<cpu_set_t, Free> set_;
};

#ifdef VARVE_WITH_HWLOC
/// The functions of hwloc, which is loaded by who places a thread: commands that place none start without it.
struct HwlocLibrary : LoadedLibrary {
  explicit HwlocLibrary(const LoadedLibrary& library) : LoadedLibrary(library) {}

  decltype(&::hwloc_topology_init) topology_init = find("hwloc_topology_init");
  decltype(&::hwloc_topology_destroy) topology_destroy = find("hwloc_topology_destroy");
  decltype(&::hwloc_topology_set_components) set_components = find("hwloc_topology_set_components");
  decltype(&::hwloc_topology_set_all_types_filter) filter_all = find("hwloc_topology_set_all_types_filter");
  decltype(&::hwloc_topology_set_type_filter) filter = find("hwloc_topology_set_type_filter");
  decltype(&::hwloc_topology_load) topology_load = find("hwloc_topology_load");
  decltype(&::hwloc_topology_is_thissystem) is_this_system = find("hwloc_topology_is_thissystem");
  decltype(&::hwloc_topology_get_allowed_cpuset) allowed = find("hwloc_topology_get_allowed_cpuset");
  decltype(&::hwloc_bitmap_isset) is_set = find("hwloc_bitmap_isset");
  decltype(&::hwloc_get_type_depth) depth_of = find("hwloc_get_type_depth");
  decltype(&::hwloc_get_obj_by_depth) at_depth = find("hwloc_get_obj_by_depth");

  static Result<HwlocLibrary> load() {
    // The version of its interface that the header describes.
    return LoadedLibrary::load<HwlocLibrary>("libhwloc.so.15", "topology of processors",
                                             "install hwloc (Debian: libhwloc15)");
  }
};

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc->topology_destroy(topology); }
  const HwlocLibrary* hwloc = nullptr;
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

/// Processors, cores and sockets, and nothing of devices, which takes long to look for. Null if it cannot be found out.
Topology load_topology(const HwlocLibrary& hwloc) {
  hwloc_topology_t made = nullptr;
  if (hwloc.topology_init(&made) != 0) return nullptr;
  Topology topology(made, DestroyTopology{&hwloc});
  // It would ask each processor about itself, for which it moves the calling thread there.
  hwloc.set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  hwloc.filter_all(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc.filter(made, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc.filter(made, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc.topology_load(made) != 0 || hwloc.is_this_system(made) == 0) return nullptr;
  return topology;
}

/// What holds `unit` and is of `type`; null if nothing is.
hwloc_obj_t holder_of(hwloc_obj_t unit, hwloc_obj_type_t type) {
  while (unit != nullptr && unit->type != type) unit = unit->parent;
  return unit;
}
#endif

/// What a rank tells the others.
struct RankProcessors {
  bool leads_group = false;
  ProcessorSet bound;
};

ByteVector encode(const RankProcessors& rank) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.u8(rank.leads_group ? 1 : 0);
  out.text(processors_text(rank.bound));
  return bytes;
}

Result<RankProcessors> decode_processors(ByteSpan bytes) {
  ByteReader in(bytes);
  RankProcessors rank;
  VARVE_ASSIGN(const uint8_t leads, in.u8());
  VARVE_ASSIGN(const std::string_view bound, in.text());
  VARVE_ASSIGN(rank.bound, parse_processors(bound));
  rank.leads_group = leads != 0;
  return rank;
}

/// What all ranks of the own node say, in their order. They tell each other alone, if they can.
Result<std::vector<ByteVector>> gather_on_node(Communicator& ranks, const GroupPlan& plan, const ByteVector& mine) {
  const std::vector<uint32_t>& members = plan.node().ranks;
  if (plan.concurrent) {
    if (members.size() == 1) return std::vector<ByteVector>{mine};
    VARVE_ASSIGN(const std::unique_ptr<Communicator> node, make_subset_communicator(ranks, members, kNodeTag));
    return node->all_gather(mine);
  }
  VARVE_ASSIGN(std::vector<ByteVector> all, ranks.all_gather(mine));
  std::vector<ByteVector> told;
  for (const uint32_t member : members) told.push_back(std::move(all[member]));
  return told;
}

}  // namespace

std::vector<Processor> usable_processors() {
  std::vector<Processor> processors;
#ifdef VARVE_WITH_HWLOC
  const Result<HwlocLibrary> hwloc = HwlocLibrary::load();
  if (!hwloc.ok()) return processors;
  const Topology topology = load_topology(*hwloc);
  if (topology == nullptr) return processors;
  const hwloc_const_cpuset_t allowed = hwloc->allowed(topology.get());
  const int depth = hwloc->depth_of(topology.get(), HWLOC_OBJ_PU);
  for (unsigned i = 0; const hwloc_obj_t unit = hwloc->at_depth(topology.get(), depth, i); ++i) {
    if (hwloc->is_set(allowed, unit->os_index) == 0) continue;
    const hwloc_obj_t core = holder_of(unit, HWLOC_OBJ_CORE);
    const hwloc_obj_t socket = holder_of(unit, HWLOC_OBJ_PACKAGE);
    processors.push_back({unit->os_index, core != nullptr ? core->logical_index : unit->logical_index,
                          socket != nullptr ? socket->logical_index : 0});
  }
#endif
  return processors;
}

Result<ProcessorSet> bound_processors() {
  if (current_scheduler != nullptr) return Status::unsupported("simulated threads are bound to nothing");
  // The kernel refuses sets that are smaller than its own, and does not say how large that is.
  for (size_t processor_count = 1024; processor_count <= 65'536; processor_count *= 2) {
    KernelSet bound(processor_count);
    if (::sched_getaffinity(0, bound.bytes(), bound.get()) == 0) return bound.numbers();
    if (errno != EINVAL) break;
  }
  return Status::from_errno(errno, "ask for the processors of", "this thread");
}

Result<ProcessorSet> agree_on_free_processors(Communicator& ranks, const GroupPlan& plan) {
  const Result<ProcessorSet> bound = bound_processors();
  // Who cannot say where it runs is told of by the empty set, and fails on no other rank.
  const bool leads_group = plan.own_group().leader() == ranks.rank();
  const RankProcessors mine{leads_group, bound.ok() ? *bound : ProcessorSet()};
  VARVE_ASSIGN(const std::vector<ByteVector> told, gather_on_node(ranks, plan, encode(mine)));
  if (!leads_group || mine.bound.empty()) return ProcessorSet();
  const std::vector<Processor> machine = usable_processors();
  const uint32_t socket = socket_of(machine, mine.bound);
  ProcessorSet taken;
  uint32_t ordinal = 0, sharers = 0;
  for (size_t place = 0; place < told.size(); ++place) {
    VARVE_ASSIGN(const RankProcessors other, decode_processors(told[place]));
    if (other.bound.empty()) return ProcessorSet();  // it may be anywhere
    ProcessorSet both;
    std::set_union(taken.begin(), taken.end(), other.bound.begin(), other.bound.end(), std::back_inserter(both));
    taken = std::move(both);
    if (!other.leads_group || socket_of(machine, other.bound) != socket) continue;
    if (plan.node().ranks[place] < ranks.rank()) ++ordinal;
    ++sharers;
  }
  return choose_free_processors(machine, taken, mine.bound, ordinal, sharers);
}

Status place_calling_thread(const ProcessorSet& free, bool low_priority) {
  if (!free.empty()) {
    KernelSet set(size_t{free.back()} + 1);
    for (const uint32_t number : free) set.add(number);
    if (::sched_setaffinity(0, set.bytes(), set.get()) == 0) return {};
    if (!low_priority) return Status::from_errno(errno, "bind a thread to processors", processors_text(free));
  }
  if (!low_priority) return {};
  // Threads have priorities of their own on Linux, by the number of the thread.
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  sched_param no_priority{};
  // A program of real-time priority must not pass it on. Not SCHED_BATCH either, but while there is nothing to do
  // (GentleWaking): the thread that writes sleeps most of the time, and would wait for a rank's whole slice whenever it
  // wakes up, a fifth of a slow level's bandwidth.
  if (::sched_setscheduler(0, SCHED_OTHER, &no_priority) != 0) {
    return Status::from_errno(errno, "lower the priority of", "the checkpoint thread");
  }
  errno = 0;
  const int nice_now = ::getpriority(PRIO_PROCESS, thread);
  if (nice_now >= kLowPriorityNice) return {};
  if (::setpriority(PRIO_PROCESS, thread, kLowPriorityNice) == 0) return {};
  return Status::from_errno(errno, "lower the priority of", "the checkpoint thread");
}

GentleWaking::GentleWaking() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  if (::sched_getscheduler(0) != SCHED_OTHER || ::getpriority(PRIO_PROCESS, thread) < kLowPriorityNice) return;
  const sched_param no_priority{};
  changed_ = ::sched_setscheduler(0, SCHED_BATCH, &no_priority) == 0;
}

GentleWaking::~GentleWaking() {
  const sched_param no_priority{};
  if (changed_) ::sched_setscheduler(0, SCHED_OTHER, &no_priority);
}

}  // namespace varve
