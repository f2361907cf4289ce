#include "service/protocol.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "hash/score.h"
#include "serve/test_requests.h"
#include "service/socket.h"

namespace varve {
namespace {

template <class Message>
WireHeader header_of(const Message& request) {
  WireHeader header;
  header.message = Message::kMessage.number;
  header.flags = WireHeader::kAgain;
  if constexpr (requires { request.prefix_count; }) header.data_bytes = static_cast<uint32_t>(8 * request.prefix_count);
  return header;
}

TEST(Protocol, KnowsTwentySixMessages) {
  std::vector<int> numbers, known;
  for_each_message([&](auto message) { numbers.push_back(message.kMessage.number); });
  for (int number = 0; number < 256; ++number) {
    WireHeader header;
    header.message = static_cast<uint8_t>(number);
    if (decode_request(header, {}).status().code() != StatusCode::unsupported) known.push_back(number);
  }
  EXPECT_EQ(numbers.size(), 26u);
  EXPECT_EQ(numbers, known);
}

TEST(Protocol, CarriesEveryRequestWithItsFields) {
  for_each_message([](auto empty) {
    using Message = decltype(empty);
    SCOPED_TRACE(int{empty.kMessage.number});
    const auto request = filled<Message>();
    const ByteVector fields = encode_fields(request);
    const Result<Request> back = decode_request(header_of(request), fields);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    ASSERT_TRUE(std::holds_alternative<Message>(back->message));
    EXPECT_EQ(encode_fields(std::get<Message>(back->message)), fields);
    EXPECT_TRUE(back->again);
  });
  RenameRequest request;
  request.token = id_of(2);
  request.path = "arenas/x";
  request.to = "sets/y";
  request.replace = true;
  request.identity = {1, uint64_t{1} << 63, -5};
  const Request back = decode_request(header_of(request), encode_fields(request)).value();
  const auto& rename = std::get<RenameRequest>(back.message);
  EXPECT_EQ(rename.path, "arenas/x");
  EXPECT_EQ(rename.to, "sets/y");
  EXPECT_TRUE(rename.replace);
  EXPECT_EQ(rename.identity, (FileIdentity{1, uint64_t{1} << 63, -5}));
  EXPECT_EQ(rename.token, id_of(2));
}

TEST(Protocol, CarriesEveryReplyWithItsFields) {
  for_each_message([](auto empty) {
    using OwnReply = ReplyTo<decltype(empty)>;
    SCOPED_TRACE(int{empty.kMessage.number});
    OwnReply reply = filled<typename decltype(empty)::ReplyFields>();
    const ByteVector fields = encode_fields(reply);
    const auto back = decode_fields<OwnReply>(fields);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->outcome, Outcome::done);
    EXPECT_EQ(encode_fields(*back), fields);

    reply = Status::not_found("gone", "", "look elsewhere");
    const OwnReply failed = decode_fields<OwnReply>(encode_fields(reply)).value();
    EXPECT_EQ(failed.outcome, Outcome::failed);
    EXPECT_EQ(failed.status.to_string(), reply.status.to_string());
    for (const Outcome outcome : {Outcome::unknown_handle, Outcome::cannot_tell}) {
      reply = outcome;
      EXPECT_EQ(decode_fields<OwnReply>(encode_fields(reply)).value().outcome, outcome);
    }
  });
}

/// A message's fields in another order would be understood by nobody else, and yet come back as they were sent.
TEST(Protocol, SendsTheFieldsOfEveryMessageAsItAlwaysDid) {
  std::vector<std::string> checksums;
  for_each_message([&](auto empty) {
    const auto reply = filled<typename decltype(empty)::ReplyFields>();
    checksums.push_back(fmt::format("{:08x} {:08x}", crc32c(encode_fields(filled<decltype(empty)>())),
                                    crc32c(encode_fields(ReplyTo<decltype(empty)>(reply)))));
  });
  EXPECT_EQ(checksums,
            (std::vector<std::string>{
                "a0de6714 c9e60d61", "00000000 527d5351", "00000000 527d5351", "bec6ce6c 41071c37", "79bb3457 41071c37",
                "8baa1857 41071c37", "464ee263 1ccb2522", "741a0768 527d5351", "741a0768 527d5351", "f8c90e28 527d5351",
                "f8c90e28 69ccda80", "f8c90e28 527d5351", "bec6ce6c 7889bf36", "bec6ce6c 527d5351", "bec6ce6c 527d5351",
                "5abef4ba 527d5351", "5abef4ba 527d5351", "7ff260fe 527d5351", "bec6ce6c 527d5351", "bec6ce6c 527d5351",
                "f8c90e28 1ccb2522", "69cc8963 d8d7958f", "69cc8963 d8d7958f", "269aecd0 527d5351", "9bd6beef 1ccb2522",
                "bec6ce6c 69ccda80"}));
}

TEST(Protocol, SendsFailuresAndTheirRemediesAsItAlwaysDid) {
  const Status in_words = Status::not_found("gone", "", "look elsewhere");
  const Status with_remedy(StatusCode::no_space, "full", "", Remedy::free_space);
  const Status about_something(StatusCode::invalid_argument, "short", "subject", {Remedy::make_key, "key"});
  std::vector<std::string> checksums;
  for (const auto& reply :
       {Reply<OpenedFile>(in_words), Reply<OpenedFile>(with_remedy), Reply<OpenedFile>(about_something),
        Reply<OpenedFile>(Outcome::unknown_handle), Reply<OpenedFile>(Outcome::cannot_tell)})
    checksums.push_back(fmt::format("{:08x}", crc32c(encode_fields(reply))));
  for (const auto& answer : {AnswerRequest{about_something, 300}, AnswerRequest{{}, 300}})
    checksums.push_back(fmt::format("{:08x}", crc32c(encode_fields(answer))));
  EXPECT_EQ(checksums, (std::vector<std::string>{"c61eb735", "57b6f1ae", "487e9ebd", "b34623a6", "412da0a5", "02ed659d",
                                                 "d6896812"}));
}

/// Every beginning of `fields`, and all of them with a byte more.
void expect_refused_if_cut_off_or_longer(ByteVector fields, const std::function<Status(ByteSpan)>& decode) {
  for (size_t bytes = 0; bytes < fields.size(); ++bytes)
    EXPECT_EQ(decode(ByteSpan(fields).first(bytes)).code(), StatusCode::corrupt) << bytes;
  fields.push_back({});
  EXPECT_EQ(decode(fields).code(), StatusCode::corrupt);
}

TEST(Protocol, RefusesFieldsThatAreCutOffOrTooMany) {
  for_each_message([](auto empty) {
    SCOPED_TRACE(int{empty.kMessage.number});
    const auto request = filled<decltype(empty)>();
    expect_refused_if_cut_off_or_longer(
        encode_fields(request), [&](ByteSpan fields) { return decode_request(header_of(request), fields).status(); });
    using OwnReply = ReplyTo<decltype(empty)>;
    for (const OwnReply& reply : {OwnReply(filled<typename decltype(empty)::ReplyFields>()),
                                  OwnReply(Status::not_found("gone")), OwnReply(Outcome::cannot_tell)})
      expect_refused_if_cut_off_or_longer(encode_fields(reply),
                                          [](ByteSpan fields) { return decode_fields<OwnReply>(fields).status(); });
  });
}

TEST(Protocol, RefusesTextsAndListsThatAreTooLong) {
  auto code_of = [](const auto& request) {
    return decode_request(header_of(request), encode_fields(request)).status().code();
  };
  EXPECT_EQ(code_of(OpenRequest{std::string(kFieldTextBytesMax, 'a')}), StatusCode::ok);
  EXPECT_EQ(code_of(OpenRequest{std::string(kFieldTextBytesMax + 1, 'a')}), StatusCode::corrupt);
  EXPECT_EQ(code_of(PushRequest{.what = {.set = "a@1", .recode = std::string(200, 'a')}}), StatusCode::ok);
  EXPECT_EQ(code_of(PushRequest{.what = {.set = "a@1", .recode = std::string(201, 'a')}}), StatusCode::corrupt);
  EXPECT_EQ(code_of(ReadRequest{1, std::vector<ReadRange>(kReadRangesMax)}), StatusCode::ok);
  EXPECT_EQ(code_of(ReadRequest{1, std::vector<ReadRange>(kReadRangesMax + 1)}), StatusCode::corrupt);
  EXPECT_EQ(code_of(FindRequest{kFindPrefixesMax}), StatusCode::ok);
  EXPECT_EQ(code_of(FindRequest{kFindPrefixesMax + 1}), StatusCode::corrupt);
}

TEST(Protocol, RefusesDataWhereNoneBelong) {
  for_each_message([](auto empty) {
    const auto request = filled<decltype(empty)>();
    WireHeader header = header_of(request);
    header.data_bytes += 8;
    const bool takes_any = empty.kMessage.takes_data && !std::is_same_v<decltype(empty), FindRequest>;
    EXPECT_EQ(decode_request(header, encode_fields(request)).ok(), takes_any) << int{empty.kMessage.number};
  });
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
    for_each_message([&](auto message) {
      if (message.kMessage.number == header.message) (void)decode_fields<ReplyTo<decltype(message)>>(fields).ok();
    });
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
