#include "service/connection.h"

#include <fmt/format.h>

namespace varve {

Status Connection::run(Deadline hello_by) {
  hello_by_ = hello_by;
  while (true) {
    if (handler_.greeted()) {
      rests_(true);
      wire_.wait();
      rests_(false);
    }
    const Result<Wire::Head> received = wire_.receive_head(deadline());
    if (received.status().code() == StatusCode::unsupported) refuse_version();
    VARVE_ASSIGN(const Wire::Head head, received);
    if (head.closed) return {};
    VARVE_TRY(serve_one(head));
    if (head.header.message == static_cast<uint8_t>(Message::goodbye)) return {};
    if (head.header.message == static_cast<uint8_t>(Message::hello) && !handler_.greeted()) return {};  // turned away
  }
}

void Connection::refuse_version() {
  WireHeader hello;
  hello.message = static_cast<uint8_t>(Message::hello);
  hello.request = 1;
  Reply reply;
  reply.outcome = Outcome::failed;
  reply.status = Status::unsupported(fmt::format("the server speaks version {} of the protocol", kWireVersion), "",
                                     "use the same Varve on both sides");
  send(hello, Message::hello, reply, {}, false).ignore("the connection ends in any case");
}

Status Connection::serve_one(const Wire::Head& head) {
  const WireHeader& header = head.header;
  // Before hello is answered, nobody may have memory filled.
  if (header.data_bytes > 0 && !handler_.greeted()) return Status::corrupt("a connection begins with data");
  MutableByteSpan data;
  if (header.data_bytes > 0) {
    std::byte* const into = buffer_.get(header.data_bytes);
    if (into == nullptr) return Status::resource_limit("no memory for a message");
    data = {into, header.data_bytes};
    VARVE_TRY(wire_.receive_data(header, data, deadline()));
  }
  if (!message_of(header.message)) {
    Reply unknown;
    unknown.outcome = Outcome::failed;
    unknown.status =
        Status::unsupported("this server does not know that request", "", "use the same Varve on both sides");
    return send(header, Message::ping, unknown, {}, false);
  }
  VARVE_ASSIGN(const Request request, decode_request(header, head.fields));
  auto alive = [&] { return send(header, Message::ping, Reply{}, {}, true).ok(); };
  return answer(header, handler_.handle(request, data, alive), request.message);
}

Status Connection::answer(const WireHeader& to, const RequestHandler::Answer& answer, Message message) {
  if (message == Message::list && answer.reply.outcome == Outcome::done) return answer_list(to, answer);
  return send(to, message, answer.reply, answer.data, false, handler_.descriptor_of(message, answer.reply));
}

Status Connection::answer_list(const WireHeader& to, const RequestHandler::Answer& answer) {
  constexpr size_t entry_bytes_max = 300;
  ByteVector data;
  for (const DirectoryEntry& entry : answer.entries) {
    if (data.size() + entry_bytes_max > kWireDataBytesMax) {
      VARVE_TRY(send(to, Message::list, answer.reply, data, true));
      data.clear();
    }
    append_entry(data, entry);
  }
  return send(to, Message::list, answer.reply, data, false);
}

Status Connection::send(const WireHeader& to, Message message, const Reply& reply, ByteSpan data, bool more,
                        const std::shared_ptr<OpenFiles::OpenFile>& file) {
  WireHeader header;
  header.message = to.message;
  header.request = to.request;
  header.flags = static_cast<uint8_t>(WireHeader::kReply | (more ? WireHeader::kMore : 0));
  const ByteVector fields = encode_reply_fields(message, reply);
  const std::lock_guard lock(sending_);
  return wire_.send_with(file ? file->descriptor() : -1, header, fields, data, deadline());
}

}  // namespace varve
