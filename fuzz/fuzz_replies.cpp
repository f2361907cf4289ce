// What a server sends, as a client takes it apart: the bytes as frames, as the fields of a reply, and as a folder's
// list.
#include "fuzz_wire.h"

using namespace varve;

namespace {
/// A reply to the message of that number; what was understood is sent the same way.
void take_apart(uint8_t number, ByteSpan raw) {
  for_each_message([&](auto message) {
    if (message.kMessage.number != number) return;
    using OwnReply = ReplyTo<decltype(message)>;
    const Result<OwnReply> reply = decode_fields<OwnReply>(raw);
    if (!reply.ok()) return;
    const ByteVector fields = encode_fields(*reply);
    const Result<OwnReply> back = decode_fields<OwnReply>(fields);
    if (!back.ok() || encode_fields(*back) != fields) std::abort();
  });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ByteSpan input(reinterpret_cast<const std::byte*>(data), size);
  Wire wire(std::make_unique<FuzzedStream>(input));
  const Deadline deadline = after_seconds(3600);
  while (true) {
    const Result<Wire::Head> head = wire.receive_head(deadline);
    if (!head.ok() || head->closed) break;
    ByteVector body(head->header.data_bytes);
    if (!wire.receive_data(head->header, body, deadline).ok()) break;
    take_apart(head->header.message, head->fields);
  }
  std::vector<DirectoryEntry> entries;
  if (decode_entries(input, entries).ok()) {
    for (const DirectoryEntry& entry : entries) {
      if (entry.name.empty() || entry.name.find('/') != std::string::npos) std::abort();
    }
  }
  if (!input.empty()) take_apart(std::to_integer<uint8_t>(input[0]), input.subspan(1));
  return 0;
}
