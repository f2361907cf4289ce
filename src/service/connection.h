#pragma once

#include <functional>

#include "core/sync.h"
#include "service/request_handler.h"
#include "service/wire.h"

namespace varve {

struct ConnectionLimits {
  double hello_seconds = 10;  ///< from accepting it until a client must have said who it is
  double frame_seconds = 60;  ///< for the rest of a message that has begun, and for sending an answer
};

/// The server's end of a connection: receives requests, has them carried out, and answers, until the client
/// ends it, or nothing more can be read.
class Connection {
 public:
  /// `admit` as that of RequestHandler; `rests` is told whether the client, who has said hello, has nothing to be done.
  Connection(ServedStore& store, std::unique_ptr<ByteStream> stream, Rights rights, const ConnectionLimits& limits,
             std::function<Status()> admit, std::function<void(bool)> rests)
      : limits_(limits),
        rests_(std::move(rests)),
        wire_(std::move(stream)),
        handler_(store, buffer_, rights, std::move(admit)) {}

  /// Returns why it ended; OK: the client had no more requests, or was turned away.
  Status run(Deadline hello_by);

 private:
  /// For the rest of what is being received or sent.
  Deadline deadline() const { return handler_.greeted() ? after_seconds(limits_.frame_seconds) : hello_by_; }
  /// Lets a client of another version know, after which nothing of what it sends can be understood.
  void refuse_version();
  Status serve_one(const Wire::Head& head);
  Status answer(const WireHeader& to, const RequestHandler::Answer& answer, Message message);
  Status answer_list(const WireHeader& to, const RequestHandler::Answer& answer);
  Status send(const WireHeader& to, Message message, const Reply& reply, ByteSpan data, bool more,
              const std::shared_ptr<OpenFiles::OpenFile>& file = nullptr);

  const ConnectionLimits limits_;
  const std::function<void(bool)> rests_;
  Wire wire_;
  DataBuffer buffer_;
  RequestHandler handler_;
  Deadline hello_by_;
  Mutex sending_;  ///< signs of life come from threads of a transfer
};

}  // namespace varve
