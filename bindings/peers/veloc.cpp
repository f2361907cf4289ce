// VELOC's functions over the C interface of Varve. Each name of checkpoints is a job of the store, with a session of
// its own that is opened when the name is first said; a version is a step, the memory of id 7 the variable "7.f64".
#include "veloc.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "nodes.h"
#include "settings.h"
#include "varve/varve_mpi.h"

namespace varve::peers {
namespace {

constexpr std::string_view kLibrary = "VELOC";
constexpr const char* kVersion = "version";  ///< a variable that each rank has
constexpr double kNoLimit = 1e9;             ///< seconds
constexpr const char* kFile = "file";        ///< what the one file of a rank is called in a checkpoint

const std::vector<Key>& keys() {
  static const std::vector<Key> all{{"scratch"},
                                    {"persistent"},
                                    {"mode", Key::word, "async sync"},
                                    {"max_versions", Key::number},
                                    {"scratch_versions", Key::number},
                                    {"persistent_interval", Key::number},
                                    {"ec_interval", Key::number},
                                    {"plain_files", Key::flag},
                                    {"levels"},
                                    {"meta", Key::left_out, "the store keeps what it needs"},
                                    {"chksum", Key::left_out, "all bytes are always checked"},
                                    {"max_parallelism", Key::left_out, "Varve chooses its threads"},
                                    {"threaded", Key::left_out, "a thread beside the program does the work"},
                                    {"aggregated", Key::left_out, "ranks are always laid together"},
                                    {"axl_type", Key::left_out, "Varve writes by itself"},
                                    {"failure_domain", Key::left_out, "that is the node"},
                                    {"watchdog_interval", Key::left_out, "nothing runs beside the program"},
                                    {"log_prefix", Key::left_out, "messages go to standard error"}};
  return all;
}

struct Region {
  void* data = nullptr;
  size_t count = 0, base_bytes = 0;
  size_t bytes() const { return count * base_bytes; }
};
using Regions = std::map<int, Region>;

/// Whether most of some samples look like floating-point numbers of that type.
template <class Float>
bool looks_floating(const Region& region) {
  constexpr size_t kSamplesMax = 512;
  const auto* const first = static_cast<const unsigned char*>(region.data);
  const size_t stride = std::max<size_t>(1, region.count / kSamplesMax);
  size_t samples = 0, likely = 0;
  for (size_t i = 0; i < region.count; i += stride, ++samples) {
    Float value;
    std::memcpy(&value, first + i * sizeof value, sizeof value);
    // Small whole numbers have no exponent, seen as these; negative ones are no numbers at all.
    if (value == 0 || (std::isnormal(value) && std::fabs(static_cast<double>(value)) < 1e36)) ++likely;
  }
  return likely * 10 >= samples * 9;
}

/// VELOC says bytes alone; the store compresses better what it knows the type of.
int type_of(const Region& region) {
  switch (region.base_bytes) {
    case 2: return VARVE_INT16;
    case 4: return looks_floating<float>(region) ? VARVE_FLOAT : VARVE_INT32;
    case 8: return looks_floating<double>(region) ? VARVE_DOUBLE : VARVE_INT64;
    default: return VARVE_BYTE;
  }
}

/// What the memory of an id is called in a checkpoint. The type is part of it, as ranks may have different ones.
std::string variable_of(int id, int type) {
  const char* name = "bytes";
  if (type == VARVE_INT16) name = "i16";
  if (type == VARVE_INT32) name = "i32";
  if (type == VARVE_INT64) name = "i64";
  if (type == VARVE_FLOAT) name = "f32";
  if (type == VARVE_DOUBLE) name = "f64";
  return std::to_string(id) + "." + name;
}

size_t bytes_of_type(int type) {
  switch (type) {
    case VARVE_INT16:
    case VARVE_UINT16: return 2;
    case VARVE_INT32:
    case VARVE_UINT32:
    case VARVE_FLOAT: return 4;
    case VARVE_INT64:
    case VARVE_UINT64:
    case VARVE_DOUBLE: return 8;
    default: return 1;
  }
}

/// What is saved of a region on this rank.
struct Saved {
  int type = VARVE_BYTE;
  size_t bytes = 0;
};

/// The checkpoints of one name.
struct Series {
  varve_session* session = nullptr;
  std::optional<uint64_t> newest{};  ///< step of the session's last checkpoint or restart
  bool has_more = false;             ///< than what has got to each level: there were checkpoints
};

class Client {
 public:
  Client(MPI_Comm ranks, std::optional<unsigned> alone_as) : ranks_(ranks), alone_as_(alone_as) {
    if (!alone()) MPI_Comm_rank(ranks_, &rank_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() {
    for (auto& [name, series] : series_) varve_close(series.session);
  }

  /// What is not as it has to be is told once, and so is what has no effect here. Collective.
  bool configure(const char* file) {
    std::string wrong;
    if (file == nullptr || !settings_.read(file))
      wrong = std::string("cannot read the configuration ") + (file == nullptr ? "NULL" : file);
    scratch_ = settings_.text("scratch");
    persistent_ = settings_.text("persistent");
    if (wrong.empty() && (scratch_.empty() || persistent_.empty()))
      wrong = std::string("scratch and persistent are wanted in ") + file;
    if (const int first = first_with(!wrong.empty()); first >= 0) {
      if (first == rank_) fail(wrong);
      (void)on_all(true);  // before it is told, nobody comes to end the program for it
      return false;
    }
    synchronous_ = settings_.word("mode") == "sync";
    // More often than asked for, where that is a time: nothing is lost by it.
    constexpr int kNodesOfAGroupMax = 8;
    if (!alone() && settings_.number("ec_interval", 0) >= 0) {
      const bool is_said = !settings_.text("ec_interval").empty();
      redundancy_ = redundancy_of("XOR", kNodesOfAGroupMax, count_nodes(ranks_), kLibrary, is_said && rank_ == 0);
    }
    if (rank_ == 0) {
      for (const std::string& what : settings_.without_effect()) fail(what);
      for (const char* interval : {"persistent_interval", "ec_interval"}) {
        if (settings_.number(interval, 0) > 0)
          fail(std::string(interval) + " is taken for 0: each version goes there, however soon after the last");
      }
    }
    return true;
  }

  Regions& regions(const char* name) { return regions_[name == nullptr ? "" : name]; }

  /// What cannot be is told, and what the id had before stays.
  bool protect(int id, const Region& region, const char* name) {
    if (region.base_bytes != 0 && region.count > SIZE_MAX / region.base_bytes)
      return fail("the memory of id " + std::to_string(id) + " cannot be so large");
    if (region.data == nullptr && region.bytes() > 0)
      return fail("the memory of id " + std::to_string(id) + " is nowhere: NULL");
    regions(name)[id] = region;
    return true;
  }

  bool begin_checkpoint(const char* name, int version) {
    if (!check_idle() || !check_name(name, version)) return false;
    Series* const series = open(name);
    if (series == nullptr) return false;
    // A version that is there, or one before it, is written over: the run goes back there, with nothing to load. That
    // comes before files are routed: those of the version that was restarted from last are there to be read until then.
    if (!go_before(name, *series, static_cast<uint64_t>(version))) return false;
    phase_ = {Phase::checkpoint, name, static_cast<uint64_t>(version), series, {}, {}};
    return true;
  }

  bool choose(int mode, const int* ids, int count) {
    if (phase_.kind != Phase::checkpoint) return fail("no checkpoint has begun");
    for (const auto& [id, region] : chosen(mode, ids, count)) phase_.chosen[id] = region;
    return true;
  }

  std::optional<std::string> route(const char* original) {
    if (phase_.kind == Phase::none) {
      fail("no checkpoint or restart has begun");
      return std::nullopt;
    }
    if (phase_.kind == Phase::restart && !phase_.has_files) {
      fail("no rank has a file in " + phase_.name + "@" + std::to_string(phase_.version) +
           ": what was saved there is memory alone");
      return std::nullopt;
    }
    if (phase_.kind == Phase::checkpoint && original != nullptr) phase_.original = original;
    char path[VELOC_MAX_NAME];
    // Whatever it is called, a rank has one file in each checkpoint.
    if (!done(varve_route_file(phase_.series->session, phase_.version, kFile, path, sizeof path))) return std::nullopt;
    phase_.file = path;
    return path;
  }

  bool end_checkpoint(bool success) {
    if (phase_.kind != Phase::checkpoint) return fail("no checkpoint has begun");
    const Current current = std::move(phase_);
    phase_ = {};
    if (!on_all(success)) return fail("a rank has no whole checkpoint, so there is none: " + current.name);
    varve_session* const session = current.series->session;
    bool protects = true;
    std::vector<std::string> names;
    for (const auto& [id, region] : current.chosen) {
      const int type = type_of(region);
      names.push_back(variable_of(id, type));
      const size_t count = region.bytes() / bytes_of_type(type);
      protects =
          done(varve_protect_array(session, names.back().c_str(), type, region.data, count, nullptr)) && protects;
    }
    // A rank may have nothing else.
    uint64_t version = current.version;
    names.emplace_back(kVersion);
    protects = done(varve_protect_scalar(session, kVersion, VARVE_UINT64, &version)) && protects;
    if (!current.file.empty() && settings_.flag("plain_files", false)) protects = keep_plain(current) && protects;
    const bool all = on_all(protects);
    const bool made = all && done(varve_checkpoint(session, current.version, synchronous_ ? VARVE_NOW : VARVE_LATER));
    for (const std::string& name : names) varve_unprotect(session, name.c_str());
    if (all) {
      current.series->newest = current.version;
      current.series->has_more = true;
    }
    return made;
  }

  bool wait() {
    bool good = true;
    for (auto& [name, series] : series_) good = done(varve_wait(series.session)) && good;
    return good;
  }

  bool finished() {
    for (auto& [name, series] : series_) {
      varve_state state;
      varve_state_init(&state);
      if (varve_progress(series.session, &state) != VARVE_OK) return true;
      if (state.has_snapshot != 0 && (state.has_persistent == 0 || state.newest_persistent < state.newest_snapshot))
        return false;
    }
    return true;
  }

  std::optional<int> newest(const char* name, int at_most) {
    if (!check_name(name, std::max(at_most, 0))) return std::nullopt;
    Series* const series = open(name);
    uint64_t count = 0;
    if (series != nullptr) settle(*series);
    if (series == nullptr || !done(varve_list_restart_points(series->session, &count))) return std::nullopt;
    std::optional<int> found;
    std::pair<int, uint64_t> other{-1, 0};  // the newest that other ranks made, and how many they were
    for (uint64_t i = 0; i < count; ++i) {
      varve_restart_point point;
      varve_restart_point_init(&point);
      if (varve_restart_point_at(series->session, i, &point) != VARVE_OK || point.step > INT32_MAX) continue;
      const int version = static_cast<int>(point.step);
      if (at_most > 0 && version > at_most) continue;
      if (!is_of_these_ranks(point)) {
        other = std::max(other, {version, point.rank_count});
      } else if (!found || version > *found) {
        found = version;
      }
    }
    if (other.first > found.value_or(-1) && rank_ == 0) {
      fail(std::string(name) + "@" + std::to_string(other.first) + " was written by " + std::to_string(other.second) +
           " ranks, which this run has not: it is not restarted from. Start as many ranks as before for that");
    }
    return found;
  }

  bool begin_restart(const char* name, int version) {
    if (!check_idle() || !check_name(name, version)) return false;
    Series* const series = open(name);
    if (series == nullptr) return false;
    phase_ = {Phase::restart, name, static_cast<uint64_t>(version), series, {}, {}};
    settle(*series);
    const bool goes_back = series->newest && *series->newest > phase_.version;
    if ((!goes_back || bring_on(name, *series)) && look_at_what_is_saved() && load_files()) return true;
    phase_ = {};
    return false;
  }

  bool recover(int mode, const int* ids, int count) {
    if (phase_.kind != Phase::restart) return fail("no restart has begun");
    varve_session* const session = phase_.series->session;
    bool good = true;
    std::vector<std::string> names;
    for (const auto& [id, region] : chosen(mode, ids, count)) {
      const auto saved = phase_.saved.find(id);
      if (saved == phase_.saved.end()) {
        good = fail("the checkpoint has no memory of id " + std::to_string(id));
      } else if (saved->second.bytes > region.bytes()) {
        good = fail("the memory of id " + std::to_string(id) + " has " + std::to_string(region.bytes()) +
                    " bytes, and the checkpoint " + std::to_string(saved->second.bytes));
      } else {
        const Saved& what = saved->second;
        names.push_back(variable_of(id, what.type));
        good = done(varve_protect_array(session, names.back().c_str(), what.type, region.data,
                                        what.bytes / bytes_of_type(what.type), nullptr)) &&
               good;
      }
    }
    good = on_all(good) && load();
    for (const std::string& name : names) varve_unprotect(session, name.c_str());
    return good;
  }

  std::optional<size_t> saved_bytes(int id) const {
    const auto saved = phase_.saved.find(id);
    if (phase_.kind != Phase::restart || saved == phase_.saved.end()) return std::nullopt;
    return saved->second.bytes;
  }

  bool end_restart(bool success) {
    if (phase_.kind != Phase::restart) return fail("no restart has begun");
    phase_ = {};
    return on_all(success);
  }

  /// Takes the checkpoints of a name from the nodes; what of them had to get to `persistent` gets there first.
  /// Collective.
  bool clean_up(const char* name) {
    if (!check_idle() || !check_name(name, 0)) return false;
    Series* const series = open(name);
    if (series == nullptr) return false;
    const bool arrived = done(varve_finish(series->session, kNoLimit));
    varve_close(series->session);  // finish() has said what there was to say
    asked_ = nullptr;
    series_.erase(name);
    return arrived && drop_from_nodes(name);
  }

  bool finish(bool drain) {
    bool good = true;
    for (auto& [name, series] : series_)
      good = done(varve_finish(series.session, drain ? kNoLimit : 0), !drain) && good;
    return good || !drain;
  }

 private:
  struct Current {
    enum Kind { none, checkpoint, restart } kind = none;
    std::string name{};
    uint64_t version = 0;
    Series* series = nullptr;
    Regions chosen{};              ///< of a checkpoint
    std::map<int, Saved> saved{};  ///< of a restart: what this rank has there
    bool has_files = false;        ///< of a restart: some rank has one
    std::string file{}, original{};
  };
  using Phase = Current;

  bool alone() const { return alone_as_.has_value(); }

  static bool fail(const std::string& what) {
    tell(kLibrary, what);
    return false;
  }
  bool done(int code, bool silent = false) const {
    if (code == VARVE_OK) return true;
    // A call that left no session has its words elsewhere; whoever has one is asked first.
    if (!silent) tell(kLibrary, words());
    return false;
  }
  std::string words() const {
    if (asked_ != nullptr) {
      const std::string said = varve_error_message(asked_);
      if (!said.empty()) return said;
    }
    return varve_error_message(nullptr);
  }

  bool check_idle() const {
    return phase_.kind == Phase::none || fail("a checkpoint or restart has begun already: " + phase_.name);
  }
  static bool check_name(const char* name, int version) {
    if (name == nullptr || *name == '\0') return fail("a checkpoint has no name");
    return version >= 0 || fail("a version is below 0: " + std::to_string(version));
  }

  /// The first rank on which it is so; -1: there is none. Collective.
  int first_with(bool here) const {
    if (alone()) return here ? rank_ : -1;
    int mine = here ? rank_ : INT_MAX, first = INT_MAX;
    if (MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, ranks_) != MPI_SUCCESS) return rank_;
    return first == INT_MAX ? -1 : first;
  }

  /// Whether it is so on all ranks. Collective.
  bool on_all(bool here) const {
    if (alone()) return here;
    int mine = here ? 1 : 0, all = 0;
    return MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, ranks_) == MPI_SUCCESS && all == 1;
  }

