#include "serve/rights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "backend/put_aside.h"
#include "core/memory_file_system.h"
#include "engine/transfer.h"
#include "format/store_header.h"
#include "serve/test_server.h"
#include "service/location.h"
#include "sets/saving.h"
#include "store/commit.h"
#include "store/lost_headers.h"
#include "store/prune.h"
#include "store/spread.h"
#include "store/test_sets.h"

namespace varve {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef";

/// A server of a store with one set, run@1, which is reached with some rights.
struct ServedWithRights : testing::Test {
  ServedWithRights() {
    EXPECT_TRUE(Store::create(posix_file_system(), server.options.folder).ok());
    test::write_file(source / "a", test::smooth_field(20'000, 1));
    EXPECT_TRUE(test::save(*local(), source.path(), "run", 1).ok());
  }
  std::unique_ptr<Store> local() const { return test::open_store(posix_file_system(), server.options.folder); }
  void serve(Rights rights) {
    place.reset();
    server.stop();
    server.options.socket_rights = rights;
    server.start();
    place = open_location("unix:" + server.options.listen.path).value();
  }
  std::unique_ptr<Store> remote() const { return open_store(*place).value(); }
  Status save(uint64_t step) const {
    const auto store = remote();
    return test::save(*store, source.path(), "run", step).status();
  }
  template <class Message>
  ReplyTo<Message> ask(Message request, ByteSpan data = {}) const {
    return place->servers().front()->ask(std::move(request), {.data = data}).value();
  }
  template <class Message>
  StatusCode code_of(const std::string& path) const {
    Message request;
    request.path = path;
    return ask(std::move(request)).status.code();
  }
  StatusCode code_of_rename(const std::string& path, const std::string& to, bool replace = false) const {
    return ask(RenameRequest{.path = path, .to = to, .replace = replace}).status.code();
  }
  /// What lies in the store, but for the index that the server keeps beside all else.
  test::Snapshot served() const {
    return test::snapshot_of(server.options.folder, [](const std::string& path) {
      return !path.starts_with("index/") || path.find(kId) != std::string::npos;
    });
  }

  TestServer server{TestServer::Kind::unix_socket, is_store_path};
  test::TempFolder source;
  std::unique_ptr<StorePlace> place;
};

SetRecord record_of(const SetName& name, const LeafLink& root, test::SetMaker& maker) {
  SetRecord record;
  record.name = name;
  record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
  return record;
}

using ToAppend = ServedWithRights;
using ToRead = ServedWithRights;
using WithAllRights = ServedWithRights;

TEST_F(ToAppend, SetsAreSavedPushedListedAndRestored) {
  serve(Rights::append);
  const test::Snapshot first = test::snapshot_of(source.path());
  EXPECT_TRUE(save(2).ok());
  test::write_file(source / "b", test::random_bytes(3'000'000, 2));
  const Status second = save(3);
  EXPECT_TRUE(second.ok()) << second.to_string();
  EXPECT_EQ(save(3).code(), StatusCode::already_exists);
  MemoryFileSystem fs;
  const auto near = test::make_store(fs);
  ASSERT_TRUE(test::save(*near, source.path(), "other", 7).ok());
  const auto store = remote();
  const auto pushed = copy_set(*near, *store, {"other", 7});
  EXPECT_TRUE(pushed.ok()) << pushed.status().to_string();
  EXPECT_EQ(Catalog(*store).sets()->size(), 4u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 2}, first));
  EXPECT_TRUE(test::restores_as(*store, {"other", 7}, test::snapshot_of(source.path())));
  EXPECT_TRUE(test::is_whole(*local()));
  EXPECT_TRUE(std::filesystem::is_empty(server.options.folder + "/writers"));
}

TEST_F(ToAppend, SetsAreMadeOfPartsWhichGoThen) {
  serve(Rights::append);
  const UniqueId run = UniqueId::random().value();
  const auto store = remote();
  const PartName kept{{"job", 1}, run, 0, 2}, taken_back{{"job", 2}, run, 0, 2};
  for (const PartName& name : {kept, PartName{{"job", 1}, run, 1, 2}, taken_back}) {
    test::SetMaker maker(*store);
    const auto root = test::lay_numbers(*store, maker, {name.ordinal + 1u, name.set.step});
    ASSERT_TRUE(root.ok()) << root.status().to_string();
    ASSERT_TRUE(maker.seal().ok());
    const Status published = maker.lease().publish_part(name, record_of(name.set, *root, maker));
    ASSERT_TRUE(published.ok()) << published.to_string();
  }
  EXPECT_TRUE(remove_part(*store, taken_back).ok());
  const PartName given_up{{"job", 3}, run, 0, 2};
  EXPECT_TRUE(publish_failure(*store, given_up, Status::io_error("no disk")).ok());
  EXPECT_EQ(read_failure(*store, given_up).message(), "no disk");
  EXPECT_TRUE(remove_failure(*store, given_up).ok());
  serve(Rights::append);  // whose parts these are, the server does not know any more
  const auto again = remote();
  const auto completed = complete_set(*again, run, {"job", 1}, 2, IfExists::refuse);
  EXPECT_TRUE(completed.ok()) << completed.status().to_string();
  EXPECT_TRUE(std::filesystem::is_empty(server.options.folder + "/parts"));
}

TEST_F(ToAppend, ASaveThatIsGivenUpTakesItsOwnAway) {
  serve(Rights::append);
  const auto store = remote();
  const test::Snapshot before = served();
  {
    const auto lease = WriterLease::acquire(*store);
    ASSERT_TRUE(lease.ok()) << lease.status().to_string();
    const ArenaId id = (*lease)->arena_id(0);
    const auto arena = ArenaWriter::create(store->backend(), store->arena_path(id), arena_header(*store, id), {});
    ASSERT_TRUE(arena.ok()) << arena.status().to_string();
    EXPECT_NE(served().size(), before.size());
  }
  EXPECT_EQ(served().size(), before.size());
  EXPECT_TRUE(save(2).ok());
}

TEST(ToAppendToSeveralServers, SetsAreSavedAndRestored) {
  TestServer first(TestServer::Kind::unix_socket, is_store_path), second(TestServer::Kind::unix_socket, is_store_path);
  const std::string location = "unix:" + first.options.listen.path + "," + second.options.listen.path;
  ASSERT_TRUE(create_store(*open_location(location).value()).ok());
  for (TestServer* server : {&first, &second}) {
    server->stop();
    server->options.socket_rights = Rights::append;
    server->start();
  }
  const auto place = open_location(location).value();
  const auto store = open_store(*place).value();
  test::TempFolder source;
  for (const uint64_t step : {1, 2, 3}) {
    test::write_file(source / std::to_string(step), test::random_bytes(500'000, step));
    const Status saved = test::save(*store, source.path(), "run", step).status();
    EXPECT_TRUE(saved.ok()) << saved.to_string();
  }
  EXPECT_TRUE(test::restores_as(*store, {"run", 3}, test::snapshot_of(source.path())));
  EXPECT_TRUE(test::is_whole(*store));
  EXPECT_LT(Catalog(*store).read({"run", 3})->stored_bytes(), 700'000u) << "the index tells what is there";
  // By chance, all may lie evenly already.
  const Result<RebalanceReport> rebalanced = rebalance(place->places());
  EXPECT_TRUE(rebalanced.ok() ? rebalanced->moved_arenas == 0
                              : rebalanced.status().code() == StatusCode::permission_denied)
      << rebalanced.status().to_string();
  EXPECT_EQ(Catalog(*store).remove({"run", 1}).code(), StatusCode::permission_denied);
}

TEST_F(ToAppend, NothingIsDroppedPrunedOrReplaced) {
  serve(Rights::append);
  ASSERT_TRUE(save(2).ok());
  const auto store = remote();
  const test::Snapshot before = served();
  EXPECT_EQ(Catalog(*store).remove({"run", 1}).code(), StatusCode::permission_denied);
  PruneOptions options;
  options.keep.last = 1;
  EXPECT_EQ(prune_store(*store, options).status().code(), StatusCode::permission_denied);
  test::SetMaker maker(*store);
  const auto root = test::lay_numbers(*store, maker, {1});
  ASSERT_TRUE(root.ok());
  ASSERT_TRUE(maker.seal().ok());
  const Status replaced = maker.lease().commit(record_of({"run", 1}, *root, maker), IfExists::replace);
  EXPECT_EQ(replaced.code(), StatusCode::permission_denied) << replaced.to_string();
  EXPECT_NE(replaced.to_string().find("replace"), std::string::npos) << replaced.to_string();
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(source.path())));
  EXPECT_TRUE(test::is_whole(*local()));
  for (const auto& [path, what] : before) {
    if (path.find('.') != std::string::npos) {
      EXPECT_TRUE(served().contains(path)) << path;
    }
  }
}

TEST_F(ToAppend, AHostileClientTakesNothingAway) {
  // What another writer is at.
  for (const char* name : {"writers/", "arenas/", "index/"}) {
    const std::string suffix = std::string_view(name) == "writers/" ? "" : ".part";
    test::write_file(server.options.folder + "/" + name + kId + suffix, "another's");
  }
  test::write_file(server.options.folder + "/parts/job@1." + kId + ".0-of-2.part", "another's");
  serve(Rights::append);
  const test::Snapshot before = served();
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server.options.folder))
    all.push_back(std::filesystem::relative(entry.path(), server.options.folder));
  const std::string new_id = UniqueId::random()->hex();
  std::vector<std::string> goals = all;
  for (const char* goal : {"sets/run/9.set", "varve.spread"}) goals.emplace_back(goal);
  for (const std::string& name : {"arenas/" + new_id + ".arena", "writers/" + new_id, "index/" + new_id + ".run",
                                  "parts/job@1." + new_id + ".0-of-2.part"})
    goals.push_back(name);
  for (const std::string& path : all) {
    SCOPED_TRACE(path);
    EXPECT_NE(code_of<RemoveRequest>(path), StatusCode::ok);
    EXPECT_NE(code_of<RemoveDirectoryRequest>(path), StatusCode::ok);
    EXPECT_NE(code_of<ResumeRequest>(path), StatusCode::ok);
    if (!path.starts_with("writers/")) {
      EXPECT_NE(code_of<TouchRequest>(path), StatusCode::ok);
    }
    for (const std::string& goal : goals) {
      for (const bool replace : {false, true}) {
        EXPECT_NE(code_of_rename(path, goal, replace), StatusCode::ok) << goal;
      }
    }
  }
  for (const std::string& name : {"varve.store." + kId + ".tmp", "varve.spread." + kId + ".tmp",
                                  std::string("varve.spread"), "condemned/" + kId, std::string("sets/run/9.set")})
    EXPECT_EQ(code_of<CreateRequest>(name), StatusCode::permission_denied) << name;
  EXPECT_EQ(served(), before);
}

