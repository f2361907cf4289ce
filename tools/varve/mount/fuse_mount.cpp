#define FUSE_USE_VERSION 312

#include "mount/fuse_mount.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

#include "core/process.h"
#include "core/status_codec.h"
#include "mount/closing_process.h"
#include "mount/mounted_store.h"
#include "mount/seal_request.h"

namespace varve {

namespace {
/// How long the kernel may believe what it was told: of what can change, and of what never does.
constexpr double kBriefSeconds = 1;
constexpr double kLastingSeconds = 86400;
constexpr unsigned kRequestBytesMax = 1_MiB;
constexpr uint64_t kUnknownInode = UINT32_MAX;

MountedStore& store_of(fuse_req_t request) { return *static_cast<MountedStore*>(fuse_req_userdata(request)); }
OpenFile& file_of(const fuse_file_info* info) { return *reinterpret_cast<OpenFile*>(info->fh); }

/// What a program sees of a folder that it has opened: the names that were there then.
struct OpenFolder {
  std::vector<ListedName> names;
};
OpenFolder& folder_of(const fuse_file_info* info) { return *reinterpret_cast<OpenFolder*>(info->fh); }

void reply(fuse_req_t request, Errno outcome) { fuse_reply_err(request, outcome.number); }

fuse_entry_param entry_param(const NodeView& view) {
  fuse_entry_param entry{};
  entry.ino = view.status.st_ino;
  entry.attr = view.status;
  entry.attr_timeout = view.lasting ? kLastingSeconds : kBriefSeconds;
  entry.entry_timeout = entry.attr_timeout;
  return entry;
}

void reply_entry(fuse_req_t request, const MountResult<NodeView>& view) {
  if (!view.ok()) return reply(request, view.error());
  const fuse_entry_param entry = entry_param(*view);
  // Who was interrupted never learns of the name.
  if (fuse_reply_entry(request, &entry) == -ENOENT) store_of(request).forget(entry.ino, 1);
}

void reply_attributes(fuse_req_t request, const MountResult<NodeView>& view) {
  if (!view.ok()) return reply(request, view.error());
  fuse_reply_attr(request, &view->status, view->lasting ? kLastingSeconds : kBriefSeconds);
}

/// Runs what answers a request; nothing may leave it but an answer.
template <class Body>
void answer(fuse_req_t request, const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    fuse_reply_err(request, ENOMEM);
  } catch (const std::exception&) {
    fuse_reply_err(request, EIO);
  }
}

void on_init(void*, fuse_conn_info* connection) {
  connection->max_write = kRequestBytesMax;
  connection->max_readahead = UINT32_MAX;
  for (const unsigned wanted : {FUSE_CAP_SPLICE_READ, FUSE_CAP_SPLICE_WRITE, FUSE_CAP_SPLICE_MOVE})
    connection->want |= connection->capable & wanted;
}

void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, [&] { reply_entry(request, store_of(request).find(parent, name)); });
}

void on_forget(fuse_req_t request, fuse_ino_t inode, uint64_t count) {
  store_of(request).forget(inode, count);
  fuse_reply_none(request);
}

void on_forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) {
  for (size_t i = 0; i < count; ++i) store_of(request).forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(request);
}

void on_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  answer(request, [&] { reply_attributes(request, store_of(request).look(inode)); });
}

AttributeChange change_of(const struct stat& wanted, int set) {
  AttributeChange change;
  if ((set & FUSE_SET_ATTR_MODE) != 0) change.mode = wanted.st_mode & 07777;
  if ((set & FUSE_SET_ATTR_UID) != 0) change.owner = wanted.st_uid;
  if ((set & FUSE_SET_ATTR_GID) != 0) change.group = wanted.st_gid;
  if ((set & FUSE_SET_ATTR_SIZE) != 0) change.bytes = static_cast<uint64_t>(wanted.st_size);
  if ((set & FUSE_SET_ATTR_ATIME) != 0) change.accessed = wanted.st_atim;
  if ((set & FUSE_SET_ATTR_ATIME_NOW) != 0) change.accessed = timespec{0, UTIME_NOW};
  if ((set & FUSE_SET_ATTR_MTIME) != 0) change.modified = wanted.st_mtim;
  if ((set & FUSE_SET_ATTR_MTIME_NOW) != 0) change.modified = timespec{0, UTIME_NOW};
  return change;
}