  /// Whether as many ranks made it as this run has: memory and files belong to their rank.
  bool is_of_these_ranks(const varve_restart_point& point) const {
    int ranks = 1;
    if (!alone()) MPI_Comm_size(ranks_, &ranks);
    return point.rank_count == 0 || point.rank_count == static_cast<uint64_t>(ranks);
  }

  /// The memory that belongs to the checkpoints that have begun, by what `mode` says.
  Regions chosen(int mode, const int* ids, int count) {
    const std::set<int> given(ids, ids + std::max(count, 0));
    Regions all = regions_[""];
    for (const auto& [id, region] : regions_[phase_.name]) all[id] = region;
    if (mode == VELOC_CKPT_ALL) return all;
    std::erase_if(all, [&](const auto& entry) { return given.contains(entry.first) != (mode == VELOC_CKPT_SOME); });
    return all;
  }

  /// The session of a name, opened if need be. Collective.
  Series* open(const std::string& name) {
    Series& series = series_[name];
    asked_ = series.session;
    if (series.session != nullptr) return &series;
    series.session = open_levels(name, levels_of());
    if (series.session != nullptr) return &series;
    series_.erase(name);
    return nullptr;
  }

  varve_session* open_levels(const std::string& name, const std::string& levels) {
    const std::string job = alone() ? name + "." + std::to_string(*alone_as_) : name;
    varve_options options;
    varve_options_init(&options);
    options.job = job.c_str();
    options.levels = levels.c_str();
    options.variables_may_change = VARVE_YES;  // which memory is in a checkpoint is the program's choice, each time
    options.stop_on_signals = VARVE_NO;
    varve_session* session = nullptr;
    const int code = alone() ? varve_open(&options, &session) : varve_open_mpi(ranks_, &options, &session);
    asked_ = session;
    if (code != VARVE_OK) tell(kLibrary, varve_error_message(nullptr));
    return session;
  }