TEST_F(ToAppend, WhatHasItsLastNameIsNotWrittenToAnyMore) {
  serve(Rights::append);
  const std::string lease = "writers/" + kId;
  const auto created = ask(CreateRequest{.path = lease});
  ASSERT_EQ(created.outcome, Outcome::done) << created.status.to_string();
  EXPECT_FALSE(created.fields.descriptor) << "the file would be the client's own for ever";
  const WriteRequest write{created.fields.handle};
  EXPECT_EQ(ask(write, as_bytes("record")).outcome, Outcome::done);
  EXPECT_EQ(code_of<TouchRequest>(lease), StatusCode::ok);
  const std::string record = "sets/run/9.set";
  EXPECT_EQ(code_of_rename(lease, record), StatusCode::ok);
  EXPECT_EQ(ask(write, as_bytes("hostile")).outcome, Outcome::unknown_handle);
  EXPECT_EQ(ask(TruncateRequest{created.fields.handle}).outcome, Outcome::unknown_handle);
  EXPECT_EQ(code_of_rename(record, lease), StatusCode::permission_denied);
  EXPECT_EQ(code_of<RemoveRequest>(record), StatusCode::permission_denied);
  EXPECT_EQ(as_text(read_file(posix_file_system(), server.options.folder + "/" + record, 100).value()), "record");
}

