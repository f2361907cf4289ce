#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/s3_backend.h"
#include "core/clock.h"
#include "s3/fake_s3.h"
#include "sets/saving.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/prune.h"
#include "store/remarks.h"

namespace varve {
namespace {

constexpr int64_t kBegin = 1'700'000'000;

/// Whether it is the second step of a commit.
bool commits(const HttpRequest& request) {
  return request.method == HttpMethod::put && request.path.find("/runs/sets/") != std::string::npos;
}

/// The way to a service. A reply may be long in coming, and so may a request that its sender believes to be lost.
struct SlowWay final : HttpTransport {
  explicit SlowWay(FakeS3& to) : service(to) {}
  HttpReply exchange(const HttpRequest& request) override {
    if (is_late(request)) {
      late.emplace_back(request, ByteVector(request.body.begin(), request.body.end()));
      HttpReply none;
      none.failure = Status::io_error("the connection was lost");
      none.times_sent = 1;
      return none;
    }
    HttpReply reply = service.exchange(request);
    before_reply(request);
    return reply;
  }
  /// What is late comes to the service now.
  void arrive() {
    for (auto& [request, body] : std::exchange(late, {})) {
      request.body = body;
      service.exchange(request);
    }
  }
  FakeS3& service;
  std::function<void(const HttpRequest&)> before_reply = [](const HttpRequest&) {};
  std::function<bool(const HttpRequest&)> is_late = [](const HttpRequest&) { return false; };
  std::vector<std::pair<HttpRequest, ByteVector>> late;
};

/// A service in memory, and processes that use a store in one of its buckets. Time passes only in pauses, and where a
/// test says so.
struct World {
  World() {
    FakeS3Options options;
    options.calendar = [this] { return now(); };
    service = std::make_unique<FakeS3>(std::move(options));
    way = std::make_unique<SlowWay>(*service);
    own = process();
    EXPECT_TRUE(Store::create(*own).ok());
    for (int rank = 0; rank < 4; ++rank)
      test::write_file(folder.path() + "/rank" + std::to_string(rank), std::string(30'000, 'a') + std::to_string(rank));
  }
  int64_t now() const { return kBegin + static_cast<int64_t>(clock.seconds()); }

  /// What a process has of the store: nothing but what the service tells it.
  std::unique_ptr<S3Backend> process(const std::string& origin = "http://127.0.0.1:1") {
    S3ClientOptions options;
    options.retries.clock = &clock;
    options.retries.calendar = [this] {
      on_look_at_clock();
      return now();
    };
    const S3Settings settings{origin, "us-east-1", true, {}, {"access", "secret", {}}};
    return std::make_unique<S3Backend>(*way, S3Place{"bucket", "runs/"}, settings, options);
  }
  void change(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string text;
    for (int i = 0; i < 3000; ++i) text += std::to_string(random());
    test::write_file(folder.path() + "/rank" + std::to_string(seed % 4), text);
  }
  static PruneOptions at_once() {
    PruneOptions options;
    options.wait_seconds = 0;
    return options;
  }
  PruneReport prune() {
    const auto other = process();
    return prune_store(*Store::open(*other).value(), at_once()).value();
  }
  uint64_t requests() const {
    uint64_t sum = 0;
    for (const uint64_t count : own->client().counters().requests) sum += count;
    return sum;
  }
  /// How many requests `work` sends.
  template <class Work>
  uint64_t requests_of(const Work& work) const {
    const uint64_t before = requests();
    work();
    return requests() - before;
  }

  ManualClock clock;
  std::function<void()> on_look_at_clock = [] {};
  std::unique_ptr<FakeS3> service;
  std::unique_ptr<SlowWay> way;
  std::unique_ptr<S3Backend> own;
  test::TempFolder folder;
};

struct InABucket : testing::Test, World {};

TEST_F(InABucket, SetsAreSavedRestoredAndPruned) {
  const auto store = Store::open(*own).value();
  std::map<uint64_t, test::Snapshot> saved;
  for (uint64_t step = 1; step <= 4; ++step) {
    change(step);
    ASSERT_TRUE(test::save(*store, folder.path(), "run", step).ok());
    saved[step] = test::snapshot_of(folder.path());
  }
  for (const auto& [step, snapshot] : saved) EXPECT_TRUE(test::restores_as(*store, {"run", step}, snapshot));
  PruneOptions options = at_once();
  options.keep.last = 1;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"run", 4}}));
  EXPECT_TRUE(test::restores_as(*store, {"run", 4}, saved[4]));
  EXPECT_TRUE(test::is_whole(*store));
  EXPECT_TRUE(own->list(store->writers_path()).value().empty());
  EXPECT_TRUE(own->list(store->condemned_path()).value().empty());
}