  /// Whether a level lies on the nodes, and none of those behind it.
  static bool is_of_nodes(std::string_view level) {
    const std::string_view kind = level.substr(0, level.find_first_of(": "));
    return kind == "memory" || kind == "local" || kind == "partner" || kind == "xor" || kind == "rs";
  }

  /// Collective.
  bool drop_from_nodes(const std::string& name) {
    const std::string levels = node_levels();
    if (levels.empty()) return true;
    varve_session* const session = open_levels(name, levels);
    if (session == nullptr) return false;
    bool good = true;
    // The environment may have named others, and those that lie behind the nodes are none of it.
    for (uint32_t level = 0; good && level < varve_level_count(session); ++level) {
      const std::string place = varve_level_name(session, level);
      good =
          is_of_nodes(place) ||
          fail("VELOC_Cleanup() would take " + name + " from " + place +
               ", which VARVE_LEVELS, VARVE_STORE or the configuration names: nothing is removed. `varve drop` does");
    }
    uint64_t count = 0;
    good = good && done(varve_list_restart_points(session, &count));
    std::set<uint64_t> steps;
    for (uint64_t i = 0; good && i < count; ++i) {
      varve_restart_point point;
      varve_restart_point_init(&point);
      if (varve_restart_point_at(session, i, &point) == VARVE_OK) steps.insert(point.step);
    }
    for (const uint64_t step : steps) good = done(varve_drop(session, step)) && good;
    good = done(varve_close(session)) && good;
    asked_ = nullptr;
    return good;
  }

