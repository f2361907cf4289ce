#include "core/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <unordered_map>

namespace varve {

namespace {

/// Far more than any test needs: a wild offset must not eat the machine's memory.
constexpr uint64_t kMemoryFileBytesMax = 8_GiB;

/// A change of a file's contents that is not durable yet: `data` written at `offset`, and the size it left behind.
struct ContentChange {
  uint64_t offset = 0;
  ByteVector data;
  uint64_t size_after = 0;
  bool truncates = false;  ///< cuts the file at size_after, or extends it with zeros
};

void write_into(ByteVector& contents, uint64_t offset, ByteSpan data) {
  if (data.empty()) return;
  if (contents.size() < offset + data.size()) contents.resize(offset + data.size());
  std::copy(data.begin(), data.end(), contents.begin() + static_cast<ptrdiff_t>(offset));
}

/// Zeroes what lies beyond `size` but keeps the length: the buffer stands for the disk's blocks while a crash is played
/// through.
void cut_into(ByteVector& contents, uint64_t size) {
  if (size < contents.size()) std::fill(contents.begin() + static_cast<ptrdiff_t>(size), contents.end(), std::byte{0});
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> names;
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    std::string name = path.substr(at, slash - at);
    if (!name.empty() && name != ".") names.push_back(std::move(name));
    at = slash + 1;
  }
  return names;
}

/// How much of what was not durable a power loss spares: a probability for all of it, so that nearly-all and
/// nearly-nothing come too.
class Survival {
 public:
  explicit Survival(uint64_t seed) : random_(seed) { redraw(); }
  void redraw() { quarters_ = random_() % 5; }
  bool survives() { return random_() % 4 < quarters_; }
  uint64_t pick(uint64_t count) { return random_() % count; }

 private:
  std::mt19937_64 random_;
  uint64_t quarters_ = 0;
};

}  // namespace

struct MemoryNode {
  explicit MemoryNode(bool directory) : is_directory(directory) {}

  const bool is_directory;
  int64_t modified_ns = 0;
  // Of a file:
  ByteVector contents;                  ///< as read by everyone
  ByteVector durable;                   ///< as on the disk
  std::vector<ContentChange> unsynced;  ///< in the order in which they happened
  // Of a directory:
  std::map<std::string, std::shared_ptr<MemoryNode>> names;
  std::map<std::string, std::shared_ptr<MemoryNode>> durable_names;

  void sync() {
    for (const ContentChange& change : unsynced) {
      if (change.truncates) {
        durable.resize(change.size_after);
      } else {
        write_into(durable, change.offset, change.data);
      }
    }
    unsynced.clear();
  }

  /// Leaves a random part of the unsynced changes: each sector of each write, each truncation, and the size on their
  /// own.
  void tear(Survival& survival) {
    std::vector<uint64_t> sizes = {durable.size()};
    survival.redraw();
    for (const ContentChange& change : unsynced) {
      sizes.push_back(change.size_after);
      if (change.truncates) {
        if (survival.survives()) cut_into(durable, change.size_after);
        continue;
      }
      ByteSpan left = change.data;
      for (uint64_t offset = change.offset; !left.empty();) {
        const ByteSpan sector = left.first(std::min<size_t>(left.size(), kSectorBytes - offset % kSectorBytes));
        if (survival.survives()) write_into(durable, offset, sector);
        offset += sector.size();
        left = left.subspan(sector.size());
      }
    }
    durable.resize(sizes[survival.pick(sizes.size())]);
    unsynced.clear();
  }
};

