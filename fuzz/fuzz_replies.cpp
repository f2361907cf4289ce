// What a server sends, as a client takes it apart: the bytes as frames, as the fields of a reply, and as a folder's
// list.
#include "fuzz_wire.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ByteSpan input(reinterpret_cast<const std::byte*>(data), size);
  Wire wire(std::make_unique<FuzzedStream>(input));
  const Deadline deadline = after_seconds(3600);
  while (true) {
    const Result<Wire::Head> head = wire.receive_head(deadline);
    if (!head.ok() || head->closed) break;
    ByteVector body(head->header.data_bytes);
    if (!wire.receive_data(head->header, body, deadline).ok()) break;
    const std::optional<Message> message = message_of(head->header.message);
    if (message) (void)decode_reply(*message, head->fields).ok();
  }
  std::vector<DirectoryEntry> entries;
  if (decode_entries(input, entries).ok()) {
    for (const DirectoryEntry& entry : entries) {
      if (entry.name.empty() || entry.name.find('/') != std::string::npos) std::abort();
    }
  }
  if (input.empty()) return 0;
  const std::optional<Message> message = message_of(std::to_integer<uint8_t>(input[0]));
  if (!message) return 0;
  const Result<Reply> reply = decode_reply(*message, input.subspan(1));
  if (!reply.ok()) return 0;
  const ByteVector fields = encode_reply_fields(*message, *reply);
  const Result<Reply> back = decode_reply(*message, fields);
  if (!back.ok() || encode_reply_fields(*message, *back) != fields) std::abort();
  return 0;
}
