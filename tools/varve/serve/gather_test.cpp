#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "backend/folder_backend.h"
#include "core/clock.h"
#include "core/memory_file_system.h"
#include "engine/folder_source.h"
#include "engine/inspect.h"
#include "engine/scheme.h"
#include "serve/offer.h"
#include "serve/test_server.h"
#include "service/socket.h"
#include "sets/saving.h"

namespace varve {
namespace {

TEST(NextLevel, DoesOneTransferAtATimeAndNoneOnceItIsToStop) {
  const test::TempFolder folder;
  const std::string path = folder / "socket";
  UniqueFd listener = listen_unix(path).value();
  FolderBackend store(posix_file_system(), folder / "store");
  std::promise<StatusCode> first, second, third;
  NextLevel next(store, "unix:" + path, {});
  SetTransfer what;
  what.set = "run@1";
  const auto begin = [&](std::promise<StatusCode>& outcome) {
    const auto done = [&outcome](const Result<TransferNumbers>& copied) { outcome.set_value(copied.status().code()); };
    return next.begin(TransferDirection::push, what, done).code();
  };
  ASSERT_EQ(begin(first), StatusCode::ok);
  UniqueFd silent(::accept(listener.get(), nullptr, nullptr));  // a server that does not answer
  EXPECT_EQ(begin(second), StatusCode::busy);
  listener.reset();
  silent.reset();
  EXPECT_NE(first.get_future().get(), StatusCode::ok);
  EXPECT_EQ(begin(second), StatusCode::ok) << "who is told of the end of one may ask for the next";
  EXPECT_NE(second.get_future().get(), StatusCode::ok);
  next.stop();
  EXPECT_EQ(begin(third), StatusCode::cancelled);
}

/// A server that gathers, and nodes' folders.
struct Gathering : testing::Test {
  Gathering() {
    server.stop();
    server.options.folder = store_folder / "store";
    EXPECT_TRUE(Store::create(posix_file_system(), server.options.folder).ok());
    server.options.gather.wait_seconds = 20;
    server.start();
  }
  std::unique_ptr<Store> store() const { return Store::open(posix_file_system(), server.options.folder).value(); }
  std::string node(size_t i) const { return folders / ("node" + std::to_string(i)); }

  /// Files of ranks, which are alike, on some nodes; and all of them in one folder, to compare with.
  void write_ranks(size_t nodes, size_t ranks, size_t values) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::string name = "out/data." + std::to_string(rank);
      const ByteVector field = test::smooth_field(values, rank);
      test::write_file(node(rank % nodes) + "/" + name, field);
      test::write_file(folders / ("all/" + name), field);
    }
    for (size_t i = nodes; i-- > 0;) align_times(i);  // of folders that several have, that of the first one counts
  }
  /// A test compares times as well.
  void align_times(size_t i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(node(i))) {
      const auto other = std::filesystem::path(folders / "all") / std::filesystem::relative(entry.path(), node(i));
      std::filesystem::last_write_time(other, std::filesystem::last_write_time(entry.path()));
    }
  }
  /// As if a node had written its files then.
  void shift_times(size_t i, std::chrono::hours by) {
    for (const auto& entry : std::filesystem::directory_iterator(node(i) + "/out"))
      std::filesystem::last_write_time(entry, std::filesystem::last_write_time(entry) + by);
  }
  Status offer(const std::string& folder, const std::string& name, uint64_t nodes,
               const std::function<void(Source&)>& meanwhile = {}, uint64_t step = 7,
               ProgressSink& progress = null_progress()) {
    std::vector<SourceFile> files = scan_source_tree(folder, null_progress()).value();
    VARVE_TRY(assign_ranks(files, ""));
    FolderSource source(folder, std::move(files), test::layout_service(), {});
    if (meanwhile) meanwhile(source);
    const auto link = server.connect();
    SetOffer set;
    set.name = {"run", step};
    set.node = name;
    set.node_count = nodes;
    set.options.ranks.group_size = 3;
    return offer_set(*link, set, source, progress);
  }
  std::vector<Status> offer_all(size_t nodes) {
    std::vector<Status> outcomes(nodes);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < nodes; ++i)
      threads.emplace_back([&, i] { outcomes[i] = offer(node(i), "n" + std::to_string(i), nodes); });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  test::TempFolder store_folder, folders;
  TestServer server;
};

