#include "runtime/relay_message.h"

#include "comm/agreement.h"

namespace varve {

namespace {
constexpr size_t kMessageBytes = 4 + 4 * 8;
/// Of a status or news; bytes of an image are no payload.
constexpr uint64_t kPayloadBytesMax = 64_KiB;

void put_step(ByteWriter& out, const std::optional<uint64_t>& step) {
  out.u8(step ? 1 : 0);
  out.le64(step.value_or(0));
}

Result<std::optional<uint64_t>> get_step(ByteReader& in) {
  VARVE_ASSIGN(const uint8_t there, in.u8());
  VARVE_ASSIGN(const uint64_t step, in.le64());
  return there != 0 ? std::optional(step) : std::nullopt;
}
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

ByteVector encode_news(const GroupNews& news) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_step(out, news.newest_persistent);
  put_step(out, news.finished_step);
  out.bytes(encode_status(news.last_error));
  return bytes;
}

Result<GroupNews> decode_relayed_news(ByteSpan bytes) {
  ByteReader in(bytes);
  GroupNews news;
  VARVE_ASSIGN(news.newest_persistent, get_step(in));
  VARVE_ASSIGN(news.finished_step, get_step(in));
  VARVE_TRY(decode_status(bytes.subspan(in.position()), news.last_error));
  return news;
}

}  // namespace varve
