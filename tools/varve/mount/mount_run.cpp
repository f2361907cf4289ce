#include "mount/mount_run.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/process.h"
#include "core/state_folder.h"
#include "core/sync.h"
#include "mount/fuse_mount.h"
#include "mount/mount_point.h"
#include "mount/sealing.h"
#include "runtime/command_levels.h"
#include "service/location.h"

namespace varve {

namespace {
constexpr unsigned kReaderProcessesMax = 4;
/// More than processors, to keep the disk busy.
constexpr uint32_t kReadAheadThreads = 8;

Result<std::string> default_spool(const UniqueId& store) {
  const Result<std::string> state = state_folder();
  VARVE_TRY(state.status().with_context("no folder for open sets").with_hint("name one with --spool DIR"));
  return join_path(*state, "spool/" + store.hex());
}

/// Whatever links and dots are on the way.
bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code error;
  const std::string inner = std::filesystem::weakly_canonical(path, error).string();
  if (error) return false;
  const std::string outer = std::filesystem::weakly_canonical(folder, error).string();
  return !error && (inner == outer || inner.starts_with(outer + "/"));
}

/// What a mount is made of, from the store up.
class Mount {
 public:
  Mount(const MountOptions& options, const MountLog& log) : options_(options), log_(log) {}

  Status assemble() {
    VARVE_TRY(FuseMount::check_available());
    VARVE_ASSIGN(const std::string folder, prepare_mount_point(options_.folder));
    LayoutServiceOptions reading;  // it forks, so it comes before any thread
    reading.worker_count = std::clamp(processor_count(), 1u, kReaderProcessesMax);
    VARVE_ASSIGN(layouts_, LayoutService::start(std::move(reading)));
    VARVE_TRY(open_store());
    VARVE_ASSIGN(const Location location, Location::parse(source_));
    if (location.is_folder() && lies_in(folder, location.folder))
      return Status::invalid_argument("a store cannot be mounted in its own folder", folder, "name a folder elsewhere");
    if (!options_.read_only) VARVE_TRY(open_spool(folder));
    MountedStoreOptions serving = serving_options(location);
    mounted_ = std::make_unique<MountedStore>(*store_, spool_.get(), commit_ ? &*commit_ : nullptr, steady_clock(),
                                              log_, std::move(serving));
    VARVE_TRY(mounted_->take_up_spool());
    FuseMountOptions mounting;
    mounting.folder = folder;
    mounting.source = source_;
    mounting.read_only = options_.read_only;
    mounting.allow_other = options_.allow_other;
    VARVE_ASSIGN(fuse_, FuseMount::mount(*mounted_, mounting));
    if (forwarding_) VARVE_TRY(forwarding_->start());
    return mounted_->start_sealing();
  }

  Status serve() { return fuse_->serve(); }

 private:
  Status open_store() {
    if (options_.levels.empty()) {
      source_ = options_.store;
      VARVE_ASSIGN(place_, open_location(source_, {.reach = options_.reach}));
      VARVE_ASSIGN(own_, varve::open_store(*place_));
      store_ = own_.get();
      return {};
    }
    const CommandLevels::Said said{.levels = options_.levels, .store = {}, .reach = options_.reach};
    VARVE_ASSIGN(levels_,
                 CommandLevels::open(said, options_.read_only ? CommandLevels::Use::help : CommandLevels::Use::save));
    for (const Status& warning : levels_->take_warnings()) log_(warning.to_string());
    store_ = &levels_->for_saving();
    const StoreLevel& nearest = levels_->levels().nearest();
    source_ = nearest.spec().is_of_node() ? nearest.access().path() : nearest.name();
    if (!options_.read_only) forwarding_.emplace(levels_->levels(), log_);
    return {};
  }

  Status open_spool(const std::string& folder) {
    std::string path = options_.spool;
    if (path.empty()) {
      VARVE_ASSIGN(path, default_spool(store_->id()));
    }
    if (lies_in(path, folder)) return Status::invalid_argument("the spool cannot be in the mount", path);
    VARVE_ASSIGN(std::string boot, boot_of_machine());
    VARVE_ASSIGN(spool_, Spool::open(posix_file_system(), path, {.store = store_->id(), .boot = std::move(boot)}));
    SaveOptions save = options_.save;
    if (levels_) save.next_number = [this](const std::string& job) { return levels_->next_number(job); };
    commit_.emplace(*store_, *spool_, *layouts_, std::move(save), log_);
    return {};
  }

  MountedStoreOptions serving_options(const Location& location) {
    MountedStoreOptions serving;
    serving.memory_bytes = options_.memory_bytes;
    serving.read_ahead_threads = kReadAheadThreads;
    serving.may_remove = !options_.no_delete;
    serving.seal_seconds = options_.seal_seconds;
    serving.owner = {::geteuid(), ::getegid()};
    if (forwarding_) {
      serving.note_sealed = [this](const SetName& set) { forwarding_->note_sealed(set.job); };
    }
    serving.disk_folder = location.is_folder() ? location.folder : spool_ ? spool_->path() : "/";
    return serving;
  }

  const MountOptions& options_;
  const MountLog& log_;
  std::unique_ptr<LayoutService> layouts_;
  std::string source_;                 ///< what is mounted, as service/location.h has it
  std::unique_ptr<StorePlace> place_;  ///< unless levels were named, and the next
  std::unique_ptr<Store> own_;
  std::unique_ptr<CommandLevels> levels_;  ///< if they were
  const Store* store_ = nullptr;
  std::optional<SetForwarding> forwarding_;
  std::unique_ptr<Spool> spool_;
  std::optional<SetCommit> commit_;
  std::unique_ptr<MountedStore> mounted_;
  std::unique_ptr<FuseMount> fuse_;
};
}  // namespace

Status run_mount(const MountOptions& options, const MountLog& log, const std::function<Status()>& ready) {
  Mount mount(options, log);
  {
    const BlockedSignals held;  // they come to the thread that serves
    VARVE_TRY(mount.assemble());
  }
  VARVE_TRY(ready());
  return mount.serve();
}

}  // namespace varve