void on_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* wanted, int set, fuse_file_info* info) {
  OpenFile* const file = info == nullptr ? nullptr : &file_of(info);
  answer(request, [&] { reply_attributes(request, store_of(request).change(inode, change_of(*wanted, set), file)); });
}

void on_readlink(fuse_req_t request, fuse_ino_t inode) {
  answer(request, [&] {
    const MountResult<std::string> target = store_of(request).read_link(inode);
    if (!target.ok()) return reply(request, target.error());
    fuse_reply_readlink(request, target->c_str());
  });
}

void on_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t) {
  answer(request, [&] {
    if (!S_ISREG(mode)) return reply(request, {EPERM});
    auto made = store_of(request).create(parent, name, O_RDONLY | O_EXCL, mode & 07777);
    if (!made.ok()) return reply(request, made.error());
    reply_entry(request, made->first);
  });
}

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  answer(request, [&] { reply_entry(request, store_of(request).make_folder(parent, name, mode & 07777)); });
}

void on_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, [&] { reply(request, store_of(request).remove(parent, name, 0)); });
}

void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, [&] { reply(request, store_of(request).remove(parent, name, AT_REMOVEDIR)); });
}

void on_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  answer(request, [&] { reply_entry(request, store_of(request).make_link(parent, name, target)); });
}

void on_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
               unsigned flags) {
  answer(request, [&] { reply(request, store_of(request).rename(parent, name, new_parent, new_name, flags)); });
}

/// One name, one file: a set keeps no names of the same file.
void on_link(fuse_req_t request, fuse_ino_t, fuse_ino_t, const char*) { reply(request, {EPERM}); }

void give_handle(fuse_file_info* info, std::unique_ptr<OpenFile>& file) {
  info->fh = reinterpret_cast<uint64_t>(file.release());
  // Whatever changes a file comes through this mount, so that what the kernel has of it stays true.
  info->keep_cache = 1;
}

void on_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  answer(request, [&] {
    MountResult<std::unique_ptr<OpenFile>> opened = store_of(request).open(inode, info->flags);
    if (!opened.ok()) return reply(request, opened.error());
    give_handle(info, *opened);
    if (fuse_reply_open(request, info) == -ENOENT) delete &file_of(info);
  });
}

void on_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
  answer(request, [&] {
    auto made = store_of(request).create(parent, name, info->flags, mode & 07777);
    if (!made.ok()) return reply(request, made.error());
    give_handle(info, made->second);
    const fuse_entry_param entry = entry_param(made->first);
    if (fuse_reply_create(request, &entry, info) != -ENOENT) return;
    delete &file_of(info);
    store_of(request).forget(entry.ino, 1);
  });
}

void on_release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  answer(request, [&] {
    store_of(request).release(inode, std::unique_ptr<OpenFile>(&file_of(info)));
    reply(request, {});
  });
}

/// Whose descriptor is closed waits for the answer, also if he is being killed.
void on_flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  answer(request, [&] {
    OpenFile& file = file_of(info);
    file.flushed(file.writes() ? who_closes(fuse_req_ctx(request)->pid) : ClosedBy::program);
    reply(request, {});
  });
}