TEST_F(ToAppend, SetsThatARemovalHasHiddenComeBackUnlessTheyAreToGo) {
  serve(Rights::append);
  const std::string record = "sets/run/1.set", path = server.options.folder + "/" + record;
  const ByteVector says = read_file(posix_file_system(), path, 1_MiB).value();
  const auto store = remote();
  for (const bool goes : {false, true}) {
    const std::string aside =
        server.options.folder + "/" + PutAside::path_for(record, goes ? ByteSpan(says) : as_bytes("another")).value();
    std::filesystem::rename(path, aside);
    EXPECT_EQ(Catalog(*store).steps("run")->size(), goes ? 0u : 1u);
    EXPECT_EQ(std::filesystem::exists(path), !goes);
    if (goes) std::filesystem::rename(aside, path);
  }
}

TEST_F(ToRead, SetsAreListedAndRestoredAndNothingElse) {
  serve(Rights::read);
  const auto store = remote();
  const test::Snapshot before = served();
  EXPECT_EQ(Catalog(*store).sets()->size(), 1u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(source.path())));
  EXPECT_TRUE(test::is_whole(*store));
  const Status saved = save(2);
  EXPECT_EQ(saved.code(), StatusCode::permission_denied) << saved.to_string();
  EXPECT_NE(saved.to_string().find("right to read"), std::string::npos) << saved.to_string();
  std::vector<int> allowed;
  for_each_message([&](auto request) {
    if constexpr (requires { request.path; }) request.path = "writers/" + kId;
    if (check_allowed(Rights::read, request).ok()) allowed.push_back(request.kMessage.number);
  });
  // hello, ping, goodbye, open, read, size, close, stat, list, find, room
  EXPECT_EQ(allowed, (std::vector<int>{1, 2, 3, 4, 7, 11, 12, 13, 14, 21, 26}));
  EXPECT_EQ(code_of<CreateRequest>("writers/" + kId), StatusCode::permission_denied);
  EXPECT_EQ(code_of<RemoveRequest>("sets/run/1.set"), StatusCode::permission_denied);
  EXPECT_EQ(code_of<TouchRequest>("sets/run/1.set"), StatusCode::permission_denied);
  EXPECT_EQ(served(), before);
}