  /// The configuration as levels: memory, the node's own folder, the parallel file system.
  std::string levels_of() const {
    if (const std::string said = settings_.text("levels"); !said.empty()) return said;
    std::string levels = node_levels();
    if (persists()) levels += "; dir:" + level_place(persistent_) + "/varve" + keep_of("max_versions");
    return levels;
  }

  /// Of these, those that lie on the nodes.
  std::string node_levels() const {
    if (const std::string said = settings_.text("levels"); !said.empty()) {
      std::string levels, level;
      for (std::istringstream rest(said); std::getline(rest >> std::ws, level, ';');) {
        if (is_of_nodes(level)) levels += (levels.empty() ? "" : "; ") + level;
      }
      return levels;
    }
    // The folders may not be there yet: VELOC made them.
    std::error_code ignored;
    std::filesystem::create_directories(scratch_, ignored);
    std::filesystem::create_directories(persistent_, ignored);
    // VELOC keeps all there unless it is told otherwise; that cannot be meant of what the next level has.
    std::string scratch_keep = keep_of("scratch_versions");
    if (scratch_keep.empty() && persists()) scratch_keep = " keep=1";
    std::string levels = "memory; local:" + level_place(scratch_) + "/varve" + scratch_keep;
    if (!redundancy_.empty()) levels += "; " + redundancy_;
    return levels;
  }
  bool persists() const { return settings_.number("persistent_interval", 0) >= 0; }
  std::string keep_of(const char* key) const {
    const auto count = static_cast<uint64_t>(std::max(0.0, settings_.number(key, 0)));
    return count > 0 ? " keep=" + std::to_string(count) : std::string();
  }