namespace {

using NodePointer = std::shared_ptr<MemoryNode>;

/// Null if there is nothing. Below, too: from `root` on, by a caller that holds the file system's lock.
NodePointer find_node(const NodePointer& root, const std::string& path) {
  NodePointer node = root;
  for (const std::string& name : split_path(path)) {
    auto entry = node->names.find(name);
    if (entry == node->names.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

Result<NodePointer> find_file(const NodePointer& root, const std::string& path, const char* operation) {
  NodePointer node = find_node(root, path);
  if (!node) return Status::from_errno(ENOENT, operation, path);
  if (node->is_directory) return Status::invalid_argument("not a regular file", path);
  return node;
}

Result<NodePointer> find_directory(const NodePointer& root, const std::string& path, const char* operation) {
  NodePointer node = find_node(root, path);
  if (!node) return Status::from_errno(ENOENT, operation, path);
  if (!node->is_directory) return Status::from_errno(ENOTDIR, operation, path);
  return node;
}

/// A name in a directory, whether or not there is something of that name.
struct NamePlace {
  NodePointer directory;
  std::string name;
};

Result<NamePlace> find_place(const NodePointer& root, const std::string& path, const char* operation) {
  std::vector<std::string> names = split_path(path);
  if (names.empty()) return Status::from_errno(EEXIST, operation, path);
  VARVE_ASSIGN(NodePointer directory, find_directory(root, parent_path(path), operation));
  return NamePlace{std::move(directory), std::move(names.back())};
}

}  // namespace

void MemoryFileSystem::NameChange::apply_to_durable() const {
  if (from) from->durable_names.erase(from_name);
  if (to) to->durable_names[to_name] = node;
}

class MemoryFileSystem::OpenFile final : public File, public LossyFile {
 public:
  OpenFile(MemoryFileSystem& file_system, NodePointer node, std::string path, bool writable, CreateOptions options)
      : file_system_(file_system),
        node_(std::move(node)),
        path_(std::move(path)),
        writable_(writable),
        options_(options) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    const MutexLock lock(file_system_.mutex_);
    const ByteVector& contents = node_->contents;
    if (offset >= contents.size()) return size_t{0};
    const size_t count = std::min<size_t>(into.size(), contents.size() - offset);
    std::copy_n(contents.begin() + static_cast<ptrdiff_t>(offset), count, into.begin());
    return count;
  }

  Status write_at(uint64_t offset, ByteSpan from) override {
    const MutexLock lock(file_system_.mutex_);
    if (!writable_) return Status::from_errno(EBADF, "write to the file", path_);
    if (options_.direct && (offset % kDirectAlignment != 0 || from.size() % kDirectAlignment != 0 ||
                            reinterpret_cast<uintptr_t>(from.data()) % kDirectAlignment != 0)) {
      return Status::invalid_argument("a direct write is not aligned", path_);
    }
    if (offset > kMemoryFileBytesMax || from.size() > kMemoryFileBytesMax - offset) {
      return Status::from_errno(EFBIG, "write to the file", path_);
    }
    if (from.empty()) return {};
    write_into(node_->contents, offset, from);
    node_->unsynced.push_back({.offset = offset,
                               .data = ByteVector(from.begin(), from.end()),
                               .size_after = node_->contents.size(),
                               .truncates = false});
    node_->modified_ns = file_system_.tick();
    return {};
  }

  Status truncate(uint64_t bytes) override {
    const MutexLock lock(file_system_.mutex_);
    if (!writable_) return Status::from_errno(EBADF, "set the size of the file", path_);
    if (bytes > kMemoryFileBytesMax) return Status::from_errno(EFBIG, "set the size of the file", path_);
    node_->contents.resize(bytes);
    node_->unsynced.push_back({.offset = 0, .data = {}, .size_after = bytes, .truncates = true});
    node_->modified_ns = file_system_.tick();
    return {};
  }

  Status sync() override {
    const MutexLock lock(file_system_.mutex_);
    node_->sync();
    return {};
  }

  Result<uint64_t> size() override {
    const MutexLock lock(file_system_.mutex_);
    return uint64_t{node_->contents.size()};
  }

  void lose_unsynced() override {
    const MutexLock lock(file_system_.mutex_);
    node_->unsynced.clear();
  }

 private:
  MemoryFileSystem& file_system_;
  const NodePointer node_;
  const std::string path_;
  const bool writable_;
  const CreateOptions options_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<MemoryNode>(true)) {}
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::change_names(NameChange change) {
  if (change.from) {
    change.from->names.erase(change.from_name);
    change.from->modified_ns = tick();
  }
  if (change.to) {
    change.to->names[change.to_name] = change.node;
    change.to->modified_ns = tick();
  }
  unsynced_names_.push_back(std::move(change));
}

Result<std::unique_ptr<File>> MemoryFileSystem::open_read(const std::string& path) {
  const MutexLock lock(mutex_);
  VARVE_ASSIGN(NodePointer node, find_file(root_, path, "open the file"));
  return std::unique_ptr<File>(std::make_unique<OpenFile>(*this, node, path, false, CreateOptions{}));
}

Result<std::unique_ptr<File>> MemoryFileSystem::create(const std::string& path, CreateOptions options) {
  const MutexLock lock(mutex_);
  VARVE_ASSIGN(NamePlace place, find_place(root_, path, "create the file"));
  if (place.directory->names.count(place.name) != 0) return Status::from_errno(EEXIST, "create the file", path);
  auto node = std::make_shared<MemoryNode>(false);
  node->modified_ns = tick();
  change_names({.from = {}, .to = place.directory, .node = node, .from_name = {}, .to_name = place.name});
  return std::unique_ptr<File>(std::make_unique<OpenFile>(*this, node, path, true, options));
}

Status MemoryFileSystem::create_directory(const std::string& path) {
  const MutexLock lock(mutex_);
  if (NodePointer node = find_node(root_, path)) {
    return node->is_directory ? Status() : Status::from_errno(EEXIST, "create the directory", path);
  }
  VARVE_ASSIGN(NamePlace place, find_place(root_, path, "create the directory"));
  auto node = std::make_shared<MemoryNode>(true);
  node->modified_ns = tick();
  change_names({.from = {}, .to = place.directory, .node = node, .from_name = {}, .to_name = place.name});
  return {};
}

Status MemoryFileSystem::rename(const std::string& from, const std::string& to) { return rename_file(from, to, true); }

Status MemoryFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  return rename_file(from, to, false);
}

Status MemoryFileSystem::rename_file(const std::string& from, const std::string& to, bool replace) {
  const MutexLock lock(mutex_);
  const std::string operation = "rename the file to " + to;
  VARVE_ASSIGN(NodePointer node, find_file(root_, from, operation.c_str()));
  VARVE_ASSIGN(NamePlace source, find_place(root_, from, operation.c_str()));
  VARVE_ASSIGN(NamePlace target, find_place(root_, to, operation.c_str()));
  auto existing = target.directory->names.find(target.name);
  if (existing != target.directory->names.end()) {
    if (!replace) return Status::from_errno(EEXIST, operation, to);
    if (existing->second->is_directory) return Status::from_errno(EISDIR, operation, from);
    if (existing->second == node) return {};
  }
  change_names({.from = source.directory,
                .to = target.directory,
                .node = node,
                .from_name = source.name,
                .to_name = target.name});
  return {};
}

Status MemoryFileSystem::remove(const std::string& path) { return remove_name(path, false); }
Status MemoryFileSystem::remove_directory(const std::string& path) { return remove_name(path, true); }

Status MemoryFileSystem::remove_name(const std::string& path, bool directory) {
  const MutexLock lock(mutex_);
  const char* operation = directory ? "remove the directory" : "remove the file";
  NodePointer node = find_node(root_, path);
  if (!node) return Status::from_errno(ENOENT, operation, path);
  if (node == root_) return Status::from_errno(EBUSY, operation, path);
  if (directory != node->is_directory) return Status::from_errno(directory ? ENOTDIR : EISDIR, operation, path);
  if (!node->names.empty()) return Status::from_errno(ENOTEMPTY, operation, path);
  VARVE_ASSIGN(NamePlace place, find_place(root_, path, operation));
  change_names({.from = place.directory, .to = {}, .node = {}, .from_name = place.name, .to_name = {}});
  return {};
}

Status MemoryFileSystem::sync_directory(const std::string& path) {
  const MutexLock lock(mutex_);
  VARVE_ASSIGN(NodePointer directory, find_directory(root_, path, "make the directory durable"));
  // A rename between two directories drags along what came before it in both, or its file could turn up twice or never.
  std::set<NodePointer> concerned = {directory};
  std::vector<NameChange> durable, rest;
  for (auto change = unsynced_names_.rbegin(); change != unsynced_names_.rend(); ++change) {
    if (concerned.count(change->from) != 0 || concerned.count(change->to) != 0) {
      if (change->from) concerned.insert(change->from);
      if (change->to) concerned.insert(change->to);
      durable.push_back(std::move(*change));
    } else {
      rest.push_back(std::move(*change));
    }
  }
  for (auto change = durable.rbegin(); change != durable.rend(); ++change) change->apply_to_durable();
  unsynced_names_.assign(std::make_move_iterator(rest.rbegin()), std::make_move_iterator(rest.rend()));
  return {};
}

Status MemoryFileSystem::touch(const std::string& path) {
  const MutexLock lock(mutex_);
  NodePointer node = find_node(root_, path);
  if (!node) return Status::from_errno(ENOENT, "set the modification time of the file", path);
  node->modified_ns = tick();
  return {};
}

Result<std::vector<DirectoryEntry>> MemoryFileSystem::list(const std::string& path) {
  const MutexLock lock(mutex_);
  VARVE_ASSIGN(NodePointer directory, find_directory(root_, path, "open the directory"));
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, node] : directory->names) entries.push_back({name, node->is_directory});
  return entries;
}