TEST_F(WithAllRights, LeasesAndPartsAreTouchedAndNothingElse) {
  const std::string part = "parts/job@1." + kId + ".0-of-2.part", failure = "parts/job@1." + kId + ".1-of-2.failed";
  for (const std::string& path : {part, failure, "writers/" + kId})
    test::write_file(server.options.folder + "/" + path, "killed");
  serve(Rights::all);
  for (const std::string& path : {part, failure, "writers/" + kId})
    EXPECT_EQ(code_of<TouchRequest>(path), StatusCode::ok) << path;
  const std::string arena = "arenas/" + local()->list_arenas()->front().hex() + ".arena";
  for (const std::string& path : {arena, std::string("sets/run/1.set"), std::string("varve.store")})
    EXPECT_EQ(code_of<TouchRequest>(path), StatusCode::permission_denied) << path;
}

TEST_F(WithAllRights, TheStoresHeaderIsMadeOnlyOnce) {
  serve(Rights::all);
  Backend& backend = place->backend();
  const std::string path = store_header_path(backend.root());
  const ByteVector header = backend.read_record(path, 4096).value();
  const StoreHeader other{UniqueId::random().value()};
  EXPECT_EQ(backend.records().replace(path, encode_store_header(other)).code(), StatusCode::permission_denied);
  EXPECT_EQ(backend.records().replace(path, as_bytes("nonsense")).code(), StatusCode::permission_denied);
  EXPECT_EQ(backend.records().publish(path, encode_store_header(other)).code(), StatusCode::already_exists);
  EXPECT_EQ(backend.remove(path).code(), StatusCode::permission_denied);
  EXPECT_EQ(code_of<ResumeRequest>("varve.store"), StatusCode::permission_denied);
  EXPECT_EQ(code_of<CreateRequest>("varve.store"), StatusCode::permission_denied);
  for (const char* goal : {"varve.spread", "sets/run/9.set"})
    EXPECT_EQ(code_of_rename("varve.store", goal, true), StatusCode::permission_denied) << goal;
  EXPECT_EQ(backend.read_record(path, 4096).value(), header);
  // A sealed arena, and who renames what over it.
  const std::string arena = "arenas/" + local()->list_arenas()->front().hex();
  test::write_file(server.options.folder + "/arenas/" + kId + ".part", "hostile");
  EXPECT_EQ(code_of_rename("arenas/" + kId + ".part", arena + ".arena", true), StatusCode::already_exists);
  EXPECT_EQ(code_of<ResumeRequest>(arena + ".arena"), StatusCode::permission_denied);
  EXPECT_TRUE(test::is_whole(*local()));
}