  /// What is on its way counts as made: waits until it is. Collective.
  static void settle(Series& series) {
    if (series.newest) varve_wait(series.session);  // a failure is told by who asks for the checkpoint
  }

  /// The run goes back, and goes on in another session: what one has left behind it does not bring on to farther
  /// levels, and here these are versions as all others. Collective.
  bool bring_on(const std::string& name, Series& series) {
    if (!series.has_more) return true;
    done(varve_finish(series.session, kNoLimit));  // which has told what could not get there
    varve_close(series.session);
    series = {.session = open_levels(name, levels_of())};
    if (series.session != nullptr) return true;
    series_.erase(name);
    return false;
  }

  /// Lets the session go on from before `version`, if it is beyond. What is protected is nothing. Collective.
  bool go_before(const std::string& name, Series& series, uint64_t version) {
    bool there = series.newest && *series.newest >= version;
    if (!series.newest) {
      uint64_t count = 0;
      if (!done(varve_list_restart_points(series.session, &count))) return false;
      for (uint64_t i = 0; i < count && !there; ++i) {
        varve_restart_point point;
        varve_restart_point_init(&point);
        there = varve_restart_point_at(series.session, i, &point) == VARVE_OK && point.step >= version;
      }
    }
    if (!there) return true;
    if (!bring_on(name, series)) return false;
    varve_restart_choice choice;
    varve_restart_choice_init(&choice);
    choice.has_at_most = 1;
    choice.at_most = version > 0 ? version - 1 : 0;
    uint64_t step = 0;
    int restarted = 0;
    bool good =
        done(varve_wait(series.session)) && done(varve_restart_from(series.session, &choice, &step, &restarted));
    // Nothing is before version 0: rejecting all there is lets the run begin anew.
    while (good && version == 0 && restarted != 0) good = done(varve_reject(series.session, &step, &restarted));
    return good;
  }

