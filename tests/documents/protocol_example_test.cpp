// The example in docs/PROTOCOL.md is what the library sends and understands.
#include <gtest/gtest.h>

#include <string>

#include "documents/documented_bytes.h"
#include "service/protocol.h"
#include "service/wire.h"

namespace varve {
namespace {

UniqueId id_from(uint8_t first) {
  UniqueId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(first + i);
  return id;
}

/// Keeps what is written to it, and gives what it was given.
class RecordedStream final : public ByteStream {
 public:
  RecordedStream(ByteVector& written, ByteVector given) : written_(written), given_(std::move(given)) {}
  Result<size_t> read_some(MutableByteSpan into, Deadline) override {
    const size_t bytes = std::min(into.size(), given_.size() - at_);
    std::copy_n(given_.begin() + static_cast<ptrdiff_t>(at_), bytes, into.begin());
    at_ += bytes;
    return bytes;
  }
  Status write(std::span<const ByteSpan> parts, Deadline) override {
    for (const ByteSpan part : parts) written_.insert(written_.end(), part.begin(), part.end());
    return {};
  }

 private:
  ByteVector& written_;
  const ByteVector given_;
  size_t at_ = 0;
};

template <class Message>
ByteVector sent(uint8_t flags, uint64_t number, const ByteVector& fields, ByteSpan data = {}) {
  ByteVector bytes;
  WireHeader header;
  header.message = Message::kMessage.number;
  header.flags = flags;
  header.request = number;
  Wire wire(std::make_unique<RecordedStream>(bytes, ByteVector()));
  EXPECT_TRUE(wire.send(header, fields, data, after_seconds(1)).ok());
  return bytes;
}

HelloRequest hello() { return {id_from(0xc0)}; }

ReplyTo<HelloRequest> reply_to_hello() { return ServerFacts{id_from(0xd0), id_from(0xe0), 256}; }

WriteRequest write() { return {.handle = 3, .offset = 4096}; }

ReplyTo<WriteRequest> reply_to_write() {
  return Status(StatusCode::no_space, "cannot write to the file: No space left on device", "", Remedy::free_space);
}

RenameRequest rename() {
  RenameRequest request;
  request.token = id_from(0xf0);
  request.path = "writers/" + id_from(0xb0).hex();
  request.to = "sets/example/7.set";
  request.identity = {2049, 131, 1'700'000'000'000'000'000};
  return request;
}

ByteVector documented(const std::string& name) { return test::documented_bytes(VARVE_PROTOCOL_DOCUMENT, name); }

TEST(ProtocolExample, IsWhatIsSent) {
  EXPECT_EQ(to_hex(sent<HelloRequest>(0, 1, encode_fields(hello()))), to_hex(documented("hello")));
  EXPECT_EQ(to_hex(sent<HelloRequest>(WireHeader::kReply, 1, encode_fields(reply_to_hello()))),
            to_hex(documented("reply to hello")));
  EXPECT_EQ(to_hex(sent<WriteRequest>(0, 2, encode_fields(write()), as_bytes("text"))), to_hex(documented("write")));
  EXPECT_EQ(to_hex(sent<WriteRequest>(WireHeader::kReply, 2, encode_fields(reply_to_write()))),
            to_hex(documented("reply to write")));
  EXPECT_EQ(to_hex(sent<RenameRequest>(WireHeader::kAgain, 3, encode_fields(rename()))), to_hex(documented("rename")));
}

TEST(ProtocolExample, IsUnderstood) {
  ByteVector none;
  Wire wire(std::make_unique<RecordedStream>(none, documented("rename")));
  const Wire::Head head = wire.receive_head(after_seconds(1)).value();
  const Request request = decode_request(head.header, head.fields).value();
  EXPECT_TRUE(request.again);
  const auto& understood = std::get<RenameRequest>(request.message);
  EXPECT_EQ(understood.to, "sets/example/7.set");
  EXPECT_EQ(understood.identity, rename().identity);

  Wire failing(std::make_unique<RecordedStream>(none, documented("reply to write")));
  const Wire::Head failed = failing.receive_head(after_seconds(1)).value();
  const Status failure = decode_fields<ReplyTo<WriteRequest>>(failed.fields)->status;
  EXPECT_EQ(failure.code(), StatusCode::no_space);
  EXPECT_EQ(failure.remedy(), Remedy::free_space);
}

}  // namespace
}  // namespace varve
