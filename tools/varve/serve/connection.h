#pragma once

#include <functional>
#include <memory>

#include "serve/request_handler.h"
#include "service/socket.h"
#include "service/wire.h"

namespace varve {

struct ConnectionLimits {
  double hello_seconds = 10;  ///< from accepting it until a client must have said who it is
  double frame_seconds = 60;  ///< for the rest of a message that has begun, and for sending an answer
};

/// The server's end of a connection: receives requests, has them carried out, and answers. One thread at a
/// time.
class Connection {
 public:
  /// `admit` and `news` as those of RequestHandler.
  Connection(ServedStore& store, std::unique_ptr<ByteStream> stream, KeyShare& share, const ConnectionLimits& limits,
             Deadline hello_by, std::function<Status()> admit, const std::function<void()>& news)
      : limits_(limits),
        hello_by_(hello_by),
        wire_(std::move(stream)),
        turn_(share, news),
        handler_(store, share, std::move(admit), news) {}

  /// What is next: serve() is called again when the socket has input (rests), in its turn (goes_on), or after `news`,
  /// and every few seconds meanwhile (waits).
  enum class Next : uint8_t { rests, goes_on, waits, ended };
  /// To be called when a request has begun to arrive, or the other side has ended: receives one request, and answers
  /// it. One that has come in part is left until more of it comes. One that waits for its answer gets it, or a sign of
  /// life. A failure: why it has ended; `ended`: the client had no more requests, or was turned away.
  Result<Next> serve(DataBuffer& buffer);
  /// Whether a request has come in part. Who calls serve() sees to it that this ends within ConnectionLimits.
  bool has_begun() const { return wire_.has_begun(); }
  /// What is next before the first request.
  Next begin() const { return wire_.has_input() ? Next::goes_on : Next::rests; }
  /// Gives all buffers back in which nothing is, before a long wait (rests, waits).
  void rest() { wire_.rest(); }

 private:
  /// For the rest of what is being received or sent.
  Deadline deadline() const { return handler_.greeted() ? after_seconds(limits_.frame_seconds) : hello_by_; }
  /// Lets a client of another version know, after which nothing of what it sends can be understood.
  void refuse_version();
  /// Whether whoever receives the rest of the request that is coming, and answers it, may have to wait for the client.
  bool needs_turn(Wire::Begun begun) const;
  Status receive_and_answer(DataBuffer& buffer);
  Status go_on();
  Status answer(const RequestHandler::Answer& answer);
  Status send(ByteSpan fields, ByteSpan data = {}, bool more = false, int descriptor = -1);

  const ConnectionLimits limits_;
  const Deadline hello_by_;
  Wire wire_;
  KeyShare::Turn turn_;
  RequestHandler handler_;
  WireHeader request_;  ///< that is at hand
  bool waits_ = false;  ///< its answer is not there yet
};

}  // namespace varve