  bool look_at_what_is_saved() {
    varve_session* const session = phase_.series->session;
    uint64_t count = 0;
    if (!done(varve_list_saved_variables(session, phase_.version, &count))) return false;
    for (uint64_t i = 0; i < count; ++i) {
      varve_saved_variable variable;
      varve_saved_variable_init(&variable);
      if (!done(varve_saved_variable_at(session, i, &variable))) return false;
      char* end = nullptr;
      const long id = std::strtol(variable.name, &end, 10);
      const bool is_file = std::string_view(variable.name) == std::string("file:") + kFile;
      if ((end == variable.name || *end != '.') && !is_file) continue;
      for (uint64_t p = 0; p < variable.part_count; ++p) {
        varve_saved_part part;
        varve_saved_part_init(&part);
        if (!done(varve_saved_part_of(session, i, p, &part))) return false;
        if (is_file) phase_.has_files = true;
        if (is_file || part.rank != static_cast<uint64_t>(rank_)) continue;
        uint64_t cells = 1;
        for (size_t d = 0; d < part.dimensions; ++d) cells *= part.cells[d];
        phase_.saved[static_cast<int>(id)] = {variable.type, static_cast<size_t>(cells * variable.element_bytes)};
      }
    }
    return true;
  }

  varve_restart_choice this_version() const {
    varve_restart_choice choice;
    varve_restart_choice_init(&choice);
    choice.has_exactly = 1;
    choice.exactly = phase_.version;
    return choice;
  }
  bool load() {
    const varve_restart_choice choice = this_version();
    uint64_t step = 0, version = 0;
    int restarted = 0;
    varve_session* const session = phase_.series->session;
    const bool loaded = done(varve_protect_scalar(session, kVersion, VARVE_UINT64, &version)) &&
                        done(varve_restart_from(session, &choice, &step, &restarted));
    varve_unprotect(session, kVersion);
    if (loaded) phase_.series->newest = step;
    return loaded && restarted != 0;
  }
  /// Lays the files of the version out, if some rank has one.
  bool load_files() {
    if (!phase_.has_files) return true;
    const varve_restart_choice choice = this_version();
    uint64_t step = 0;
    int restarted = 0;
    if (!done(varve_restart_with_files(phase_.series->session, &choice, &step, &restarted))) return false;
    phase_.series->newest = step;
    return restarted != 0;
  }