/// The table of docs/GUIDE.md, "A store in a bucket".
TEST_F(InABucket, FewRequestsDo) {
  own = process("https://127.0.0.1:1");
  EXPECT_LE(requests_of([&] { Store::open(*own).value(); }), 2u);
  const auto open = Store::open(*own).value();
  EXPECT_LE(requests_of([&] { ASSERT_TRUE(test::save(*open, folder.path(), "run", 1).ok()); }), 15u) << "a first set";
  EXPECT_LE(requests_of([&] { ASSERT_TRUE(test::save(*open, folder.path(), "run", 2).ok()); }), 18u) << "a known set";
  EXPECT_LE(requests_of([&] { Catalog(*open).sets().value(); }), 1u) << "a list";
  test::TempFolder back;
  EXPECT_LE(requests_of([&] {
              RestoreOptions options{.filter = {}, .sync = false, .thread_count = 1};
              ASSERT_TRUE(restore_set(*Store::open(*own).value(), {"run", 1}, back.path() + "/back", options).ok());
            }),
            4u)
      << "a restore";
  EXPECT_LE(requests_of([&] { ASSERT_TRUE(prune_store(*open, at_once()).ok()); }), 46u) << "a prune";
}

// Somebody is stopped between his last look and his commit

struct Stopped : InABucket {
  /// Saves, and calls `meanwhile` when the request that commits the set is on its way.
  Status save_with(const std::function<void()>& meanwhile) {
    bool once = false;
    service->set_before_effect([&](const HttpRequest& request) {
      if (commits(request) && !std::exchange(once, true)) meanwhile();
    });
    const auto store = Store::open(*own).value();
    const Status saved = test::save(*store, folder.path(), "run", 1).status();
    service->set_before_effect(nullptr);
    EXPECT_TRUE(once);
    return saved;
  }
};

TEST_F(Stopped, AWriterThatComesBackInTimeHasItsSet) {
  EXPECT_TRUE(save_with([&] {
                clock.advance(600);
                prune();
              }).ok());
  const auto store = Store::open(*own).value();
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(folder.path())));
}

TEST_F(Stopped, AWriterThatComesBackLateCommitsNothingAndAPruneHasTakenWhatItWrote) {
  EXPECT_FALSE(save_with([&] {
                 clock.advance(2 * 3600);
                 EXPECT_GT(prune().leftover_files, 0u);
               }).ok());
  const auto store = Store::open(*own).value();
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  EXPECT_TRUE(test::is_whole(*store));
  prune();
  EXPECT_TRUE(store->list_arenas().value().empty());
}

TEST_F(Stopped, AWriterWhoseLeaseIsGoneBeforeItCommitsSavesAgain) {
  bool stopped = false;
  service->set_before_effect([&](const HttpRequest& request) {
    const bool writes = request.method == HttpMethod::put && request.path.find("/runs/arenas/") != std::string::npos;
    if (!writes || std::exchange(stopped, true)) return;
    clock.advance(120);
    prune();
  });
  const auto store = Store::open(*own).value();
  const Status saved = test::save(*store, folder.path(), "run", 1).status();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(folder.path())));
}