Result<FileStatus> MemoryFileSystem::stat(const std::string& path) {
  const MutexLock lock(mutex_);
  NodePointer node = find_node(root_, path);
  if (!node) return Status::from_errno(ENOENT, "get the status of the file", path);
  return FileStatus{.bytes = node->contents.size(),
                    .allocated_bytes = (node->contents.size() + kSectorBytes - 1) / kSectorBytes * kSectorBytes,
                    .modified_ns = node->modified_ns,
                    .is_directory = node->is_directory};
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::after_crash(CrashPolicy policy) const {
  const MutexLock lock(mutex_);
  std::unordered_map<const MemoryNode*, NodePointer> copies;
  const auto copy_of = [&](const auto& self, const NodePointer& node) -> NodePointer {
    if (!node) return nullptr;
    if (auto known = copies.find(node.get()); known != copies.end()) return known->second;
    auto copy = std::make_shared<MemoryNode>(*node);
    copies.emplace(node.get(), copy);
    for (auto& [name, child] : copy->names) child = self(self, child);
    for (auto& [name, child] : copy->durable_names) child = self(self, child);
    return copy;
  };
  auto crashed = std::make_unique<MemoryFileSystem>();
  const MutexLock crashed_lock(crashed->mutex_);
  crashed->clock_ = clock_;
  crashed->root_ = copy_of(copy_of, root_);
  crashed->unsynced_names_ = unsynced_names_;
  for (NameChange& change : crashed->unsynced_names_) {
    change.from = copy_of(copy_of, change.from);
    change.to = copy_of(copy_of, change.to);
    change.node = copy_of(copy_of, change.node);
  }
  if (policy.kind != CrashPolicy::Kind::keep_all) crashed->lose_power(policy);
  return crashed;
}

void MemoryFileSystem::lose_power(const CrashPolicy& policy) {
  const bool torn = policy.kind == CrashPolicy::Kind::torn;
  Survival survival(policy.seed);
  for (const NameChange& change : unsynced_names_) {
    if (torn && survival.survives()) change.apply_to_durable();
  }
  unsynced_names_.clear();
  // Depth first over what the disk still names; a node may have two names when only one half of its past survived.
  std::set<const MemoryNode*> seen;
  const auto settle = [&](const auto& self, MemoryNode& node) -> void {
    if (!seen.insert(&node).second) return;
    if (torn) node.tear(survival);
    node.unsynced.clear();
    node.contents = node.durable;
    node.names = node.durable_names;
    for (const auto& [name, child] : node.names) self(self, *child);
  };
  settle(settle, *root_);
}

}  // namespace varve