void on_read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  answer(request, [&] {
    OpenFile& file = file_of(info);
    if (file.descriptor() >= 0) {
      fuse_bufvec from = FUSE_BUFVEC_INIT(size);
      from.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
      from.buf[0].fd = file.descriptor();
      from.buf[0].pos = offset;
      fuse_reply_data(request, &from, FUSE_BUF_SPLICE_MOVE);
      return;
    }
    thread_local ByteVector buffer;
    if (buffer.size() < size) buffer.resize(size);
    const MountResult<size_t> got = file.read(static_cast<uint64_t>(offset), MutableByteSpan(buffer).first(size));
    if (!got.ok()) return reply(request, got.error());
    fuse_reply_buf(request, reinterpret_cast<const char*>(buffer.data()), *got);
  });
}

void on_write(fuse_req_t request, fuse_ino_t, fuse_bufvec* from, off_t offset, fuse_file_info* info) {
  OpenFile& file = file_of(info);
  if (const Errno ready = file.begin_write(); !ready.ok()) return reply(request, ready);
  fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(from));
  to.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  to.buf[0].fd = file.descriptor();
  to.buf[0].pos = offset;
  const size_t wanted = fuse_buf_size(from);
  const ssize_t written = fuse_buf_copy(&to, from, static_cast<fuse_buf_copy_flags>(0));
  const bool in_memory = info->writepage != 0;
  const auto written_bytes = static_cast<uint64_t>(std::max<ssize_t>(written, 0));
  if (written_bytes > 0 && !in_memory) file.note_written(static_cast<uint64_t>(offset), written_bytes);
  if (written_bytes < wanted) file.write_failed(static_cast<uint64_t>(offset) + written_bytes, in_memory);
  if (written < 0) return reply(request, {static_cast<int>(-written)});
  // Of pages, the kernel takes any number of bytes for all.
  if (in_memory && written_bytes < wanted) return reply(request, {ENOSPC});
  fuse_reply_write(request, static_cast<size_t>(written));
}

void on_fsync(fuse_req_t request, fuse_ino_t, int data_only, fuse_file_info* info) {
  answer(request, [&] { reply(request, file_of(info).sync(data_only != 0)); });
}

void on_fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t bytes, fuse_file_info* info) {
  reply(request, file_of(info).allocate(mode, static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes)));
}

void on_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) {
  const MountResult<uint64_t> found = file_of(info).seek(static_cast<uint64_t>(offset), whence);
  if (!found.ok()) return reply(request, found.error());
  fuse_reply_lseek(request, static_cast<off_t>(*found));
}

// Folders

void on_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  answer(request, [&] {
    MountResult<std::vector<ListedName>> names = store_of(request).list(inode);
    if (!names.ok()) return reply(request, names.error());
    auto folder = std::make_unique<OpenFolder>();
    folder->names.push_back({".", inode, S_IFDIR});
    folder->names.push_back({"..", kUnknownInode, S_IFDIR});
    folder->names.insert(folder->names.end(), std::make_move_iterator(names->begin()),
                         std::make_move_iterator(names->end()));
    info->fh = reinterpret_cast<uint64_t>(folder.release());
    if (fuse_reply_open(request, info) == -ENOENT) delete &folder_of(info);
  });
}

void on_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  delete &folder_of(info);
  fuse_reply_err(request, 0);
}

void on_fsyncdir(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info*) {
  answer(request, [&] { reply(request, store_of(request).sync_folder(inode)); });
}

/// Puts what fits of the names from `offset` on into a buffer; `plus`: with what find() says of them.
void read_folder(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* info, bool plus) {
  answer(request, [&] {
    MountedStore& store = store_of(request);
    const std::vector<ListedName>& names = folder_of(info).names;
    std::vector<char> buffer(size);
    size_t used = 0;
    for (auto at = static_cast<size_t>(offset); at < names.size(); ++at) {
      const ListedName& name = names[at];
      fuse_entry_param entry{};
      entry.attr.st_ino = name.inode == 0 ? kUnknownInode : name.inode;
      entry.attr.st_mode = name.type;
      bool found = false;
      if (plus && name.name != "." && name.name != "..") {
        const MountResult<NodeView> view = store.find(inode, name.name);
        found = view.ok();
        if (view.error().number == ENOENT) continue;  // it has gone since
        if (found) entry = entry_param(*view);
      }
      const size_t left = size - used;
      const auto next = static_cast<off_t>(at + 1);
      const size_t needed =
          plus ? fuse_add_direntry_plus(request, buffer.data() + used, left, name.name.c_str(), &entry, next)
               : fuse_add_direntry(request, buffer.data() + used, left, name.name.c_str(), &entry.attr, next);
      if (needed > left) {
        if (found) store.forget(entry.ino, 1);
        break;
      }
      used += needed;
    }
    fuse_reply_buf(request, buffer.data(), used);
  });
}

