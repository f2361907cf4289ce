#include "serve/served_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "backend/s3_backend.h"
#include "s3/fake_s3.h"
#include "serve/test_server.h"
#include "service/location.h"
#include "sets/saving.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/prune.h"

namespace varve {
namespace {

constexpr int64_t kBeginSeconds = 1'700'000'000;

/// A process's way to a service, which ends when the process is killed.
struct MortalWay final : HttpTransport {
  explicit MortalWay(FakeS3& to) : service(to) {}
  HttpReply exchange(const HttpRequest& request) override {
    HttpReply reply;
    if (!dead) reply = service.exchange(request);
    if (!dead) return reply;
    // Nobody is told of a failure that is none: a process that was killed says nothing any more.
    for (int i = 0; i < 500 && is_killed && !is_silent; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    HttpReply none;
    none.failure = Status::invalid_argument("nobody answers");
    return none;
  }
  FakeS3& service;
  std::atomic<bool> dead{false};
  std::atomic<bool> is_killed{false}, is_silent{false};
};

/// A server whose store is in a bucket of a service in memory, where time passes only when a test says so, and clients
/// that know nothing but the server.
struct ABucketServed : testing::Test {
  ABucketServed() {
    FakeS3Options fake;
    fake.calendar = [this] { return now(); };
    service = std::make_unique<FakeS3>(std::move(fake));
    start();
    EXPECT_TRUE(Store::create(*own).ok());
    connect();
    for (int rank = 0; rank < 4; ++rank)
      test::write_file(source / ("rank" + std::to_string(rank)), std::string(30'000, 'a') + std::to_string(rank));
  }
  ~ABucketServed() override {
    place.reset();
    server.reset();
  }

  int64_t now() const { return kBeginSeconds + static_cast<int64_t>(clock.seconds()); }

  void start() {
    way = std::make_unique<MortalWay>(*service);
    S3ClientOptions options;
    options.retries.clock = &clock;
    options.retries.calendar = [this] { return now(); };
    const S3Settings settings{"https://127.0.0.1:1", "us-east-1", true, {}, {"access", "secret", {}}};
    own = std::make_unique<S3Backend>(*way, S3Place{"bucket", "runs/"}, settings, options);
    ServerOptions server_options;
    server_options.backend = own.get();
    server_options.listen.path = folder / "socket";
    server_options.socket_rights = rights;
    server_options.stop_seconds = 0;
    Result<std::unique_ptr<Server>> started = Server::start(std::move(server_options));
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server = std::move(*started);
  }
  /// What the server had not done yet is not done.
  void kill() {
    way->dead = way->is_killed = true;
    std::thread ending([this] { server.reset(); });
    while (std::filesystem::exists(folder / "socket")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // then the connections are closed, too
    way->is_silent = true;
    ending.join();
    old.push_back(std::move(own));
    ways.push_back(std::move(way));
  }
  void connect() { place = open_location("unix:" + (folder / "socket")).value(); }
  std::unique_ptr<Store> remote() const { return open_store(*place).value(); }
  Status save(uint64_t step) const { return test::save(*remote(), source.path(), "run", step).status(); }
  void change(uint64_t seed) const {
    test::write_file(source / ("rank" + std::to_string(seed % 4)), test::random_bytes(40'000, seed));
  }
  static PruneOptions at_once() {
    PruneOptions options;
    options.wait_seconds = 0;
    return options;
  }
  Result<PruneReport> prune(PruneOptions options = at_once()) const {
    const auto other = open_location("unix:" + (folder / "socket")).value();
    return prune_store(*open_store(*other).value(), options);
  }
  void save_while_the_server_is_started_anew(uint64_t step, bool goes_on);
  size_t count_in(const std::string& name) const { return own->list(own->root() + "/" + name)->size(); }
  template <class Message>
  ReplyTo<Message> ask(const Message& request, bool again = false) const {
    ReplyTo<Message> reply;
    EXPECT_TRUE(place->servers()
                    .front()
                    ->with_connection([&](ServerConnection& connection, bool) -> Status {
                      VARVE_ASSIGN(reply, connection.ask(request, {.again = again}));
                      return {};
                    })
                    .ok());
    return reply;
  }

  ManualClock clock;
  std::unique_ptr<FakeS3> service;
  test::TempFolder folder, source;
  Rights rights = Rights::all;
  std::vector<std::unique_ptr<MortalWay>> ways;  ///< of servers that were killed
  std::vector<std::unique_ptr<S3Backend>> old;
  std::unique_ptr<MortalWay> way;
  std::unique_ptr<S3Backend> own;
  std::unique_ptr<Server> server;
  std::unique_ptr<StorePlace> place;
};

TEST_F(ABucketServed, RenamesAFileOfRunsWhileTheRenameOfAnotherTakesLong) {
  const std::string slow = "runs/" + UniqueId::random()->hex() + ".tmp";
  const std::string other = "runs/" + UniqueId::random()->hex() + ".tmp";
  for (const std::string& path : {slow, other}) service->set_object("runs/" + path, path);
  std::promise<void> begun, end;
  std::atomic<bool> is_held{false};
  service->set_before_effect([&](const HttpRequest& request) {
    if (!request.path.ends_with(slow) || is_held.exchange(true)) return;
    begun.set_value();
    end.get_future().wait();
  });
  const auto rename = [this](const std::string& from, const std::string& to) {
    return std::async(std::launch::async, [this, from, to] {
      return ask(RenameRequest{.token = UniqueId::random().value(), .path = from, .to = to}).outcome;
    });
  };
  auto held = rename(slow, "runs/slow.lease");
  begun.get_future().wait();
  auto renamed = rename(other, "runs/other.lease");
  EXPECT_EQ(renamed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  end.set_value();
  EXPECT_EQ(held.get(), Outcome::done);
  EXPECT_EQ(renamed.get(), Outcome::done);
  service->set_before_effect(nullptr);
  EXPECT_EQ(service->object("runs/runs/slow.lease"), slow);
  EXPECT_EQ(service->object("runs/runs/other.lease"), other);
}

TEST_F(ABucketServed, LimitsTheMemoryOfAllSmallFilesThatAreBeingWritten) {
  ServedBackend files(*own, 3_MiB);  // what a record says is there three times
  const std::string path = "writers/" + UniqueId::random()->hex();
  ServedFile first = files.create(path, false).value();
  const ServedFile second = files.create("writers/" + UniqueId::random()->hex(), false).value();
  EXPECT_TRUE(first.file->truncate(1_MiB).ok());
  EXPECT_TRUE(first.file->truncate(0).ok());
  EXPECT_EQ(second.file->truncate(1).code(), StatusCode::busy) << "it keeps its memory";
  EXPECT_EQ(second.file->write_at(7, as_bytes("x")).code(), StatusCode::busy);
  EXPECT_TRUE(files.remove(path).ok());
  first.file.reset();
  EXPECT_TRUE(second.file->truncate(1).ok());
}

TEST_F(ABucketServed, LimitsTheIndexRunsThatAreBeingWritten) {
  ServedBackend files(*own);
  std::string path;
  StatusCode made = StatusCode::ok;
  for (int i = 0; i < 1000 && made == StatusCode::ok; ++i) {
    const std::string next = "index/" + UniqueId::random()->hex() + ".run.part";
    made = files.create(next, false).status().code();
    if (made == StatusCode::ok) path = next;
  }
  EXPECT_EQ(made, StatusCode::busy);
  EXPECT_TRUE(files.remove(path).ok());
  EXPECT_TRUE(files.create(path, false).ok());
}

TEST_F(ABucketServed, HasSetsThatAreSavedListedRestoredVerifiedAndPruned) {
  std::map<uint64_t, test::Snapshot> saved;
  for (uint64_t step = 1; step <= 4; ++step) {
    if (step != 3) change(step);  // a known set
    const Status status = save(step);
    ASSERT_TRUE(status.ok()) << status.to_string();
    saved[step] = test::snapshot_of(source.path());
  }
  const auto store = remote();
  const auto direct = Store::open(*own).value();
  EXPECT_EQ(Catalog(*store).sets()->size(), 4u);
  for (const auto& [step, snapshot] : saved) {
    EXPECT_TRUE(test::restores_as(*store, {"run", step}, snapshot));
    EXPECT_TRUE(test::restores_as(*direct, {"run", step}, snapshot));
  }
  PruneOptions options = at_once();
  options.keep.last = 1;
  const auto pruned = prune(options);
  ASSERT_TRUE(pruned.ok()) << pruned.status().to_string();
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"run", 4}}));
  EXPECT_TRUE(test::restores_as(*store, {"run", 4}, saved[4]));
  EXPECT_TRUE(test::is_whole(*store));
  EXPECT_TRUE(test::is_whole(*direct));
  EXPECT_EQ(count_in("writers"), 0u);
  EXPECT_EQ(count_in("condemned"), 0u);
  EXPECT_EQ(service->upload_count(), 0u);
}

TEST_F(ABucketServed, ASetIsDroppedForWhatItSaysOnlyIfItSaysThatStill) {
  const std::string record = "sets/run/1.set", in_bucket = own->root() + "/" + record;
  ASSERT_TRUE(save(1).ok());
  const std::string aside = PutAside::path_for(record, own->read_record(in_bucket, 1_MiB).value()).value();
  EXPECT_EQ(ask(RenameRequest{.path = record, .to = aside}).outcome, Outcome::done);
  EXPECT_EQ(count_in("sets/run"), 1u) << "it has its name until it is known to be the one";
  EXPECT_EQ(ask(StatRequest{.path = aside}).outcome, Outcome::done);
  ASSERT_TRUE(Catalog(*remote()).remove({"run", 1}).ok());
  change(1);
  ASSERT_TRUE(save(1).ok());
  place.reset();
  server.reset();
  start();
  connect();
  EXPECT_EQ(ask(RemoveRequest{.path = aside}).status.code(), StatusCode::busy);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
  Backend& client = place->backend();
  const std::string as_seen = join_path(client.root(), record);
  EXPECT_FALSE(client.records().remove_committed(as_seen, as_bytes("another")).value());
  EXPECT_EQ(Catalog(*remote()).steps("run").value(), std::vector<uint64_t>{1});
  EXPECT_TRUE(client.records().remove_committed(as_seen, own->read_record(in_bucket, 1_MiB).value()).value());
  EXPECT_EQ(own->status(in_bucket).status().code(), StatusCode::not_found);
}

TEST_F(ABucketServed, RefusesWhatAKeyHasNoRightTo) {
  ASSERT_TRUE(save(1).ok());
  place.reset();
  server.reset();
  rights = Rights::append;
  start();
  connect();
  change(1);
  const Status second = save(2);
  EXPECT_TRUE(second.ok()) << second.to_string();
  EXPECT_EQ(save(2).code(), StatusCode::already_exists);
  const auto store = remote();
  EXPECT_EQ(Catalog(*store).remove({"run", 1}).code(), StatusCode::permission_denied);
  PruneOptions options = at_once();
  options.keep.last = 1;
  EXPECT_FALSE(prune(options).ok());
  EXPECT_EQ(Catalog(*store).sets()->size(), 2u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 2}, test::snapshot_of(source.path())));
}

TEST_F(ABucketServed, IsNotOneOfSeveralPlaces) {
  const auto reply =
      ask(CreateRequest{.token = UniqueId::random().value(), .path = "varve.spread." + std::string(32, 'a') + ".tmp"});
  EXPECT_EQ(reply.status.code(), StatusCode::unsupported);
}

TEST_F(ABucketServed, PromisesNothingThatIsNotInTheBucket) {
  Backend& backend = place->backend();
  const std::string id(32, 'a'), name = backend.root() + "/arenas/" + id + ".arena";
  auto arena = backend.put(name).value();
  const ByteVector bytes = test::random_bytes(20'000'000, 1);
  ASSERT_TRUE(arena->write_at(0, bytes).ok());
  EXPECT_EQ(count_in("arenas"), 0u);
  EXPECT_EQ(backend.unfinished(backend.root() + "/arenas").value().size(), 1u);
  ASSERT_TRUE(arena->seal(bytes.size() - 5).ok());
  EXPECT_EQ(own->status(own->root() + "/arenas/" + id + ".arena")->bytes, bytes.size() - 5);
  EXPECT_TRUE(backend.unfinished(backend.root() + "/arenas").value().empty());

  // A sync that the bucket did not take.
  const std::string other(32, 'b');
  const auto lost = ask(CreateRequest{.token = UniqueId::random().value(), .path = "arenas/" + other + ".part"});
  ASSERT_EQ(lost.outcome, Outcome::done);
  way->dead = true;
  EXPECT_EQ(ask(SyncRequest{lost.fields.handle}).outcome, Outcome::failed);
  way->dead = false;
  EXPECT_EQ(ask(SyncRequest{lost.fields.handle}).outcome, Outcome::failed);  // nor is it tried again
  EXPECT_EQ(ask(RenameRequest{.token = UniqueId::random().value(),
                              .path = "arenas/" + other + ".part",
                              .to = "arenas/" + other + ".arena"})
                .outcome,
            Outcome::failed);
}

TEST_F(ABucketServed, TellsWritersOfAServerThatIsGoneToSaveAgain) {
  const auto store = remote();
  auto lease = WriterLease::acquire(*store).value();
  const std::string name = store->arena_path(lease->arena_id(0));
  auto arena = place->backend().put(name).value();
  ASSERT_TRUE(arena->write_at(0, test::random_bytes(20'000'000, 1)).ok());
  EXPECT_EQ(service->upload_count(), 1u);
  kill();
  start();
  Status sealed = arena->write_at(20'000'000, test::random_bytes(1'000'000, 1));
  if (sealed.ok()) sealed = arena->seal(20'000'000);
  EXPECT_EQ(sealed.code(), StatusCode::not_found) << sealed.to_string();
  EXPECT_EQ(sealed.remedy(), Remedy::save_again);
  SetRecord record;
  record.name = {"run", 1};
  EXPECT_FALSE(lease->commit(record).ok());
  arena.reset();
  lease.reset();
  EXPECT_EQ(count_in("writers"), 0u);
  EXPECT_TRUE(Catalog(*store).sets()->empty());
  change(1);
  const Status again = save(1);
  EXPECT_TRUE(again.ok()) << again.to_string();
  ASSERT_TRUE(prune().ok());
  EXPECT_EQ(service->upload_count(), 0u);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
}

void ABucketServed::save_while_the_server_is_started_anew(uint64_t step, bool goes_on) {
  bool once = false;
  std::thread killer;
  service->set_before_effect([&](const HttpRequest& request) {
    if (request.method != HttpMethod::put || request.path.find("/arenas/") == std::string::npos) return;
    if (std::exchange(once, true)) return;
    way->dead = way->is_killed = true;
    killer = std::thread([&] {
      kill();
      start();
    });
  });
  Status saved = save(step);
  if (killer.joinable()) killer.join();
  service->set_before_effect(nullptr);
  EXPECT_TRUE(once);
  EXPECT_EQ(saved.ok(), goes_on) << saved.to_string();
  if (!saved.ok()) {
    EXPECT_EQ(Catalog(*remote()).read({"run", step}).status().code(), StatusCode::not_found);
    saved = save(step);
  }
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_TRUE(test::restores_as(*remote(), {"run", step}, test::snapshot_of(source.path())));
}

TEST_F(ABucketServed, ASaveDuringWhichTheServerIsStartedAnewFailsOrIsBegunAnew) {
  // While the arena is made durable: nobody knows how that ended. Or while it is written, of which more is to come.
  for (const size_t bytes : {size_t{100'000}, size_t{60'000'000}}) {
    test::write_file(source / "field", test::random_bytes(bytes, bytes));
    const bool is_large = bytes > 40'000'000;
    save_while_the_server_is_started_anew(is_large ? 2 : 1, is_large);
  }
}

TEST_F(ABucketServed, ACommitThatAServerHasMadeWhichIsGoneIsFoundOut) {
  Backend& backend = place->backend();
  const std::string id(32, 'c'), set = backend.root() + "/sets/run/1.set";
  auto lease = backend.records().hold(backend.root() + "/writers/" + id, as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("a record")).ok());
  const FileIdentity identity = ask(StatRequest{"writers/" + id}).fields.identity;
  ASSERT_TRUE(identity.certain());
  RenameRequest request{.path = "writers/" + id, .to = "sets/run/1.set", .identity = identity};
  for (const bool removed : {false, true}) {
    // It may have come to remove the lease, or not.
    service->set_object("runs/sets/run/1.set", "a record");
    if (removed) {
      EXPECT_TRUE(own->remove(own->root() + "/writers/" + id).ok());
    } else {
      service->set_object("runs/writers/" + id, "a record");
    }
    kill();
    start();
    if (removed) {
      EXPECT_EQ(ask(StatRequest{"writers/" + id}).status.code(), StatusCode::not_found);
    }
    request.token = UniqueId::random().value();
    EXPECT_EQ(ask(request, true).outcome, Outcome::done) << removed;
    // What the other server has sent may be on its way yet.
    EXPECT_EQ(service->object("runs/writers/" + id).has_value(), !removed);
    EXPECT_EQ(service->object("runs/sets/run/1.set"), "a record");
  }
  // Somebody else's, or nobody can tell whose.
  service->set_object("runs/sets/run/1.set", "another record");
  request.token = UniqueId::random().value();
  EXPECT_EQ(ask(request, true).outcome, Outcome::failed);
  request.token = UniqueId::random().value();
  request.identity = {};
  EXPECT_EQ(ask(request, true).outcome, Outcome::cannot_tell);
}

TEST_F(ABucketServed, TheLeaseOfAServerThatIsGoneIsNotRemovedAsLongAsItMayBecomeASet) {
  Backend& backend = place->backend();
  const std::string id(32, 'd'), name = backend.root() + "/writers/" + id;
  auto lease = backend.records().hold(name, as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("a record")).ok());
  kill();
  start();
  EXPECT_EQ(backend.remove(name).code(), StatusCode::busy);
  EXPECT_FALSE(WriterLease::give_up(backend, name, 1000).value());
  clock.advance(1800);
  ASSERT_TRUE(prune().ok());
  EXPECT_TRUE(service->object("runs/writers/" + id));
  EXPECT_EQ(lease->become(backend.root() + "/sets/run/1.set", IfExists::refuse).remedy(), Remedy::save_again);
  clock.advance(1900);
  EXPECT_TRUE(WriterLease::give_up(backend, name, 4000).value());
  EXPECT_FALSE(service->object("runs/writers/" + id));
  EXPECT_EQ(lease->become(backend.root() + "/sets/run/1.set", IfExists::refuse).code(), StatusCode::not_found);
}

TEST_F(ABucketServed, ALeaseThatTheServerHoldsIsRemovedAtOnceAndCommitsNothingThen) {
  Backend& backend = place->backend();
  const std::string id(32, 'e'), name = backend.root() + "/writers/" + id;
  auto lease = backend.records().hold(name, as_bytes("1 host\n")).value();
  ASSERT_TRUE(lease->rewrite(as_bytes("a record")).ok());
  EXPECT_TRUE(WriterLease::give_up(backend, name, 20).value());
  EXPECT_FALSE(service->object("runs/writers/" + id));
  EXPECT_EQ(backend.records().touch(name).code(), StatusCode::not_found);
  EXPECT_EQ(lease->rewrite(as_bytes("another record")).code(), StatusCode::not_found);
  EXPECT_EQ(lease->become(backend.root() + "/sets/run/1.set", IfExists::refuse).code(), StatusCode::not_found);
  EXPECT_FALSE(service->object("runs/sets/run/1.set"));
}

TEST_F(ABucketServed, ARemovalOfALeaseWaitsForTheCommitThatIsUnderWay) {
  change(1);
  bool once = false;
  Result<PruneReport> pruned = PruneReport();
  std::thread pruner;
  service->set_before_effect([&](const HttpRequest& request) {
    const bool commits = request.method == HttpMethod::put && request.path.find("/sets/") != std::string::npos;
    if (!commits || std::exchange(once, true)) return;
    clock.advance(120);  // the writer is silent
    pruner = std::thread([&] { pruned = prune(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  const Status saved = save(1);
  ASSERT_TRUE(pruner.joinable());
  pruner.join();
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_TRUE(pruned.ok()) << pruned.status().to_string();
  service->set_before_effect(nullptr);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
  EXPECT_TRUE(test::is_whole(*remote()));
}

TEST_F(ABucketServed, AWriterThatAPruneGaveUpSavesAgain) {
  change(1);
  bool once = false;
  service->set_before_effect([&](const HttpRequest& request) {
    const bool writes = request.method == HttpMethod::put && request.path.find("/arenas/") != std::string::npos;
    if (!writes || std::exchange(once, true)) return;
    clock.advance(120);
    const auto pruned = prune();
    EXPECT_TRUE(pruned.ok()) << pruned.status().to_string();
    EXPECT_GT(pruned.ok() ? pruned->leftover_files : 0, 0u);
  });
  const Status saved = save(1);
  EXPECT_TRUE(once);
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  service->set_before_effect(nullptr);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
}

TEST_F(ABucketServed, ACommitOfWhichNobodyCanTellKeepsItsLease) {
  change(1);
  // The set is written, and from then on nobody answers.
  bool gone = false;
  service->set_faults([&](const HttpRequest& request) {
    const bool commits = request.method == HttpMethod::put && request.path.find("/sets/") != std::string::npos;
    if (gone) return S3Fault::refused;
    gone = commits;
    return commits ? S3Fault::lost_reply : S3Fault::none;
  });
  EXPECT_FALSE(save(1).ok());
  service->set_faults(nullptr);
  EXPECT_TRUE(gone);
  EXPECT_EQ(count_in("writers"), 1u);
  PruneOptions options = at_once();
  options.silence_seconds = 0;
  ASSERT_TRUE(prune(options).ok());
  EXPECT_EQ(count_in("writers"), 1u);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
  clock.advance(4000);
  ASSERT_TRUE(prune(options).ok());
  EXPECT_EQ(count_in("writers"), 0u);
  EXPECT_TRUE(test::restores_as(*remote(), {"run", 1}, test::snapshot_of(source.path())));
}

TEST_F(ABucketServed, ALeaseWhoseCommitWasSentTwiceStaysHoweverThatEnded) {
  Backend& backend = place->backend();
  for (const bool other : {false, true}) {
    const std::string id(32, other ? '1' : '2'), name = backend.root() + "/writers/" + id;
    const std::string step = other ? "1" : "2";
    const auto lease = backend.records().hold(name, as_bytes("1 host\n")).value();
    ASSERT_TRUE(lease->rewrite(as_bytes("a record")).ok());
    if (other) service->set_object("runs/sets/run/1.set", "another record");
    bool once = false;
    service->set_faults([&](const HttpRequest& request) {
      const bool commits = request.method == HttpMethod::put && request.path.find("/sets/") != std::string::npos;
      return commits && !std::exchange(once, true) ? S3Fault::lost_request : S3Fault::none;
    });
    EXPECT_EQ(lease->become(backend.root() + "/sets/run/" + step + ".set", IfExists::refuse).code(),
              other ? StatusCode::already_exists : StatusCode::ok);
    service->set_faults(nullptr);
    EXPECT_TRUE(once);
    EXPECT_EQ(backend.remove(name).code(), StatusCode::busy);
    EXPECT_FALSE(WriterLease::give_up(backend, name, 4000).value());
    EXPECT_EQ(service->object("runs/writers/" + id), "a record");
    clock.advance(3700);
    EXPECT_TRUE(WriterLease::give_up(backend, name, 4000).value());
    EXPECT_FALSE(service->object("runs/writers/" + id));
  }
}

/// What a service does, and a server that is killed now and then.
TEST_F(ABucketServed, KeepsWhatItHasSaidWhateverHappens) {
  const bool nightly = std::getenv("VARVE_NIGHTLY") != nullptr;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::map<SetName, test::Snapshot> reported;
  for (uint64_t step = 1; step <= (nightly ? 300u : 20u); ++step) {
    const auto faults =
        random_s3_faults(random(), 0.03,
                         {S3Fault::refused, S3Fault::lost_request, S3Fault::lost_reply, S3Fault::error_500,
                          S3Fault::error_500_after, S3Fault::slow_down, S3Fault::too_many, S3Fault::repeated});
    // It is killed at a request, and dies when the client has given up.
    const uint64_t killed_at = random() % 2 == 0 ? random() % 40 : UINT64_MAX;
    std::atomic<uint64_t> count{0};
    MortalWay* const mortal = way.get();
    service->set_faults([&](const HttpRequest& request) {
      if (count++ == killed_at) mortal->dead = true;
      return mortal->dead ? S3Fault::refused : faults(request);
    });
    change(random());
    const SetName name{"run", step};
    const test::Snapshot snapshot = test::snapshot_of(source.path());
    if (random() % 4 != 0) {
      const auto store = open_store(*place);
      if (store.ok() && test::save(**store, source.path(), name.job, step).ok()) reported[name] = snapshot;
    } else {
      const auto store = open_store(*place);
      if (store.ok()) prune_store(**store, at_once()).status().ignore("the next one goes on");
    }
    service->set_faults(nullptr);
    if (way->dead) {
      kill();
      start();
      connect();
    }
    if (random() % 4 == 0) clock.advance(static_cast<double>(random() % 8000));
  }
  const auto store = remote();
  EXPECT_TRUE(test::is_whole(*store));
  for (const auto& [name, snapshot] : reported)
    EXPECT_TRUE(test::restores_as(*store, name, snapshot)) << name.to_string();
  clock.advance(8000);
  ASSERT_TRUE(prune().ok());
  for (const auto& [name, snapshot] : reported)
    EXPECT_TRUE(test::restores_as(*store, name, snapshot)) << name.to_string();
}

}  // namespace
}  // namespace varve