TEST(AWriter, ThatIsStoppedRightAfterItsLastLookCommitsNothingLate) {
  // Then the clock is looked at for the reply's date, for the age of the record, twice for the list of removals, and
  // when the commit is signed. If the record turns out to be old, the writer starts over.
  for (const auto& [stopped_at, starts_over] : {std::pair{2, true}, std::pair{3, false}, std::pair{5, false}}) {
    World world;
    int looks = 0, writes = 0;
    world.way->before_reply = [&, stopped_at = stopped_at](const HttpRequest& request) {
      const bool is_lease =
          request.method == HttpMethod::put && request.path.find("/runs/writers/") != std::string::npos;
      // The lease is written when it is made, and when it gets the record, which is the last look.
      if (is_lease && ++writes == 2) looks = stopped_at;
    };
    bool stopped = false;
    world.on_look_at_clock = [&] {
      if (looks == 0 || --looks > 0) return;
      stopped = true;
      world.clock.advance(2 * 3600);
      EXPECT_GT(world.prune().leftover_files, 0u);
      EXPECT_TRUE(Catalog(*Store::open(*world.own).value()).sets().value().empty());
    };
    const auto store = Store::open(*world.own).value();
    EXPECT_EQ(test::save(*store, world.folder.path(), "run", 1).ok(), starts_over);
    EXPECT_TRUE(stopped);
    EXPECT_EQ(Catalog(*store).sets()->size(), starts_over ? 1u : 0u);
    EXPECT_TRUE(test::is_whole(*store));
  }
}

TEST_F(InABucket, ARecordThatWasWrittenLongAgoIsNotCommittedWhateverSignsOfLifeItsWriterGave) {
  const std::string name = own->root() + "/writers/1";
  const auto lease = own->records().hold(name, as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  clock.advance(400);
  ASSERT_TRUE(own->records().touch(name).ok());
  ASSERT_TRUE(lease->rewrite(as_bytes("record")).ok());
  clock.advance(400);
  EXPECT_EQ(lease->become(own->root() + "/sets/run/1.set", IfExists::refuse).code(), StatusCode::not_found);
  EXPECT_FALSE(service->object("runs/sets/run/1.set"));
}

// A sign of life, or a record, comes between the look of a prune and its removal

TEST(APrune, ThatWasToldOfSilenceEarlierTakesNoRecordAwayThatIsBeingCommitted) {
  for (const bool written_before : {true, false}) {
    SCOPED_TRACE(written_before);
    World world;
    const auto store = Store::open(*world.own).value();
    ASSERT_TRUE(test::save(*store, world.folder.path(), "run", 1).ok());
    SetRecord record = Catalog(*store).read({"run", 1}).value();
    record.name.step = 2;
    const auto lease = WriterLease::acquire(*store).value();
    if (written_before) {
      ASSERT_TRUE(lease->prepare(record).ok());
    }
    ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
    world.clock.advance(2 * 3600);
    bool woken = false;
    world.service->set_before_effect([&](const HttpRequest& request) {
      const bool reads_lease =
          request.method == HttpMethod::get && request.path.find("/runs/writers/") != std::string::npos;
      if (!reads_lease || std::exchange(woken, true)) return;
      // The prune has listed the leases, and comes to this one.
      world.way->is_late = commits;
      const Status committed =
          written_before ? lease->commit_prepared(record.name, IfExists::refuse) : lease->commit(record);
      EXPECT_FALSE(committed.ok()) << "nothing has arrived";
    });
    world.prune();
    world.service->set_before_effect(nullptr);
    EXPECT_TRUE(woken);
    EXPECT_EQ(world.way->late.empty(), written_before) << "who was stopped for so long does not commit";
    world.way->arrive();
    EXPECT_EQ(Catalog(*store).sets()->size(), written_before ? 0u : 1u);
    EXPECT_TRUE(test::is_whole(*store));
    if (!written_before) {
      EXPECT_TRUE(test::restores_as(*store, {"run", 2}, test::snapshot_of(world.folder.path())));
    }
  }
}

// Of the tries of one commit, the first comes last

struct Late : InABucket {
  void delay_first_try() {
    way->is_late = [first = true](const HttpRequest& request) mutable {
      return commits(request) && std::exchange(first, false);
    };
  }
};

TEST_F(Late, TriesFindTheirDataThoughTheSetWasDroppedAndPrunesHaveRun) {
  const auto store = Store::open(*own).value();
  const test::Snapshot saved = test::snapshot_of(folder.path());
  delay_first_try();
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  ASSERT_EQ(way->late.size(), 1u);
  change(1);
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 2).ok());
  ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
  clock.advance(300);
  prune();
  prune();
  way->arrive();
  for (int hours = 0; hours < 2; ++hours) {
    EXPECT_TRUE(test::restores_as(*store, {"run", 1}, saved));
    EXPECT_TRUE(test::is_whole(*store));
    clock.advance(3600);
    prune();
  }
  EXPECT_TRUE(own->list(store->writers_path()).value().empty());
}