TEST_F(WithAllRights, ALostOrDamagedHeaderIsMadeAnewOverTheServer) {
  const std::string path = store_header_path(server.options.folder);
  const ByteVector header = read_file(posix_file_system(), path, 4096).value();
  serve(Rights::all);
  for (const bool is_lost : {true, false}) {
    if (is_lost) {
      std::filesystem::remove(path);
    } else {
      test::write_file(path, "nonsense");
    }
    EXPECT_EQ(open_store(*place).status().code(), StatusCode::corrupt);
    const auto made = restore_store_headers(place->places());
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made->size(), 1u);
    EXPECT_EQ(read_file(posix_file_system(), path, 4096).value(), header);
    EXPECT_TRUE(test::is_whole(*remote()));
  }
}

#ifdef VARVE_HAVE_TLS
TEST(Keys, GiveTheirOwnRights) {
  TestServer server(TestServer::Kind::tls, is_store_path);
  server.stop();
  ASSERT_TRUE(Store::create(posix_file_system(), server.options.folder).ok());
  const std::string append = server.work() + "/append", read = server.work() + "/read", none = server.work() + "/none";
  for (const std::string& file : {append, read, none}) ASSERT_TRUE(make_key_file(file).ok());
  const std::string all = server.options.key_files.all;
  auto create = [&](const std::string& key, const std::string& path) {
    server.link_options.key_file = key;
    const auto link = server.connect();
    return link->ask(CreateRequest{.path = path})->status.code();
  };
  auto refused = [&](const std::string& key) {
    LinkOptions how = server.link_options;
    how.key_file = key;
    return ServerLink::open(server.options.listen, how).status().code();
  };
  server.options.key_files.append = append;
  server.options.key_files.read = read;
  server.start();
  EXPECT_EQ(create(all, "condemned/" + UniqueId::random()->hex()), StatusCode::ok);
  EXPECT_EQ(create(append, "condemned/" + UniqueId::random()->hex()), StatusCode::permission_denied);
  EXPECT_EQ(create(append, "writers/" + UniqueId::random()->hex()), StatusCode::ok);
  EXPECT_EQ(create(read, "writers/" + UniqueId::random()->hex()), StatusCode::permission_denied);
  EXPECT_EQ(refused(none), StatusCode::permission_denied);
  server.stop();
  server.options.key_files.all.clear();
  server.start();
  EXPECT_EQ(refused(all), StatusCode::permission_denied);
  EXPECT_EQ(create(append, "writers/" + UniqueId::random()->hex()), StatusCode::ok);
  server.stop();
  server.options.key_files.read = append;
  EXPECT_EQ(Server::start(server.options).status().code(), StatusCode::invalid_argument) << "one key, two rights";
}
#endif

}  // namespace
}  // namespace varve
