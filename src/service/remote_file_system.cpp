#include "service/remote_file_system.h"

#include <algorithm>
#include <utility>

#include "service/remote_reader.h"
#include "service/remote_reply.h"
#include "service/remote_writer.h"

namespace varve {

namespace {
/// A sync of a folder, over as many connections as it takes.
class FolderSync {
 public:
  FolderSync(ServerLink& link, Request request) : link_(link), request_(std::move(request)) {}

  Status attempt(ServerConnection& connection) {
    // Who has asked nobody yet need not give up because of a connection that was dead before.
    VARVE_TRY(connection.ping());
    if (request_.again && connection.server() != server_) {
      // The one that is gone may have failed to write, have been told so, and this one would not hear of it.
      refused_ = Status::io_error("the server was restarted while the folder was made durable", "",
                                  "do again what was being done");
      return {};
    }
    refused_ = link_.with_changes([&](NameChanges& changes) {
      changes_before_ = changes.count();
      return changes.check_sync(request_.path, connection.machine_run());
    });
    if (!refused_.ok()) return {};
    server_ = connection.server();
    Result<Reply> reply = connection.ask(request_);
    request_.again = true;
    VARVE_ASSIGN(reply_, std::move(reply));
    return {};
  }

  /// Of the attempt that went through. `path` is for the message.
  Status outcome(const std::string& path) {
    if (!refused_.ok()) return {refused_.code(), std::string(refused_.message()), path, std::string(refused_.hint())};
    VARVE_TRY(failure_of(reply_, path));
    link_.with_changes([&](NameChanges& changes) { changes.forget_synced(request_.path, changes_before_); });
    return {};
  }

 private:
  ServerLink& link_;
  Request request_;
  UniqueId server_;  ///< that was asked last
  uint64_t changes_before_ = 0;
  Status refused_;
  Reply reply_;
};

class RemoteWatch final : public PowerWatch {
 public:
  RemoteWatch(ServerLink& link, const UniqueId& run) : link_(link), run_(run) {
    link_.with_changes([&](NameChanges& changes) { changes.begin_watch(run_); });
  }
  ~RemoteWatch() override {
    link_.with_changes([&](NameChanges& changes) { changes.end_watch(run_); });
  }
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;

 private:
  ServerLink& link_;
  const UniqueId run_;
};
}  // namespace

Status failure_of(const Reply& reply, const std::string& path) {
  switch (reply.outcome) {
    case Outcome::done: return {};
    case Outcome::failed:
      return {reply.status.code(), std::string(reply.status.message()), path, std::string(reply.status.hint())};
    case Outcome::unknown_handle: return Status::io_error("the server has closed the file", path);
    case Outcome::cannot_tell:
      return Status::io_error("the server was restarted meanwhile, and cannot tell whether this was done", path,
                              "see what is there, and try again");
  }
  return Status::internal("an outcome that there is not", path);
}

Result<std::string> RemoteFileSystem::served(const std::string& path) const {
  if (path == root_) return std::string();
  if (path.starts_with(root_) && path[root_.size()] == '/') return path.substr(root_.size() + 1);
  return Status(StatusCode::permission_denied, "not in the folder that the server serves", path);
}

Result<Reply> RemoteFileSystem::ask_about(Message message, const std::string& path) {
  Request request;
  request.message = message;
  VARVE_ASSIGN(request.path, served(path));
  VARVE_ASSIGN(Reply reply, link_.ask(std::move(request)));
  VARVE_TRY(failure_of(reply, path));
  return reply;
}

Status RemoteFileSystem::change(Message message, const std::string& path) { return ask_about(message, path).status(); }

Result<std::unique_ptr<File>> RemoteFileSystem::open_read(const std::string& path) {
  VARVE_ASSIGN(const Reply reply, ask_about(Message::open, path));
  VARVE_ASSIGN(std::string served_path, served(path));
  return std::unique_ptr<File>(std::make_unique<RemoteReader>(link_, path, std::move(served_path), reply));
}

Result<std::unique_ptr<File>> RemoteFileSystem::create(const std::string& path, CreateOptions options) {
  VARVE_ASSIGN(std::string served_path, served(path));
  return RemoteWriter::create(link_, path, std::move(served_path), options.direct);
}

Status RemoteFileSystem::create_directory(const std::string& path) { return change(Message::create_directory, path); }
Status RemoteFileSystem::remove(const std::string& path) { return change(Message::remove, path); }
Status RemoteFileSystem::remove_directory(const std::string& path) { return change(Message::remove_directory, path); }
Status RemoteFileSystem::touch(const std::string& path) { return change(Message::touch, path); }

Status RemoteFileSystem::sync_directory(const std::string& path) {
  Request request;
  request.message = Message::sync_directory;
  VARVE_ASSIGN(request.path, served(path));
  FolderSync sync(link_, std::move(request));
  VARVE_TRY(link_.with_connection([&](ServerConnection& connection, bool) { return sync.attempt(connection); }));
  return sync.outcome(path);
}

Result<std::unique_ptr<PowerWatch>> RemoteFileSystem::watch_power() {
  UniqueId run;
  const Status asked = link_.with_connection([&](ServerConnection& connection, bool) {
    run = connection.machine_run();
    return connection.ping();  // it may be one of an earlier run, which nobody has used since
  });
  VARVE_TRY(asked);
  return std::unique_ptr<PowerWatch>(std::make_unique<RemoteWatch>(link_, run));
}

Status RemoteFileSystem::rename(const std::string& from, const std::string& to) { return rename(from, to, true); }
Status RemoteFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  return rename(from, to, false);
}