void on_readdir(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* info) {
  read_folder(request, inode, size, offset, info, false);
}
void on_readdirplus(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* info) {
  read_folder(request, inode, size, offset, info, true);
}

void on_statfs(fuse_req_t request, fuse_ino_t) {
  const MountResult<struct statvfs> disk = store_of(request).disk();
  if (!disk.ok()) return reply(request, disk.error());
  fuse_reply_statfs(request, &*disk);
}

// What `varve seal` asks

void on_ioctl(fuse_req_t request, fuse_ino_t inode, unsigned command, void*, fuse_file_info*, unsigned, const void*,
              size_t, size_t out_size) {
  answer(request, [&] {
    if ((command != kSealRequest && command != kStateRequest) || out_size < sizeof(SealMessage))
      return reply(request, {ENOTTY});
    std::string text;
    Status outcome;
    if (command == kSealRequest) {
      outcome = store_of(request).seal(inode);
    } else {
      const Result<std::string> described = store_of(request).describe(inode);
      if (described.ok()) text = *described;
      outcome = described.status();
    }
    const ByteVector failure = outcome.ok() ? ByteVector() : encode_status(outcome, 1000);
    const ByteSpan content = outcome.ok() ? as_bytes(text) : ByteSpan(failure);
    SealMessage message;
    message.is_failure = outcome.ok() ? 0 : 1;
    message.bytes = static_cast<uint32_t>(std::min(content.size(), sizeof message.content));
    std::memcpy(message.content, content.data(), message.bytes);
    fuse_reply_ioctl(request, 0, &message, sizeof message);
  });
}

fuse_lowlevel_ops make_operations() {
  fuse_lowlevel_ops operations{};
  operations.init = on_init;
  operations.lookup = on_lookup;
  operations.forget = on_forget;
  operations.forget_multi = on_forget_multi;
  operations.getattr = on_getattr;
  operations.setattr = on_setattr;
  operations.readlink = on_readlink;
  operations.mknod = on_mknod;
  operations.mkdir = on_mkdir;
  operations.unlink = on_unlink;
  operations.rmdir = on_rmdir;
  operations.symlink = on_symlink;
  operations.rename = on_rename;
  operations.link = on_link;
  operations.open = on_open;
  operations.create = on_create;
  operations.release = on_release;
  operations.flush = on_flush;
  operations.read = on_read;
  operations.write_buf = on_write;
  operations.fsync = on_fsync;
  operations.fallocate = on_fallocate;
  operations.lseek = on_lseek;
  operations.opendir = on_opendir;
  operations.releasedir = on_releasedir;
  operations.fsyncdir = on_fsyncdir;
  operations.readdir = on_readdir;
  operations.readdirplus = on_readdirplus;
  operations.statfs = on_statfs;
  operations.ioctl = on_ioctl;
  return operations;
}
}  // namespace

const fuse_lowlevel_ops& fuse_operations() {
  static const fuse_lowlevel_ops operations = make_operations();
  return operations;
}

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

class FuseSession final : public FuseMount {
 public:
  explicit FuseSession(const FuseMountOptions& options) : options_(options) {}
  ~FuseSession() override {
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
  auto session = std::make_unique<FuseSession>(options);
  VARVE_TRY(session->start(store));
  return std::unique_ptr<FuseMount>(std::move(session));
}

}  // namespace varve