TEST_F(Late, TriesToReplaceASetLeaveANewerOneAlone) {
  const auto store = Store::open(*own).value();
  std::vector<SetRecord> records;
  for (uint64_t step = 1; step <= 3; ++step) {
    change(step);
    ASSERT_TRUE(test::save(*store, folder.path(), "run", step).ok());
    records.push_back(Catalog(*store).read({"run", step}).value());
    records.back().name.step = 1;
  }
  const test::Snapshot newest = test::snapshot_of(folder.path());
  const auto replace_by = [&](const SetRecord& record) {
    return WriterLease::acquire(*store).value()->commit(record, IfExists::replace);
  };
  delay_first_try();
  ASSERT_TRUE(replace_by(records[1]).ok());
  ASSERT_EQ(way->late.size(), 1u);
  ASSERT_TRUE(replace_by(records[2]).ok());
  way->arrive();
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, newest));
}

TEST_F(Late, RemovalsOfATagTakeNoneAwayThatWasGivenSince) {
  const auto store = Store::open(*own).value();
  for (uint64_t step = 1; step <= 3; ++step) {
    change(step);
    ASSERT_TRUE(test::save(*store, folder.path(), "run", step).ok());
  }
  Remarks remarks(*store);
  ASSERT_TRUE(remarks.add_tag({"run", 1}, "best").ok());
  way->is_late = [first = true](const HttpRequest& request) mutable {
    return request.method == HttpMethod::remove && request.path.find(".tag.") != std::string::npos &&
           std::exchange(first, false);
  };
  ASSERT_TRUE(remarks.remove_tag({"run", 1}, "best").ok());
  ASSERT_EQ(way->late.size(), 1u);
  const Status given = remarks.add_tag({"run", 1}, "best");
  EXPECT_EQ(given.code(), StatusCode::busy) << "it could be taken away yet";
  way->arrive();
  clock.advance(1300);
  EXPECT_TRUE(remarks.add_tag({"run", 1}, "best").ok());
  PruneOptions options;
  options.wait_seconds = 0;
  options.keep.last = 1;
  options.keep.tags = {"best"};
  EXPECT_EQ(prune_store(*store, options)->dropped, (std::vector<SetName>{{"run", 2}}));
}

// Of requests that are sent at the same time, one fails

struct Failing : InABucket {
  /// From now on, the request of this method with `part` in its path is refused that comes after `others` of them.
  void refuse(HttpMethod method, std::string part, int others) {
    service->set_faults([this, method, part = std::move(part), others, seen = 0](const HttpRequest& request) mutable {
      const bool meant = request.method == method && request.path.find(part) != std::string::npos;
      if (!meant) return S3Fault::none;
      if (refused_.empty() && seen++ == others) refused_ = request.path;
      return request.path == refused_ ? S3Fault::refused : S3Fault::none;
    });
  }
  /// The sets run@1 to run@6, each with something new.
  void save_six(const Store& store) {
    for (uint64_t step = 1; step <= 6; ++step) {
      change(step);
      ASSERT_TRUE(test::save(store, folder.path(), "run", step).ok());
    }
  }
  std::string refused_;
};

TEST_F(Failing, OfSeveralArenasCommitsNothing) {
  const auto store = Store::open(*own).value();
  SaveOptions options = test::save_options("run", 1);
  options.ranks.group_size = 1;
  options.thread_count = 4;
  refuse(HttpMethod::put, "/arenas/", 1);
  EXPECT_FALSE(save_folder(*store, folder.path(), options, test::layout_service()).ok());
  EXPECT_FALSE(refused_.empty());
  for (const std::string& done : service->log()) EXPECT_EQ(done.find("PUT /bucket/runs/sets/"), std::string::npos);
  service->set_faults(nullptr);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  EXPECT_TRUE(own->list(store->writers_path()).value().empty());
}

