// The client against a real service. VARVE_S3_TEST_FOLDER names the folder that radosgw.sh was told to start it in.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "core/thread_pool.h"
#include "core/unique_id.h"
#include "s3/s3_client.h"

namespace varve {
namespace {

std::map<std::string, std::string> service_environment() {
  std::map<std::string, std::string> variables;
  const char* const folder = std::getenv("VARVE_S3_TEST_FOLDER");
  std::ifstream file(std::string(folder == nullptr ? "" : folder) + "/environment");
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return variables;
}

/// A client of a prefix of its own, with all that it stands on.
struct Reached {
  explicit Reached(const std::map<std::string, std::string>& variables, int64_t ahead_seconds = 0,
                   const S3Options& s3_options = {}) {
    place =
        S3Place::parse("s3://" + variables.at("VARVE_S3_TEST_BUCKET") + "/test-" + UniqueId::random()->hex()).value();
    const S3Settings settings = find_s3_settings(place, s3_options, [&](const std::string& name) {
                                  const auto found = variables.find(name);
                                  return found == variables.end() ? std::nullopt : std::optional(found->second);
                                }).value();
    ::setenv("no_proxy", "*", 1);
    transport = make_curl_transport({}).value();
    S3ClientOptions options;
    options.retries.seconds = 10;
    options.retries.calendar = [ahead_seconds] { return calendar_seconds() + ahead_seconds; };
    client = std::make_unique<S3Client>(*transport, place, settings, options);
  }
  std::string key(const std::string& name) const { return place.key(name).value(); }

  S3Place place;
  std::unique_ptr<HttpTransport> transport;
  std::unique_ptr<S3Client> client;
};

class Radosgw : public testing::Test {
 protected:
  void SetUp() override {
    variables_ = service_environment();
    if (variables_.empty()) GTEST_SKIP() << "no S3 service to test with: install radosgw, ceph-mon and ceph-osd";
    reached_ = std::make_unique<Reached>(variables_);
  }
  void TearDown() override {
    if (!reached_) return;
    const S3Listing left = client().list(reached_->place.prefix).value();
    for (const S3Object& object : left.objects) EXPECT_TRUE(client().remove(object.key).ok());
    EXPECT_TRUE(client().list_uploads(reached_->place.prefix).value().empty());
  }
  S3Client& client() const { return *reached_->client; }
  std::string key(const std::string& name) const { return reached_->key(name); }

  std::map<std::string, std::string> variables_;
  std::unique_ptr<Reached> reached_;
};

ByteVector random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(Radosgw, HasWhatAStoreNeeds) {
  const S3Abilities abilities = probe_s3(client(), reached_->place.prefix).value();
  EXPECT_TRUE(abilities.lists_at_once);
  RecordProperty("completes_if_absent", abilities.completes_if_absent ? "yes" : "no");
  EXPECT_TRUE(client().list(reached_->place.prefix)->objects.empty());
}

TEST_F(Radosgw, GivesBackWhatWasWritten) {
  for (const size_t count : {0u, 1u, 5000u, 1u << 20, 9u << 20}) {
    SCOPED_TRACE(count);
    const ByteVector bytes = random_bytes(count, 1);
    const std::string etag = client().put(key("a/b-c_d.e~f"), bytes).value();
    const S3Contents contents = client().read_all(key("a/b-c_d.e~f"), count).value();
    EXPECT_TRUE(contents.bytes == bytes);
    EXPECT_EQ(contents.etag, etag);
    const S3Object object = client().head(key("a/b-c_d.e~f")).value();
    EXPECT_EQ(object.bytes, count);
    EXPECT_EQ(object.etag, etag);
    EXPECT_NEAR(static_cast<double>(object.modified_seconds), static_cast<double>(client().server_seconds()), 30);
  }
}

TEST_F(Radosgw, HonoursConditionsOfWrites) {
  const std::string first = client().put(key("k"), as_bytes("one"), S3Condition::if_absent()).value();
  EXPECT_EQ(client().put(key("k"), as_bytes("two"), S3Condition::if_absent()).status().code(),
            StatusCode::already_exists);
  const std::string second = client().put(key("k"), as_bytes("two"), S3Condition::if_unchanged(first)).value();
  EXPECT_EQ(client().put(key("k"), as_bytes("three"), S3Condition::if_unchanged(first)).status().code(),
            StatusCode::busy);
  EXPECT_EQ(as_text(client().read_all(key("k"), 9)->bytes), "two");
  ASSERT_TRUE(client().remove(key("k")).ok());
  EXPECT_EQ(client().put(key("k"), as_bytes("four"), S3Condition::if_unchanged(second)).status().code(),
            StatusCode::busy);
  EXPECT_EQ(client().head(key("k")).status().code(), StatusCode::not_found);
}

TEST_F(Radosgw, LetsOneOfManyWritersWin) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> won{0}, lost{0};
    ASSERT_TRUE(parallel_for(8, 8, [&](size_t i) -> Status {
                  const auto put = client().put(key(fmt::format("r{}", round)), as_bytes(fmt::format("writer {}", i)),
                                                S3Condition::if_absent());
                  if (put.ok()) ++won;
                  if (put.status().code() == StatusCode::already_exists) ++lost;
                  return {};
                }).ok());
    EXPECT_EQ(won, 1);
    EXPECT_EQ(lost, 7);
  }
}

