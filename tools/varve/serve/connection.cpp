#include "serve/connection.h"

#include <fmt/format.h>

namespace varve {

Result<Connection::Next> Connection::serve(DataBuffer& buffer) {
  if (waits_) {
    if (!wire_.takes_output() && !turn_.take()) return Next::waits;
    const Status gone_on = go_on();
    turn_.give_back();
    VARVE_TRY(gone_on);
  } else {
    const Result<Wire::Begun> received = wire_.begin_head();
    if (received.status().code() == StatusCode::unsupported) refuse_version();
    VARVE_ASSIGN(const Wire::Begun begun, received);
    if (begun == Wire::Begun::closed) return Next::ended;
    if (begun == Wire::Begun::nothing || begun == Wire::Begun::partly) return Next::rests;
    if (needs_turn(begun) && !turn_.take()) return Next::waits;
    const Status answered = receive_and_answer(buffer);
    turn_.give_back();
    VARVE_TRY(answered);
    if (request_.message == GoodbyeRequest::kMessage.number) return Next::ended;
    if (request_.message == HelloRequest::kMessage.number && !handler_.greeted()) return Next::ended;  // turned away
  }
  return waits_ ? Next::waits : begin();
}

bool Connection::needs_turn(Wire::Begun begun) const {
  if (!handler_.greeted()) return false;  // strangers are few, and have little time
  const WireHeader& request = wire_.coming();
  const bool gives_data = request.message == ReadRequest::kMessage.number ||
                          request.message == ListRequest::kMessage.number ||
                          request.message == FindRequest::kMessage.number;
  return begun == Wire::Begun::header || request.data_bytes > 0 || gives_data || !wire_.takes_output();
}

void Connection::refuse_version() {
  request_ = {};
  request_.message = HelloRequest::kMessage.number;
  request_.request = 1;
  const Reply<ServerFacts> reply =
      Status::unsupported(fmt::format("the server speaks version {} of the protocol", kWireVersion), "",
                          "use the same Varve on both sides");
  send(encode_fields(reply)).ignore("the connection ends in any case");
}

Status Connection::receive_and_answer(DataBuffer& buffer) {
  VARVE_ASSIGN(const Wire::Head head, wire_.receive_head(deadline()));
  request_ = head.header;
  // Before hello is answered, nobody may have memory filled.
  if (request_.data_bytes > 0 && !handler_.greeted()) return Status::corrupt("a connection begins with data");
  MutableByteSpan data;
  if (request_.data_bytes > 0) {
    std::byte* const into = buffer.get(request_.data_bytes);
    if (into == nullptr) return Status::resource_limit("no memory for a message");
    data = {into, request_.data_bytes};
    VARVE_TRY(wire_.receive_data(request_, data, deadline()));
  }
  const Result<Request> request = decode_request(request_, head.fields);
  if (request.status().code() == StatusCode::unsupported) return send(encode_fields(Reply<NoFields>(request.status())));
  VARVE_TRY(request.status());
  const RequestHandler::Answer made = handler_.handle(*request, data, buffer);
  waits_ = made.waits;
  return waits_ ? Status() : answer(made);
}

Status Connection::go_on() {
  const RequestHandler::Answer made = handler_.go_on();
  waits_ = made.waits;
  return waits_ ? send(encode_fields(Reply<NoFields>()), {}, true) : answer(made);
}

Status Connection::answer(const RequestHandler::Answer& answer) {
  constexpr size_t entry_bytes_max = 300;
  ByteVector entries;
  for (const DirectoryEntry& entry : answer.entries) {
    if (entries.size() + entry_bytes_max > kWireDataBytesMax) {
      VARVE_TRY(send(answer.fields, entries, true));
      entries.clear();
    }
    append_entry(entries, entry);
  }
  return send(answer.fields, entries.empty() ? answer.data : entries, false,
              answer.file ? answer.file->descriptor() : -1);
}

Status Connection::send(ByteSpan fields, ByteSpan data, bool more, int descriptor) {
  WireHeader header;
  header.message = request_.message;
  header.request = request_.request;
  header.flags = static_cast<uint8_t>(WireHeader::kReply | (more ? WireHeader::kMore : 0));
  return wire_.send_with(descriptor, header, fields, data, deadline());
}

}  // namespace varve
