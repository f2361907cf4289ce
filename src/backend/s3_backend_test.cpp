#include "backend/s3_backend.h"

#include "backend/backend_contract.h"
#include "s3/fake_s3.h"

namespace varve {
namespace {

/// A part of a bucket of a service in memory.
struct InABucket : BackendSubject {
  explicit InABucket(const std::string& prefix = "runs/", FakeS3Options options = {})
      : service(std::move(options)), bucket(service, S3Place{"bucket", prefix}, settings(), impatient()) {
    backend = &bucket;
  }
  static S3Settings settings() { return {"http://127.0.0.1:1", "us-east-1", true, {}, {"access", "secret", {}}}; }
  static S3ClientOptions impatient() {
    S3ClientOptions options;
    options.retries.seconds = 0.3;
    options.retries.pause_seconds_first = 0.01;
    return options;
  }
  FakeS3 service;
  S3Backend bucket;
};

INSTANTIATE_TEST_SUITE_P(S3, EveryBackend,
                         testing::Values(BackendKind{"part_of_a_bucket", [] { return std::make_unique<InABucket>(); }},
                                         BackendKind{"whole_bucket", [] { return std::make_unique<InABucket>(""); }}),
                         [](const auto& kind) { return std::string(kind.param.name); });

struct ABucket : testing::Test, InABucket {
  std::string name(std::string_view of) const { return join_path(bucket.root(), of); }
  bool has(const std::string& of) { return service.object("runs/" + of).has_value(); }
};

TEST_F(ABucket, HasKeysThatNoProxyWritesInAnotherWay) {
  ASSERT_TRUE(bucket.records().publish(name("parts/job+a@7.part"), as_bytes("text")).ok());
  EXPECT_TRUE(has("parts/job~2ba~407.part"));
  EXPECT_EQ(bucket.list(name("parts")).value().at(0).name, "job+a@7.part");
  // What others have put there is none of ours.
  for (const char* key : {"parts/~4", "parts/~40~", "parts/~7a", "parts/a@b", "parts/"})
    service.set_object(std::string("runs/") + key, "");
  EXPECT_EQ(bucket.list(name("parts")).value().size(), 1u);
}

TEST_F(ABucket, HasJobsOfAnyName) {
  for (const char* job : {"plain", "v1.5", "0123456789abcdef0123456789abcdef"}) {
    const std::string folder = name(std::string("sets/") + job);
    EXPECT_EQ(bucket.status(folder).status().code(), StatusCode::not_found);
    ASSERT_TRUE(bucket.records().publish(folder + "/1.set", as_bytes("record")).ok());
    const Result<FileStatus> status = bucket.status(folder);
    EXPECT_TRUE(status.ok() && status->is_directory) << job;
  }
}

TEST_F(ABucket, NeverForgetsACommitOfWhichNobodyKnowsWhetherItHappened) {
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  bool silent = false;
  service.set_faults([&](const HttpRequest& request) {
    const bool commits = request.method == HttpMethod::put && request.path.find("/sets/") != std::string::npos;
    silent = silent || commits;
    return commits ? S3Fault::lost_reply : silent ? S3Fault::refused : S3Fault::none;
  });
  EXPECT_EQ(lease->become(name("sets/job/1.set"), IfExists::refuse).code(), StatusCode::io_error);
  service.set_faults(nullptr);
  EXPECT_EQ(bucket.remove(name("writers/1")).code(), StatusCode::busy);
  EXPECT_TRUE(bucket.remove_if_there(name("writers/1")).ok());
  EXPECT_TRUE(has("writers/1")) << "what the record needs is kept as long as it may appear";
}

TEST_F(ABucket, LeavesARecordAloneThatWasRewrittenJustBeforeItIsTakenAway) {
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  bool once = false;
  service.set_before_effect([&](const HttpRequest& request) {
    if (request.method != HttpMethod::put || std::exchange(once, true)) return;
    EXPECT_TRUE(lease->rewrite(as_bytes("record")).ok());
  });
  ASSERT_TRUE(bucket.records().remove_unchanged(name("writers/1"), as_bytes("1 host\n")).ok());
  EXPECT_EQ(service.object("runs/writers/1"), "record");
  EXPECT_TRUE(lease->become(name("sets/job/1.set"), IfExists::refuse).ok());
}

TEST_F(ABucket, CommitsOnceThoughRepliesAreLost) {
  for (int round = 0; round < 50; ++round) {
    const std::string number = std::to_string(round);
    auto lease = bucket.records().hold(name("writers/" + number), as_bytes("1 host\n")).value();
    ASSERT_TRUE(lease->rewrite(as_bytes("record " + number)).ok());
    service.fail_next({S3Fault::none, round % 2 == 0 ? S3Fault::lost_reply : S3Fault::repeated});
    ASSERT_TRUE(lease->become(name("sets/job/" + number + ".set"), IfExists::refuse).ok());
    lease.reset();
    EXPECT_EQ(service.object("runs/sets/job/" + number + ".set"), "record " + number);
    EXPECT_TRUE(has("writers/" + number)) << "the first try may come yet, when the set was dropped";
  }
}

TEST_F(ABucket, ReplacesOnlyWhatItHasSeen) {
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  for (const bool is_there : {false, true}) {
    if (is_there) service.set_object("runs/sets/job/1.set", "old");
    service.set_before_effect([&, once = false](const HttpRequest& request) mutable {
      const bool commits = request.method == HttpMethod::put && request.path.find("/sets/") != std::string::npos;
      if (commits && !std::exchange(once, true)) service.set_object("runs/sets/job/1.set", "newer");
    });
    EXPECT_EQ(lease->become(name("sets/job/1.set"), IfExists::replace).code(), StatusCode::busy);
    EXPECT_EQ(service.object("runs/sets/job/1.set"), "newer");
  }
  EXPECT_TRUE(lease->become(name("sets/job/1.set"), IfExists::replace).ok());
  EXPECT_EQ(service.object("runs/sets/job/1.set"), "record");
}

/// The way to a service on which removals of sets have bad luck.
class WayOfRemovals final : public HttpTransport {
 public:
  explicit WayOfRemovals(HttpTransport& service) : service_(service) {}
  HttpReply exchange(const HttpRequest& request) override {
    const bool notes = request.method == HttpMethod::put && request.path.find("/removing/") != std::string::npos;
    if (notes && is_full) {
      HttpReply refused;
      refused.status = 507;
      refused.times_sent = 1;
      return refused;
    }
    if (is_late && !late_ && request.method == HttpMethod::remove && request.path.ends_with(".set")) {
      late_ = request;
      return lost();
    }
    HttpReply reply = service_.exchange(request);
    if (!notes || !after_note) return reply;
    std::exchange(after_note, nullptr)();
    return lost();
  }
  /// The status that the service gives to the removal that was late.
  int arrive() { return late_ ? service_.exchange(*late_).status : 0; }

