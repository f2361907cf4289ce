#include "service/open_files.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

namespace varve {

namespace {
constexpr size_t kFilesMax = 2048;  // of one client
}

Reply OpenFiles::unknown() {
  Reply reply;
  reply.outcome = Outcome::unknown_handle;
  return reply;
}

void OpenFiles::begin_connection(const UniqueId& client) {
  const std::lock_guard lock(mutex_);
  ++clients_[client].connections;
}

void OpenFiles::end_connection(const UniqueId& client) {
  Client ended;  // closes its files after the lock
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end() || --found->second.connections > 0) return;
  ended = std::move(found->second);
  clients_.erase(found);
}

Result<uint64_t> OpenFiles::add(const UniqueId& client, std::unique_ptr<File> file, int descriptor,
                                const UniqueId* writer) {
  const std::lock_guard lock(mutex_);
  Client& owner = clients_[client];
  if (owner.files.size() >= kFilesMax) return Status::resource_limit("this client has too many files open");
  const uint64_t handle = next_handle_++;
  owner.files.emplace(handle, std::make_shared<OpenFile>(std::move(file), descriptor, writer != nullptr));
  if (writer != nullptr) owner.writers[*writer] = handle;
  return handle;
}

std::shared_ptr<OpenFiles::OpenFile> OpenFiles::find(const UniqueId& client, uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return nullptr;
  const auto found = owner->second.files.find(handle);
  return found == owner->second.files.end() ? nullptr : found->second;
}

void OpenFiles::close(const UniqueId& client, uint64_t handle) {
  std::shared_ptr<OpenFile> closed;
  const std::lock_guard lock(mutex_);
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return;
  const auto found = owner->second.files.find(handle);
  if (found == owner->second.files.end()) return;
  closed = std::move(found->second);
  owner->second.files.erase(found);
  std::erase_if(owner->second.writers, [&](const auto& writer) { return writer.second == handle; });
}

void OpenFiles::take_over(const UniqueId& client, const UniqueId& writer) {
  std::shared_ptr<OpenFile> old;
  {
    const std::lock_guard lock(mutex_);
    const auto owner = clients_.find(client);
    if (owner == clients_.end()) return;
    const auto found = owner->second.writers.find(writer);
    if (found == owner->second.writers.end()) return;
    const auto file = owner->second.files.find(found->second);
    if (file != owner->second.files.end()) {
      old = std::move(file->second);
      owner->second.files.erase(file);
    }
    owner->second.writers.erase(found);
  }
  if (old) old->revoke();
}

std::vector<std::shared_ptr<OpenFiles::OpenFile>> OpenFiles::writers_of(const FileIdentity& file) {
  std::vector<std::shared_ptr<OpenFile>> writers;
  for (const auto& [id, client] : clients_) {
    for (const auto& [handle, open] : client.files) {
      struct stat status {};
      if (!open->written() || ::fstat(open->descriptor(), &status) != 0) continue;
      const uint64_t device = uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev);
      if (device == file.device && status.st_ino == file.inode) writers.push_back(open);
    }
  }
  return writers;
}

void OpenFiles::end_writing(const FileIdentity& file) {
  std::vector<std::shared_ptr<OpenFile>> writers;
  {
    const std::lock_guard lock(mutex_);
    writers = writers_of(file);
  }
  for (const auto& writer : writers) writer->revoke();
}

bool OpenFiles::is_being_written(const FileIdentity& file) {
  const std::lock_guard lock(mutex_);
  return !writers_of(file).empty();
}

}  // namespace varve
