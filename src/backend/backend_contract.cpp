#include "backend/backend_contract.h"

#include <algorithm>
#include <thread>

namespace varve {

Status EveryBackend::put(const std::string& of, ByteSpan contents) {
  VARVE_ASSIGN(const std::unique_ptr<ObjectWriter> object, backend_.put(name(of)));
  VARVE_TRY(object->write_at(0, contents));
  return object->seal(contents.size());
}

std::string EveryBackend::read(const std::string& of) {
  const Result<ByteVector> contents = backend_.read_record(name(of), 64_MiB);
  return contents.ok() ? std::string(as_text(*contents)) : "error: " + contents.status().to_string();
}

std::vector<std::string> EveryBackend::names(const std::string& folder) {
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : backend_.list(folder.empty() ? backend_.root() : name(folder)).value())
    found.push_back(entry.is_directory ? entry.name + "/" : entry.name);
  std::sort(found.begin(), found.end());
  return found;
}

TEST_P(EveryBackend, ShowsAnObjectOnceItIsSealedAndThenAllOfIt) {
  ByteVector contents(20'000'003);
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<std::byte>(i * 31 % 251);
  ASSERT_TRUE(backend_.make_folder(name("arenas")).ok());
  {
    const auto object = backend_.put(name("arenas/a.arena")).value();
    for (size_t at = 0; at < contents.size(); at += 4'000'000) {
      const size_t bytes = std::min<size_t>(4'000'000, contents.size() - at);
      ASSERT_TRUE(object->write_at(at, ByteSpan(contents).subspan(at, bytes)).ok());
    }
    EXPECT_EQ(backend_.open(name("arenas/a.arena")).status().code(), StatusCode::not_found);
    EXPECT_EQ(backend_.status(name("arenas/a.arena")).status().code(), StatusCode::not_found);
    ASSERT_TRUE(object->seal(contents.size()).ok());
  }
  ASSERT_TRUE(backend_.settle(name("arenas")).ok());
  EXPECT_EQ(names("arenas"), std::vector<std::string>{"a.arena"});
  EXPECT_EQ(backend_.status(name("arenas/a.arena"))->bytes, contents.size());
  const auto object = backend_.open(name("arenas/a.arena")).value();
  EXPECT_EQ(*object->size(), contents.size());
  ByteVector part(5'000'000);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{7'999'999}, contents.size() - part.size()}) {
    ASSERT_TRUE(read_exactly(*object, at, part, "").ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), contents.begin() + static_cast<ptrdiff_t>(at))) << at;
  }
  EXPECT_EQ(*object->read_at(contents.size() - 3, part), 3u);
  EXPECT_EQ(*object->read_at(contents.size(), part), 0u);
}

TEST_P(EveryBackend, EndsAnObjectWhereItIsTold) {
  ASSERT_TRUE(backend_.make_folder(name("index")).ok());
  const auto object = backend_.put(name("index/a.run")).value();
  ASSERT_TRUE(object->write_at(0, as_bytes("0123456789")).ok());
  ASSERT_TRUE(object->seal(7).ok());
  EXPECT_EQ(read("index/a.run"), "0123456");
}

TEST_P(EveryBackend, WritesOutOfOrderWhatMayBeLost) {
  ASSERT_TRUE(backend_.make_folder(name("index")).ok());
  const auto object = backend_.put(name("index/a.run"), {.durable = false}).value();
  ASSERT_TRUE(object->write_at(4, as_bytes("efg")).ok());
  ASSERT_TRUE(object->write_at(0, as_bytes("abcd")).ok());
  ByteVector written(4);
  EXPECT_EQ(object->read_at(2, written).value(), 4u);
  EXPECT_EQ(as_text(written), "cdef");
  ASSERT_TRUE(object->seal(7).ok());
  EXPECT_EQ(read("index/a.run"), "abcdefg");
}

TEST_P(EveryBackend, LeavesNothingOfAnObjectThatIsGivenUp) {
  ASSERT_TRUE(backend_.make_folder(name("arenas")).ok());
  {
    const auto object = backend_.put(name("arenas/a.arena")).value();
    ASSERT_TRUE(object->write_at(0, ByteVector(9'000'000)).ok());
  }
  EXPECT_TRUE(names("arenas").empty());
}

