#include "s3/s3_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/thread_pool.h"
#include "s3/test_s3.h"

namespace varve {
namespace {

class S3ClientTest : public testing::Test {
 protected:
  FakeService service_;
  FakeS3& fake_ = service_.fake();
  S3Client& client_ = service_.client();
};

TEST_F(S3ClientTest, GivesBackWhatWasWritten) {
  const std::string etag = client_.put("a/b", as_bytes("hello")).value();
  const S3Contents contents = client_.read_all("a/b", 5).value();
  EXPECT_EQ(as_text(contents.bytes), "hello");
  EXPECT_EQ(contents.etag, etag);
  EXPECT_EQ(contents.modified_seconds, service_.now());
  const S3Object object = client_.head("a/b").value();
  EXPECT_EQ(object.bytes, 5u);
  EXPECT_EQ(object.etag, etag);
  EXPECT_EQ(object.modified_seconds, service_.now());
  EXPECT_NE(client_.put("a/b", as_bytes("other")).value(), etag);
  EXPECT_TRUE(client_.put("empty", {}).ok());
  EXPECT_EQ(text_of(client_.read_all("empty", 0)), "");
}

TEST_F(S3ClientTest, SaysWhenThereIsNoSuchObjectOrBucket) {
  EXPECT_EQ(client_.read_all("a", 9).status().code(), StatusCode::not_found);
  EXPECT_EQ(client_.head("a").status().code(), StatusCode::not_found);
  std::byte byte;
  EXPECT_EQ(client_.read("a", 0, {&byte, 1}).status().code(), StatusCode::not_found);
  FakeService other({.bucket = "another"});
  const Status status = other.client().put("a", {}).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.to_string().find("no such bucket"), std::string::npos);
}

TEST_F(S3ClientTest, WritesOnlyWhereThereIsNoneIfAskedTo) {
  EXPECT_TRUE(client_.put("k", as_bytes("one"), S3Condition::if_absent()).ok());
  EXPECT_EQ(client_.put("k", as_bytes("two"), S3Condition::if_absent()).status().code(), StatusCode::already_exists);
  // Without a retry, equal bytes are no excuse: they may be somebody else's.
  EXPECT_EQ(client_.put("k", as_bytes("one"), S3Condition::if_absent()).status().code(), StatusCode::already_exists);
  EXPECT_EQ(fake_.object("k"), "one");
}

TEST_F(S3ClientTest, ReplacesOnlyWhatIsUnchangedIfAskedTo) {
  for (const bool quoted : {false, true}) {
    FakeService service({.takes_quoted_etags_only = quoted, .takes_bare_etags_only = !quoted});
    S3Client& client = service.client();
    const std::string first = client.put("k", as_bytes("one")).value();
    const std::string second = client.put("k", as_bytes("two"), S3Condition::if_unchanged(first)).value();
    EXPECT_EQ(client.put("k", as_bytes("three"), S3Condition::if_unchanged(first)).status().code(), StatusCode::busy);
    EXPECT_EQ(service.fake().object("k"), "two");
    ASSERT_TRUE(client.remove("k").ok());
    EXPECT_EQ(client.put("k", as_bytes("four"), S3Condition::if_unchanged(second)).status().code(), StatusCode::busy);
    EXPECT_EQ(service.fake().object_count(), 0u);
    EXPECT_EQ(client.put("k", {}, S3Condition::if_unchanged("\r\nx: y")).status().code(), StatusCode::invalid_argument);
  }
}

TEST_F(S3ClientTest, LooksForAnotherFormOfEtagsOnlyUntilOneWasTaken) {
  FakeService service({.takes_quoted_etags_only = true});
  S3Client& client = service.client();
  std::string etag = client.put("k", as_bytes("one")).value();
  etag = client.put("k", as_bytes("two"), S3Condition::if_unchanged(etag)).value();
  EXPECT_EQ(client.counters().of(S3Verb::head), 1u);
  etag = client.put("k", as_bytes("three"), S3Condition::if_unchanged(etag)).value();
  EXPECT_EQ(client.counters().of(S3Verb::head), 1u);
  EXPECT_EQ(client.counters().of(S3Verb::put), 4u);
}

TEST_F(S3ClientTest, ReadsRangesToTheEndOfAnObject) {
  fake_.set_object("k", "0123456789");
  const auto read = [&](uint64_t offset, size_t bytes) {
    std::string into(bytes, '?');
    const Result<uint64_t> got = client_.read("k", offset, std::as_writable_bytes(std::span(into)));
    return got.ok() ? into.substr(0, *got) : got.status().to_string();
  };
  EXPECT_EQ(read(0, 3), "012");
  EXPECT_EQ(read(7, 3), "789");
  EXPECT_EQ(read(7, 30), "789");
  EXPECT_EQ(read(10, 3), "");
  EXPECT_EQ(read(1'000'000, 3), "");
  EXPECT_EQ(read(3, 0), "");
  std::byte byte;
  EXPECT_EQ(client_.read("k", UINT64_MAX, {&byte, 1}).status().code(), StatusCode::invalid_argument);
}

TEST_F(S3ClientTest, ReadsTheBeginningOfAnObjectAndWhatHeadTellsWithOneRequest) {
  for (const std::string_view contents : {"0123456789", "0123", ""}) {
    client_.put("k", as_bytes(contents)).value();
    std::string into(4, '?');
    const S3Object object = client_.read_begin("k", std::as_writable_bytes(std::span(into))).value();
    const S3Object known = client_.head("k").value();
    EXPECT_EQ(into.substr(0, contents.size()), contents.substr(0, 4));
    EXPECT_EQ(object.bytes, contents.size());
    EXPECT_EQ(object.etag, known.etag);
    EXPECT_EQ(object.modified_seconds, known.modified_seconds);
  }
  EXPECT_EQ(client_.counters().of(S3Verb::get), 3u);
  EXPECT_EQ(client_.counters().of(S3Verb::head), 4u) << "what is empty has no range";
  std::byte byte;
  EXPECT_EQ(client_.read_begin("none", {&byte, 1}).status().code(), StatusCode::not_found);
}

TEST_F(S3ClientTest, NoticesThatAnObjectWasReplacedMeanwhile) {
  const std::string etag = client_.put("k", as_bytes("0123456789")).value();
  std::byte byte;
  EXPECT_TRUE(client_.read("k", 3, {&byte, 1}, etag).ok());
  fake_.set_object("k", "9876543210");
  EXPECT_EQ(client_.read("k", 3, {&byte, 1}, etag).status().code(), StatusCode::busy);
  const std::vector<S3Range> ranges{{3, {&byte, 1}}};
  EXPECT_EQ(client_.read_many("k", ranges, etag).code(), StatusCode::busy);
}

TEST_F(S3ClientTest, ReadsManyRangesWithFewRequests) {
  std::string contents;
  for (uint32_t i = 0; i < 300'000; ++i) contents += static_cast<char>('a' + (i * 7919 >> 5) % 26);
  fake_.set_object("k", contents);
  S3ClientOptions options;
  options.gap_bytes_max = 1000;
  options.read_bytes_max = 50'000;
  const auto client = service_.make_client(0, {"access", "secret", {}}, options);
  // Two neighbours in the wrong order, one that is far, one that is too long to go with others, an empty one.
  const std::vector<std::pair<uint64_t, size_t>> places{
      {5000, 10}, {4000, 500}, {90'000, 7}, {100'000, 60'000}, {7, 0}};
  std::vector<std::string> into;
  for (const auto& [offset, bytes] : places) into.emplace_back(bytes, '?');
  std::vector<S3Range> ranges;
  for (size_t i = 0; i < places.size(); ++i)
    ranges.push_back({places[i].first, std::as_writable_bytes(std::span(into[i]))});
  ASSERT_TRUE(client->read_many("k", ranges).ok());
  for (size_t i = 0; i < places.size(); ++i)
    EXPECT_EQ(into[i], contents.substr(places[i].first, places[i].second)) << i;
  EXPECT_EQ(client->counters().of(S3Verb::get), 3u);
  EXPECT_EQ(client->counters().bytes_down, 1010u + 7 + 60'000);

  ranges[2].offset = contents.size() - 3;
  EXPECT_EQ(client->read_many("k", ranges).code(), StatusCode::corrupt);
  EXPECT_TRUE(client->read_many("k", {}).ok());
}

TEST_F(S3ClientTest, DoesNotTakeMoreThanItWasToldTo) {
  fake_.set_object("k", std::string(100'000, 'x'));
  EXPECT_TRUE(client_.read_all("k", 100'000).ok());
  EXPECT_EQ(client_.read_all("k", 99'999).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(client_.read_all("k", 10).status().code(), StatusCode::resource_limit);
}

TEST_F(S3ClientTest, ListsOverManyPages) {
  FakeService service({.page_entries = 3});
  for (int i = 0; i < 20; ++i) service.fake().set_object(fmt::format("p/{}/{:02}", i / 10, i), std::string(i, 'x'));
  service.fake().set_object("p/top~", "x");
  service.fake().set_object("q", "x");
  service.fake().set_object("p/others use blanks, + and \xc3\xa9", "x");
  const S3Listing all = service.client().list("p/").value();
  ASSERT_EQ(all.objects.size(), 22u);
  EXPECT_TRUE(all.prefixes.empty());
  EXPECT_EQ(all.objects[13].key, "p/1/13");
  EXPECT_EQ(all.objects[13].bytes, 13u);
  EXPECT_EQ(all.objects[13].etag, service.client().head("p/1/13")->etag);
  EXPECT_EQ(all.objects[13].modified_seconds, service.now());
  EXPECT_EQ(all.objects[20].key, "p/others use blanks, + and \xc3\xa9");
  EXPECT_EQ(service.client().counters().of(S3Verb::list), 8u);

  const S3Listing top = service.client().list("p/", "/").value();
  EXPECT_EQ(top.prefixes, (std::vector<std::string>{"p/0/", "p/1/"}));
  EXPECT_EQ(top.objects.size(), 2u);
  EXPECT_EQ(service.client().list("").value().objects.size(), 23u);
  EXPECT_TRUE(service.client().list("nothing").value().objects.empty());
}

TEST_F(S3ClientTest, RemovesWhatIsThereAndWhatIsNot) {
  fake_.set_object("k", "x");
  EXPECT_TRUE(client_.remove("k").ok());
  EXPECT_TRUE(client_.remove("k").ok());
  EXPECT_EQ(fake_.object_count(), 0u);
  std::vector<std::string> keys;
  for (int i = 0; i < 2500; ++i) keys.push_back(fmt::format("k{}", i));
  for (int i = 0; i < 2000; ++i) fake_.set_object(keys[i], "x");
  EXPECT_TRUE(client_.remove_many(keys).ok());
  EXPECT_EQ(fake_.object_count(), 0u);
  EXPECT_EQ(client_.counters().of(S3Verb::remove_many), 3u);
}

TEST_F(S3ClientTest, RefusesKeysThatAreNotSafe) {
  for (const std::string key : {"", "/a", "a/", "a//b", "../a", "a b", "a+b", "a?b", "a<b"}) {
    EXPECT_EQ(client_.put(key, {}).status().code(), StatusCode::invalid_argument) << key;
    EXPECT_EQ(client_.remove_many(std::vector<std::string>{key}).code(), StatusCode::invalid_argument) << key;
  }
  EXPECT_TRUE(fake_.log().empty());
}

TEST_F(S3ClientTest, PutsAnObjectTogetherOfPartsFromSeveralThreads) {
  const auto upload = S3Upload::begin(client_, "k").value();
  ASSERT_TRUE(parallel_for(20, 4, [&](size_t i) {
                return upload->part(static_cast<uint32_t>(20 - i), as_bytes(fmt::format("part {:02};", 20 - i)));
              }).ok());
  EXPECT_EQ(fake_.object_count(), 0u);
  const auto pending = client_.list_uploads("").value();
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].key, "k");
  EXPECT_EQ(pending[0].id, upload->id());
  EXPECT_EQ(pending[0].begun_seconds, service_.now());
  const std::string etag = upload->complete(S3Condition::if_absent()).value();
  EXPECT_EQ(client_.head("k")->etag, etag);
  EXPECT_EQ(fake_.object("k")->substr(0, 16), "part 01;part 02;");
  EXPECT_EQ(fake_.object("k")->size(), 160u);
  EXPECT_EQ(fake_.upload_count(), 0u);
}

TEST_F(S3ClientTest, CompletesAnUploadOnlyWhereThereIsNoObjectIfAskedTo) {
  fake_.set_object("k", "there");
  const auto upload = S3Upload::begin(client_, "k").value();
  ASSERT_TRUE(upload->part(1, as_bytes("new")).ok());
  EXPECT_EQ(upload->complete(S3Condition::if_absent()).status().code(), StatusCode::already_exists);
  EXPECT_EQ(fake_.object("k"), "there");
}

TEST_F(S3ClientTest, AbortsAnUploadThatIsGivenUp) {
  {
    const auto upload = S3Upload::begin(client_, "k").value();
    ASSERT_TRUE(upload->part(1, as_bytes("x")).ok());
    EXPECT_EQ(fake_.upload_count(), 1u);
  }
  EXPECT_EQ(fake_.upload_count(), 0u);
  const auto upload = S3Upload::begin(client_, "k").value();
  ASSERT_TRUE(client_.abort_upload("k", upload->id()).ok());
  EXPECT_TRUE(client_.abort_upload("k", upload->id()).ok());
  EXPECT_EQ(upload->part(1, as_bytes("x")).code(), StatusCode::not_found);
  EXPECT_EQ(client_.upload_part("k", "i", 0, {}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(client_.upload_part("k", "i", 10'001, {}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(upload->complete().status().code(), StatusCode::internal);
}

TEST_F(S3ClientTest, ListsUploadsOverManyPages) {
  FakeService service({.page_entries = 2});
  for (const char* key : {"p/a", "p/a", "p/a", "p/b", "q"}) ASSERT_TRUE(service.client().begin_upload(key).ok());
  const auto uploads = service.client().list_uploads("p/").value();
  EXPECT_EQ(uploads.size(), 4u);
  for (const S3PendingUpload& upload : uploads) EXPECT_TRUE(service.client().abort_upload(upload.key, upload.id).ok());
  EXPECT_EQ(service.fake().upload_count(), 1u);
}

TEST_F(S3ClientTest, CountsRequestsAndBytes) {
  ASSERT_TRUE(client_.put("k", as_bytes("12345")).ok());
  ASSERT_TRUE(client_.read_all("k", 9).ok());
  const S3Counters counters = client_.counters();
  EXPECT_EQ(counters.of(S3Verb::put), 1u);
  EXPECT_EQ(counters.of(S3Verb::get), 1u);
  EXPECT_EQ(counters.bytes_up, 5u);
  EXPECT_EQ(counters.bytes_down, 5u);
  EXPECT_EQ(counters.repeats, 0u);
  EXPECT_EQ(s3_verb_name(S3Verb::upload_part), "upload_part");
}

TEST_F(S3ClientTest, IsRefusedWithWrongCredentialsAndShowsNone) {
  for (const S3Credentials& wrong :
       {S3Credentials{"access", "wrong-secret", "wrong-token"}, S3Credentials{"nobody", "wrong-secret", {}}}) {
    const auto client = service_.make_client(0, wrong);
    const Status status = client->put("k", as_bytes("x")).status();
    EXPECT_EQ(status.code(), StatusCode::permission_denied);
    EXPECT_EQ(status.to_string().find("wrong-"), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(fake_.object_count(), 0u);
}

TEST(S3Probe, FindsOutWhatAServiceCanDo) {
  for (const bool completes : {false, true}) {
    FakeService service({.takes_quoted_etags_only = completes, .completes_if_absent = completes});
    const S3Abilities abilities = probe_s3(service.client(), "p/").value();
    EXPECT_EQ(abilities.completes_if_absent, completes);
    EXPECT_TRUE(abilities.lists_at_once);
    EXPECT_EQ(service.fake().object_count(), 0u);
    EXPECT_EQ(service.fake().upload_count(), 0u);
  }
}

TEST(S3Probe, RefusesAServiceThatIgnoresConditions) {
  for (const bool none_match : {false, true}) {
    FakeService service({.knows_if_none_match = none_match, .knows_if_match = !none_match});
    const Status status = probe_s3(service.client(), "p/").status();
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_NE(status.to_string().find(none_match ? "If-Match" : "If-None-Match"), std::string::npos);
    EXPECT_EQ(service.fake().object_count(), 0u);
  }
}

TEST(S3Probe, NoticesListsThatAreLate) {
  FakeService service;
  service.fake().set_faults([](const HttpRequest& request) {
    return request.query.find("list-type") != std::string::npos ? S3Fault::stale_list : S3Fault::none;
  });
  EXPECT_FALSE(probe_s3(service.client(), "p/").value().lists_at_once);
}

}  // namespace
}  // namespace varve
