#include "service/remote_writer.h"

#include <algorithm>
#include <cstring>

#include "service/attached_file.h"
#include "service/remote_reader.h"
#include "service/remote_reply.h"

namespace varve {

namespace {
constexpr size_t kPieceBytes = kWireDataBytesMax;
/// What is written ahead: enough to keep the server's disk busy while the next piece travels.
constexpr size_t kAheadBytes = 4_MiB;

bool is_aligned(uint64_t offset, ByteSpan from) {
  return offset % kDirectAlignment == 0 && from.size() % kDirectAlignment == 0 &&
         reinterpret_cast<uintptr_t>(from.data()) % kDirectAlignment == 0;
}

bool is_lost_connection(const Status& failure) { return failure.code() == StatusCode::io_error; }
}  // namespace

Result<std::unique_ptr<File>> RemoteWriter::create(ServerLink& link, std::string path, std::string served_path,
                                                   bool direct) {
  std::unique_ptr<RemoteWriter> file(new RemoteWriter(link, std::move(path), std::move(served_path), direct));
  VARVE_ASSIGN(const Reply created, file->start());
  // The server's own handle is closed with `file`.
  if (std::unique_ptr<File> attached = attached_file(created, file->path_, direct)) return attached;
  return std::unique_ptr<File>(std::move(file));
}

Result<Reply> RemoteWriter::start() {
  VARVE_ASSIGN(token_, UniqueId::random());
  Request request;
  request.message = Message::create;
  request.token = token_;
  request.path = served_path_;
  request.direct = direct_;
  Retries retries = link_.retries();
  while (true) {
    Result<std::unique_ptr<ServerConnection>> connection = link_.take_own();
    Status failure = connection.status();
    if (connection.ok()) {
      Result<Reply> reply = (*connection)->ask(request);
      if (reply.ok()) {
        boot_ = (*connection)->boot();
        if (reply->outcome == Outcome::done) link_.note_changes(request, (*connection)->machine_run());
        connection_ = std::move(*connection);
        const Status made = failure_of(*reply, path_);
        if (!made.ok()) link_.give_back(std::move(connection_));
        handle_ = reply->handle;
        identity_ = reply->identity;
        VARVE_TRY(made);
        return reply;
      }
      failure = reply.status();
      request.again = true;
    }
    if (!retries.goes_on(failure)) return is_lost_connection(failure) ? link_.unreachable(failure) : failure;
  }
}

RemoteWriter::~RemoteWriter() {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) settle(0).ignore("a caller who wants to know syncs");
  if (!connection_ || !pending_.empty()) return;  // the server closes the file with the connection
  Request request;
  request.message = Message::close;
  request.handle = handle_;
  if (connection_->ask(request).ok()) link_.give_back(std::move(connection_));
}

Status RemoteWriter::give_up(const Status& why) {
  if (lost_.ok()) lost_ = why;
  connection_.reset();
  pending_.clear();
  pending_bytes_ = 0;
  return lost_;
}

Status RemoteWriter::write_at(uint64_t offset, ByteSpan from) {
  const std::lock_guard lock(mutex_);
  VARVE_TRY(lost_);
  if (direct_ && !is_aligned(offset, from)) return Status::invalid_argument("a direct write is not aligned", path_);
  while (!from.empty()) {
    const ByteSpan piece = from.first(std::min(from.size(), kPieceBytes));
    VARVE_TRY(write_piece(offset, piece));
    offset += piece.size();
    from = from.subspan(piece.size());
  }
  return {};
}

Status RemoteWriter::write_piece(uint64_t offset, ByteSpan piece) {
  if (direct_) VARVE_TRY(settle(kAheadBytes - piece.size()));
  Pending& pending = pending_.emplace_back();
  pending.request.message = Message::write;
  pending.request.handle = handle_;
  pending.request.offset = offset;
  pending.data = piece;
  if (direct_) {
    if (idle_copies_.empty()) idle_copies_.emplace_back(kPieceBytes);
    pending.copy = std::move(idle_copies_.back());
    idle_copies_.pop_back();
    std::memcpy(pending.copy.data(), piece.data(), piece.size());
    pending.data = ByteSpan(pending.copy).first(piece.size());
  }
  pending_bytes_ += piece.size();
  const Status sent = connection_->send(pending.request, pending.data);
  if (!sent.ok()) VARVE_TRY(resume(sent));
  return direct_ ? Status() : settle(0);
}

