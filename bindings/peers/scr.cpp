// SCR's functions over the C interface of Varve. All datasets are steps of one job, counted from 1; what the program
// calls one is its variable "name", and its files are routed files.
#include "scr.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nodes.h"
#include "settings.h"
#include "varve/varve_mpi.h"

/// SCR has no name for it; this is what its programs call it.
#define SCR_FAILURE (!SCR_SUCCESS)

namespace varve::peers {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kLibrary = "SCR";
constexpr std::string_view kDescribed = "FILE";  ///< the type that lines CKPT= say
constexpr const char* kName = "name";            ///< the variable that holds what the program calls a dataset
/// One that is called so tells it by its own name, which can be listed without going back to the dataset.
constexpr const char* kCalled = "called:";
constexpr const char* kJob = "scr";  ///< where the program says none

bool fail(const std::string& what) {
  tell(kLibrary, what);
  return false;
}

/// Settings that SCR_Config() makes, and then those of a run.
Settings& settings() {
  static Settings all{"SCR_",
                      Dialect::scr,
                      {{"SCR_PREFIX"},
                       {"SCR_CACHE_BASE"},
                       {"SCR_CACHE_SIZE", Key::number},
                       {"SCR_COPY_TYPE", Key::word, "XOR SINGLE PARTNER RS FILE"},
                       {"SCR_SET_SIZE", Key::number},
                       {"SCR_FLUSH", Key::number},
                       {"SCR_FLUSH_ASYNC", Key::flag},
                       {"SCR_FETCH", Key::flag},
                       {"SCR_CURRENT"},
                       {"SCR_CHECKPOINT_INTERVAL", Key::number},
                       {"SCR_CHECKPOINT_SECONDS", Key::number},
                       {"SCR_CHECKPOINT_OVERHEAD", Key::number},
                       {"SCR_HALT_SECONDS", Key::number},
                       {"SCR_JOB_NAME"},
                       {"SCR_CONF_FILE"},
                       {"STORE COUNT", Key::number},
                       {"STORE GROUP", Key::word, "NODE WORLD"},
                       {"STORE ENABLED", Key::word, "1"},
                       {"STORE MKDIR", Key::word, "1"},
                       {"CKPT STORE"},
                       {"CKPT TYPE", Key::word, "XOR SINGLE PARTNER RS"},
                       {"CKPT INTERVAL", Key::number},
                       {"CKPT SET_SIZE", Key::number},
                       {"CKPT ENABLED", Key::flag},
                       {"CKPT GROUP", Key::word, "NODE"},
                       {"CKPT BYPASS", Key::left_out, "files are always written into memory first"},
                       {"CKPT OUTPUT", Key::left_out, "what is output are plain files in the prefix"},
                       {"CKPT SET_FAILURES", Key::left_out, "RS survives the loss of two nodes"},
                       {"GROUPS", Key::left_out, "a failure group is a node"},
                       {"SCR_CACHE_BYPASS", Key::left_out, "files are always written into memory first"},
                       {"SCR_DEBUG", Key::left_out, "errors are always told"},
                       {"SCR_CRC_ON_FLUSH", Key::left_out, "all bytes are always checked"},
                       {"SCR_CRC_ON_COPY", Key::left_out, "all bytes are always checked"},
                       {"SCR_CRC_ON_DELETE", Key::left_out, "all bytes are always checked"},
                       {"SCR_FLUSH_WIDTH", Key::left_out, "a thread of each group of ranks writes"},
                       {"SCR_FETCH_WIDTH", Key::left_out, "a thread of each group of ranks reads"},
                       {"SCR_MPI_BUF_SIZE", Key::left_out, "Varve chooses its buffers"},
                       {"SCR_FILE_BUF_SIZE", Key::left_out, "Varve chooses its buffers"},
                       {"SCR_DISTRIBUTE", Key::left_out, "nodes get what they lack when a session begins"},
                       {"SCR_GROUP", Key::left_out, "a failure group is a node"},
                       {"SCR_CNTL_BASE", Key::left_out, "the store keeps what it needs"},
                       {"SCR_CACHE_PURGE", Key::left_out, "remove the folder of the cache instead"},
                       {"SCR_SET_FAILURES", Key::left_out, "RS survives the loss of two nodes"},
                       {"SCR_PREFIX_SIZE", Key::left_out, "`varve prune` and `varve drop` remove sets"},
                       {"SCR_PREFIX_PURGE", Key::left_out, "`varve drop` removes sets"},
                       {"SCR_FLUSH_TYPE", Key::left_out, "Varve writes by itself"},
                       {"SCR_FLUSH_POSTSTAGE", Key::left_out, "Varve writes by itself"},
                       {"SCR_FETCH_BYPASS", Key::left_out, "files are always laid out in memory"},
                       {"SCR_HALT_EXIT", Key::left_out, "ask SCR_Should_exit()"},
                       {"SCR_HALT_ENABLED", Key::left_out, "ask SCR_Should_exit()"},
                       {"SCR_JOB_ID", Key::left_out, "what a run has left is found by SCR_PREFIX"}}};
  return all;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Client {
 public:
  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() {
    varve_close(session_);
    if (ranks_ != MPI_COMM_NULL) MPI_Comm_free(&ranks_);
  }

  bool open() {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_rank(ranks_, &rank_);
    int ranks = 1;
    MPI_Comm_size(ranks_, &ranks);
    rank_count_ = static_cast<uint64_t>(ranks);
    read_settings();
    const std::string levels = levels_of();
    const std::string own_job = job();
    varve_options options;
    varve_options_init(&options);
    options.job = own_job.c_str();
    options.levels = levels.c_str();
    options.variables_may_change = VARVE_YES;
    options.stop_on_signals = VARVE_NO;
    if (varve_open_mpi(ranks_, &options, &session_) != VARVE_OK) return fail(varve_error_message(nullptr));
    if (!read_dropped() || !list_points(next_)) return false;
    if (settings().flag("SCR_FETCH", true)) find_candidates();
    return true;
  }

  bool finish() { return in_no_phase() && done(varve_finish(session_, 1e9)); }

  bool have_restart(bool& have, char* name) {
    if (!in_no_phase()) return false;
    // What is damaged is passed over, and what other ranks have written: a file belongs to its rank.
    while (!candidates_.empty()) {
      if (is_of_these_ranks(candidates_.front()) && load_name(candidates_.front())) break;
      candidates_.erase(candidates_.begin());
    }
    have = !candidates_.empty();
    // Else the program would begin anew.
    if (!have && unread_) return fail("there are checkpoints, and they cannot be read");
    if (have && name != nullptr) copy(loaded_name_, name);
    return true;
  }

  bool start_restart(char* name) {
    bool have = false;
    if (!have_restart(have, nullptr)) return false;
    if (!have) return fail("there is no checkpoint to restart from");
    if (name != nullptr) copy(loaded_name_, name);
    phase_ = Phase::restart;
    has_begun_ = true;
    return load(candidates_.front(), true);
  }

  bool complete_restart(bool valid) {
    if (phase_ != Phase::restart) return fail("no restart has been started");
    phase_ = Phase::none;
    if (on_all(valid)) {
      unread_ = false;
      return true;
    }
    candidates_.erase(candidates_.begin());
    return false;
  }

  bool need_checkpoint(bool& need) {
    const auto interval = static_cast<uint64_t>(std::max(0.0, settings().number("SCR_CHECKPOINT_INTERVAL", 0)));
    const double seconds = settings().number("SCR_CHECKPOINT_SECONDS", 0);
    const double overhead = settings().number("SCR_CHECKPOINT_OVERHEAD", 0);
    ++asked_;
    need = interval == 0 && seconds <= 0 && overhead <= 0;  // where nothing is said, always
    if (interval > 0 && asked_ % interval == 0) need = true;
    if (seconds > 0 && seconds_since(last_checkpoint_) >= seconds) need = true;
    if (overhead > 0 && spent_seconds_ * 100 <= overhead * seconds_since(begin_)) need = true;
    if (exit_is_wanted()) need = true;
    return from_first(need);
  }

  bool start_output(const char* name, int flags) {
    if (!in_no_phase()) return false;
    step_ = next_;
    name_ = name != nullptr && *name != '\0' ? name : "scr.dataset." + std::to_string(step_);
    if (name_.size() >= SCR_MAX_FILENAME) return fail("a name is too long: " + name_);
    flags_ = flags;
    files_.clear();
    phase_ = Phase::output;
    started_ = Clock::now();
    MPI_Barrier(ranks_);
    return true;
  }

  bool complete_output(bool valid) {
    if (phase_ != Phase::output) return fail("no output has been started");
    phase_ = Phase::none;
    next_ = step_ + 1;
    if (!on_all(valid)) {
      discard_files();
      return fail("a rank has not written all of its files: " + name_);
    }
    const bool kept = (flags_ & SCR_FLAG_OUTPUT) == 0 || on_all(write_plain_files());
    bool made = true;
    if ((flags_ & SCR_FLAG_CHECKPOINT) != 0 || flags_ == SCR_FLAG_NONE) {
      has_begun_ = true;
      made = protect_name(name_, save_name);
      made = made && done(varve_checkpoint(session_, step_, asynchronous() ? VARVE_LATER : VARVE_NOW));
      unprotect_name(name_);
      last_checkpoint_ = Clock::now();
      candidates_.insert(candidates_.begin(), step_);
      names_[step_] = name_;
    }
    // Where it could not be kept, what was routed is all that there is.
    if (kept && made) discard_files();
    spent_seconds_ += seconds_since(started_);
    return kept && made;
  }

  bool route(const char* name, char* file) {
    if (name == nullptr || file == nullptr) return fail("SCR_Route_file() needs a name and a place for the file");
    if (phase_ == Phase::none) {
      if (std::strlen(name) >= SCR_MAX_FILENAME) return fail("a name is too long: " + std::string(name));
      std::strcpy(file, name);
      return true;
    }
    const std::string path = plain_path(name);
    if (phase_ == Phase::output) {
      if (!done(varve_route_file(session_, step_, path.c_str(), file, SCR_MAX_FILENAME))) return false;
      const auto same = [&path](const Routed& routed) { return routed.name == path; };
      if (std::none_of(files_.begin(), files_.end(), same)) files_.push_back({path, file});
      return true;
    }
    const std::string found = file_called(name, path);
    if (found.empty()) return false;  // it is not there: the program asks, and is told
    return done(varve_route_file(session_, candidates_.front(), found.c_str(), file, SCR_MAX_FILENAME));
  }

  bool set_current(const char* name) {
    if (!in_no_phase() || name == nullptr) return false;
    const std::optional<uint64_t> step = step_called(name);
    if (!step) return fail("there is no checkpoint called " + std::string(name));
    std::erase_if(candidates_, [&](uint64_t one) { return one != *step; });
    candidates_.assign(1, *step);
    for (const uint64_t one : points_) {
      if (one < *step) candidates_.push_back(one);
    }
    return true;
  }

  /// Its data stay; no restart takes it any more, in this run or a later one.
  bool drop(const char* name) {
    if (!in_no_phase() || name == nullptr) return false;
    const std::optional<uint64_t> step = step_called(name);
    if (!step) return fail("there is no checkpoint called " + std::string(name));
    forget(*step);
    dropped_.insert(*step);
    bool noted = true;
    if (rank_ == 0) {
      std::error_code ignored;
      fs::create_directories(dropped_path().parent_path(), ignored);
      std::ofstream list(dropped_path(), std::ios::app);
      noted = static_cast<bool>(list << *step << std::endl);
      if (!noted) fail("cannot write " + dropped_path().string());
    }
    return on_all(noted);
  }

  bool remove(const char* name) {
    if (!in_no_phase() || name == nullptr) return false;
    const std::optional<uint64_t> step = step_called(name);
    if (!step) return fail("there is no checkpoint called " + std::string(name));
    forget(*step);
    return done(varve_drop(session_, *step));
  }

  bool should_exit(bool& flag) {
    flag = exit_is_wanted();
    return from_first(flag);
  }

 private:
  enum class Phase { none, output, restart };
  struct Routed {
    std::string name, path;
  };

  /// The folder of the program's files, from the root.
  static std::string said_prefix() {
    std::error_code ignored;
    const fs::path said = fs::absolute(settings().text("SCR_PREFIX", "."), ignored).lexically_normal();
    return (said.has_filename() ? said : said.parent_path()).string();
  }
  const std::string& prefix() const { return prefix_; }
  static bool asynchronous() { return settings().flag("SCR_FLUSH_ASYNC", true); }

  bool in_no_phase() const { return phase_ == Phase::none || fail("a restart or an output has been started already"); }
  bool done(int code) const { return code == VARVE_OK || fail(varve_error_message(session_)); }
  bool on_all(bool here) const {
    int mine = here ? 1 : 0, all = 0;
    return MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, ranks_) == MPI_SUCCESS && all == 1;
  }
  bool from_first(bool& flag) const {
    int value = flag ? 1 : 0;
    const bool good = MPI_Bcast(&value, 1, MPI_INT, 0, ranks_) == MPI_SUCCESS;
    flag = value == 1;
    return good;
  }
  static void copy(const std::string& name, char* into) { std::snprintf(into, SCR_MAX_FILENAME, "%s", name.c_str()); }

  void read_settings() {
    const std::string file = settings().text("SCR_CONF_FILE", said_prefix() + "/.scrconf");
    const bool is_read = settings().read(file);
    prefix_ = said_prefix();  // the file may say it; where the program goes later does not count
    if (rank_ != 0) return;
    if (!is_read && std::getenv("SCR_CONF_FILE") != nullptr) fail("cannot read the configuration " + file);
    for (const std::string& what : settings().without_effect()) fail(what);
    const std::vector<Pairs> lines = settings().lines();
    const bool has_descriptors = std::any_of(lines.begin(), lines.end(), is_descriptor);
    if (settings().word("SCR_COPY_TYPE") == kDescribed) {
      if (!has_descriptors) fail("SCR_COPY_TYPE=FILE is taken for XOR: there is no line CKPT=");
    } else if (has_descriptors) {
      fail("lines CKPT= are left out: SCR_COPY_TYPE is not FILE");
    }
  }

  /// A line CKPT=, or what is said in place of one.
  struct Descriptor {
    std::string number = "0", store, type;
    int set_size = 8, interval = 1;
  };
  static bool is_descriptor(const Pairs& line) {
    return line.front().first == "CKPT" && Settings::flag(line, "ENABLED", true);
  }
  /// The line of a store; one without it: nothing is said of it.
  static Pairs line_of(const std::string& store) {
    for (const Pairs& line : settings().lines()) {
      if (line.front() == std::pair<std::string, std::string>("STORE", store)) return line;
    }
    return {{"STORE", store}};
  }
  static std::vector<Descriptor> descriptors(Descriptor said) {
    std::vector<Descriptor> all;
    if (said.type == kDescribed) {
      for (const Pairs& line : settings().lines()) {
        if (!is_descriptor(line)) continue;
        all.push_back({line.front().second, Settings::text(line, "STORE", said.store), settings().word(line, "TYPE"),
                       whole(Settings::number(line, "SET_SIZE", said.set_size)),
                       whole(Settings::number(line, "INTERVAL", 1))});
      }
      said.type = "XOR";
    }
    if (all.empty()) all.push_back(said);
    return all;
  }
  static int whole(double number) { return static_cast<int>(std::clamp(number, 1.0, 1e9)); }
  /// How many datasets a store keeps.
  static std::string keep_of(const std::string& store, double otherwise) {
    return " keep=" + std::to_string(whole(Settings::number(line_of(store), "COUNT", otherwise)));
  }

  /// The node's cache, its redundancy, stores of the whole job, and the prefix.
  std::string levels_of() const {
    const std::string base = settings().text("SCR_CACHE_BASE", "/tmp");
    const std::vector<Descriptor> all = descriptors({.number = "0",
                                                     .store = base,
                                                     .type = settings().word("SCR_COPY_TYPE"),
                                                     .set_size = whole(settings().number("SCR_SET_SIZE", 8))});
    const auto is_global = [](const Descriptor& one) {
      return settings().word(line_of(one.store), "GROUP") == "WORLD";
    };
    const std::string own = "/varve-scr-" + std::to_string(::getuid());
    // There is one cache, and one redundancy of it: what comes most often.
    const Descriptor *cache = nullptr, *protection = nullptr;
    for (const Descriptor& one : all) {
      if (is_global(one)) continue;
      if (cache == nullptr || one.interval < cache->interval) cache = &one;
      if (one.type != "SINGLE" && (protection == nullptr || one.interval < protection->interval)) protection = &one;
    }
    const std::string place = cache != nullptr ? cache->store : base;
    std::error_code ignored;
    fs::create_directories(place, ignored);
    fs::create_directories(prefix(), ignored);
    std::string levels =
        "memory; local:" + level_place(place + own) + keep_of(place, settings().number("SCR_CACHE_SIZE", 1));
    const int nodes = count_nodes(ranks_);
    if (protection != nullptr) {
      const std::string redundancy = redundancy_of(protection->type, protection->set_size, nodes, kLibrary, rank_ == 0);
      if (!redundancy.empty()) levels += "; " + redundancy + every(protection->interval);
    }
    for (const Descriptor& one : all) {
      if (is_global(one)) {
        fs::create_directories(one.store, ignored);
        levels += "; dir:" + level_place(one.store + own) + every(one.interval) + keep_of(one.store, 1);
      } else if (rank_ == 0 && one.type != "SINGLE" && &one != protection) {
        fail("CKPT=" + one.number +
             " is left out: a node's datasets are protected in one way, that of CKPT=" + protection->number);
      } else if (rank_ == 0 && one.store != place) {
        fail("CKPT=" + one.number + " goes to " + place + ": a node has one cache");
      }
    }
    const int flush = static_cast<int>(settings().number("SCR_FLUSH", 10));
    if (flush > 0) levels += "; dir:" + level_place(prefix() + "/varve") + every(flush);
    return levels;
  }
  static std::string every(int interval) { return interval > 1 ? " every=" + std::to_string(interval) : std::string(); }

  /// The steps that there are, newest first, and the one after all of them.
  bool list_points(uint64_t& next) {
    points_.clear();
    rank_counts_.clear();
    next = 1;
    uint64_t count = 0;
    if (!done(varve_list_restart_points(session_, &count))) return false;
    for (uint64_t i = 0; i < count; ++i) {
      varve_restart_point point;
      varve_restart_point_init(&point);
      if (!done(varve_restart_point_at(session_, i, &point))) return false;
      points_.push_back(point.step);
      // It may be in several places, of which one will do.
      uint64_t& known = rank_counts_[point.step];
      if (known != rank_count_) known = point.rank_count != 0 ? point.rank_count : rank_count_;
      next = std::max(next, point.step + 1);
    }
    // A number that was dropped is not given again, also where its store is gone: no restart would take the new one.
    if (!dropped_.empty()) next = std::max(next, *dropped_.rbegin() + 1);
    std::sort(points_.begin(), points_.end(), std::greater<>());
    points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
    std::erase_if(points_, [this](uint64_t step) { return dropped_.contains(step); });
    return true;
  }

  void forget(uint64_t step) {
    std::erase(candidates_, step);
    std::erase(points_, step);
    names_.erase(step);
    if (named_ == step) named_.reset();
  }
  static std::string job() { return settings().text("SCR_JOB_NAME", kJob); }
  /// Of each job in the prefix, whose datasets have numbers of their own.
  fs::path dropped_path() const {
    return fs::path(prefix()) / ".scr" / (job() == kJob ? std::string("varve.dropped") : "varve.dropped." + job());
  }
  /// What SCR_Drop() has noted, as the first rank sees it.
  bool read_dropped() {
    std::vector<uint64_t> steps;
    bool is_read = true;
    std::error_code unknown;
    if (rank_ == 0 && (fs::exists(dropped_path(), unknown) || unknown)) {
      std::ifstream list(dropped_path());
      for (uint64_t step = 0; list >> step;) steps.push_back(step);
      is_read = list.eof();
      // A restart would take what is not to be taken any more.
      if (!is_read) fail("cannot read " + dropped_path().string());
    }
    if (!on_all(is_read)) return false;
    uint64_t count = steps.size();
    if (MPI_Bcast(&count, 1, MPI_UINT64_T, 0, ranks_) != MPI_SUCCESS || count > INT32_MAX) return false;
    steps.resize(count);
    if (MPI_Bcast(steps.data(), static_cast<int>(count), MPI_UINT64_T, 0, ranks_) != MPI_SUCCESS) return false;
    dropped_.insert(steps.begin(), steps.end());
    return true;
  }

  /// Whether as many ranks wrote it as this run has. Of those that are not so, the first is told.
  bool is_of_these_ranks(uint64_t step) {
    const auto found = rank_counts_.find(step);
    if (found == rank_counts_.end() || found->second == rank_count_) return true;
    if (rank_ == 0 && !told_of_ranks_) {
      tell(kLibrary,
           "the dataset of step " + std::to_string(step) + " was written by " + std::to_string(found->second) +
               " ranks, which this run has not: it is not restarted from. Start as many ranks as before for that");
    }
    told_of_ranks_ = true;
    return false;
  }

  void find_candidates() {
    candidates_ = points_;
    const std::string current = settings().text("SCR_CURRENT");
    if (!current.empty()) set_current(current.c_str());
  }

  static int append_name(const std::string& name, varve_bytes* to) {
    return varve_append(to, name.data(), name.size());
  }
  static int save_name(void* context, varve_bytes* to) {
    return append_name(static_cast<const Client*>(context)->name_, to);
  }
  /// What a restart has loaded may be saved by the session before it returns.
  static int save_loaded_name(void* context, varve_bytes* to) {
    return append_name(static_cast<const Client*>(context)->loaded_name_, to);
  }
  static int load_name_back(void* context, const void* data, size_t bytes) {
    static_cast<Client*>(context)->loaded_name_.assign(static_cast<const char*>(data), bytes);
    return VARVE_OK;
  }

  static int save_nothing(void*, varve_bytes*) { return VARVE_OK; }
  static int load_nothing(void*, const void*, size_t) { return VARVE_OK; }
  /// `called`: empty where it is not known.
  bool protect_name(const std::string& called, varve_save_function save) {
    return done(varve_protect_callbacks(session_, kName, save, load_name_back, this)) &&
           (called.empty() ||
            done(varve_protect_callbacks(session_, (kCalled + called).c_str(), save_nothing, load_nothing, this)));
  }
  void unprotect_name(const std::string& called) {
    varve_unprotect(session_, kName);
    if (!called.empty()) varve_unprotect(session_, (kCalled + called).c_str());
  }
  /// What the program called a step, as far as the names of its variables tell.
  std::string called_of(uint64_t step) {
    const auto known = names_.find(step);
    if (known != names_.end()) return known->second;
    uint64_t count = 0;
    if (varve_list_saved_variables(session_, step, &count) != VARVE_OK) return "";
    for (uint64_t i = 0; i < count; ++i) {
      varve_saved_variable variable;
      varve_saved_variable_init(&variable);
      if (varve_saved_variable_at(session_, i, &variable) != VARVE_OK) continue;
      const std::string_view name = variable.name;
      if (!name.starts_with(kCalled)) continue;
      return names_[step] = name.substr(std::strlen(kCalled));
    }
    return "";
  }

  /// Loads what the program called a step, with its files or without.
  bool load(uint64_t step, bool with_files) {
    const std::string called = called_of(step);
    varve_restart_choice choice;
    varve_restart_choice_init(&choice);
    choice.has_exactly = 1;
    choice.exactly = step;
    int restarted = 0;
    bool good = protect_name(called, save_loaded_name);
    if (good) {
      const int code = with_files ? varve_restart_with_files(session_, &choice, &step, &restarted)
                                  : varve_restart_from(session_, &choice, &step, &restarted);
      unread_ = unread_ || code == VARVE_IO_ERROR;
      good = done(code);
    }
    unprotect_name(called);
    if (good && restarted != 0) next_ = std::max(next_, step + 1);
    return on_all(good && restarted != 0);
  }
  bool load_name(uint64_t step) {
    if (named_ == step) return true;
    named_.reset();
    if (!load(step, false)) return false;
    named_ = step;
    names_[step] = loaded_name_;
    return true;
  }
  std::optional<uint64_t> step_called(const std::string& name) {
    uint64_t next = 1;
    if (!list_points(next)) return std::nullopt;
    // The newest of that name. A run that has begun does not go back to a dataset to learn what it is called: of those
    // of early versions, which do not tell it otherwise, it does not know.
    for (const uint64_t step : points_) {
      std::string called = called_of(step);
      if (called.empty() && !has_begun_ && load_name(step)) called = loaded_name_;
      if (called == name) return step;
    }
    return std::nullopt;
  }

  /// Where a file belongs, as one below the prefix or from the root. A name that does not begin at the root belongs to
  /// the folder that the program is in; SCR refuses what is not below the prefix then, here that counts from the
  /// prefix.
  std::string plain_path(const std::string& name) const {
    std::error_code ignored;
    const fs::path path = fs::path(name).lexically_normal(), whole = fs::absolute(name, ignored).lexically_normal();
    const auto is_below = [](const fs::path& inside) { return !inside.empty() && *inside.begin() != ".."; };
    fs::path inside = whole.lexically_relative(prefix());
    if (!is_below(inside))  // symbolic links may lead there
      inside = fs::weakly_canonical(whole, ignored).lexically_relative(fs::weakly_canonical(prefix(), ignored));
    return is_below(inside) ? inside.string() : path.string();
  }
  /// The file of the dataset that a restart means by `name`, which is `path` below the prefix; empty: there is none.
  /// Older programs give the name without its folder, which is enough where it is that of one file alone.
  std::string file_called(const std::string& name, const std::string& path) const {
    const bool has_folder = name.find('/') != std::string::npos;
    std::vector<std::string> of_that_name;
    for (uint64_t i = 0; i < varve_file_count(session_); ++i) {
      std::string one = varve_file_name(session_, i);
      if (one == path) return one;
      if (!has_folder && fs::path(one).filename() == name) of_that_name.push_back(std::move(one));
    }
    if (of_that_name.size() > 1) {
      fail("several files of the dataset are called " + name + ": say the folder of the one to read");
    }
    return of_that_name.size() == 1 ? of_that_name.front() : std::string();
  }
  /// Removes what was routed for the dataset and is still in memory: none of it is in a checkpoint, and no later one
  /// takes it. The folders that were made for it go, too, up to one that has something else in it, as that of all has.
  void discard_files() {
    std::error_code ignored;
    for (const Routed& file : files_) {
      fs::remove(file.path, ignored);
      for (fs::path folder = fs::path(file.path).parent_path(); fs::remove(folder, ignored);) {
        folder = folder.parent_path();
      }
    }
    files_.clear();
  }
  bool write_plain_files() const {
    bool good = true;
    for (const Routed& file : files_) {
      good = write_plain_file(kLibrary, file.path, (fs::path(prefix()) / file.name).string()) && good;
    }
    return good;
  }

  bool exit_is_wanted() const {
    std::error_code ignored;
    if (fs::exists(fs::path(prefix()) / ".scr" / "halt", ignored)) return true;
    const double margin = settings().number("SCR_HALT_SECONDS", 0);
    if (margin <= 0) return false;
    for (const char* name : {"SCR_END_TIME", "SLURM_JOB_END_TIME"}) {
      const char* end = std::getenv(name);
      if (end == nullptr) continue;
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      return std::strtod(end, nullptr) - now < margin;
    }
    return false;
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0;
  uint64_t rank_count_ = 1;
  std::string prefix_;
  varve_session* session_ = nullptr;
  Phase phase_ = Phase::none;
  std::vector<uint64_t> points_;              ///< steps that there are
  std::map<uint64_t, uint64_t> rank_counts_;  ///< of their ranks, where that is known
  bool told_of_ranks_ = false;
  std::vector<uint64_t> candidates_;  ///< those to restart from, the best first
  std::string loaded_name_;
  std::optional<uint64_t> named_;          ///< the step that loaded_name_ is of
  std::map<uint64_t, std::string> names_;  ///< of steps, as far as they are known
  std::set<uint64_t> dropped_;             ///< no restart takes these
  uint64_t next_ = 1;                      ///< step of the next dataset
  bool unread_ = false;                    ///< some could not be read for now, and none was restarted from
  bool has_begun_ = false;                 ///< the program has gone on from one, or made one

  uint64_t step_ = 0;
  std::string name_;
  int flags_ = SCR_FLAG_NONE;
  std::vector<Routed> files_;

  const Clock::time_point begin_ = Clock::now();
  Clock::time_point started_ = begin_, last_checkpoint_ = begin_;
  double spent_seconds_ = 0;
  uint64_t asked_ = 0;
};

/// Not destroyed at exit: a program that ends without SCR_Finalize() has left its ranks, as one that is killed.
std::unique_ptr<Client>& client = *new std::unique_ptr<Client>;

template <class Call>
int with_client(Call call) {
  if (client == nullptr) {
    fail("SCR_Init() has not been called");
    return SCR_FAILURE;
  }
  try {
    return call(*client) ? SCR_SUCCESS : SCR_FAILURE;
  } catch (const std::exception& exception) {
    fail(exception.what());
    return SCR_FAILURE;
  }
}

/// A call that gives a flag.
template <class Call>
int with_flag(int* flag, Call call) {
  return with_client([&](Client& of) {
    bool value = false;
    const bool good = call(of, value);
    if (flag != nullptr) *flag = value ? 1 : 0;
    return good && flag != nullptr;
  });
}

}  // namespace
}  // namespace varve::peers

