#include "mount/fuse_mount.h"

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "core/unique_fd.h"
#include "mount/fuse_operations.h"

namespace varve {

namespace {
/// How far the kernel reads ahead in files that are read in sequence, where it lets us say so.
constexpr unsigned kReadAheadKib = 4096;

/// The kernel's own limit is far below what one pack decodes to. Only root may raise it; others do without.
void raise_read_ahead(const std::string& folder) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line, device;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string id, parent, numbers, root, place;
    fields >> id >> parent >> numbers >> root >> place;
    if (place == folder) device = numbers;
  }
  if (device.empty()) return;
  std::ofstream limit("/sys/class/bdi/" + device + "/read_ahead_kb");
  limit << kReadAheadKib;
}

class Session final : public FuseMount {
 public:
  explicit Session(const FuseMountOptions& options) : options_(options) {}
  ~Session() override {
    if (session_ == nullptr) return;
    if (mounted_) fuse_session_unmount(session_);
    if (handling_signals_) fuse_remove_signal_handlers(session_);
    fuse_session_destroy(session_);
  }

  Status start(MountedStore& store) {
    std::string flags = "default_permissions,noatime,subtype=varve,fsname=";
    for (const char c : options_.source) flags += c == ',' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    if (options_.read_only) flags += ",ro";
    if (options_.allow_other) flags += ",allow_other";
    const char* words[] = {"varve", "-o", flags.c_str()};
    fuse_args arguments = FUSE_ARGS_INIT(3, const_cast<char**>(words));
    session_ = fuse_session_new(&arguments, &fuse_operations(), sizeof(fuse_lowlevel_ops), &store);
    fuse_opt_free_args(&arguments);
    if (session_ == nullptr) return Status::internal("libfuse refuses the session");
    if (fuse_set_signal_handlers(session_) != 0) return Status::internal("libfuse cannot handle signals");
    handling_signals_ = true;
    if (fuse_session_mount(session_, options_.folder.c_str()) != 0) return why_not_mounted();
    mounted_ = true;
    raise_read_ahead(options_.folder);
    return {};
  }

  Status serve() override {
    fuse_loop_config* const config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, options_.threads_max);
    fuse_loop_cfg_set_idle_threads(config, options_.threads_max);
    const int ended = fuse_session_loop_mt(session_, config);
    fuse_loop_cfg_destroy(config);
    return ended < 0 ? Status::from_errno(-ended, "serve the mount at", options_.folder) : Status();
  }

 private:
  Status why_not_mounted() const {
    const UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device.valid())
      return Status::from_errno(errno, "open", "/dev/fuse").with_hint("has the kernel FUSE, and may you use it?");
    return Status(StatusCode::permission_denied, "the folder cannot be mounted on", options_.folder,
                  "it must be yours; who is not root also needs the package fuse3");
  }

  const FuseMountOptions options_;
  fuse_session* session_ = nullptr;
  bool mounted_ = false, handling_signals_ = false;
};
}  // namespace

Status FuseMount::check_available() { return {}; }

Result<std::unique_ptr<FuseMount>> FuseMount::mount(MountedStore& store, const FuseMountOptions& options) {
  auto session = std::make_unique<Session>(options);
  VARVE_TRY(session->start(store));
  return std::unique_ptr<FuseMount>(std::move(session));
}

}  // namespace varve