TEST_F(Radosgw, ReadsRangesAndNoticesReplacedObjects) {
  const ByteVector bytes = random_bytes(3 << 20, 2);
  const std::string etag = client().put(key("k"), bytes).value();
  std::vector<ByteVector> into;
  std::vector<S3Range> ranges;
  for (const size_t offset : {2'000'000u, 0u, 100u, 1'000'000u, 3'000'000u}) {
    into.emplace_back(70'000);
    ranges.push_back({offset, {}});
  }
  for (size_t i = 0; i < into.size(); ++i) ranges[i].into = into[i];
  const uint64_t gets = client().counters().of(S3Verb::get);
  ASSERT_TRUE(client().read_many(key("k"), ranges, etag).ok());
  EXPECT_EQ(client().counters().of(S3Verb::get) - gets, 4u);
  for (size_t i = 0; i < into.size(); ++i)
    EXPECT_TRUE(
        std::equal(into[i].begin(), into[i].end(), bytes.begin() + static_cast<std::ptrdiff_t>(ranges[i].offset)));
  ByteVector tail(100);
  EXPECT_EQ(client().read(key("k"), bytes.size() - 40, tail).value(), 40u);
  EXPECT_EQ(client().read(key("k"), bytes.size(), tail).value(), 0u);
  ASSERT_TRUE(client().put(key("k"), as_bytes("other")).ok());
  EXPECT_EQ(client().read(key("k"), 0, tail, etag).status().code(), StatusCode::busy);
  EXPECT_EQ(client().read_all(key("k"), 4).status().code(), StatusCode::resource_limit);
}

TEST_F(Radosgw, ListsOverPagesAndByDelimiter) {
  ASSERT_TRUE(parallel_for(1050, 8, [&](size_t i) {
                return client().put(key(fmt::format("l/{}/{:04}", i / 1000, i)), as_bytes("x")).status();
              }).ok());
  const S3Listing all = client().list(key("l/x").substr(0, key("l/x").size() - 1)).value();
  ASSERT_EQ(all.objects.size(), 1050u);
  EXPECT_TRUE(std::is_sorted(all.objects.begin(), all.objects.end(),
                             [](const S3Object& one, const S3Object& other) { return one.key < other.key; }));
  EXPECT_EQ(all.objects[7].bytes, 1u);
  EXPECT_EQ(all.objects[7].etag, "9dd4e461268c8034f5c8564e155c67a6");
  const S3Listing top = client().list(reached_->place.prefix + "l/", "/").value();
  EXPECT_EQ(top.prefixes, (std::vector<std::string>{key("l/0") + "/", key("l/1") + "/"}));
  EXPECT_TRUE(top.objects.empty());
  std::vector<std::string> keys;
  for (const S3Object& object : all.objects) keys.push_back(object.key);
  EXPECT_TRUE(client().remove_many(keys).ok());
  EXPECT_TRUE(client().list(reached_->place.prefix)->objects.empty());
}

TEST_F(Radosgw, PutsAnObjectTogetherOfParts) {
  const ByteVector bytes = random_bytes(12 << 20, 3);
  constexpr size_t kPartBytes = 5 << 20;
  const auto upload = S3Upload::begin(client(), key("u")).value();
  ASSERT_TRUE(parallel_for(3, 3, [&](size_t i) {
                const ByteSpan rest = ByteSpan(bytes).subspan(i * kPartBytes);
                return upload->part(static_cast<uint32_t>(i + 1), rest.first(std::min(rest.size(), kPartBytes)));
              }).ok());
  const auto pending = client().list_uploads(reached_->place.prefix).value();
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].id, upload->id());
  EXPECT_NEAR(static_cast<double>(pending[0].begun_seconds), static_cast<double>(client().server_seconds()), 30);
  ASSERT_TRUE(upload->complete().ok());
  EXPECT_TRUE(client().head(key("u"))->etag.ends_with("-3"));
  EXPECT_TRUE(client().read_all(key("u"), bytes.size())->bytes == bytes);
  EXPECT_EQ(client().abort_upload(key("u"), upload->id()).code(), StatusCode::ok);
}

