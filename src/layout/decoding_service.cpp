#include "layout/decoding_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace varve {

namespace {
LayoutReaders only(std::unique_ptr<LayoutReader> reader) {
  LayoutReaders readers;
  if (reader != nullptr) readers.push_back(std::move(reader));
  return readers;
}
}  // namespace

/// One wish and its answer.
class DecodingService::Exchange {
 public:
  /// How it went on; `failed` is an answer, too.
  enum class End : uint8_t { done, failed, closed, late, nonsense };

  Exchange(int socket, const EncodedSource& source, std::chrono::milliseconds timeout)
      : socket_(socket), source_(source), deadline_(MonotonicClock::now() + timeout) {}

  End run(ArrayWish kind, const WantedBox& wanted, MutableByteSpan into) {
    ByteVector wish(sizeof(uint64_t));
    encode_wish(kind, wanted, wish);
    store_le<uint64_t>(wish.data(), wish.size() - sizeof(uint64_t));
    if (!send(wish)) return broken();
    for (;;) {
      ArrayAnswer answer;
      if (!receive(std::as_writable_bytes(std::span(&answer, 1)))) return broken();
      switch (answer.kind) {
        case ArrayAnswer::Kind::want_file:
          if (answer.bytes > kFilePieceBytesMax) return End::nonsense;
          if (!give_file(answer.offset, answer.bytes)) return broken();
          continue;
        case ArrayAnswer::Kind::cells:
          if (answer.bytes != into.size()) return End::nonsense;
          return receive(into) ? End::done : broken();
        case ArrayAnswer::Kind::failure: return take_failure(answer.bytes);
      }
      return End::nonsense;
    }
  }

  /// Why it failed, by the other end.
  const Status& failure() const { return failure_; }
  /// Why the file could not be read.
  const Status& unreadable() const { return unreadable_; }

 private:
  End broken() const { return late_ ? End::late : End::closed; }

  End take_failure(uint64_t bytes) {
    if (bytes > kFailureBytesMax) return End::nonsense;
    ByteVector text(bytes);
    if (!receive(text)) return broken();
    std::optional<Status> failure = decode_failure(text);
    if (!failure) return End::nonsense;
    failure_ = std::move(*failure);
    return End::failed;
  }

  bool give_file(uint64_t offset, uint64_t bytes) {
    const auto began = MonotonicClock::now();
    ByteVector piece(sizeof(uint64_t) + bytes);
    const uint64_t there = source_.bytes - std::min(offset, source_.bytes);
    Result<uint64_t> got =
        source_.read(offset, MutableByteSpan(piece).subspan(sizeof(uint64_t), std::min(bytes, there)));
    deadline_ += MonotonicClock::now() - began;
    if (!got.ok()) unreadable_ = got.status();
    store_le<uint64_t>(piece.data(), got.ok() ? *got : kFileUnreadable);
    piece.resize(sizeof(uint64_t) + (got.ok() ? *got : 0));
    return send(piece);
  }

  bool wait(short for_what) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - MonotonicClock::now()).count();
      late_ = left <= 0;
      if (late_) return false;
      pollfd waiting{socket_, for_what, 0};
      const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  bool send(ByteSpan from) {
    while (!from.empty()) {
      const ssize_t sent = ::send(socket_, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        from = from.subspan(static_cast<size_t>(sent));
      } else if (sent == 0 || (errno != EAGAIN && errno != EINTR) || !wait(POLLOUT)) {
        return false;
      }
    }
    return true;
  }

  bool receive(MutableByteSpan into) {
    while (!into.empty()) {
      const ssize_t got = ::recv(socket_, into.data(), into.size(), MSG_DONTWAIT);
      if (got > 0) {
        into = into.subspan(static_cast<size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !wait(POLLIN)) {
        return false;
      }
    }
    return true;
  }

  const int socket_;
  const EncodedSource& source_;
  MonotonicClock::time_point deadline_;
  bool late_ = false;
  Status failure_, unreadable_;
};

