#include "service/remote_file_system.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "backend/put_aside.h"
#include "core/posix_file_system.h"

namespace varve {

namespace {
/// Of one request: what is read while the last piece travels, and is still in the cache when it is checked.
constexpr size_t kReadPieceBytes = 512_KiB;
constexpr size_t kPiecesAhead = 4;
static_assert(kReadPieceBytes <= kWireDataBytesMax && kReadPieceBytes % kDirectAlignment == 0);
/// How often in a row a file is opened again in vain. A server that is restarted knows it the first time; a connection
/// that is cut time and again before as much as one piece has passed may take many, and is worth them.
constexpr int kReopenedMax = 100;

Status opened_in_vain(const std::string& path, const std::string& why) {
  return Status::io_error(fmt::format("the file was opened again {} times in a row, in vain: {}", kReopenedMax, why),
                          path, "see whether the server ends again and again");
}
}  // namespace

Result<Reply<ByteCount>> read_ahead(ServerConnection& connection, uint64_t handle, uint64_t offset,
                                    MutableByteSpan into) {
  std::deque<MutableByteSpan> asked;  // the pieces
  Reply<ByteCount> outcome;
  size_t sent = 0;
  bool ended = false;  // the file has, or it has failed
  while (true) {
    const bool wants_more = sent < into.size() && !ended;
    if (wants_more && asked.size() < kPiecesAhead) {
      const MutableByteSpan piece = into.subspan(sent, std::min(kReadPieceBytes, into.size() - sent));
      VARVE_TRY(connection.send(ReadRequest{handle, {{offset + sent, piece.size()}}}));
      asked.push_back(piece);
      sent += piece.size();
      continue;
    }
    // All that was asked for is taken from the connection, whatever the first answer was.
    if (asked.empty()) break;
    const MutableByteSpan piece = asked.front();
    asked.pop_front();
    size_t got = 0;
    VARVE_ASSIGN(const ReplyTo<ReadRequest> reply, connection.receive<ReadRequest>(piece, got));
    if (ended) continue;
    if (reply.outcome == Outcome::done) {
      if (reply.fields.counts != std::vector<uint64_t>{got})
        return Status::corrupt("the server sent other bytes than it says");
      outcome.fields.bytes += got;
      ended = got < piece.size();
      continue;
    }
    ended = true;
    outcome = Reply<ByteCount>(ReplyHead(reply));
  }
  return outcome;
}

RemoteReader::RemoteReader(ServerLink& link, std::string path, std::string served_path, const OpenedFile& opened)
    : link_(link),
      path_(std::move(path)),
      served_path_(std::move(served_path)),
      identity_(opened.identity),
      bytes_(opened.bytes),
      attached_(attached_file(opened, path_, false)),
      handle_(opened.handle) {}

RemoteReader::~RemoteReader() {
  // Not worth waiting for a server that is gone: it closes the files of clients that have ended.
  std::unique_ptr<ServerConnection> connection = link_.take_idle();
  if (!connection) return;
  if (connection->ask(CloseRequest{handle()}).ok()) link_.give_back(std::move(connection));
}

uint64_t RemoteReader::handle() {
  const MutexLock lock(mutex_);
  return handle_;
}

Status RemoteReader::reopen(uint64_t lost) {
  const MutexLock lock(mutex_);
  if (handle_ != lost) return {};
  VARVE_ASSIGN(const OpenedFile opened, fields_of(link_.ask(OpenRequest{served_path_}), path_));
  if (opened.identity != identity_)
    return Status::not_found("the file was removed while the server was away, and another one has its name", path_);
  handle_ = opened.handle;
  return {};
}

Result<size_t> RemoteReader::read_at(uint64_t offset, MutableByteSpan into) {
  if (attached_) return attached_->read_at(offset, into);
  for (int reopened = 0;; ++reopened) {
    const uint64_t used = handle();
    Reply<ByteCount> reply;
    VARVE_TRY(link_.with_connection([&](ServerConnection& connection, bool) -> Status {
      VARVE_ASSIGN(reply, read_ahead(connection, used, offset, into));
      return {};
    }));
    if (reply.outcome != Outcome::unknown_handle) {
      VARVE_TRY(failure_of(reply, path_));
      return reply.fields.bytes;
    }
    if (reopened == kReopenedMax) return opened_in_vain(path_, "the server does not know it");
    VARVE_TRY(reopen(used));
  }
}

Status RemoteReader::write_at(uint64_t, ByteSpan) {
  return Status::io_error("cannot write to the file: it was opened for reading", path_);
}
Status RemoteReader::truncate(uint64_t) {
  return Status::io_error("cannot set the size of the file: it was opened for reading", path_);
}

namespace {
constexpr size_t kWritePieceBytes = kWireDataBytesMax;
/// What is written ahead: enough to keep the server's disk busy while the next piece travels.
constexpr size_t kAheadBytes = 4_MiB;

bool is_aligned(uint64_t offset, ByteSpan from) {
  return offset % kDirectAlignment == 0 && from.size() % kDirectAlignment == 0 &&
         reinterpret_cast<uintptr_t>(from.data()) % kDirectAlignment == 0;
}

Status unknown_to_server() { return Status::io_error("the server was restarted"); }
}  // namespace

Result<std::unique_ptr<File>> RemoteWriter::create(ServerLink& link, std::string path, std::string served_path,
                                                   bool direct) {
  std::unique_ptr<RemoteWriter> file(new RemoteWriter(link, std::move(path), std::move(served_path), direct));
  VARVE_ASSIGN(const OpenedFile created, file->start());
  // The server's own handle is closed with `file`.
  if (std::unique_ptr<File> attached = attached_file(created, file->path_, direct)) return attached;
  return std::unique_ptr<File>(std::move(file));
}

Result<OpenedFile> RemoteWriter::start() {
  const MutexLock lock(mutex_);
  VARVE_ASSIGN(token_, UniqueId::random());
  const CreateRequest request{token_, served_path_, direct_};
  Reply<OpenedFile> reply;
  std::unique_ptr<ServerConnection> answered;
  bool again = false;
  VARVE_TRY(link_.repeat([&]() -> Status {
    VARVE_ASSIGN(std::unique_ptr<ServerConnection> connection, link_.take_own());
    VARVE_ASSIGN(reply, connection->ask(request, {.again = std::exchange(again, true)}));
    answered = std::move(connection);
    return {};
  }));
  connection_ = std::move(answered);
  boot_ = connection_->boot();
  if (reply.outcome == Outcome::done) link_.note_changes(request, connection_->machine_run());
  const Status made = failure_of(reply, path_);
  if (!made.ok()) {
    link_.give_back(std::move(connection_));
    return made;
  }
  handle_ = reply.fields.handle;
  identity_ = reply.fields.identity;
  return reply.fields;
}

RemoteWriter::~RemoteWriter() {
  const MutexLock lock(mutex_);
  if (lost_.ok()) settle(0).ignore("a caller who wants to know syncs");
  if (!connection_ || !pending_.empty()) return;  // the server closes the file with the connection
  if (connection_->ask(CloseRequest{handle_}).ok()) link_.give_back(std::move(connection_));
}

Status RemoteWriter::give_up(const Status& why) {
  if (lost_.ok()) lost_ = why;
  connection_.reset();
  pending_.clear();
  pending_bytes_ = 0;
  return lost_;
}

Status RemoteWriter::write_at(uint64_t offset, ByteSpan from) {
  const MutexLock lock(mutex_);
  VARVE_TRY(lost_);
  if (direct_ && !is_aligned(offset, from)) return Status::invalid_argument("a direct write is not aligned", path_);
  while (!from.empty()) {
    const ByteSpan piece = from.first(std::min(from.size(), kWritePieceBytes));
    VARVE_TRY(write_piece(offset, piece));
    offset += piece.size();
    from = from.subspan(piece.size());
  }
  return {};
}

Status RemoteWriter::write_piece(uint64_t offset, ByteSpan piece) {
  if (direct_) VARVE_TRY(settle(kAheadBytes - piece.size()));
  Pending& pending = pending_.emplace_back();
  pending.request = {handle_, offset};
  pending.data = piece;
  if (direct_) {
    if (idle_copies_.empty()) idle_copies_.emplace_back(kWritePieceBytes);
    pending.copy = std::move(idle_copies_.back());
    idle_copies_.pop_back();
    std::memcpy(pending.copy.data(), piece.data(), piece.size());
    pending.data = ByteSpan(pending.copy).first(piece.size());
  }
  pending_bytes_ += piece.size();
  const Status sent = connection_->send(pending.request, {.data = pending.data});
  if (!sent.ok()) VARVE_TRY(resume(sent));
  return direct_ ? Status() : settle(0);
}

Status RemoteWriter::settle(size_t bytes_max) {
  while (pending_bytes_ > bytes_max) VARVE_TRY(take_answer());
  return lost_;
}

Status RemoteWriter::take_answer() {
  size_t data_bytes = 0;
  const auto reply = connection_->receive<WriteRequest>({}, data_bytes);
  if (!reply.ok()) return resume(reply.status());
  if (reply->outcome == Outcome::unknown_handle) return resume(unknown_to_server());
  resumed_count_ = 0;
  const Status written = failure_of(*reply, path_);
  if (!written.ok() && direct_) return give_up(written);  // of bytes that the caller takes for written
  pending_bytes_ -= pending_.front().data.size();
  if (direct_) idle_copies_.push_back(std::move(pending_.front().copy));
  pending_.pop_front();
  return written;
}

Status RemoteWriter::resume(const Status& failure) {
  if (++resumed_count_ > kReopenedMax) return give_up(opened_in_vain(path_, failure.to_string()));
  auto act = [this]() VARVE_REQUIRES(mutex_) {
    connection_.reset();
    const Status resumed = try_to_resume();
    return lost_.ok() ? resumed : Status();  // what is lost need not be tried again
  };
  const Status resumed = link_.repeat(act, failure);
  return resumed.ok() ? lost_ : give_up(resumed);
}

Status RemoteWriter::try_to_resume() {
  VARVE_ASSIGN(std::unique_ptr<ServerConnection> connection, link_.take_own());
  if (connection->boot() != boot_ || boot_ == UniqueId{}) {
    return give_up(Status::io_error("the server's machine was restarted: what was not synced may be lost", path_,
                                    "write the file anew"));
  }
  VARVE_ASSIGN(const Reply<OpenedFile> reply, connection->ask(ResumeRequest{token_, served_path_, direct_, identity_}));
  if (const Status resumed = failure_of(reply, path_); !resumed.ok()) return give_up(resumed);
  handle_ = reply.fields.handle;
  for (Pending& pending : pending_) {
    pending.request.handle = handle_;
    VARVE_TRY(connection->send(pending.request, {.again = true, .data = pending.data}));
  }
  connection_ = std::move(connection);
  return {};
}

template <class Message, class Act>
Result<ReplyTo<Message>> RemoteWriter::until_answered(const Act& act) {
  VARVE_TRY(lost_);
  VARVE_TRY(settle(0));
  for (bool again = false;; again = true) {
    Result<ReplyTo<Message>> reply = act(again);
    const bool unknown = reply.ok() && reply->outcome == Outcome::unknown_handle;
    if (reply.ok() && !unknown) {
      resumed_count_ = 0;
      return reply;
    }
    VARVE_TRY(resume(unknown ? unknown_to_server() : reply.status()));
  }
}

Status RemoteWriter::truncate(uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto reply = until_answered<TruncateRequest>([&](bool again) VARVE_REQUIRES(mutex_) {
    return connection_->ask(TruncateRequest{handle_, bytes}, {.again = again});
  });
  return fields_of(reply, path_).status();
}

Status RemoteWriter::sync() {
  const MutexLock lock(mutex_);
  VARVE_TRY(lost_);
  VARVE_TRY(settle(0));
  const auto reply = connection_->ask(SyncRequest{handle_});
  // A sync whose outcome nobody knows has failed, and is not tried again: the system may have dropped what it could not
  // write, and would call the next one a success.
  if (!reply.ok()) {
    return give_up(
        Status::io_error("the server went away while the file was made durable: " + reply.status().to_string(), path_,
                         "write the file anew"));
  }
  if (reply->outcome == Outcome::unknown_handle) {
    // It was not carried out: the connection is good, but the server has never known the file by this number.
    return give_up(
        Status::io_error("the server was restarted before the file was made durable", path_, "write the file anew"));
  }
  const Status synced = failure_of(*reply, path_);
  return synced.ok() ? synced : give_up(synced);
}

Result<size_t> RemoteWriter::read_at(uint64_t offset, MutableByteSpan into) {
  const MutexLock lock(mutex_);
  // Several requests, whose replies are told as one that counts bytes.
  const auto reply = until_answered<SizeRequest>(
      [&](bool) VARVE_REQUIRES(mutex_) { return read_ahead(*connection_, handle_, offset, into); });
  VARVE_ASSIGN(const ByteCount got, fields_of(reply, path_));
  return got.bytes;
}

Result<uint64_t> RemoteWriter::size() {
  const MutexLock lock(mutex_);
  const auto reply = until_answered<SizeRequest>(
      [&](bool again) VARVE_REQUIRES(mutex_) { return connection_->ask(SizeRequest{handle_}, {.again = again}); });
  VARVE_ASSIGN(const ByteCount size, fields_of(reply, path_));
  return size.bytes;
}

std::unique_ptr<File> attached_file(const OpenedFile& opened, const std::string& path, bool direct) {
  if (!opened.descriptor || !opened.descriptor->valid()) return nullptr;
  // A server that is not trusted might send anything that can be open.
  struct stat status {};
  const bool is_it = ::fstat(opened.descriptor->get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     (uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev)) == opened.identity.device &&
                     status.st_ino == opened.identity.inode;
  if (!is_it) return nullptr;
  return make_posix_file(path, std::move(*opened.descriptor), direct);
}

namespace {
/// Which server was asked, for requests that another run of it cannot answer: it does not know what this one did.
class AskedServer {
 public:
  /// Whether another one was asked before.
  Result<bool> has_changed(ServerConnection& connection) const {
    // Who has asked nobody yet need not give up because of a connection that was dead before.
    VARVE_TRY(connection.ping());
    return again_ && connection.server() != server_;
  }
  /// For the request that is sent to it now.
  AskOptions options_for(const ServerConnection& connection) {
    server_ = connection.server();
    return {.again = std::exchange(again_, true)};
  }

