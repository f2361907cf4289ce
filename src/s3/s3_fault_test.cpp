#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <random>

#include "s3/test_s3.h"

namespace varve {
namespace {

/// A transport that answers what the test tells it to.
class ScriptedTransport final : public HttpTransport {
 public:
  explicit ScriptedTransport(std::function<HttpReply(const HttpRequest&)> answer) : answer_(std::move(answer)) {}
  HttpReply exchange(const HttpRequest& request) override {
    ++requests;
    return answer_(request);
  }
  int requests = 0;

 private:
  const std::function<HttpReply(const HttpRequest&)> answer_;
};

HttpReply reply_of(int status, std::string_view body, std::vector<HttpHeader> headers = {}) {
  HttpReply reply;
  reply.times_sent = 1;
  reply.status = status;
  reply.headers = std::move(headers);
  reply.headers.push_back({"content-length", fmt::to_string(body.size())});
  reply.body.assign(as_bytes(body).begin(), as_bytes(body).end());
  return reply;
}

class S3FaultTest : public testing::Test {
 protected:
  FakeService service_;
  FakeS3& fake_ = service_.fake();
  S3Client& client_ = service_.client();
};

const std::vector<S3Fault> kPassing{S3Fault::refused,   S3Fault::lost_request, S3Fault::lost_reply,
                                    S3Fault::error_500, S3Fault::slow_down,    S3Fault::error_500_after,
                                    S3Fault::too_many,  S3Fault::torn_body};

TEST_F(S3FaultTest, EveryCallGoesThroughFaultsThatPass) {
  for (const S3Fault fault : kPassing) {
    SCOPED_TRACE(static_cast<int>(fault));
    const auto fail = [&] { fake_.fail_next({fault, fault, fault}); };
    fail();
    EXPECT_TRUE(client_.put("k", as_bytes("contents")).ok());
    fail();
    EXPECT_EQ(text_of(client_.read_all("k", 100)), "contents");
    fail();
    EXPECT_EQ(client_.head("k").value().bytes, 8u);
    fail();
    EXPECT_EQ(client_.list("k").value().objects.size(), 1u);
    std::string part(4, '?');
    fail();
    EXPECT_EQ(client_.read("k", 2, std::as_writable_bytes(std::span(part))).value(), 4u);
    EXPECT_EQ(part, "nten");
    fail();
    EXPECT_TRUE(client_.remove("k").ok());
    fail();
    EXPECT_TRUE(client_.remove_many(std::vector<std::string>{"k", "l"}).ok());
    fail();
    const auto upload = S3Upload::begin(client_, "u").value();
    fail();
    EXPECT_TRUE(upload->part(1, as_bytes("part")).ok());
    fail();
    EXPECT_TRUE(upload->complete(S3Condition::if_absent()).ok());
    EXPECT_EQ(fake_.object("u"), "part");
    fail();
    EXPECT_TRUE(client_.list_uploads("").ok());
    fail();
    EXPECT_TRUE(client_.abort_upload("u", upload->id()).ok());
    ASSERT_TRUE(client_.remove("u").ok());
  }
  EXPECT_GT(client_.counters().repeats, 200u);
}

TEST_F(S3FaultTest, AConditionalWriteWhoseReplyWasLostSucceedsOnce) {
  for (const S3Fault fault : {S3Fault::lost_reply, S3Fault::error_500_after, S3Fault::repeated}) {
    SCOPED_TRACE(static_cast<int>(fault));
    fake_.fail_next({fault});
    const std::string first = client_.put("k", as_bytes("one"), S3Condition::if_absent()).value();
    EXPECT_EQ(client_.head("k")->etag, first);
    fake_.fail_next({fault});
    const std::string second = client_.put("k", as_bytes("two"), S3Condition::if_unchanged(first)).value();
    EXPECT_EQ(fake_.object("k"), "two");
    EXPECT_EQ(client_.head("k")->etag, second);
    ASSERT_TRUE(client_.remove("k").ok());
  }
}

TEST_F(S3FaultTest, AConditionalWriteThatSomebodyElseWonFailsAlsoAfterARetry) {
  for (const S3Fault fault : {S3Fault::refused, S3Fault::lost_request, S3Fault::error_500, S3Fault::slow_down}) {
    SCOPED_TRACE(static_cast<int>(fault));
    bool done = false;
    fake_.set_before_effect([&](const HttpRequest& request) {
      if (request.method == HttpMethod::put && !std::exchange(done, true)) fake_.set_object("k", "theirs");
    });
    fake_.fail_next({fault});
    EXPECT_EQ(client_.put("k", as_bytes("ours"), S3Condition::if_absent()).status().code(), StatusCode::already_exists);
    EXPECT_EQ(fake_.object("k"), "theirs");
    fake_.set_before_effect({});
    const std::string etag = client_.head("k")->etag;
    fake_.set_object("k", "theirs again");
    fake_.fail_next({fault});
    EXPECT_EQ(client_.put("k", as_bytes("ours"), S3Condition::if_unchanged(etag)).status().code(), StatusCode::busy);
    EXPECT_EQ(fake_.object("k"), "theirs again");
    ASSERT_TRUE(client_.remove("k").ok());
  }
}

TEST_F(S3FaultTest, AnUploadCompletedWithoutAReplyIsComplete) {
  for (const S3Fault fault : {S3Fault::lost_reply, S3Fault::error_500_after, S3Fault::repeated, S3Fault::torn_body}) {
    SCOPED_TRACE(static_cast<int>(fault));
    const auto upload = S3Upload::begin(client_, "k").value();
    ASSERT_TRUE(upload->part(1, as_bytes("one ")).ok());
    ASSERT_TRUE(upload->part(2, as_bytes("two")).ok());
    fake_.fail_next({fault});
    const std::string etag = upload->complete(S3Condition::if_absent()).value();
    EXPECT_EQ(fake_.object("k"), "one two");
    EXPECT_EQ(client_.head("k")->etag, etag);
    ASSERT_TRUE(client_.remove("k").ok());
  }
  // But another object in its place is none of ours.
  const auto upload = S3Upload::begin(client_, "k").value();
  ASSERT_TRUE(upload->part(1, as_bytes("ours  ")).ok());
  fake_.fail_next({S3Fault::lost_request});
  fake_.set_object("k", "theirs");
  EXPECT_EQ(upload->complete(S3Condition::if_absent()).status().code(), StatusCode::already_exists);
}

TEST_F(S3FaultTest, ACompletionMayFailBehindAStatusOfSuccess) {
  for (const bool passes : {true, false}) {
    ScriptedTransport transport([&](const HttpRequest&) {
      if (transport.requests > 1)
        return reply_of(200, "<CompleteMultipartUploadResult><ETag>e-1</ETag></CompleteMultipartUploadResult>");
      return reply_of(200,
                      passes ? "<Error><Code>InternalError</Code></Error>" : "<Error><Code>InvalidPart</Code></Error>");
    });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    const std::vector<S3Client::Part> parts{{1, "e", 1}};
    const Result<std::string> etag = client.complete_upload("k", "id", parts);
    EXPECT_EQ(etag.status().code(), passes ? StatusCode::ok : StatusCode::invalid_argument);
    EXPECT_EQ(transport.requests, passes ? 2 : 1);
    EXPECT_FALSE(client.complete_upload("k", "id", parts, S3Condition::if_unchanged("a\r\nb: c")).ok());
  }
}

TEST_F(S3FaultTest, ReadsAreTriedAgainWhenTheyArriveDamaged) {
  fake_.set_object("k", std::string(100, 'x'));
  fake_.fail_next({S3Fault::damaged_body, S3Fault::torn_body});
  EXPECT_EQ(text_of(client_.read_all("k", 100)), std::string(100, 'x'));
  EXPECT_EQ(client_.counters().of(S3Verb::get), 3u);
}

TEST_F(S3FaultTest, RetriesEndInTimeWithPausesThatGrowAndDiffer) {
  fake_.set_faults([](const HttpRequest&) { return S3Fault::slow_down; });
  const Status status = client_.put("k", as_bytes("x")).status();
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_NE(status.to_string().find("503 SlowDown"), std::string::npos) << status.to_string();
  EXPECT_NE(status.to_string().find("s3://bucket/k"), std::string::npos);
  EXPECT_NEAR(service_.clock().seconds(), 60, 0.001);
  // Bounds of 0.1, 0.2, ... 6.4, 10, 10, ...: of which half is waited on average.
  EXPECT_GT(client_.counters().of(S3Verb::put), 10u);
  EXPECT_LT(client_.counters().of(S3Verb::put), 60u);
  EXPECT_EQ(client_.counters().repeats, client_.counters().of(S3Verb::put) - 1);
}

TEST_F(S3FaultTest, NothingElseIsTriedAgain) {
  const std::vector<std::pair<HttpReply, StatusCode>> replies{
      {reply_of(400, "<Error><Code>InvalidArgument</Code></Error>"), StatusCode::invalid_argument},
      {reply_of(401, ""), StatusCode::permission_denied},
      {reply_of(403, "<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"), StatusCode::permission_denied},
      {reply_of(403, "<Error><Code>QuotaExceeded</Code></Error>"), StatusCode::no_space},
      {reply_of(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"), StatusCode::permission_denied},
      {reply_of(404, "<html>"), StatusCode::not_found},
      {reply_of(405, ""), StatusCode::unsupported},
      {reply_of(409, "<Error><Code>InvalidBucketState</Code></Error>"), StatusCode::invalid_argument},
      {reply_of(501, "<Error><Code>NotImplemented</Code></Error>"), StatusCode::unsupported},
      {reply_of(507, ""), StatusCode::no_space},
      {reply_of(301, "<Error><Code>PermanentRedirect</Code></Error>", {{"x-amz-bucket-region", "eu-north-1"}}),
       StatusCode::invalid_argument},
      {reply_of(307, ""), StatusCode::invalid_argument},
      {reply_of(200, ""), StatusCode::corrupt},  // without an ETag
      {reply_of(200, "", {{"etag", "\"a\nb\""}}), StatusCode::corrupt},
      {reply_of(200, "", {{"etag", "\"00000000000000000000000000000000\""}}), StatusCode::corrupt},
  };
  for (const auto& [reply, code] : replies) {
    SCOPED_TRACE(fmt::format("{} {}", reply.status, as_text(reply.body)));
    ScriptedTransport transport([&, &answer = reply](const HttpRequest&) { return answer; });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    const Status status = client.put("k", as_bytes("x")).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(transport.requests, 1);
    if (reply.status == 301) {
      EXPECT_NE(status.to_string().find("AWS_REGION to eu-north-1"), std::string::npos);
    }
  }
}

TEST_F(S3FaultTest, ConflictsOfTwoRequestsAreTriedAgain) {
  for (const char* code : {"ConditionalRequestConflict", "OperationAborted"}) {
    ScriptedTransport transport([&](const HttpRequest&) {
      if (transport.requests < 3) return reply_of(409, fmt::format("<Error><Code>{}</Code></Error>", code));
      return reply_of(200, "", {{"etag", "\"e\""}});
    });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    EXPECT_EQ(client.put("k", as_bytes("x"), S3Condition::if_absent()).value(), "e");
    EXPECT_EQ(transport.requests, 3);
  }
}

TEST_F(S3FaultTest, HostileRepliesToReadsAreRefused) {
  const HttpHeader etag{"etag", "\"e\""}, modified{"last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"};
  const auto outcome = [&](const HttpReply& reply, const std::function<Status(S3Client&)>& act) {
    ScriptedTransport transport([&](const HttpRequest& request) {
      HttpReply answer = reply;
      if (!request.into.empty()) {
        answer.into_bytes = std::min(answer.body.size(), request.into.size());
        answer.body.clear();
      }
      return answer;
    });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    return act(client).code();
  };
  const auto read_all = [](S3Client& client) { return client.read_all("k", 100).status(); };
  EXPECT_EQ(outcome(reply_of(200, "x", {etag, modified}), read_all), StatusCode::ok);
  EXPECT_EQ(outcome(reply_of(200, "x", {etag}), read_all), StatusCode::corrupt);
  EXPECT_EQ(outcome(reply_of(200, "x", {modified}), read_all), StatusCode::corrupt);
  EXPECT_EQ(outcome(reply_of(200, "x", {etag, {"last-modified", "soon"}}), read_all), StatusCode::corrupt);
  HttpReply endless = reply_of(200, "x", {etag, modified});
  std::erase_if(endless.headers, [](const HttpHeader& header) { return header.name == "content-length"; });
  EXPECT_EQ(outcome(endless, read_all), StatusCode::corrupt);

  const auto read = [](S3Client& client) {
    std::string into(4, '?');
    return client.read("k", 2, std::as_writable_bytes(std::span(into))).status();
  };
  EXPECT_EQ(outcome(reply_of(206, "abcd", {{"content-range", "bytes 2-5/9"}}), read), StatusCode::ok);
  EXPECT_EQ(outcome(reply_of(206, "abc", {{"content-range", "bytes 2-4/5"}}), read), StatusCode::ok);
  EXPECT_EQ(outcome(reply_of(200, "abcd"), read), StatusCode::unsupported);
  EXPECT_EQ(outcome(reply_of(206, "abcd"), read), StatusCode::corrupt);
  for (const char* range : {"bytes 0-3/9", "bytes 2-6/9", "bytes 2-4/9", "bytes 5-2/9", "bytes 2-5/4", "bytes 2-5/*",
                            "bytes -2-5/9", "2-5/9", "bytes 2-5", "bytes 2-99999999999999999999/9", ""}) {
    EXPECT_EQ(outcome(reply_of(206, "abcd", {{"content-range", range}}), read), StatusCode::corrupt) << range;
  }
  EXPECT_EQ(outcome(reply_of(206, "abc", {{"content-range", "bytes 2-5/9"}}), read), StatusCode::io_error);
  EXPECT_EQ(outcome(reply_of(206, "abcd", {{"content-length", "5"}, {"content-range", "bytes 2-5/9"}}), read),
            StatusCode::io_error);

  const auto head = [](S3Client& client) { return client.head("k").status(); };
  HttpReply no_length = reply_of(200, "", {etag, modified});
  EXPECT_EQ(outcome(no_length, head), StatusCode::ok);
  no_length.headers.back().value = "many";
  EXPECT_EQ(outcome(no_length, head), StatusCode::corrupt);
}

TEST_F(S3FaultTest, HostileListsEnd) {
  const auto outcome = [&](const std::function<std::string(int)>& body) {
    int page = 0;
    ScriptedTransport transport([&](const HttpRequest&) { return reply_of(200, body(page++)); });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    options.list_entries_max = 1000;
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    return client.list("p/").status().code();
  };
  const auto list = [](const std::string& contents, const std::string& token) {
    return "<ListBucketResult><IsTruncated>true</IsTruncated>" + contents + "<NextContinuationToken>" + token +
           "</NextContinuationToken></ListBucketResult>";
  };
  EXPECT_EQ(outcome([&](int) { return list("", "again"); }), StatusCode::corrupt);
  EXPECT_EQ(outcome([&](int) { return list("<Contents><Key>q/a</Key></Contents>", "t"); }), StatusCode::corrupt);
  EXPECT_EQ(outcome([&](int) { return list("<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>", "t"); }),
            StatusCode::corrupt);
  EXPECT_EQ(outcome([&](int page) { return list("<Contents><Key>p/a</Key></Contents>", fmt::to_string(page)); }),
            StatusCode::resource_limit);
}

TEST_F(S3FaultTest, AClientWhoseClockIsWrongTakesTheServicesTime) {
  for (const int64_t ahead : {-100'000, -1000, -100, 0, 100, 1000, 100'000}) {
    SCOPED_TRACE(ahead);
    for (const bool with_head : {false, true}) {
      fake_.set_object("k", "x");
      const auto client = service_.make_client(ahead);
      EXPECT_TRUE(with_head ? client->head("k").ok() : client->put("k", as_bytes("y")).ok());
      EXPECT_TRUE(client->read_all("k", 9).ok());
      EXPECT_EQ(client->server_seconds(), service_.now());
      // One request more, and that only once.
      const S3Counters counters = client->counters();
      EXPECT_EQ(counters.of(S3Verb::head) + counters.of(S3Verb::put), std::abs(ahead) > 900 ? 2u : 1u);
      EXPECT_EQ(counters.of(S3Verb::get), 1u);
    }
  }
}

TEST(S3Credentials, ThatHaveEndedAreLookedForAgainNowAndThen) {
  for (const bool as_400 : {false, true}) {
    SCOPED_TRACE(as_400);
    FakeService service({.says_ended_as_400 = as_400});
    service.fake().set_object("k", "x");
    S3Credentials there{"old", "secret", {}};
    int looks = 0;
    S3Settings settings{"http://127.0.0.1:1", "us-east-1", true, {}, there};
    settings.newer_credentials = [&] {
      ++looks;
      return std::optional(there);
    };
    S3ClientOptions options;
    options.retries.clock = &service.clock();
    options.retries.calendar = [&] { return service.now(); };
    S3Client client(service.fake(), S3Place{"bucket", ""}, settings, options);
    for (int i = 0; i < 3; ++i) {
      const Status refused = client.read_all("k", 9).status();
      EXPECT_EQ(refused.code(), StatusCode::permission_denied);
      EXPECT_NE(refused.to_string().find("renew the credentials"), std::string::npos) << refused.to_string();
    }
    EXPECT_EQ(looks, 1);
    there = {"access", "secret", {}};
    service.clock().advance(60);
    EXPECT_TRUE(client.head("k").ok()) << "though its reply has no code";
    EXPECT_TRUE(client.read_all("k", 9).ok());
    EXPECT_EQ(looks, 2);
  }
}

TEST_F(S3FaultTest, ARequestThatAStoppedProcessSendsLateIsSignedAnewUnlessItMustNotBe) {
  int stops = 0;
  fake_.set_before_effect([&](const HttpRequest&) {
    if (stops-- > 0) service_.clock().advance(5000);
  });
  stops = 2;
  EXPECT_TRUE(client_.put("a", as_bytes("1"), S3Condition::if_absent()).ok());
  EXPECT_EQ(fake_.object("a"), "1");
  stops = 1;
  const S3Outcome fenced = client_.put_as_of("b", as_bytes("2"), S3Condition::if_absent(), client_.server_seconds());
  EXPECT_EQ(fenced.status.code(), StatusCode::busy) << fenced.status.to_string();
  EXPECT_FALSE(fenced.repeated);
  EXPECT_FALSE(fake_.object("b"));
}

TEST_F(S3FaultTest, AWriteThatWasSentTwiceSaysSoHoweverItEnded) {
  const auto put = [&](const S3Condition& condition) {
    return client_.put_as_of("k", as_bytes("ours"), condition, client_.server_seconds());
  };
  for (const S3Fault fault : {S3Fault::none, S3Fault::refused, S3Fault::lost_request, S3Fault::lost_reply}) {
    SCOPED_TRACE(static_cast<int>(fault));
    const bool repeated = fault == S3Fault::lost_request || fault == S3Fault::lost_reply;
    ASSERT_TRUE(client_.remove("k").ok());
    fake_.fail_next({fault});
    const S3Outcome made = put(S3Condition::if_absent());
    EXPECT_TRUE(made.status.ok()) << made.status.to_string();
    EXPECT_EQ(made.repeated, repeated);
    fake_.set_object("k", "theirs");
    const std::string etag = client_.head("k")->etag;
    fake_.fail_next({fault});
    const S3Outcome refused = put(S3Condition::if_absent());
    EXPECT_EQ(refused.status.code(), StatusCode::already_exists);
    EXPECT_EQ(refused.repeated, repeated);
    fake_.fail_next({fault});
    const S3Outcome replaced = put(S3Condition::if_unchanged(etag));
    EXPECT_TRUE(replaced.status.ok()) << replaced.status.to_string();
    EXPECT_EQ(replaced.repeated, repeated);
  }
}

TEST_F(S3FaultTest, AWriteThatTheTransportSentTwiceSaysSoAlsoIfItIsSignedAnewForAClockThatWasWrong) {
  for (const uint32_t times_sent : {1u, 2u}) {
    ScriptedTransport transport([&](const HttpRequest&) {
      const auto later = static_cast<std::time_t>(service_.now() + 3600);
      HttpReply reply = reply_of(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>",
                                 {{"date", fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(later))}});
      if (transport.requests == 1) reply.times_sent = times_sent;
      return reply;
    });
    S3ClientOptions options;
    options.retries.clock = &service_.clock();
    options.retries.calendar = [this] { return service_.now(); };
    S3Client client(transport, {"bucket", ""}, {"http://h", "us-east-1", true, {}, {"a", "s", {}}}, options);
    const S3Outcome put = client.put_as_of("k", as_bytes("ours"), S3Condition::if_absent(), service_.now());
    EXPECT_FALSE(put.status.ok());
    EXPECT_EQ(put.repeated, times_sent > 1);
    EXPECT_EQ(transport.requests, 2);
  }
}

TEST_F(S3FaultTest, AServiceThatRepeatsSecretsDoesNotBringThemIntoMessages) {
  ScriptedTransport transport([](const HttpRequest& request) {
    const std::string said = request.headers.empty() ? "" : "You sent top-secret-token and very-secret.";
    return reply_of(403, "<Error><Code>AccessDenied</Code><Message>" + said + "</Message></Error>");
  });
  S3Client client(transport, {"bucket", ""},
                  {"http://h", "us-east-1", true, {}, {"a", "very-secret", "top-secret-token"}}, {});
  const std::string text = client.put("k", {}).status().to_string();
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
}

// What a store does with a service: records that only one may write, and one that is replaced again and again.
TEST_F(S3FaultTest, RandomFaultsLoseNoWriteAndDoubleNone) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  fake_.set_faults(random_s3_faults(
      seed, 0.06,
      {S3Fault::refused, S3Fault::lost_request, S3Fault::lost_reply, S3Fault::error_500, S3Fault::error_500_after,
       S3Fault::slow_down, S3Fault::torn_body, S3Fault::repeated, S3Fault::damaged_body}));
  const auto other = service_.make_client(-5000);
  std::string etag = client_.put("counter", as_bytes("0")).value();
  for (int i = 1; i <= 300; ++i) {
    const std::string key = fmt::format("record/{:03}", i);
    const auto ours = client_.put(key, as_bytes("ours"), S3Condition::if_absent());
    const auto theirs = other->put(key, as_bytes("theirs"), S3Condition::if_absent());
    ASSERT_TRUE(ours.ok()) << ours.status().to_string();
    ASSERT_EQ(theirs.status().code(), StatusCode::already_exists) << theirs.status().to_string();
    const auto counted = client_.put("counter", as_bytes(fmt::to_string(i)), S3Condition::if_unchanged(etag));
    ASSERT_TRUE(counted.ok()) << counted.status().to_string();
    ASSERT_EQ(other->put("counter", as_bytes("theirs"), S3Condition::if_unchanged(etag)).status().code(),
              StatusCode::busy);
    etag = *counted;
    ASSERT_EQ(text_of(other->read_all("counter", 10)), fmt::to_string(i));
  }
  const S3Listing listing = client_.list("record/").value();
  ASSERT_EQ(listing.objects.size(), 300u);
  for (const S3Object& object : listing.objects) EXPECT_EQ(fake_.object(object.key), "ours");
  EXPECT_GT(client_.counters().repeats, 100u);
}

}  // namespace
}  // namespace varve