TEST_P(EveryBackend, NeverReplacesAnObject) {
  ASSERT_TRUE(backend_.make_folder(name("arenas")).ok());
  ASSERT_TRUE(put("arenas/a.arena", as_bytes("first")).ok());
  EXPECT_EQ(put("arenas/a.arena", as_bytes("second")).code(), StatusCode::already_exists);
  EXPECT_EQ(read("arenas/a.arena"), "first");
  EXPECT_EQ(names("arenas"), std::vector<std::string>{"a.arena"});
}

TEST_P(EveryBackend, RemovesWhatIsThere) {
  ASSERT_TRUE(backend_.make_folder(name("arenas")).ok());
  ASSERT_TRUE(put("arenas/a.arena", as_bytes("a")).ok());
  EXPECT_TRUE(backend_.remove(name("arenas/a.arena")).ok());
  EXPECT_EQ(backend_.remove(name("arenas/a.arena")).code(), StatusCode::not_found);
  EXPECT_TRUE(backend_.remove_if_there(name("arenas/a.arena")).ok());
  EXPECT_TRUE(names("arenas").empty());
}

TEST_P(EveryBackend, ListsWhatIsInAFolderAndNoDeeper) {
  for (const char* folder : {"sets", "sets/a", "sets/b"}) ASSERT_TRUE(backend_.make_folder(name(folder)).ok());
  for (const char* record : {"sets/a/1.set", "sets/a/2.set", "sets/b/1.set", "sets/note"})
    ASSERT_TRUE(records_.publish(name(record), as_bytes(record)).ok());
  EXPECT_EQ(names("sets"), (std::vector<std::string>{"a/", "b/", "note"}));
  EXPECT_EQ(names("sets/a"), (std::vector<std::string>{"1.set", "2.set"}));
  EXPECT_EQ(names(""), std::vector<std::string>{"sets/"});
  EXPECT_TRUE(backend_.status(name("sets/a"))->is_directory);
  EXPECT_FALSE(backend_.status(name("sets/a/1.set"))->is_directory);
  const auto objects = backend_.list_with_status(name("sets")).value();
  std::vector<std::string> deeper = backend_.list_in_folders(name("sets")).value();
  std::sort(deeper.begin(), deeper.end());
  EXPECT_EQ(deeper, (std::vector<std::string>{"a/1.set", "a/2.set", "b/1.set"}));
  ASSERT_EQ(objects.size(), 1u) << "but no folders";
  EXPECT_EQ(objects.begin()->first, "note");
  EXPECT_EQ(objects.begin()->second->bytes, 9u);
  EXPECT_EQ(objects.begin()->second->modified_ns, backend_.status(name("sets/note"))->modified_ns);
}

TEST_P(EveryBackend, PublishesARecordOnce) {
  EXPECT_TRUE(records_.publish(name("varve.store"), as_bytes("first")).ok());
  EXPECT_EQ(records_.publish(name("varve.store"), as_bytes("second")).code(), StatusCode::already_exists);
  EXPECT_EQ(read("varve.store"), "first");
  EXPECT_EQ(names(""), std::vector<std::string>{"varve.store"});
}

TEST_P(EveryBackend, OfManyWhoPublishARecordOneAloneDoes) {
  std::vector<Status> outcomes(8);
  {
    std::vector<std::jthread> writers;
    for (size_t i = 0; i < outcomes.size(); ++i)
      writers.emplace_back([&, i] { outcomes[i] = records_.publish(name("a"), as_bytes("by " + std::to_string(i))); });
  }
  size_t winner = outcomes.size();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].ok()) {
      EXPECT_EQ(winner, outcomes.size()) << "two published it";
      winner = i;
    } else {
      EXPECT_EQ(outcomes[i].code(), StatusCode::already_exists) << outcomes[i].to_string();
    }
  }
  EXPECT_EQ(read("a"), "by " + std::to_string(winner));
}