TEST_F(Radosgw, ForgetsUploadsThatAreAborted) {
  const std::string id = client().begin_upload(key("u")).value();
  ASSERT_TRUE(client().upload_part(key("u"), id, 1, as_bytes("part")).ok());
  ASSERT_TRUE(client().abort_upload(key("u"), id).ok());
  EXPECT_EQ(client().upload_part(key("u"), id, 2, as_bytes("part")).status().code(), StatusCode::not_found);
}

TEST_F(Radosgw, RefusesWrongCredentialsBucketsAndDates) {
  auto variables = variables_;
  variables["AWS_SECRET_ACCESS_KEY"] = "wrong-secret";
  const Status status = Reached(variables).client->put(key("k"), {}).status();
  EXPECT_EQ(status.code(), StatusCode::permission_denied);
  EXPECT_NE(status.to_string().find("SignatureDoesNotMatch"), std::string::npos) << status.to_string();
  EXPECT_EQ(status.to_string().find("wrong-secret"), std::string::npos);
  variables = variables_;
  variables["VARVE_S3_TEST_BUCKET"] = "no-such-bucket";
  EXPECT_EQ(Reached(variables).client->put("k", {}).status().code(), StatusCode::not_found);
}

TEST_F(Radosgw, ServesClientsWhoseClocksAreWrong) {
  for (const int64_t ahead : {-7200, 7200}) {
    const Reached wrong(variables_, ahead);
    EXPECT_TRUE(wrong.client->put(key("k"), as_bytes("x")).ok());
    EXPECT_EQ(wrong.client->counters().of(S3Verb::put), 2u);
    EXPECT_TRUE(wrong.client->head(key("k")).ok());
    EXPECT_EQ(wrong.client->counters().of(S3Verb::head), 1u);
    EXPECT_NEAR(static_cast<double>(wrong.client->server_seconds()), static_cast<double>(calendar_seconds()), 5);
  }
}

TEST_F(Radosgw, IsReachedByTheNameOfTheBucket) {
  auto variables = variables_;
  std::string& endpoint = variables["AWS_ENDPOINT_URL_S3"];
  endpoint.replace(endpoint.find("127.0.0.1"), 9, "localhost");
  const Reached by_name(variables, 0, {.endpoint = {}, .region = {}, .profile = {}, .path_style = false});
  ASSERT_TRUE(by_name.client->put(key("k"), as_bytes("x")).ok());
  EXPECT_EQ(client().head(key("k"))->bytes, 1u);
  EXPECT_EQ(by_name.client->list(key("k"))->objects.size(), 1u);
}

}  // namespace
}  // namespace varve
