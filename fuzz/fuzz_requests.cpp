// What a client sends, as a server takes it apart: the bytes as frames, and as the fields of a request.
#include "fuzz_wire.h"

using namespace varve;

namespace {
ByteVector encoded(const Request& request) {
  return std::visit([](const auto& message) { return encode_fields(message); }, request.message);
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
    (void)decode_request(head->header, head->fields).ok();
  }
  if (input.size() < 3) return 0;
  const WireHeader header = fuzzed_header(input);
  const Result<Request> request = decode_request(header, input);
  // What was understood is sent the same way.
  if (request.ok()) {
    const ByteVector fields = encoded(*request);
    const Result<Request> back = decode_request(header, fields);
    if (!back.ok() || encoded(*back) != fields) std::abort();
  }
  return 0;
}