TEST_P(EveryBackend, ReadsRecordsOfALimitedSize) {
  ASSERT_TRUE(records_.publish(name("a"), as_bytes("12345")).ok());
  EXPECT_EQ(backend_.read_record(name("a"), 4).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(backend_.read_record(name("b"), 4).status().code(), StatusCode::not_found);
}

Status EveryBackend::commit(const std::string& object, std::string_view contents) {
  for (const char* folder : {"writers", "sets"}) VARVE_TRY(backend_.make_folder(name(folder)));
  VARVE_ASSIGN(const auto held, records_.hold(name("writers/of-" + std::to_string(++commits_)), {}));
  VARVE_TRY(held->rewrite(as_bytes(contents)));
  return held->become(object, IfExists::replace);
}

TEST_P(EveryBackend, RewritesARecordThatItsMakerHolds) {
  ASSERT_TRUE(backend_.make_folder(name("writers")).ok());
  {
    const auto held = records_.hold(name("writers/1"), as_bytes("a long text")).value();
    EXPECT_EQ(read("writers/1"), "a long text");
    EXPECT_EQ(records_.hold(name("writers/1"), {}).status().code(), StatusCode::already_exists);
    ASSERT_TRUE(held->rewrite(as_bytes("short")).ok());
    EXPECT_EQ(read("writers/1"), "short");
    ASSERT_TRUE(held->rewrite({}).ok());
    EXPECT_EQ(read("writers/1"), "");
  }
  EXPECT_EQ(names("writers"), std::vector<std::string>{"1"}) << "it stays";
}

TEST_P(EveryBackend, MakesARecordAnObjectAtOneBlow) {
  for (const char* folder : {"writers", "sets"}) ASSERT_TRUE(backend_.make_folder(name(folder)).ok());
  auto first = records_.hold(name("writers/1"), {}).value(), second = records_.hold(name("writers/2"), {}).value();
  ASSERT_TRUE(first->rewrite(as_bytes("first")).ok());
  ASSERT_TRUE(second->rewrite(as_bytes("second")).ok());
  ASSERT_TRUE(first->become(name("sets/job/7.set"), IfExists::refuse).ok()) << "its folder is made";
  first.reset();
  EXPECT_EQ(names("writers"), std::vector<std::string>{"2"});
  EXPECT_EQ(second->become(name("sets/job/7.set"), IfExists::refuse).code(), StatusCode::already_exists);
  EXPECT_EQ(read("sets/job/7.set"), "first");
  EXPECT_EQ(names("writers"), std::vector<std::string>{"2"}) << "it may be tried again under another name";
  ASSERT_TRUE(second->become(name("sets/job/7.set"), IfExists::replace).ok());
  EXPECT_EQ(read("sets/job/7.set"), "second");
  second.reset();
  EXPECT_TRUE(names("writers").empty());
  ASSERT_TRUE(backend_.settle(name("sets/job")).ok());
}

TEST_P(EveryBackend, MakesNoObjectOfARecordThatWasRemoved) {
  for (const char* folder : {"writers", "sets"}) ASSERT_TRUE(backend_.make_folder(name(folder)).ok());
  const auto plain = records_.hold(name("writers/1"), as_bytes("plain")).value();
  ASSERT_TRUE(records_.remove_unchanged(name("writers/1"), as_bytes("plain")).ok());
  const Status rewritten = plain->rewrite(as_bytes("record"));
  EXPECT_TRUE(rewritten.ok() || rewritten.code() == StatusCode::not_found) << rewritten.to_string();
  EXPECT_EQ(plain->become(name("sets/a/1.set"), IfExists::refuse).code(), StatusCode::not_found);
  EXPECT_EQ(backend_.status(name("sets/a/1.set")).status().code(), StatusCode::not_found);
  EXPECT_TRUE(names("writers").empty()) << "it does not come back";
}

TEST_P(EveryBackend, OfARemovalAndACommitOneAloneHappens) {
  for (const char* folder : {"writers", "sets"}) ASSERT_TRUE(backend_.make_folder(name(folder)).ok());
  for (int round = 0; round < 20; ++round) {
    const std::string lease = name("writers/" + std::to_string(round));
    const std::string set = name("sets/job/" + std::to_string(round) + ".set");
    auto held = records_.hold(lease, as_bytes("plain")).value();
    Status committed;
    {
      // As WriterLease::give_up() removes it.
      const std::jthread pruner([&] {
        const Status removed = records_.late_commit_seconds() == 0
                                   ? backend_.remove_if_there(lease)
                                   : records_.remove_unchanged(lease, as_bytes("plain"));
        removed.ignore("the other one tells what became of it");
      });
      committed = held->rewrite(as_bytes("record"));
      if (committed.ok()) committed = held->become(set, IfExists::refuse);
    }
    EXPECT_TRUE(committed.ok() || committed.code() == StatusCode::not_found) << committed.to_string();
    held.reset();
    EXPECT_EQ(backend_.status(set).ok(), committed.ok());
    EXPECT_EQ(backend_.status(lease).status().code(), StatusCode::not_found);
  }
}

TEST_P(EveryBackend, RemovesARecordOnlyAsItWasSeen) {
  ASSERT_TRUE(backend_.make_folder(name("runs")).ok());
  ASSERT_TRUE(records_.publish(name("runs/a"), as_bytes("new")).ok());
  EXPECT_TRUE(records_.remove_unchanged(name("runs/a"), as_bytes("old")).ok());
  EXPECT_EQ(read("runs/a"), "new");
  EXPECT_TRUE(records_.remove_unchanged(name("runs/a"), as_bytes("new")).ok());
  EXPECT_TRUE(names("runs").empty());
  EXPECT_TRUE(records_.remove_unchanged(name("runs/a"), as_bytes("new")).ok()) << "gone already";
}

TEST_P(EveryBackend, RemovesWhatWasCommittedOnlyAsItWasSeen) {
  const std::string set = name("sets/job/7.set");
  EXPECT_TRUE(records_.remove_committed(set, as_bytes("old")).value()) << "there is none";
  ASSERT_TRUE(commit(set, "new").ok());
  EXPECT_FALSE(records_.remove_committed(set, as_bytes("old")).value());
  EXPECT_EQ(read("sets/job/7.set"), "new");
  EXPECT_TRUE(records_.remove_committed(set, as_bytes("new")).value());
  EXPECT_TRUE(records_.remove_committed(set, as_bytes("new")).value()) << "gone already";
  for (const bool finish : {false, true}) {
    EXPECT_TRUE(records_.unhide(name("sets/job"), finish).ok());
    EXPECT_TRUE(records_.unhide(name("sets/nobody"), finish).ok());
  }
  EXPECT_TRUE(records_.remove_hidden(set).ok());
  EXPECT_TRUE(names("sets/job").empty());
}

TEST_P(EveryBackend, RemovesNothingThatIsCommittedInItsPlaceMeanwhile) {
  const std::string set = name("sets/job/7.set");
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(commit(set, "old").ok());
    Status committed;
    {
      const std::jthread remover([&] { (void)records_.remove_committed(set, as_bytes("old")); });
      committed = commit(set, "new");
    }
    // In a bucket it may be taken away at once, and its maker is told.
    const bool may_be_told = records_.late_commit_seconds() > 0 &&
                             (committed.code() == StatusCode::busy || committed.code() == StatusCode::not_found);
    ASSERT_TRUE(committed.ok() || may_be_told) << committed.to_string();
    if (committed.ok()) {
      EXPECT_EQ(read("sets/job/7.set"), "new");
    }
  }
}

TEST_P(EveryBackend, StampsRecordsByItsOwnClock) {
  ASSERT_TRUE(backend_.make_folder(name("runs")).ok());
  const int64_t before = records_.now().value();
  ASSERT_TRUE(records_.publish(name("runs/a"), as_bytes("text")).ok());
  const int64_t first = backend_.status(name("runs/a"))->modified_ns;
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ASSERT_TRUE(records_.touch(name("runs/a")).ok());
  const int64_t second = backend_.status(name("runs/a"))->modified_ns, after = records_.now().value();
  constexpr int64_t kCoarse = 1'000'000'000;  // of a clock that tells seconds
  EXPECT_GE(first + kCoarse, before);
  EXPECT_GT(second, first);
  EXPECT_GE(after + kCoarse, second);
  EXPECT_EQ(read("runs/a"), "text");
  ASSERT_TRUE(backend_.remove(name("runs/a")).ok());
  EXPECT_EQ(records_.touch(name("runs/a")).code(), StatusCode::not_found);
  EXPECT_TRUE(names("runs").empty());
}

}  // namespace varve
