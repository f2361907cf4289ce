#include "runtime/relay_message.h"

namespace varve {

namespace {
constexpr size_t kMessageBytes = 4 + 4 * 8;
/// Of a status or news; bytes of an image are no payload.
constexpr uint64_t kPayloadBytesMax = 64_KiB;
}  // namespace

Status send_relay(Communicator& ranks, uint32_t to, uint32_t tag, RelayMessage message, ByteSpan payload) {
  message.payload_bytes = payload.size();
  ByteVector bytes;
  ByteWriter out(bytes);
  out.le32(static_cast<uint32_t>(message.kind));
  out.le64(message.step);
  out.le64(message.offset);
  out.le64(message.bytes);
  out.le64(message.payload_bytes);
  VARVE_TRY(ranks.send(to, tag, bytes));
  return payload.empty() ? Status() : ranks.send(to, tag, payload);
}

Result<RelayMessage> receive_relay(Communicator& ranks, uint32_t from, uint32_t tag, ByteVector& payload) {
  std::array<std::byte, kMessageBytes> bytes{};
  VARVE_TRY(ranks.receive(from, tag, bytes));
  ByteReader in(bytes);
  RelayMessage message;
  VARVE_ASSIGN(const uint32_t kind, in.le32());
  if (kind < static_cast<uint32_t>(RelayMessage::Kind::full) ||
      kind > static_cast<uint32_t>(RelayMessage::Kind::reply)) {
    return Status::corrupt("a rank sent a message of no known kind");
  }
  message.kind = static_cast<RelayMessage::Kind>(kind);
  VARVE_ASSIGN(message.step, in.le64());
  VARVE_ASSIGN(message.offset, in.le64());
  VARVE_ASSIGN(message.bytes, in.le64());
  VARVE_ASSIGN(message.payload_bytes, in.le64());
  if (message.payload_bytes > kPayloadBytesMax) return Status::corrupt("a rank sent a message that is too long");
  payload.resize(message.payload_bytes);
  if (!payload.empty()) VARVE_TRY(ranks.receive(from, tag, payload));
  return message;
}

}  // namespace varve