TEST_F(Failing, OfSeveralRemovalsLeavesAllMarks) {
  const auto store = Store::open(*own).value();
  save_six(*store);
  const test::Snapshot last = test::snapshot_of(folder.path());
  for (uint64_t step = 1; step <= 5; ++step) ASSERT_TRUE(Catalog(*store).remove({"run", step}).ok());
  refuse(HttpMethod::remove, "/arenas/", 1);
  EXPECT_FALSE(prune_store(*store, at_once()).ok());
  EXPECT_FALSE(refused_.empty());
  // An arena without its mark could get new references.
  const std::string arena = refused_.substr(refused_.rfind('/') + 1, 32);
  EXPECT_TRUE(service->object("runs/condemned/" + arena));
  service->set_faults(nullptr);
  ASSERT_TRUE(prune_store(*store, at_once()).ok());
  EXPECT_TRUE(test::restores_as(*store, {"run", 6}, last));
  EXPECT_TRUE(test::is_whole(*store));
  EXPECT_TRUE(own->list(store->condemned_path()).value().empty());
}

TEST_F(Failing, OfSeveralSetsThatAreReadRemovesNothing) {
  const auto store = Store::open(*own).value();
  save_six(*store);
  const size_t before = service->object_count();
  refuse(HttpMethod::get, "/runs/sets/run/", 3);
  EXPECT_FALSE(prune_store(*store, at_once()).ok());
  EXPECT_FALSE(refused_.empty());
  EXPECT_EQ(service->object_count(), before);
}

// Whatever a service and the network do, and whenever processes are killed

struct Schedule : World {
  void play(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](uint64_t bound) { return random() % bound; };
    std::map<SetName, test::Snapshot> reported, attempted;
    for (uint64_t step = 1; step <= 8; ++step) {
      // One process: what it does may fail at any request, and it may be killed at any.
      const auto faults = random_s3_faults(
          random(), 0.04,
          {S3Fault::refused, S3Fault::lost_request, S3Fault::lost_reply, S3Fault::error_500, S3Fault::error_500_after,
           S3Fault::slow_down, S3Fault::too_many, S3Fault::torn_body, S3Fault::damaged_body, S3Fault::repeated});
      const uint64_t killed_at = below(3) == 0 ? below(60) : UINT64_MAX;
      uint64_t count = 0;
      service->set_faults([&](const HttpRequest& request) {
        if (count++ >= killed_at) return S3Fault::refused;
        return faults(request);
      });
      const auto one = process();
      const auto store = Store::open(*one);
      if (!store.ok()) continue;
      if (below(4) != 0) {
        change(random());
        const SetName name{"job" + std::to_string(below(2)), step};
        attempted[name] = test::snapshot_of(folder.path());
        if (test::save(**store, folder.path(), name.job, step).ok()) reported[name] = attempted[name];
      } else if (below(3) == 0 && !reported.empty()) {
        const SetName name = std::next(reported.begin(), static_cast<ptrdiff_t>(below(reported.size())))->first;
        reported.erase(name);
        Catalog(**store).remove(name).ignore("it is no longer promised");
      } else {
        prune_store(**store, at_once()).status().ignore("the next one goes on");
      }
      if (below(4) == 0) clock.advance(static_cast<double>(below(8000)));
    }
    service->set_faults(nullptr);
    const auto store = Store::open(*own).value();
    const auto check = [&] {
      EXPECT_TRUE(test::is_whole(*store)) << "seed " << seed;
      for (const auto& [name, snapshot] : reported)
        EXPECT_TRUE(test::restores_as(*store, name, snapshot)) << name.to_string() << ", seed " << seed;
      for (const SetName& name : Catalog(*store).sets().value())
        EXPECT_TRUE(test::restores_as(*store, name, attempted.at(name))) << name.to_string() << ", seed " << seed;
    };
    check();
    // When what is uncertain has been decided, nothing is left that no set needs.
    clock.advance(2 * 3600);
    ASSERT_TRUE(prune_store(*store, at_once()).ok()) << "seed " << seed;
    check();
    EXPECT_TRUE(own->list(store->writers_path()).value().empty()) << "seed " << seed;
    EXPECT_EQ(service->upload_count(), 0u);
    EXPECT_EQ(prune_store(*store, at_once())->removed_arenas, 0u) << "seed " << seed;
  }
};

TEST(SchedulesOfABucket, LoseNothingAndGiveNothingWrong) {
  // Ten thousand by night.
  const uint64_t count = std::getenv("VARVE_NIGHTLY") != nullptr ? 10'000 : 150;
  for (uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) Schedule().play(seed);
}

}  // namespace
}  // namespace varve