Status RemoteFileSystem::rename(const std::string& from, const std::string& to, bool replace) {
  Request request;
  request.message = Message::rename;
  request.replace = replace;
  VARVE_ASSIGN(request.to, served(to));
  // So that a server that was restarted can tell whether it is this very file that lies at `to`.
  VARVE_ASSIGN(const Reply found, ask_about(Message::stat, from));
  request.identity = found.identity;
  VARVE_ASSIGN(request.path, served(from));
  VARVE_ASSIGN(const Reply reply, link_.ask(std::move(request)));
  const bool taken = reply.outcome == Outcome::failed && reply.status.code() == StatusCode::already_exists;
  return failure_of(reply, taken ? to : from);
}

Result<std::vector<DirectoryEntry>> RemoteFileSystem::list(const std::string& path) {
  Request request;
  request.message = Message::list;
  VARVE_ASSIGN(request.path, served(path));
  std::vector<DirectoryEntry> entries;
  VARVE_ASSIGN(const Reply reply, link_.ask_list(request, entries));
  VARVE_TRY(failure_of(reply, path));
  return entries;
}

Result<FileStatus> RemoteFileSystem::stat(const std::string& path) {
  VARVE_ASSIGN(const Reply reply, ask_about(Message::stat, path));
  return reply.file;
}

Result<uint64_t> RemoteFileSystem::free_bytes(const std::string& path) {
  VARVE_ASSIGN(const Reply reply, ask_about(Message::room, path));
  return reply.free_bytes;
}

Status RemoteChunkLookup::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                               std::vector<ChunkCandidate>& candidates) {
  for (size_t at = 0; at < prefixes.size(); at += kFindPrefixesMax) {
    const size_t count = std::min(prefixes.size() - at, kFindPrefixesMax);
    VARVE_TRY(find_some(prefixes.subspan(at, count), counts.subspan(at, count), candidates));
  }
  return {};
}

Status RemoteChunkLookup::find_some(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                                    std::vector<ChunkCandidate>& candidates) {
  Request request;
  request.message = Message::find;
  request.prefix_count = prefixes.size();
  ByteVector question;
  ByteWriter writer(question);
  for (const uint64_t prefix : prefixes) writer.le64(prefix);
  Buffer answer(prefixes.size() * kFindCandidatesMax * kCandidateBytes);
  VARVE_ASSIGN(const Reply reply, link_.ask(std::move(request), question, answer));
  VARVE_TRY(failure_of(reply, link_.name()));
  const std::byte* at = answer.data();
  for (size_t i = 0; i < prefixes.size(); ++i) {
    counts[i] = static_cast<uint32_t>(reply.counts[i]);
    for (uint32_t k = 0; k < counts[i]; ++k, at += kCandidateBytes) {
      ChunkCandidate candidate;
      std::copy_n(at, candidate.arena.bytes.size(), candidate.arena.bytes.begin());
      candidate.pack = load_le<uint32_t>(at + 16);
      candidate.chunk = load_le<uint32_t>(at + 20);
      candidates.push_back(candidate);
    }
  }
  return {};
}

}  // namespace varve
