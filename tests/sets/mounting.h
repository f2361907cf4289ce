#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mount/mounted_store.h"
#include "sets/folders.h"
#include "sets/saving.h"

namespace varve::test {

/// The lines of a log.
class LogLines {
 public:
  MountLog log = [this](const std::string& line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(line);
  };
  bool has(const std::string& part) const {
    std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct MountSettings {
  std::string boot = "this run";
  double seal_seconds = 0;
  bool may_remove = true;
};

/// A store that is mounted as far as one can without FUSE: a life of the process. `fs` holds both store and spool.
class TestMount {
 public:
  static Result<std::unique_ptr<TestMount>> open(FileSystem& fs, const std::string& store_path,
                                                 const std::string& spool_path, const MountSettings& settings = {}) {
    auto mount = std::make_unique<TestMount>();
    VARVE_ASSIGN(mount->store_, Store::open(fs, store_path));
    SpoolOptions spooling{.store = mount->store_->id(), .boot = settings.boot, .lock_seconds = 0};
    VARVE_ASSIGN(mount->spool_, Spool::open(fs, spool_path, std::move(spooling)));
    mount->commit_.emplace(*mount->store_, *mount->spool_, layout_service(), save_options("", 0), mount->lines.log);
    MountedStoreOptions options;
    options.memory_bytes = 32_MiB;
    options.read_ahead_threads = 1;
    options.seal_seconds = settings.seal_seconds;
    options.may_remove = settings.may_remove;
    options.open_sets.release_seconds = 0.05;
    mount->mounted_.emplace(*mount->store_, mount->spool_.get(), &*mount->commit_, mount->clock, mount->lines.log,
                            options);
    VARVE_TRY(mount->mounted_->take_up_spool());
    return mount;
  }

  MountedStore& operator*() { return *mounted_; }
  MountedStore* operator->() { return &*mounted_; }
  const Store& store() const { return *store_; }

  /// The inode of a path, "" being the root; forgotten at once.
  MountResult<NodeView> look(const std::string& path) {
    NodeView view;
    view.status.st_ino = MountedStore::kRoot;
    for (size_t at = 0; at < path.size();) {
      const size_t slash = std::min(path.find('/', at), path.size());
      const uint64_t folder = view.status.st_ino;
      MOUNT_ASSIGN(view, mounted_->find(folder, path.substr(at, slash - at)));
      mounted_->forget(view.status.st_ino, 1);
      at = slash + 1;
    }
    return mounted_->look(view.status.st_ino);
  }
  uint64_t inode(const std::string& path) {
    const MountResult<NodeView> view = look(path);
    return view.ok() ? view->status.st_ino : 0;
  }

  Errno make_folder(const std::string& path) {
    return mounted_->make_folder(inode(above(path)), base_name(path), 0755).error();
  }
  MountResult<std::unique_ptr<OpenFile>> create(const std::string& path) {
    auto made = mounted_->create(inode(above(path)), base_name(path), O_RDWR, 0644);
    if (!made.ok()) return made.error();
    return std::move(made->second);
  }
  MountResult<std::unique_ptr<OpenFile>> open(const std::string& path, int flags) {
    return mounted_->open(inode(path), flags);
  }
  Errno rename(const std::string& path, const std::string& to) {
    return mounted_->rename(inode(above(path)), base_name(path), inode(above(to)), base_name(to), 0);
  }
  Errno remove(const std::string& path) { return mounted_->remove(inode(above(path)), base_name(path), 0); }
  Errno remove_folder(const std::string& path) {
    return mounted_->remove(inode(above(path)), base_name(path), AT_REMOVEDIR);
  }

  static Errno write(OpenFile& file, std::string_view text) {
    MOUNT_TRY(file.begin_write());
    return {::pwrite(file.descriptor(), text.data(), text.size(), 0) < 0 ? errno : 0};
  }
  Errno write_file(const std::string& path, std::string_view text) {
    MOUNT_ASSIGN(const std::unique_ptr<OpenFile> file, create(path));
    return write(*file, text);
  }
  MountResult<std::string> read_file(const std::string& path) {
    MOUNT_ASSIGN(const std::unique_ptr<OpenFile> file, open(path, O_RDONLY));
    std::string text(100'000, '\0');
    MOUNT_ASSIGN(const size_t got,
                 file->read(0, MutableByteSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
    text.resize(got);
    return text;
  }
  std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> names;
    const MountResult<std::vector<ListedName>> listed = mounted_->list(inode(path));
    if (!listed.ok()) return {"errno " + std::to_string(listed.error().number)};
    for (const ListedName& name : *listed) names.push_back(name.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  /// All files below a folder with their bytes.
  std::map<std::string, std::string> files(const std::string& path) {
    std::map<std::string, std::string> found;
    for (const std::string& name : names(path)) {
      const std::string below = path + "/" + name;
      const MountResult<NodeView> view = look(below);
      if (!view.ok()) {
        found[name] = "errno " + std::to_string(view.error().number);
      } else if (S_ISDIR(view->status.st_mode)) {
        for (const auto& [inner, text] : files(below)) found[name + "/" + inner] = text;
      } else if (S_ISLNK(view->status.st_mode)) {
        found[name] = "-> " + *mounted_->read_link(view->status.st_ino);
      } else {
        const MountResult<std::string> text = read_file(below);
        found[name] = text.ok() ? *text : "errno " + std::to_string(text.error().number);
      }
    }
    return found;
  }

  ManualClock clock;
  LogLines lines;

 private:
  static std::string above(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<Spool> spool_;
  std::optional<SetCommit> commit_;
  std::optional<MountedStore> mounted_;
};

}  // namespace varve::test