 private:
  bool again_ = false;
  UniqueId server_;  ///< that was asked last
};

/// A sync of a folder, over as many connections as it takes.
class FolderSync {
 public:
  FolderSync(ServerLink& link, std::string path) : link_(link), request_{std::move(path)} {}

  Status attempt(ServerConnection& connection) {
    VARVE_ASSIGN(const bool has_changed, asked_.has_changed(connection));
    if (has_changed) {
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
    VARVE_ASSIGN(reply_, connection.ask(request_, asked_.options_for(connection)));
    return {};
  }

  /// Of the attempt that went through. `path` is for the message.
  Status outcome(const std::string& path) {
    if (!refused_.ok()) return refused_.with_subject(path);
    VARVE_TRY(failure_of(reply_, path));
    link_.with_changes([&](NameChanges& changes) { changes.forget_synced(request_.path, changes_before_); });
    return {};
  }

 private:
  ServerLink& link_;
  const SyncDirectoryRequest request_;
  AskedServer asked_;
  uint64_t changes_before_ = 0;
  Status refused_;
  Reply<NoFields> reply_;
};

/// Whether no other file ever gets the name: it has a random id of who made it.
bool is_of_one_file(std::string_view served_path) {
  const bool is_put_aside = served_path.ends_with(".tmp") || served_path.ends_with(".stale");
  return served_path.starts_with("arenas/") || served_path.starts_with("writers/") ||
         served_path.starts_with("index/") || (served_path.starts_with("runs/") && is_put_aside) ||
         PutAside::parse(served_path);
}

/// The removal of a name that another file may get as soon as it is free: a server that was restarted does not know
/// whether this was done, and would remove what somebody else has made since.
class NameRemoval {
 public:
  /// `path` is for messages.
  NameRemoval(ServerLink& link, RemoveRequest request, const std::string& path)
      : link_(link), request_(std::move(request)), path_(path) {}