  bool is_late = false;              ///< the first try comes long after the second was answered
  bool is_full = false;              ///< there is no room for notes
  std::function<void()> after_note;  ///< once, when there is one, whose reply is lost then

 private:
  static HttpReply lost() {
    HttpReply reply;
    reply.failure = Status::io_error("the connection was lost");
    reply.times_sent = 1;
    return reply;
  }

  HttpTransport& service_;
  std::optional<HttpRequest> late_;
};

struct ABucketWithBadRemovals : testing::Test {
  ABucketWithBadRemovals() {
    FakeS3Options service_options;
    service_options.calendar = [this] { return now; };
    service = std::make_unique<FakeS3>(service_options);
    way = std::make_unique<WayOfRemovals>(*service);
    S3ClientOptions options = InABucket::impatient();
    options.retries.calendar = service_options.calendar;
    bucket = std::make_unique<S3Backend>(*way, S3Place{"bucket", "runs/"}, InABucket::settings(), options);
    set = join_path(bucket->root(), "sets/job/1.set");
  }
  Status save(std::string_view record) { return save(record, set); }
  Status save(std::string_view record, const std::string& name) {
    const std::string lease = join_path(bucket->root(), "writers/" + std::to_string(++lease_count));
    const auto held = bucket->records().hold(lease, as_bytes("1 host\n")).value();
    EXPECT_TRUE(held->rewrite(as_bytes(record)).ok());
    return held->become(name, IfExists::refuse);
  }
  std::optional<std::string> there() const { return service->object("runs/sets/job/1.set"); }
  size_t notes() const { return bucket->client().list("runs/removing/")->objects.size(); }