using varve::peers::Client;
using varve::peers::with_client;
using varve::peers::with_flag;

extern "C" {

int SCR_Init(void) {
  if (varve::peers::client != nullptr) return SCR_FAILURE;
  varve::peers::client = std::make_unique<Client>();
  const int code = with_client([](Client& made) { return made.open(); });
  if (code != SCR_SUCCESS) varve::peers::client.reset();
  return code;
}

int SCR_Finalize(void) {
  const int code = with_client([](Client& of) { return of.finish(); });
  varve::peers::client.reset();
  return code;
}

char* SCR_Get_version(void) {
  static char version[64];
  std::snprintf(version, sizeof version, "varve %s", varve_version_text());
  return version;
}

int SCR_Should_exit(int* flag) {
  return with_flag(flag, [](Client& of, bool& value) { return of.should_exit(value); });
}

const char* SCR_Config(const char* config) {
  if (config == nullptr) return nullptr;
  try {
    const std::optional<std::string> value = varve::peers::settings().configure(config);
    return value ? strdup(value->c_str()) : nullptr;
  } catch (const std::exception& exception) {
    varve::peers::fail(exception.what());
    return nullptr;
  }
}

const char* SCR_Configf(const char* format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return length < 0 || static_cast<size_t>(length) >= sizeof line ? nullptr : SCR_Config(line);
}

int SCR_Route_file(const char* name, char* file) {
  return with_client([&](Client& of) { return of.route(name, file); });
}

int SCR_Have_restart(int* flag, char* name) {
  return with_flag(flag, [name](Client& of, bool& value) { return of.have_restart(value, name); });
}
int SCR_Start_restart(char* name) {
  return with_client([name](Client& of) { return of.start_restart(name); });
}
int SCR_Complete_restart(int valid) {
  return with_client([valid](Client& of) { return of.complete_restart(valid != 0); });
}

int SCR_Need_checkpoint(int* flag) {
  return with_flag(flag, [](Client& of, bool& value) { return of.need_checkpoint(value); });
}
int SCR_Start_checkpoint(void) { return SCR_Start_output(nullptr, SCR_FLAG_CHECKPOINT); }
int SCR_Complete_checkpoint(int valid) { return SCR_Complete_output(valid); }
int SCR_Start_output(const char* name, int flags) {
  return with_client([&](Client& of) { return of.start_output(name, flags); });
}
int SCR_Complete_output(int valid) {
  return with_client([valid](Client& of) { return of.complete_output(valid != 0); });
}

int SCR_Current(const char* name) {
  return with_client([name](Client& of) { return of.set_current(name); });
}
int SCR_Drop(const char* name) {
  return with_client([name](Client& of) { return of.drop(name); });
}
int SCR_Delete(const char* name) {
  return with_client([name](Client& of) { return of.remove(name); });
}

}  // extern "C"