  Status attempt(ServerConnection& connection) {
    VARVE_ASSIGN(const bool has_changed, asked_.has_changed(connection));
    if (has_changed) {
      VARVE_ASSIGN(const Reply<FoundFile> found, connection.ask(StatRequest{request_.path}));
      const bool is_gone = found.outcome == Outcome::failed && found.status.code() == StatusCode::not_found;
      outcome_ = is_gone
                     ? Status()
                     : Status::io_error(
                           "the server was restarted while this was being removed, and something of this name is there",
                           path_, "if it is what was to be removed, do that again");
    } else {
      VARVE_ASSIGN(const Reply<NoFields> reply, connection.ask(request_, asked_.options_for(connection)));
      outcome_ = failure_of(reply, path_);
    }
    if (outcome_.ok()) link_.note_changes(request_, connection.machine_run());
    return {};
  }

  /// Of the attempt that went through.
  const Status& outcome() const { return outcome_; }

 private:
  ServerLink& link_;
  const RemoveRequest request_;
  const std::string& path_;
  AskedServer asked_;
  Status outcome_;
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

Status failure_of(const ReplyHead& reply, const std::string& path) {
  switch (reply.outcome) {
    case Outcome::done: return {};
    case Outcome::failed: return reply.status.with_subject(path);
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

template <class Message>
Result<typename Message::ReplyFields> RemoteFileSystem::ask_about(Message message, const std::string& path) {
  VARVE_ASSIGN(message.path, served(path));
  return fields_of(link_.ask(std::move(message)), path);
}

Result<std::unique_ptr<File>> RemoteFileSystem::open_read(const std::string& path) {
  VARVE_ASSIGN(const OpenedFile opened, ask_about(OpenRequest(), path));
  VARVE_ASSIGN(std::string served_path, served(path));
  return std::unique_ptr<File>(std::make_unique<RemoteReader>(link_, path, std::move(served_path), opened));
}

Result<std::unique_ptr<File>> RemoteFileSystem::create(const std::string& path, CreateOptions options) {
  VARVE_ASSIGN(std::string served_path, served(path));
  return RemoteWriter::create(link_, path, std::move(served_path), options.direct);
}

Status RemoteFileSystem::create_directory(const std::string& path) {
  return ask_about(CreateDirectoryRequest(), path).status();
}
Status RemoteFileSystem::remove(const std::string& path) {
  RemoveRequest request;
  VARVE_ASSIGN(request.path, served(path));
  if (is_of_one_file(request.path)) return fields_of(link_.ask(std::move(request)), path).status();
  VARVE_ASSIGN(request.token, UniqueId::random());
  NameRemoval removal(link_, std::move(request), path);
  VARVE_TRY(link_.with_connection([&](ServerConnection& connection, bool) { return removal.attempt(connection); }));
  return removal.outcome();
}
Status RemoteFileSystem::remove_directory(const std::string& path) {
  return ask_about(RemoveDirectoryRequest(), path).status();
}
Status RemoteFileSystem::touch(const std::string& path) { return ask_about(TouchRequest(), path).status(); }

Status RemoteFileSystem::sync_directory(const std::string& path) {
  VARVE_ASSIGN(std::string served_path, served(path));
  FolderSync sync(link_, std::move(served_path));
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
  RenameRequest request;
  request.replace = replace;
  VARVE_ASSIGN(request.to, served(to));
  // So that a server that was restarted can tell whether it is this very file that lies at `to`.
  VARVE_ASSIGN(const FoundFile found, ask_about(StatRequest(), from));
  request.identity = found.identity;
  VARVE_ASSIGN(request.path, served(from));
  VARVE_ASSIGN(const Reply<NoFields> reply, link_.ask(std::move(request)));
  const bool taken = reply.outcome == Outcome::failed && reply.status.code() == StatusCode::already_exists;
  return failure_of(reply, taken ? to : from);
}

Result<std::vector<DirectoryEntry>> RemoteFileSystem::list(const std::string& path) {
  VARVE_ASSIGN(FolderEntries found, ask_about(ListRequest(), path));
  return std::move(found.entries);
}

Result<FileStatus> RemoteFileSystem::stat(const std::string& path) {
  VARVE_ASSIGN(const FoundFile found, ask_about(StatRequest(), path));
  return found.status;
}

Result<uint64_t> RemoteFileSystem::free_bytes(const std::string& path) {
  VARVE_ASSIGN(const ByteCount room, ask_about(RoomRequest(), path));
  return room.bytes;
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
  ByteVector question;
  ByteWriter writer(question);
  for (const uint64_t prefix : prefixes) writer.le64(prefix);
  Buffer answer(prefixes.size() * kFindCandidatesMax * kCandidateBytes);
  VARVE_ASSIGN(const FindRequest::ReplyFields found,
               fields_of(link_.ask(FindRequest{prefixes.size()}, {.data = question, .into = answer}), link_.name()));
  const std::byte* at = answer.data();
  for (size_t i = 0; i < prefixes.size(); ++i) {
    counts[i] = static_cast<uint32_t>(found.counts[i]);
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
