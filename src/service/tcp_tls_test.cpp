#include "service/tcp_tls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

namespace varve {
namespace {

#ifdef VARVE_HAVE_TLS
constexpr double kPatienceSeconds = 20;

/// The two ends of a connection.
struct Streams {
  std::unique_ptr<ByteStream> client, server;

  Streams() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
    const SharedKey key{};
    const auto accepting = TlsParty::create(TlsParty::Role::server, {key}).value();
    const auto connecting = TlsParty::create(TlsParty::Role::client, {key}).value();
    std::thread accepted(
        [&] { server = accepting->shake_hands(UniqueFd(sockets[0]), after_seconds(kPatienceSeconds)).value().stream; });
    client = connecting->shake_hands(UniqueFd(sockets[1]), after_seconds(kPatienceSeconds)).value().stream;
    accepted.join();
  }
};

ByteVector random_bytes(size_t bytes, uint32_t seed) {
  std::mt19937 numbers(seed);
  ByteVector made(bytes);
  for (std::byte& each : made) each = static_cast<std::byte>(numbers());
  return made;
}

Status read_all(ByteStream& stream, MutableByteSpan into, double seconds) {
  while (!into.empty()) {
    VARVE_ASSIGN(const size_t got, stream.read_some(into, after_seconds(seconds)));
    if (got == 0) return Status::io_error("closed");
    into = into.subspan(got);
  }
  return {};
}

TEST(TlsStream, GivesWhatWasWrittenWhateverTheSizes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Streams streams;
  std::vector<size_t> sizes{1, 40, 16'383, 16'384, 16'385, 262'495, 262'496, 262'497, 1'048'576, 3'000'000};
  std::shuffle(sizes.begin(), sizes.end(), std::mt19937(seed));
  std::thread writer([&] {
    for (const size_t bytes : sizes) {
      const ByteVector made = random_bytes(bytes, seed + static_cast<uint32_t>(bytes));
      const std::array<ByteSpan, 2> parts{ByteSpan(made).first(bytes / 3), ByteSpan(made).subspan(bytes / 3)};
      EXPECT_TRUE(streams.client->write(parts, after_seconds(kPatienceSeconds)).ok()) << bytes;
    }
  });
  for (const size_t bytes : sizes) {
    ByteVector got(bytes);
    const Status read = read_all(*streams.server, got, kPatienceSeconds);
    EXPECT_TRUE(read.ok()) << bytes << ": " << read.to_string();
    EXPECT_TRUE(got == random_bytes(bytes, seed + static_cast<uint32_t>(bytes))) << bytes;
  }
  writer.join();
}

TEST(TlsStream, DoesNotWaitLongerThanItMayForTheRestOfALargeMessage) {
  Streams streams;
  const ByteVector begin(200'000);
  const std::array<ByteSpan, 1> parts{ByteSpan(begin)};
  ASSERT_TRUE(streams.client->write(parts, after_seconds(kPatienceSeconds)).ok());
  ByteVector into(1'000'000);
  EXPECT_EQ(read_all(*streams.server, into, 0.2).code(), StatusCode::io_error);
}

TEST(TlsStream, GivesTheBeginOfALargeMessageBeforeTheRestIsThere) {
  Streams streams;
  ByteVector into(1'000'000);
  const ByteVector small(1'000), rest(999'000);
  const std::array<ByteSpan, 1> first{ByteSpan(small)}, second{ByteSpan(rest)};
  ASSERT_TRUE(streams.client->write(first, after_seconds(kPatienceSeconds)).ok());
  EXPECT_EQ(streams.server->read_some(into, after_seconds(kPatienceSeconds)).value(), small.size());
  std::thread writer([&] { EXPECT_TRUE(streams.client->write(second, after_seconds(kPatienceSeconds)).ok()); });
  EXPECT_TRUE(read_all(*streams.server, MutableByteSpan(into).subspan(small.size()), kPatienceSeconds).ok());
  writer.join();
}

TEST(TlsStream, KeepsWhatHasComeAndIsNotReadYetWhenItRests) {
  Streams streams;
  const ByteVector sent = random_bytes(50'000, 1);
  const std::array<ByteSpan, 1> parts{ByteSpan(sent)};
  ASSERT_TRUE(streams.client->write(parts, after_seconds(kPatienceSeconds)).ok());
  ByteVector got(sent.size());
  ASSERT_TRUE(read_all(*streams.server, MutableByteSpan(got).first(10), kPatienceSeconds).ok());
  streams.server->rest();
  ASSERT_TRUE(read_all(*streams.server, MutableByteSpan(got).subspan(10), kPatienceSeconds).ok());
  EXPECT_TRUE(got == sent);
}

/// Two ends whose bytes pass through the test's hands.
struct RelayedStreams {
  std::unique_ptr<ByteStream> client, server;

  RelayedStreams() {
    std::array<int, 2> near{}, far{};
    for (auto* pair : {&near, &far}) EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair->data()), 0);
    from_client_.reset(near[1]);
    to_server_.reset(far[1]);
    const SharedKey key{};
    const auto accepting = TlsParty::create(TlsParty::Role::server, {key}).value();
    const auto connecting = TlsParty::create(TlsParty::Role::client, {key}).value();
    std::thread accepted(
        [&] { server = accepting->shake_hands(UniqueFd(far[0]), after_seconds(kPatienceSeconds)).value().stream; });
    std::atomic<bool> done{false};
    std::thread relay([&] {
      while (!done) {
        pollfd both[2] = {{from_client_.get(), POLLIN, 0}, {to_server_.get(), POLLIN, 0}};
        ::poll(both, 2, 10);
        if (both[0].revents != 0) pass(from_client_, to_server_, 4096);
        if (both[1].revents != 0) pass(to_server_, from_client_, 4096);
      }
    });
    client = connecting->shake_hands(UniqueFd(near[0]), after_seconds(kPatienceSeconds)).value().stream;
    accepted.join();
    done = true;
    relay.join();
  }
  /// Lets so many bytes, at most, come to the server.
  size_t pass(size_t bytes) const { return pass(from_client_, to_server_, bytes); }

 private:
  static size_t pass(const UniqueFd& from, const UniqueFd& to, size_t bytes) {
    ByteVector held(bytes);
    const ssize_t got = ::recv(from.get(), held.data(), held.size(), MSG_DONTWAIT);
    return got <= 0
               ? 0
               : static_cast<size_t>(std::max<ssize_t>(::send(to.get(), held.data(), static_cast<size_t>(got), 0), 0));
  }
  UniqueFd from_client_, to_server_;
};

TEST(TlsStream, GivesWhatIsThereWithoutWaitingForTheRestOfARecord) {
  const RelayedStreams streams;
  ByteVector into(100);
  EXPECT_FALSE(streams.server->read_some_now(into).value());
  EXPECT_FALSE(streams.server->has_input());
  const ByteVector sent = random_bytes(40, 1);
  const std::array<ByteSpan, 1> parts{ByteSpan(sent)};
  ASSERT_TRUE(streams.client->write(parts, after_seconds(kPatienceSeconds)).ok());
  constexpr size_t header = 5;  // of a record
  for (const size_t bytes : {header, header, size_t{10}, size_t{10}}) {
    ASSERT_EQ(streams.pass(bytes), bytes);
    EXPECT_FALSE(streams.server->read_some_now(into).value());
    EXPECT_TRUE(streams.server->has_input());
    streams.server->rest();
  }
  ASSERT_GT(streams.pass(1000), 0u);
  EXPECT_EQ(streams.server->read_some_now(into).value(), sent.size());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), into.begin()));
  EXPECT_FALSE(streams.server->read_some_now(into).value());
  EXPECT_FALSE(streams.server->has_input());
}
#endif

}  // namespace
}  // namespace varve