  /// A copy of the file where the program said that it would be, for whoever reads it there.
  static bool keep_plain(const Current& current) {
    return current.original.empty() || write_plain_file(kLibrary, current.file, current.original);
  }

  const MPI_Comm ranks_;
  const std::optional<unsigned> alone_as_;
  int rank_ = 0;
  Settings settings_{"VELOC_", Dialect::ini, keys()};
  std::string scratch_, persistent_;
  std::string redundancy_;  ///< of the nodes, as a level; empty: none
  bool synchronous_ = false;
  std::map<std::string, Regions> regions_;  ///< by name; "": of all
  std::map<std::string, Series> series_;
  const varve_session* asked_ = nullptr;  ///< whose words a failure has
  Phase phase_;
};

/// Not destroyed at exit: a program that ends without VELOC_Finalize() has left its ranks, as one that is killed.
std::unique_ptr<Client>& client = *new std::unique_ptr<Client>;

/// Runs a call of a client that is there; nothing is thrown into the program.
template <class Call>
int with_client(Call call) {
  if (client == nullptr) {
    tell(kLibrary, "VELOC_Init() has not been called");
    return VELOC_FAILURE;
  }
  try {
    return call(*client) ? VELOC_SUCCESS : VELOC_FAILURE;
  } catch (const std::exception& exception) {
    tell(kLibrary, exception.what());
    return VELOC_FAILURE;
  }
}

int init(MPI_Comm ranks, std::optional<unsigned> alone_as, const char* cfg_file) {
  if (client != nullptr) {
    tell(kLibrary, "VELOC_Init() has been called already");
    return VELOC_FAILURE;
  }
  client = std::make_unique<Client>(ranks, alone_as);
  const int code = with_client([cfg_file](Client& made) { return made.configure(cfg_file); });
  if (code != VELOC_SUCCESS) client.reset();
  return code;
}

}  // namespace
}  // namespace varve::peers

using varve::peers::Client;
using varve::peers::with_client;

