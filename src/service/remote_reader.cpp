#include "service/remote_reader.h"

#include <algorithm>
#include <deque>

#include "service/attached_file.h"
#include "service/remote_reply.h"

namespace varve {

namespace {
/// Of one request: what is read while the last piece travels, and is still in the cache when it is checked.
constexpr size_t kPieceBytes = 512_KiB;
constexpr size_t kPiecesAhead = 4;
static_assert(kPieceBytes <= kWireDataBytesMax && kPieceBytes % kDirectAlignment == 0);

/// A piece of what is to be read, asked for.
struct Piece {
  Request request;
  MutableByteSpan into;
};
}  // namespace

Result<ReadOutcome> read_ahead(ServerConnection& connection, uint64_t handle, uint64_t offset, MutableByteSpan into) {
  std::deque<Piece> asked;
  ReadOutcome outcome;
  size_t sent = 0;
  bool ended = false;  // the file has, or it has failed
  while (true) {
    const bool wants_more = sent < into.size() && !ended;
    if (wants_more && asked.size() < kPiecesAhead) {
      const size_t bytes = std::min(kPieceBytes, into.size() - sent);
      Piece& piece = asked.emplace_back();
      piece.request.message = Message::read;
      piece.request.handle = handle;
      piece.request.ranges = {{offset + sent, bytes}};
      piece.into = into.subspan(sent, bytes);
      VARVE_TRY(connection.send(piece.request, {}));
      sent += bytes;
      continue;
    }
    // All that was asked for is taken from the connection, whatever the first answer was.
    if (asked.empty()) break;
    const Piece piece = std::move(asked.front());
    asked.pop_front();
    size_t got = 0;
    VARVE_ASSIGN(const Reply reply, connection.receive(piece.request, piece.into, got));
    if (ended) continue;
    if (reply.outcome == Outcome::done) {
      if (reply.counts.size() != 1 || reply.counts[0] != got)
        return Status::corrupt("the server sent other bytes than it says");
      outcome.bytes += got;
      ended = got < piece.into.size();
      continue;
    }
    ended = true;
    outcome.lost_handle = reply.outcome == Outcome::unknown_handle;
    if (!outcome.lost_handle) outcome.failure = failure_of(reply, "");
  }
  return outcome;
}

RemoteReader::RemoteReader(ServerLink& link, std::string path, std::string served_path, const Reply& opened)
    : link_(link),
      path_(std::move(path)),
      served_path_(std::move(served_path)),
      identity_(opened.identity),
      bytes_(opened.file.bytes),
      attached_(attached_file(opened, path_, false)),
      handle_(opened.handle) {}

RemoteReader::~RemoteReader() {
  // Not worth waiting for a server that is gone: it closes the files of clients that have ended.
  std::unique_ptr<ServerConnection> connection = link_.take_idle();
  if (!connection) return;
  Request request;
  request.message = Message::close;
  request.handle = handle();
  if (connection->ask(request).ok()) link_.give_back(std::move(connection));
}

uint64_t RemoteReader::handle() {
  const std::lock_guard lock(mutex_);
  return handle_;
}

Status RemoteReader::reopen(uint64_t lost) {
  const std::lock_guard lock(mutex_);
  if (handle_ != lost) return {};
  Request request;
  request.message = Message::open;
  request.path = served_path_;
  VARVE_ASSIGN(const Reply reply, link_.ask(std::move(request)));
  VARVE_TRY(failure_of(reply, path_));
  if (reply.identity != identity_)
    return Status::not_found("the file was removed while the server was away, and another one has its name", path_);
  handle_ = reply.handle;
  return {};
}

Result<size_t> RemoteReader::read_at(uint64_t offset, MutableByteSpan into) {
  if (attached_) return attached_->read_at(offset, into);
  while (true) {
    const uint64_t used = handle();
    ReadOutcome outcome;
    VARVE_TRY(link_.with_connection([&](ServerConnection& connection, bool) -> Status {
      VARVE_ASSIGN(outcome, read_ahead(connection, used, offset, into));
      return {};
    }));
    if (!outcome.failure.ok()) return Status(outcome.failure.code(), std::string(outcome.failure.message()), path_);
    if (!outcome.lost_handle) return outcome.bytes;
    VARVE_TRY(reopen(used));
  }
}

Status RemoteReader::write_at(uint64_t, ByteSpan) {
  return Status::io_error("cannot write to the file: it was opened for reading", path_);
}
Status RemoteReader::truncate(uint64_t) {
  return Status::io_error("cannot set the size of the file: it was opened for reading", path_);
}

}  // namespace varve
