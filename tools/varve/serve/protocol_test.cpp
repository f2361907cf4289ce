#include "service/protocol.h"

#include <gtest/gtest.h>

#include <random>

#include "hash/score.h"
#include "serve/test_requests.h"
#include "service/socket.h"

namespace varve {
namespace {

WireHeader header_of(const Request& request, const ByteVector& fields) {
  WireHeader header;
  header.message = static_cast<uint8_t>(request.message);
  header.flags = request.again ? WireHeader::kAgain : 0;
  header.request = request.number;
  header.fields_bytes = static_cast<uint32_t>(fields.size());
  if (request.message == Message::find) header.data_bytes = static_cast<uint32_t>(8 * request.prefix_count);
  return header;
}

std::vector<Message> all_messages() {
  std::vector<Message> messages;
  for (unsigned number = 0; number < 256; ++number) {
    if (const auto message = message_of(static_cast<uint8_t>(number))) messages.push_back(*message);
  }
  return messages;
}

TEST(Protocol, KnowsTwentySixMessages) { EXPECT_EQ(all_messages().size(), 26u); }

TEST(Protocol, CarriesEveryRequestWithItsFields) {
  for (const Message message : all_messages()) {
    const Request request = full_request(message);
    const ByteVector fields = encode_request_fields(request);
    const Result<Request> back = decode_request(header_of(request, fields), fields);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(encode_request_fields(*back), fields);
    EXPECT_EQ(back->message, message);
    EXPECT_TRUE(back->again);
    EXPECT_EQ(back->number, 42u);
  }
  const ByteVector fields = encode_request_fields(full_request(Message::rename));
  const Request rename = decode_request(header_of(full_request(Message::rename), fields), fields).value();
  EXPECT_EQ(rename.path, "arenas/x");
  EXPECT_EQ(rename.to, "sets/y");
  EXPECT_TRUE(rename.replace);
  EXPECT_EQ(rename.identity, (FileIdentity{1, uint64_t{1} << 63, -5}));
  EXPECT_EQ(rename.token, id_of(2));
}

TEST(Protocol, CarriesEveryReplyWithItsFields) {
  for (const Message message : all_messages()) {
    Reply reply;
    reply.server = id_of(3);
    reply.boot = id_of(4);
    reply.connections = 256;
    reply.handle = 7;
    reply.identity = {5, 6, 7};
    reply.file = {.bytes = 1, .allocated_bytes = 2, .modified_ns = -3, .is_directory = true};
    reply.counts = {1, 2, 3};
    reply.transfer.sent_bytes = 99;
    const ByteVector fields = encode_reply_fields(message, reply);
    const Result<Reply> back = decode_reply(message, fields);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(encode_reply_fields(message, *back), fields);

    reply.outcome = Outcome::failed;
    reply.status = Status::not_found("gone", "", "look elsewhere");
    const Reply failed = decode_reply(message, encode_reply_fields(message, reply)).value();
    EXPECT_EQ(failed.status.to_string(), reply.status.to_string());
    for (const Outcome outcome : {Outcome::unknown_handle, Outcome::cannot_tell}) {
      reply.outcome = outcome;
      EXPECT_EQ(decode_reply(message, encode_reply_fields(message, reply)).value().outcome, outcome);
    }
  }
}

TEST(Protocol, RefusesFieldsThatAreCutOffOrTooMany) {
  for (const Message message : all_messages()) {
    const Request request = full_request(message);
    ByteVector fields = encode_request_fields(request);
    for (size_t bytes = 0; bytes < fields.size(); ++bytes)
      EXPECT_FALSE(decode_request(header_of(request, fields), ByteSpan(fields).first(bytes)).ok());
    fields.push_back({});
    EXPECT_EQ(decode_request(header_of(request, fields), fields).status().code(), StatusCode::corrupt);
  }
}

TEST(Protocol, SurvivesAnyBytes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    ByteVector fields(random() % 64);
    for (std::byte& byte : fields) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 4);
    WireHeader header;
    header.message = static_cast<uint8_t>(random() % 27);
    (void)decode_request(header, fields).ok();
    if (const auto message = message_of(header.message)) (void)decode_reply(*message, fields).ok();
    std::vector<DirectoryEntry> entries;
    (void)decode_entries(fields, entries).ok();
  }
}

TEST(Protocol, RefusesNamesThatLeadOutOfAFolder) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\0", 2)}) {
    ByteVector data;
    append_entry(data, {name, false});
    std::vector<DirectoryEntry> entries;
    EXPECT_EQ(decode_entries(data, entries).code(), StatusCode::corrupt) << name;
  }
}

TEST(WireFrame, RefusesWhatIsNoFrame) {
  WireHeader header;
  header.message = 7;
  header.request = 9;
  header.fields_bytes = 3;
  std::byte raw[kWireHeaderBytes];
  encode_wire_header(header, raw);
  ASSERT_TRUE(decode_wire_header(raw).ok());
  EXPECT_EQ(decode_wire_header(raw)->request, 9u);
  for (size_t bit = 0; bit < 8 * sizeof raw; ++bit) {
    raw[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_wire_header(raw).ok()) << "bit " << bit;
    raw[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(WireFrame, RefusesSizesThatNoMessageHas) {
  std::byte raw[kWireHeaderBytes];
  for (const auto& [fields, data] : {std::pair{kWireFieldsBytesMax + 1, 0u}, std::pair{0u, kWireDataBytesMax + 1}}) {
    WireHeader header;
    header.fields_bytes = fields;
    header.data_bytes = data;
    encode_wire_header(header, raw);
    EXPECT_EQ(decode_wire_header(raw).status().code(), StatusCode::corrupt);
  }
  encode_wire_header({}, raw);
  raw[4] = std::byte{kWireVersion + 1};  // of another version, and whole
  store_le(raw + 36, crc32c(ByteSpan(raw, 36)));
  EXPECT_EQ(decode_wire_header(raw).status().code(), StatusCode::unsupported);
}

TEST(ServerAddress, IsWhatUsersWrite) {
  for (const char* text : {"unix:/tmp/x", "unix:relative", "tcp://host:7070", "tcp://10.0.0.1:1", "tcp://[::1]:65535"})
    EXPECT_EQ(ServerAddress::parse(text).value().to_string(), text);
  EXPECT_EQ(ServerAddress::parse("tcp://[::1]:80")->host, "::1");
  for (const std::string& text : {std::string("/tmp/x"), std::string("unix:"), "unix:" + std::string(200, 'a'),
                                  std::string("tcp://host"), std::string("tcp://:80"), std::string("tcp://host:"),
                                  std::string("tcp://host:99999"), std::string("tcp://::1:80"),
                                  std::string("tcp://host:8x"), std::string("tcp://a/b:80"), std::string("http://h:1")})
    EXPECT_EQ(ServerAddress::parse(text).status().code(), StatusCode::invalid_argument) << text;
}

}  // namespace
}  // namespace varve