TEST_F(Gathering, MakesOneSetOfTheFilesOfSeveralNodes) {
  write_ranks(3, 8, 50'000);
  for (const Status& outcome : offer_all(3)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_TRUE(test::restores_as(*store(), {"run", 7}, test::snapshot_of(folders / "all")));
  const SetRecord record = Catalog(*store()).read({"run", 7}).value();
  EXPECT_EQ(record.rank_count, 8u);
  EXPECT_EQ(record.groups.size(), 3u) << "groups of three ranks, which lie on different nodes";
}

TEST_F(Gathering, NeedsNoThreadForNodesThatWaitForOneAnother) {
  server.stop();
  server.options.threads_max = 1;
  server.start();
  write_ranks(6, 6, 20'000);
  for (const Status& outcome : offer_all(6)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_TRUE(test::restores_as(*store(), {"run", 7}, test::snapshot_of(folders / "all")));
}

TEST_F(Gathering, StoresWhatASaveOfAllFilesStores) {
  write_ranks(2, 6, 100'000);
  for (const Status& outcome : offer_all(2)) ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  MemoryFileSystem fs;
  const auto beside = test::make_store(fs);
  SaveOptions options;
  options.job = "run";
  options.step = 7;
  options.ranks.group_size = 3;
  const auto saved = save_folder(*beside, folders / "all", options, test::layout_service());
  ASSERT_TRUE(saved.ok());
  const uint64_t gathered = Catalog(*store()).read({"run", 7})->stored_bytes();
  EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(saved->record.stored_bytes()), 200);
}

TEST_F(Gathering, FailsWhenANodeIsMissing) {
  server.stop();
  server.options.gather.wait_seconds = 2;  // for both nodes, on a busy machine
  server.start();
  write_ranks(2, 2, 100);
  const Status outcome = offer(node(0), "n0", 2);
  EXPECT_EQ(outcome.code(), StatusCode::busy);
  EXPECT_NE(outcome.to_string().find("1 of 2 nodes"), std::string::npos) << outcome.to_string();
  EXPECT_TRUE(Catalog(*store()).sets()->empty());
  for (const Status& again : offer_all(2)) EXPECT_TRUE(again.ok()) << again.to_string();
}

TEST_F(Gathering, HasASetGiveWayThatSomeNodesLackWhenAllWait) {
  write_ranks(2, 4, 10'000);
  server.stop();
  server.options.gather.wait_seconds = 600;
  server.start();
  // Each of the sets 1 to 3 is on one node alone; 7 is on both.
  std::thread other([this] {
    EXPECT_EQ(offer(node(1), "n1", 2, {}, 2).code(), StatusCode::busy);
    EXPECT_TRUE(offer(node(1), "n1", 2).ok());
  });
  for (const uint64_t step : {uint64_t{1}, uint64_t{3}}) {
    const Status said = offer(node(0), "n0", 2, {}, step);
    EXPECT_EQ(said.code(), StatusCode::busy);
    EXPECT_NE(said.to_string().find("the others offer later sets"), std::string::npos) << said.to_string();
  }
  const Status saved = offer(node(0), "n0", 2);
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  other.join();
}

TEST_F(Gathering, AnOfferThatWaitsForOtherNodesEndsWhenItIsToEnd) {
  write_ranks(2, 4, 10'000);
  server.stop();
  server.options.gather.wait_seconds = 600;
  server.start();
  std::atomic<bool> stopping{false};
  StoppableProgress progress(stopping);
  const Status said = offer(
      node(0), "n0", 2, [&](Source&) { stopping = true; }, 7, progress);
  EXPECT_EQ(said.code(), StatusCode::cancelled) << said.to_string();
}

TEST_F(Gathering, FailsForAllWhenFilesChange) {
  write_ranks(2, 4, 50'000);
  std::atomic<bool> changed{false};
  Status first;
  std::thread other([&] {
    first = offer(node(1), "n1", 2, [&](Source&) {
      while (!changed) std::this_thread::yield();
    });
  });
  const Status second = offer(node(0), "n0", 2, [&](Source&) {
    test::write_file(node(0) + "/out/data.0", "shorter");
    changed = true;
  });
  other.join();
  EXPECT_EQ(first.code(), StatusCode::busy) << first.to_string();
  EXPECT_EQ(second.code(), StatusCode::busy) << second.to_string();
  EXPECT_TRUE(Catalog(*store()).sets()->empty());
  EXPECT_TRUE(test::is_whole(*store()));
}

TEST_F(Gathering, MakesNoSetOfWhatAKilledRunLeftOnOneNodeAndTheNextOneWritesOnAnother) {
  server.stop();
  server.options.gather.rest_seconds_max = 1;
  std::string said;
  server.options.log = [&](const std::string& line) {
    if (!said.empty() || line.find(" waits for ") == std::string::npos) return;
    said = line;
    write_ranks(2, 4, 50'000);  // while the offers lie, the run comes to the first node, too
  };
  server.start();
  write_ranks(2, 4, 50'000);
  shift_times(1, std::chrono::hours(1));  // which lie ahead, so that nothing of the time has gone by
  for (const Status& outcome : offer_all(2)) EXPECT_EQ(outcome.code(), StatusCode::busy) << outcome.to_string();
  EXPECT_NE(said.find("waits for 1 s: node n0 has written its files 3600 s before node n1"), std::string::npos) << said;
  EXPECT_TRUE(Catalog(*store()).sets()->empty());
  for (const Status& outcome : offer_all(2)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_TRUE(test::restores_as(*store(), {"run", 7}, test::snapshot_of(folders / "all")));
}

TEST_F(Gathering, TakesNodesThatWereDoneFarApartWhenNothingHasChangedForAsLong) {
  server.stop();
  server.options.gather.rest_seconds_max = 1;
  server.start();
  write_ranks(2, 4, 1000);
  shift_times(1, std::chrono::hours(1));
  for (const size_t node : {1, 0}) align_times(node);
  const auto begin = MonotonicClock::now();
  for (const Status& outcome : offer_all(2)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_GE(MonotonicClock::now() - begin, std::chrono::seconds(1));
  EXPECT_TRUE(test::restores_as(*store(), {"run", 7}, test::snapshot_of(folders / "all")));
}

TEST_F(Gathering, DoesNotWaitForWhatNothingHasChangedInForLong) {
  write_ranks(2, 4, 1000);
  shift_times(0, -std::chrono::hours(3));
  shift_times(1, -std::chrono::hours(2));
  for (const size_t i : {1, 0}) align_times(i);
  const auto begin = MonotonicClock::now();
  for (const Status& outcome : offer_all(2)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_LT(MonotonicClock::now() - begin, std::chrono::seconds(300)) << "of the ten minutes";
  EXPECT_TRUE(test::restores_as(*store(), {"run", 7}, test::snapshot_of(folders / "all")));
}

TEST_F(Gathering, RefusesNodesThatDoNotAgree) {
  write_ranks(2, 2, 100);
  server.stop();
  server.options.gather.wait_seconds = 1;
  server.start();
  std::atomic<bool> done{false};
  std::thread waiting([&] {
    while (!done) offer(node(0), "n0", 2).ignore("it waits for a node that never comes");
  });
  // Whichever comes first waits, and the other one is refused.
  auto refused = [&](const std::string& name, uint64_t nodes, const char* why) {
    for (int i = 0; i < 20; ++i) {
      if (offer(node(1), name, nodes).to_string().find(why) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(refused("n0", 2, "already"));
  EXPECT_TRUE(refused("n1", 3, "how many they are"));
  done = true;
  waiting.join();
}

TEST_F(Gathering, RefusesFilesThatTwoNodesHave) {
  write_ranks(2, 2, 100);
  for (size_t i : {0, 1}) test::write_file(node(i) + "/out/log", "mine");
  for (const Status& outcome : offer_all(2))
    EXPECT_EQ(outcome.code(), StatusCode::already_exists) << outcome.to_string();
  EXPECT_TRUE(Catalog(*store()).sets()->empty());
}

/// An offer of many folders, or of a file with many variables, which take far more memory than bytes.
ByteVector large_offer(size_t folder_count, size_t variables) {
  OfferedFiles offered;
  for (size_t i = 0; i < folder_count; ++i) {
    SourceFile& folder = offered.files.emplace_back();
    folder.path = fmt::format("{:05}", i);
    folder.type = FileType::directory;
    offered.layouts.emplace_back();
  }
  SourceFile& file = offered.files.emplace_back();
  file.path = "file";
  file.bytes = variables;
  Layout& layout = offered.layouts.emplace_back();
  layout.format = "raw";
  for (size_t i = 0; i < variables; ++i) {
    Variable& variable = layout.variables.emplace_back();
    variable.name = "a";
    variable.extents = {{i, 1}};
    variable.encoded = true;
  }
  return encode_offered_files(offered);
}

TEST_F(Gathering, CountsTheMemoryThatOffersTake) {
  for (const auto& [folder_count, variables] : {std::pair{20'000, 1}, std::pair{1, 20'000}}) {
    const ByteVector raw = large_offer(folder_count, variables);
    uint64_t taken = 0;
    const auto read = decode_offered_files(raw, [&](uint64_t bytes) {
      taken += bytes;
      return Status();
    });
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    const size_t each =
        folder_count > variables ? sizeof(SourceFile) + sizeof(Layout) : sizeof(Variable) + sizeof(Extent);
    EXPECT_GT(taken, 20'000 * each);
    EXPECT_LT(taken, 20'000 * each * 5);
    EXPECT_EQ(decode_offered_files(raw, [&](uint64_t) { return Status::busy("full"); }).status().code(),
              StatusCode::busy);
  }
}

TEST_F(Gathering, TakesNoMoreOffersThanThereIsMemoryFor) {
  FolderBackend folder(posix_file_system(), server.options.folder);
  GatherService service(folder, {.offers_bytes_max = 4_MiB}, [](const std::string&) {});
  auto offer = [&](OfferIntake& intake, const ByteVector& raw, int step) {
    const OfferRequest request{"run@" + std::to_string(step), "n", 2, 0, raw.size()};
    return intake.offer(request, raw).code();
  };
  const ByteVector half = large_offer(5000, 1), large = large_offer(1, 100'000);
  OfferIntake never(service);
  EXPECT_EQ(offer(never, large, 1), StatusCode::resource_limit);
  {
    OfferIntake first(service);
    EXPECT_EQ(offer(first, half, 2), StatusCode::ok);
    EXPECT_EQ(offer(*std::make_unique<OfferIntake>(service), half, 3), StatusCode::busy);
  }
  // What has gone gives its room back, once the set's thread has seen that.
  StatusCode code = StatusCode::busy;
  for (int i = 0; i < 500 && code == StatusCode::busy; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    code = offer(*std::make_unique<OfferIntake>(service), half, 3);
  }
  EXPECT_EQ(code, StatusCode::ok);
}

TEST_F(Gathering, GivesTheRoomOfAnOfferThatStoppedHalfwayToOthersInTheEnd) {
  ManualClock clock;
  FolderBackend folder(posix_file_system(), server.options.folder);
  GatherService service(
      folder, {.offers_bytes_max = 4_MiB, .offer_seconds = 300}, [](const std::string&) {}, clock);
  const ByteVector piece(1000), whole = large_offer(100, 1);
  auto offer = [](OfferIntake& intake, uint64_t offset, uint64_t bytes, ByteSpan data) {
    return intake.offer(OfferRequest{"run@1", "n", 2, offset, bytes}, data).code();
  };
  OfferIntake stuck(service), waiting(service);
  EXPECT_EQ(offer(stuck, 0, 4_MiB, piece), StatusCode::ok);
  clock.advance(299);
  EXPECT_EQ(offer(waiting, 0, whole.size(), whole), StatusCode::busy);
  EXPECT_EQ(offer(stuck, piece.size(), 4_MiB, piece), StatusCode::ok);
  clock.advance(1);
  EXPECT_EQ(offer(waiting, 0, whole.size(), whole), StatusCode::ok);
  EXPECT_EQ(offer(stuck, 2 * piece.size(), 4_MiB, piece), StatusCode::busy);
  EXPECT_EQ(offer(stuck, 0, 1_MiB, piece), StatusCode::ok);
}

TEST_F(Gathering, GoesOnWhenThereIsNoMemoryToSayWhatHappened) {
  server.stop();
  server.options.log = [](const std::string&) { throw std::bad_alloc(); };
  server.start();
  write_ranks(2, 4, 1000);
  for (const Status& outcome : offer_all(2)) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  for (const Status& outcome : offer_all(2)) EXPECT_EQ(outcome.code(), StatusCode::already_exists);
}

TEST_F(Gathering, ReadsOffersBackAndRefusesDamagedOnes) {
  write_ranks(1, 5, 100);
  std::filesystem::create_symlink("data.0", node(0) + "/out/link");
  OfferedFiles offered;
  offered.options.ranks.group_size = 5;
  offered.files = scan_source_tree(node(0), null_progress()).value();
  FolderSource source(node(0), offered.files, test::layout_service(), {});
  offered.layouts = source.layouts(null_progress()).value();
  const ByteVector raw = encode_offered_files(offered);
  const Result<OfferedFiles> read = decode_offered_files(raw);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(encode_offered_files(*read), raw);
  for (size_t cut = 0; cut < raw.size(); ++cut)
    EXPECT_FALSE(decode_offered_files(ByteSpan(raw).first(cut)).ok()) << cut;
  for (size_t bit = 0; bit < raw.size() * 8; ++bit) {
    ByteVector flipped = raw;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    (void)decode_offered_files(flipped).ok();  // whatever it says, it does not crash
  }
  offered.files[1].path = "../out";
  EXPECT_FALSE(decode_offered_files(encode_offered_files(offered)).ok());
}

}  // namespace
}  // namespace varve