DecodingService::DecodingService(std::unique_ptr<LayoutReader> reader, ReaderLimits limits)
    : readers_(only(std::move(reader))), limits_(limits), spawner_(readers_, limits_) {}

DecodingService::~DecodingService() = default;

Status DecodingService::check(const EncodedSource& source, const Variable& array) {
  const std::vector<uint64_t> nothing(array.shape.size(), 0);
  return ask(source, ArrayWish::check, {array, {nothing, nothing}}, {});
}

Status DecodingService::read(const EncodedSource& source, const WantedBox& wanted, MutableByteSpan into) {
  const uint64_t cell = wanted.array.type.bytes;
  return for_each_slab(wanted.box, std::max<uint64_t>(kCellBytesMax / cell, 1), [&](const CellBox& slab) {
    const uint64_t bytes = slab.cell_count() * cell;
    const Status read = ask(source, ArrayWish::read, {wanted.array, slab}, into.first(bytes));
    into = into.subspan(bytes);
    return read;
  });
}

Status DecodingService::ask(const EncodedSource& source, ArrayWish kind, const WantedBox& wanted,
                            MutableByteSpan into) {
  if (readers_.empty()) {
    return Status::unsupported(
        "its file's own format has compressed it, or keeps it in pieces, and this build of Varve has no "
        "HDF5 library to read it",
        {}, "take its files, and read them with their format's library, or build Varve with HDF5");
  }
  leave_inherited();
  VARVE_TRY(open(source));
  Exchange exchange(socket_.get(), source, limits_.timeout);
  const Exchange::End ended = exchange.run(kind, wanted, into);
  if (ended == Exchange::End::done) return {};
  // What the library makes of bytes that it did not get is not in it any more.
  if (!exchange.unreadable().ok()) {
    if (ended != Exchange::End::failed) end();
    open_ = nullptr;
    return exchange.unreadable();
  }
  const std::string who = fmt::format("the {} reader", readers_.front()->name());
  switch (ended) {
    case Exchange::End::done:
    case Exchange::End::failed: break;
    case Exchange::End::closed: {
      const ReaderEnd how = end();
      if (how.was_killed)
        return Status::io_error(fmt::format("{} {}", who, how.words), {}, "read it again, where more memory is free");
      return Status::corrupt(fmt::format("{} {}", who, how.words));
    }
    case Exchange::End::nonsense: end(); return Status::corrupt(who + " gave an answer that makes no sense");
    case Exchange::End::late:
      end();
      return Status::resource_limit(
          fmt::format("{} took longer than {} s", who, std::chrono::duration<double>(limits_.timeout).count()));
  }
  return exchange.failure();
}

void DecodingService::leave_inherited() {
  if (!client_ || spawner_.owns()) return;
  client_.reset();
  socket_.reset();
  open_ = nullptr;
}

Status DecodingService::open(const EncodedSource& source) {
  if (client_ && open_ == source.identity && open_ != nullptr) return {};
  open_ = nullptr;
  socket_.reset();
  for (int tries = 0; tries < 2; ++tries) {
    if (!client_) {
      VARVE_ASSIGN(ReaderClient fresh, spawner_.spawn());
      client_.emplace(std::move(fresh));
    }
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
      return Status::from_errno(errno, "make a socket for a reader process", {});
    UniqueFd ours(sockets[0]);
    const UniqueFd theirs(sockets[1]);
    if (client_->send_socket(0, theirs.get(), source.bytes)) {
      socket_ = std::move(ours);
      open_ = source.identity;
      return {};
    }
    end();  // it died since the last call
  }
  return Status::io_error("the process that decodes arrays dies");
}

ReaderEnd DecodingService::end() {
  ReaderEnd how = client_ ? spawner_.end(*client_) : ReaderEnd();
  client_.reset();
  socket_.reset();
  open_ = nullptr;
  return how;
}

std::unique_ptr<LayoutReader> make_decoding_reader() {
#ifdef VARVE_WITH_HDF5
  return make_hdf5_reader();
#else
  return nullptr;
#endif
}

}  // namespace varve