extern "C" {

int VELOC_Init(MPI_Comm comm, const char* cfg_file) { return varve::peers::init(comm, std::nullopt, cfg_file); }

int VELOC_Init_single(unsigned int unique_id, const char* cfg_file) {
  return varve::peers::init(MPI_COMM_NULL, unique_id, cfg_file);
}

int VELOC_Finalize(int drain) {
  const int code = with_client([drain](Client& of) { return of.finish(drain != 0); });
  varve::peers::client.reset();
  return code;
}

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size) {
  return VELOC_Region_protect(id, ptr, count, base_size, nullptr);
}
int VELOC_Mem_unprotect(int id) { return VELOC_Region_unprotect(id, nullptr); }
int VELOC_Mem_clear(void) { return VELOC_Region_clear(nullptr); }

int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name) {
  return with_client([&](Client& of) { return of.protect(id, {ptr, count, base_size}, name); });
}
int VELOC_Region_unprotect(int id, const char* name) {
  return with_client([&](Client& of) { return of.regions(name).erase(id) > 0; });
}
int VELOC_Region_clear(const char* name) {
  return with_client([&](Client& of) {
    of.regions(name).clear();
    return true;
  });
}

int VELOC_Route_file(const char* original, char* routed) {
  return with_client([&](Client& of) {
    const std::optional<std::string> path = of.route(original);
    if (!path || routed == nullptr) return false;
    std::memcpy(routed, path->c_str(), path->size() + 1);
    return true;
  });
}
int VELOC_Cleanup(const char* name) {
  return with_client([name](Client& of) { return of.clean_up(name); });
}

int VELOC_Checkpoint(const char* name, int version) {
  return with_client([&](Client& of) {
    return of.begin_checkpoint(name, version) && of.choose(VELOC_CKPT_ALL, nullptr, 0) && of.end_checkpoint(true);
  });
}
int VELOC_Checkpoint_begin(const char* name, int version) {
  return with_client([&](Client& of) { return of.begin_checkpoint(name, version); });
}
int VELOC_Checkpoint_mem(void) { return VELOC_Checkpoint_selective(VELOC_CKPT_ALL, nullptr, 0); }
int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids) {
  return with_client([&](Client& of) { return of.choose(mode, ids, no_ids); });
}
int VELOC_Checkpoint_end(int success) {
  return with_client([success](Client& of) { return of.end_checkpoint(success != 0); });
}
int VELOC_Checkpoint_wait(void) {
  return with_client([](Client& of) { return of.wait(); });
}
int VELOC_Checkpoint_finished(void) {
  bool finished = false;
  const int code = with_client([&finished](Client& of) {
    finished = of.finished();
    return true;
  });
  return code != VELOC_SUCCESS ? code : finished ? 1 : 0;
}

int VELOC_Restart_test(const char* name, int version) {
  std::optional<int> newest;
  const int code = with_client([&](Client& of) {
    newest = of.newest(name, version);
    return newest.has_value();
  });
  return code == VELOC_SUCCESS ? *newest : VELOC_FAILURE;
}
int VELOC_Restart(const char* name, int version) {
  if (VELOC_Restart_begin(name, version) != VELOC_SUCCESS) return VELOC_FAILURE;
  const int recovered = VELOC_Recover_mem();
  return VELOC_Restart_end(recovered == VELOC_SUCCESS ? 1 : 0);
}
int VELOC_Restart_begin(const char* name, int version) {
  return with_client([&](Client& of) { return of.begin_restart(name, version); });
}
int VELOC_Recover_mem(void) { return VELOC_Recover_selective(VELOC_RECOVER_ALL, nullptr, 0); }
int VELOC_Recover_selective(int mode, int* ids, int no_ids) {
  return with_client([&](Client& of) { return of.recover(mode, ids, no_ids); });
}
int VELOC_Recover_size(int id) {
  std::optional<size_t> bytes;
  const int code = with_client([&](Client& of) {
    bytes = of.saved_bytes(id);
    return bytes.has_value() && *bytes <= INT32_MAX;
  });
  return code == VELOC_SUCCESS ? static_cast<int>(*bytes) : VELOC_FAILURE;
}
int VELOC_Restart_end(int success) {
  return with_client([success](Client& of) { return of.end_restart(success != 0); });
}

}  // extern "C"