  int64_t now = 1'700'000'000;
  std::unique_ptr<FakeS3> service;
  std::unique_ptr<WayOfRemovals> way;
  std::unique_ptr<S3Backend> bucket;
  std::string set;
  uint64_t lease_count = 0;
};

TEST_F(ABucketWithBadRemovals, LosesNoSetThatWasSavedAnewUnderTheSameName) {
  way->is_late = true;
  ASSERT_TRUE(save("first").ok());
  ASSERT_TRUE(bucket->remove(set).ok());
  EXPECT_FALSE(there());
  // Nobody sees it, nor is told that it is there, as long as it may go.
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_EQ(save("second").code(), StatusCode::busy);
    EXPECT_FALSE(there());
  }
  now += 14 * 60;
  EXPECT_LT(way->arrive(), 300);
  now += 7 * 60;
  EXPECT_TRUE(save("third").ok());
  EXPECT_GE(way->arrive(), 400) << "the service takes it no more";
  EXPECT_EQ(there(), "third");
}

TEST_F(ABucketWithBadRemovals, RemovesNothingOnceTheNoteOfThatMayBeOld) {
  ASSERT_TRUE(save("first").ok());
  // Who removes it is stopped when the note is there. Meanwhile somebody else has removed it, and saved it anew.
  way->after_note = [this] {
    now += 21 * 60;
    EXPECT_TRUE(bucket->client().remove("runs/sets/job/1.set").ok());
    EXPECT_TRUE(save("second").ok());
  };
  EXPECT_EQ(bucket->remove(set).code(), StatusCode::busy);
  EXPECT_EQ(there(), "second");
}

TEST_F(ABucketWithBadRemovals, HasNoOldNotesAlsoOfWhatIsNeverMadeAnew) {
  way->is_late = true;
  ASSERT_TRUE(save("first").ok());
  ASSERT_TRUE(bucket->remove(set).ok());
  EXPECT_EQ(notes(), 1u);
  const auto save_another = [this](int step) {
    return save("another", join_path(bucket->root(), "sets/job/" + std::to_string(step) + ".set"));
  };
  EXPECT_TRUE(save_another(2).ok());
  EXPECT_EQ(notes(), 1u);
  now += 3600;
  EXPECT_TRUE(save_another(3).ok());
  EXPECT_EQ(notes(), 0u);
}

TEST_F(ABucketWithBadRemovals, IsEmptiedAlsoIfThereIsNoRoomForNotes) {
  ASSERT_TRUE(save("first").ok());
  way->is_full = true;
  EXPECT_TRUE(bucket->remove(set).ok());
  EXPECT_FALSE(there());
}

TEST_F(ABucket, IsToldThatASetWasRemovedAsItWasMade) {
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  const std::string note = "runs/removing/sets/job/1.set.00112233445566778899aabbccddeeff";
  int lists = 0;
  service.set_before_effect([&](const HttpRequest& request) {
    // A drop of an older one says what it is about to do, and does it when the set has been made anew.
    if (request.method == HttpMethod::put && request.path.ends_with("/sets/job/1.set"))
      service.set_object(note, "removal\n");
    if (request.query.find("list-type=2") == std::string::npos || ++lists < 3) return;
    for (const std::string& key : {std::string("runs/sets/job/1.set"), note})
      EXPECT_TRUE(bucket.client().remove(key).ok());
  });
  EXPECT_EQ(lease->become(name("sets/job/1.set"), IfExists::refuse).code(), StatusCode::not_found);
  EXPECT_EQ(lists, 3);
}

TEST_F(ABucket, KnowsWhatARecordSaysAlsoOnceAnOlderOneOfItsNameHasEnded) {
  auto older = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  ASSERT_TRUE(bucket.client().remove("runs/writers/1").ok());
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("2 host\n")).value();
  older.reset();
  const uint64_t before = bucket.client().counters().of(S3Verb::get);
  EXPECT_TRUE(bucket.records().touch(name("writers/1")).ok());
  EXPECT_EQ(bucket.client().counters().of(S3Verb::get), before) << "who reads it is in the way of its writer";
}

