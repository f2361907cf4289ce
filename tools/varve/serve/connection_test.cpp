#include "serve/connection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hash/score.h"
#include "serve/test_requests.h"
#include "sets/saving.h"

namespace varve {
namespace {

template <class Message>
void append_frame(ByteVector& out, const Message& message) {
  const ByteVector fields = encode_fields(message);
  WireHeader header;
  header.message = Message::kMessage.number;
  header.fields_bytes = static_cast<uint32_t>(fields.size());
  header.fields_crc = crc32c(fields);
  header.data_crc = crc32c({});
  std::byte raw[kWireHeaderBytes];
  encode_wire_header(header, raw);
  out.insert(out.end(), raw, raw + sizeof raw);
  out.insert(out.end(), fields.begin(), fields.end());
}

/// What a test knows of a client, and says of it.
struct ClientFacts {
  ByteVector sends;
  bool takes_output = true;
  size_t taken_bytes = 0;
};

class ClientStream final : public ByteStream {
 public:
  explicit ClientStream(ClientFacts& facts) : facts_(facts) {}
  Result<size_t> read_some(MutableByteSpan into, Deadline) override {
    VARVE_ASSIGN(const std::optional<size_t> got, read_some_now(into));
    return got ? Result<size_t>(*got) : Status::io_error("the client says no more");
  }
  Result<std::optional<size_t>> read_some_now(MutableByteSpan into) override {
    const size_t bytes = std::min(into.size(), facts_.sends.size());
    if (bytes == 0) return std::optional<size_t>();
    std::copy_n(facts_.sends.begin(), bytes, into.begin());
    facts_.sends.erase(facts_.sends.begin(), facts_.sends.begin() + static_cast<ptrdiff_t>(bytes));
    return std::optional(bytes);
  }
  Status write(std::span<const ByteSpan> parts, Deadline) override {
    for (const ByteSpan part : parts) facts_.taken_bytes += part.size();
    return {};
  }
  bool takes_output() const override { return facts_.takes_output; }

 private:
  ClientFacts& facts_;
};

TEST(AConnectionThatWaits, TakesATurnToTellAClientThatTakesNoOutput) {
  const test::TempFolder folder;
  const auto files = ServedFolder::open(folder / "served", is_store_path).value();
  ServedStore store(*files, id_of(7));
  store.transfer = [](TransferDirection, const SetTransfer&, const NextLevel::Done&) { return Status(); };
  KeyShare share(Rights::all, {.turns = 1});
  ClientFacts client;
  append_frame(client.sends, HelloRequest{id_of(100)});
  append_frame(client.sends, PushRequest{.token = id_of(1)});
  Connection connection(
      store, std::make_unique<ClientStream>(client), share, {}, after_seconds(60), [] { return Status(); }, [] {});
  DataBuffer buffer;
  ASSERT_EQ(connection.serve(buffer).value(), Connection::Next::rests);
  ASSERT_EQ(connection.serve(buffer).value(), Connection::Next::waits) << "for the push";

  client.takes_output = false;
  KeyShare::Turn other(share, [] {});
  ASSERT_TRUE(other.take());
  const size_t before = client.taken_bytes;
  EXPECT_EQ(connection.serve(buffer).value(), Connection::Next::waits);
  EXPECT_EQ(client.taken_bytes, before);
  other.give_back();
  EXPECT_EQ(connection.serve(buffer).value(), Connection::Next::waits);
  EXPECT_GT(client.taken_bytes, before) << "a sign of life";
  EXPECT_TRUE(other.take()) << "it was given back";
}

}  // namespace
}  // namespace varve