Status RemoteWriter::settle(size_t bytes_max) {
  while (pending_bytes_ > bytes_max) VARVE_TRY(take_answer());
  return lost_;
}

Status RemoteWriter::take_answer() {
  size_t data_bytes = 0;
  const Result<Reply> reply = connection_->receive(pending_.front().request, {}, data_bytes);
  if (!reply.ok()) return resume(reply.status());
  if (reply->outcome == Outcome::unknown_handle) return resume(Status::io_error("the server was restarted"));
  const Status written = failure_of(*reply, path_);
  if (!written.ok() && direct_) return give_up(written);  // of bytes that the caller takes for written
  pending_bytes_ -= pending_.front().data.size();
  if (direct_) idle_copies_.push_back(std::move(pending_.front().copy));
  pending_.pop_front();
  return written;
}

Status RemoteWriter::resume(const Status& failure) {
  Status why = failure;
  Retries retries = link_.retries();
  while (retries.goes_on(why)) {
    connection_.reset();
    why = try_to_resume();
    if (why.ok()) return {};
    if (!lost_.ok()) return lost_;
  }
  return give_up(is_lost_connection(why) ? link_.unreachable(why) : why);
}

Status RemoteWriter::try_to_resume() {
  VARVE_ASSIGN(std::unique_ptr<ServerConnection> connection, link_.take_own());
  if (connection->boot() != boot_ || boot_ == UniqueId{}) {
    return give_up(Status::io_error("the server's machine was restarted: what was not synced may be lost", path_,
                                    "write the file anew"));
  }
  Request request;
  request.message = Message::resume;
  request.token = token_;
  request.path = served_path_;
  request.direct = direct_;
  request.identity = identity_;
  VARVE_ASSIGN(const Reply reply, connection->ask(request));
  if (const Status resumed = failure_of(reply, path_); !resumed.ok()) return give_up(resumed);
  handle_ = reply.handle;
  for (Pending& pending : pending_) {
    pending.request.handle = handle_;
    pending.request.again = true;
    VARVE_TRY(connection->send(pending.request, pending.data));
  }
  connection_ = std::move(connection);
  return {};
}

Result<Reply> RemoteWriter::ask(Request request) {
  VARVE_TRY(settle(0));
  while (true) {
    request.handle = handle_;
    Result<Reply> reply = connection_->ask(request);
    const bool unknown = reply.ok() && reply->outcome == Outcome::unknown_handle;
    if (reply.ok() && !unknown) return reply;
    VARVE_TRY(resume(unknown ? Status::io_error("the server was restarted") : reply.status()));
    request.again = true;
  }
}

Status RemoteWriter::truncate(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  VARVE_TRY(lost_);
  Request request;
  request.message = Message::truncate;
  request.bytes = bytes;
  VARVE_ASSIGN(const Reply reply, ask(std::move(request)));
  return failure_of(reply, path_);
}

Status RemoteWriter::sync() {
  const std::lock_guard lock(mutex_);
  VARVE_TRY(lost_);
  VARVE_TRY(settle(0));
  Request request;
  request.message = Message::sync;
  request.handle = handle_;
  const Result<Reply> reply = connection_->ask(request);
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
  const std::lock_guard lock(mutex_);
  VARVE_TRY(lost_);
  VARVE_TRY(settle(0));
  while (true) {
    const Result<ReadOutcome> outcome = read_ahead(*connection_, handle_, offset, into);
    if (outcome.ok() && !outcome->lost_handle) {
      if (outcome->failure.ok()) return outcome->bytes;
      return Status(outcome->failure.code(), std::string(outcome->failure.message()), path_);
    }
    VARVE_TRY(resume(outcome.ok() ? Status::io_error("the server was restarted") : outcome.status()));
  }
}

Result<uint64_t> RemoteWriter::size() {
  const std::lock_guard lock(mutex_);
  VARVE_TRY(lost_);
  Request request;
  request.message = Message::size;
  VARVE_ASSIGN(const Reply reply, ask(std::move(request)));
  VARVE_TRY(failure_of(reply, path_));
  return reply.file.bytes;
}

}  // namespace varve