TEST(ABucketWithLostReplies, RemembersACommitNoLongerThanItMayTakeEffect) {
  int64_t now = 1'700'000'000;
  FakeS3Options service_options;
  service_options.calendar = [&now] { return now; };
  FakeS3 service(service_options);
  S3ClientOptions options = InABucket::impatient();
  options.retries.calendar = service_options.calendar;
  S3Backend bucket(service, S3Place{"bucket", "runs/"}, InABucket::settings(), options);
  const auto commit = [&](const std::string& number) {
    const std::string lease = join_path(bucket.root(), "writers/" + number);
    const auto held = bucket.records().hold(lease, as_bytes("1 host\n")).value();
    EXPECT_TRUE(held->rewrite(as_bytes("record " + number)).ok());
    service.fail_next({S3Fault::none, S3Fault::lost_reply});
    EXPECT_TRUE(held->become(join_path(bucket.root(), "sets/job/" + number + ".set"), IfExists::refuse).ok());
    return lease;
  };
  const std::string first = commit("1");
  EXPECT_EQ(bucket.remove(first).code(), StatusCode::busy);
  now += 3601;
  const std::string second = commit("2");
  now -= 3601;  // so that it shows: by its time alone, the first one might take effect again
  EXPECT_TRUE(bucket.remove(first).ok());
  EXPECT_EQ(bucket.remove(second).code(), StatusCode::busy);
}

TEST_F(ABucket, CommitsWithoutAnotherLook) {
  const auto lease = bucket.records().hold(name("writers/1"), as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  const uint64_t before = bucket.client().counters().of(S3Verb::put);
  ASSERT_TRUE(lease->become(name("sets/job/1.set"), IfExists::refuse).ok());
  EXPECT_EQ(bucket.client().counters().of(S3Verb::put) - before, 1u);
}

TEST_F(ABucket, HasNoObjectOfWhichAPartFailed) {
  service.set_faults([](const HttpRequest& request) {
    return request.query.starts_with("partNumber=3&") ? S3Fault::refused : S3Fault::none;
  });
  {
    const auto object = bucket.put(name("arenas/a.arena")).value();
    const ByteVector megabytes(5'000'000, std::byte{7});
    Status written;
    for (uint64_t at = 0; written.ok() && at < 50'000'000; at += megabytes.size())
      written = object->write_at(at, megabytes);
    if (written.ok()) written = object->seal(50'000'000);
    EXPECT_EQ(written.code(), StatusCode::io_error);
  }
  EXPECT_FALSE(has("arenas/a.arena"));
  EXPECT_EQ(service.upload_count(), 0u);
}

TEST_F(ABucket, NeedsBothListsWhereNoneHasAChecksum) {
  ASSERT_TRUE(bucket.records().publish(name("sets/job/1.set"), as_bytes("record")).ok());
  int lists = 0;
  service.set_faults([&](const HttpRequest& request) {
    if (request.query.find("list-type=2") == std::string::npos) return S3Fault::none;
    return ++lists == 1 ? S3Fault::none : S3Fault::refused;
  });
  EXPECT_EQ(bucket.list(name("sets/job")).status().code(), StatusCode::io_error);
}

TEST_F(ABucket, TellsAndRemovesUploadsThatAWriterHasLeft) {
  const auto upload = bucket.client().begin_upload("runs/arenas/00112233445566778899aabbccddeeff.arena");
  ASSERT_TRUE(upload.ok());
  const std::string left = name("arenas/00112233445566778899aabbccddeeff.part");
  EXPECT_EQ(bucket.unfinished(name("arenas")).value(), std::vector<std::string>{left});
  EXPECT_TRUE(bucket.unfinished(name("index")).value().empty());
  ASSERT_TRUE(bucket.remove(left).ok());
  EXPECT_EQ(service.upload_count(), 0u);
  EXPECT_EQ(bucket.remove(left).code(), StatusCode::not_found);
}

TEST_F(ABucket, AsksOnceForWhatIsReadInSmallPieces) {
  {
    const auto object = bucket.put(name("arenas/a.arena")).value();
    ASSERT_TRUE(object->write_at(0, ByteVector(3'000'000, std::byte{7})).ok());
    ASSERT_TRUE(object->seal(3'000'000).ok());
  }
  const uint64_t before = bucket.client().counters().of(S3Verb::get);
  const auto object = bucket.open(name("arenas/a.arena")).value();
  ByteVector piece(1000);
  for (uint64_t at = 0; at + piece.size() <= 3'000'000; at += piece.size())
    ASSERT_TRUE(read_exactly(*object, at, piece, "").ok());
  EXPECT_EQ(bucket.client().counters().of(S3Verb::get) - before, 3u);
}

}  // namespace
}  // namespace varve
