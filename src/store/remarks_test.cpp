#include "store/remarks.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "core/paused_file_system.h"
#include "store/commit.h"
#include "store/prune.h"
#include "store/rename_job.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::numbers_between;

struct RemarksOfSets : testing::Test {
  RemarksOfSets() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
    save(1, 1);
    save(2, 101);
  }
  void save(uint64_t step, uint64_t first) {
    ASSERT_TRUE(test::save_numbers(*store, {"job", step}, numbers_between(first, first + 30)).ok());
  }
  /// In an arena of which another half is needed by nobody, so that prunes rewrite it.
  void save_half(const SetName& name, uint64_t first) {
    ASSERT_TRUE(test::save_numbers(*store, {"half", name.step}, numbers_between(first, first + 60)).ok());
    ASSERT_TRUE(test::save_numbers(*store, name, numbers_between(first, first + 30)).ok());
    ASSERT_TRUE(Catalog(*store).remove({"half", name.step}).ok());
  }
  Status check(uint64_t step, uint64_t first) const {
    return test::check_numbers(*store, {"job", step}, numbers_between(first, first + 30));
  }
  /// What a dropper does who has looked for pins long ago.
  Status drop_late(uint64_t step) { return fs.remove(Catalog(*store).record_path({"job", step})); }
  static PruneOptions thorough() {
    PruneOptions options;
    options.wait_seconds = 0;
    options.live_share_min = 1;
    return options;
  }
  Status prune() { return prune_store(*store, thorough()).status(); }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
  const SetName one{"job", 1};
};

TEST_F(RemarksOfSets, APinnedSetIsDroppedByNobody) {
  const Remarks remarks(*store);
  ASSERT_TRUE(remarks.pin(one).ok());
  ASSERT_TRUE(remarks.pin(one).ok()) << "again";
  const Status dropped = Catalog(*store).remove(one);
  EXPECT_EQ(dropped.code(), StatusCode::permission_denied);
  EXPECT_EQ(dropped.subject(), "job@1");
  PruneOptions options = thorough();
  options.keep.last = 1;
  EXPECT_TRUE(prune_store(*store, options).value().dropped.empty());
  EXPECT_TRUE(check(1, 1).ok());

  EXPECT_TRUE(remarks.unpin(one).value());
  EXPECT_FALSE(remarks.unpin(one).value());
  EXPECT_EQ(prune_store(*store, options).value().dropped, std::vector<SetName>{one});
  EXPECT_TRUE(fs.list("/s/remarks").value().empty());
}

TEST_F(RemarksOfSets, OneThatIsNotThereCannotBePinned) {
  EXPECT_EQ(Remarks(*store).pin({"job", 9}).code(), StatusCode::not_found);
  EXPECT_EQ(Remarks(*store).add_tag({"job", 9}, "best").code(), StatusCode::not_found);
  EXPECT_EQ(Remarks(*store).write_note({"other", 1}, "text").code(), StatusCode::not_found);
}

TEST_F(RemarksOfSets, OneOfSeveralThatIsPinnedKeepsAllOfTheCall) {
  ASSERT_TRUE(Remarks(*store).pin(one).ok());
  std::vector<SetName> removed;
  const std::vector<SetName> both{one, {"job", 2}};
  EXPECT_EQ(Catalog(*store).remove_all(both, removed).code(), StatusCode::permission_denied);
  EXPECT_TRUE(removed.empty());
  EXPECT_TRUE(check(1, 1).ok());
  EXPECT_TRUE(check(2, 101).ok());
}

TEST_F(RemarksOfSets, TagsAndNotesAreKeptAndGoWithTheSet) {
  const Remarks remarks(*store);
  ASSERT_TRUE(remarks.add_tag(one, "best").ok());
  ASSERT_TRUE(remarks.add_tag(one, "v1.0").ok());
  ASSERT_TRUE(remarks.add_tag(one, "best").ok()) << "again";
  ASSERT_TRUE(remarks.write_note(one, "converged").ok());
  ASSERT_TRUE(remarks.write_note(one, "converged, at last").ok());
  SetRemarks said = remarks.of(one).value();
  EXPECT_EQ(said.tags, (std::set<std::string, std::less<>>{"best", "v1.0"}));
  EXPECT_TRUE(said.has_note);
  EXPECT_FALSE(said.pinned);
  EXPECT_EQ(remarks.note(one).value(), "converged, at last");
  EXPECT_EQ(remarks.note({"job", 2}).value(), "");
  EXPECT_TRUE(remarks.remove_tag(one, "best").value());
  EXPECT_FALSE(remarks.remove_tag(one, "best").value());
  EXPECT_EQ(remarks.add_tag(one, "a/b").code(), StatusCode::invalid_argument);
  EXPECT_EQ(remarks.add_tag(one, "").code(), StatusCode::invalid_argument);
  EXPECT_EQ(remarks.add_tag(one, "7").code(), StatusCode::invalid_argument);
  EXPECT_EQ(remarks.add_tag(one, "1e-05").code(), StatusCode::invalid_argument);

  ASSERT_TRUE(Catalog(*store).remove(one).ok());
  EXPECT_TRUE(remarks.all().value().empty());
}

TEST_F(RemarksOfSets, APruneKeepsWhatHasATag) {
  save(3, 201);
  ASSERT_TRUE(Remarks(*store).add_tag(one, "best").ok());
  PruneOptions options = thorough();
  options.keep.tags = {"best", "other"};
  EXPECT_EQ(prune_store(*store, options).value().dropped, (std::vector<SetName>{{"job", 2}}));
}

TEST_F(RemarksOfSets, APruneKeepsTheNewestThatHaveRoom) {
  for (uint64_t step = 3; step <= 6; ++step) save(step, step * 100);
  ASSERT_TRUE(Remarks(*store).pin(one).ok());
  PruneOptions options = thorough();
  options.dry_run = true;
  options.keep.bytes_max = 1;
  EXPECT_EQ(prune_store(*store, options).value().dropped.size(), 4u) << "all but the newest and the pinned one";
  options.keep.bytes_max = 4 * 33_KiB;
  EXPECT_EQ(prune_store(*store, options).value().dropped.size(), 2u);
  options.keep.bytes_max = 1_MiB;
  EXPECT_TRUE(prune_store(*store, options).value().dropped.empty());
  options.dry_run = false;
  options.keep.bytes_max = 4 * 33_KiB;
  const PruneReport report = prune_store(*store, options).value();
  EXPECT_EQ(report.dropped.size(), 2u);
  EXPECT_LE(report.bytes_after, 4 * 36_KiB);
}

TEST_F(RemarksOfSets, RemarksOnSetsThatAreGoneGo) {
  ASSERT_TRUE(Remarks(*store).add_tag(one, "best").ok());
  ASSERT_TRUE(drop_late(1).ok());
  ASSERT_TRUE(prune().ok());
  EXPECT_TRUE(fs.list("/s/remarks").value().empty());
}

// While a set is pinned, somebody drops it and prunes: it is pinned and whole, or neither.
TEST_F(RemarksOfSets, ADropAtAnyMomentOfAPin) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const SetName set{"job", 1000 + at};
    save(set.step, 1'000'000 + 100 * at);
    PausedFileSystem paused(fs, at, [&] {
      (void)Catalog(*store).remove(set);
      ASSERT_TRUE(prune().ok());
    });
    const auto pinner = Store::open(paused, "/s").value();
    const Status pinned = Remarks(*pinner).pin(set);
    came_to_it = paused.paused();
    if (pinned.ok()) {
      EXPECT_TRUE(check(set.step, 1'000'000 + 100 * at).ok()) << at;
    } else {
      EXPECT_TRUE(pinned.code() == StatusCode::not_found) << at << pinned.to_string();
      EXPECT_FALSE(Remarks(*store).of(set).value().pinned) << at;
    }
    ASSERT_TRUE(prune().ok()) << at;
    EXPECT_EQ(check(set.step, 1'000'000 + 100 * at).ok(), pinned.ok()) << at;
  }
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

// The dropper has looked for pins before, and is slow.
TEST_F(RemarksOfSets, ALateDropAtAnyMomentOfAPin) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const SetName set{"job", 1000 + at};
    save(set.step, 1'000'000 + 100 * at);
    PausedFileSystem paused(fs, at, [&] {
      ASSERT_TRUE(drop_late(set.step).ok());
      ASSERT_TRUE(prune().ok());
    });
    const auto pinner = Store::open(paused, "/s").value();
    const Status pinned = Remarks(*pinner).pin(set);
    came_to_it = paused.paused();
    ASSERT_TRUE(came_to_it || pinned.ok());
    ASSERT_TRUE(prune().ok()) << at;
    EXPECT_EQ(check(set.step, 1'000'000 + 100 * at).ok(), pinned.ok()) << at << pinned.to_string();
    EXPECT_EQ(Remarks(*store).of(set).value().pinned, pinned.ok()) << at;
  }
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

// While a prune is under way, a set is pinned, and dropped by somebody who had looked for pins before; or one that was
// hidden so is unpinned.
TEST_F(RemarksOfSets, APinAndALateDropAtAnyMomentOfAPrune) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const SetName set{"job", 1000 + at};
    save_half(set, 1'000'000 + 100 * at);
    PausedFileSystem paused(fs, at, [&] {
      ASSERT_TRUE(Remarks(*store).pin(set).ok());
      ASSERT_TRUE(drop_late(set.step).ok());
    });
    const auto pruner = Store::open(paused, "/s").value();
    (void)prune_store(*pruner, thorough());
    came_to_it = paused.paused();
    ASSERT_TRUE(prune().ok()) << at;
    EXPECT_TRUE(check(set.step, 1'000'000 + 100 * at).ok()) << at;
    ASSERT_TRUE(Remarks(*store).unpin(set).ok());
    ASSERT_TRUE(Catalog(*store).remove(set).ok());
  }
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

TEST_F(RemarksOfSets, AnUnpinAtAnyMomentOfAPrune) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const SetName set{"job", 1000 + at};
    save_half(set, 1'000'000 + 100 * at);
    ASSERT_TRUE(Remarks(*store).pin(set).ok());
    ASSERT_TRUE(drop_late(set.step).ok());
    PausedFileSystem paused(fs, at, [&] { ASSERT_TRUE(Remarks(*store).unpin(set).ok()); });
    const auto pruner = Store::open(paused, "/s").value();
    (void)prune_store(*pruner, thorough());
    came_to_it = paused.paused();
    ASSERT_TRUE(prune().ok()) << at;
    EXPECT_TRUE(check(set.step, 1'000'000 + 100 * at).ok()) << at;
    (void)Remarks(*store).unpin(set);
    ASSERT_TRUE(Catalog(*store).remove(set).ok());
  }
}

// Power is lost at any operation of a pin: what was said to be pinned is, and the store is whole in either case.
TEST_F(RemarksOfSets, ACrashAtAnyOperationOfAPin) {
  bool crashed = true;
  for (uint64_t at = 0; crashed; ++at) {
    const SetName set{"job", 1000 + at};
    save(set.step, 1'000'000 + 100 * at);
    FaultyFileSystem faulty(fs, {{.kind = FaultKind::crash, .at_operation = at, .persistent = true}});
    const auto pinner = Store::open(faulty, "/s");
    const Status pinned = pinner.ok() ? Remarks(**pinner).pin(set) : pinner.status();
    crashed = faulty.crashed();
    const auto left = fs.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
    const auto after = Store::open(*left, "/s").value();
    EXPECT_TRUE(!pinned.ok() || Catalog(*after).remove(set).code() == StatusCode::permission_denied) << at;
    ASSERT_TRUE(prune_store(*after, thorough()).ok()) << at;
    EXPECT_TRUE(test::check_numbers(*after, set, numbers_between(1'000'000 + 100 * at, 1'000'030 + 100 * at)).ok())
        << at;
  }
}

// A damaged pin of a set that is gone is told, keeps what it can, and can be given up.
TEST_F(RemarksOfSets, ADamagedPinIsGivenUpByUnpin) {
  ASSERT_TRUE(Remarks(*store).pin(one).ok());
  ASSERT_TRUE(drop_late(1).ok());
  ASSERT_TRUE(fs.create("/s/remarks/job@1.pin").status().code() == StatusCode::already_exists);
  ASSERT_TRUE(fs.remove("/s/remarks/job@1.pin").ok());
  ASSERT_TRUE(fs.create("/s/remarks/job@1.pin").ok());
  EXPECT_FALSE(prune().ok()) << "what it needs is unknown";
  EXPECT_TRUE(Remarks(*store).unpin(one).value());
  EXPECT_TRUE(prune().ok());
}

TEST_F(RemarksOfSets, APinWithAnotherSetsRecordBringsNothingBack) {
  ASSERT_TRUE(Remarks(*store).pin(one).ok());
  ASSERT_TRUE(fs.rename("/s/remarks/job@1.pin", "/s/remarks/job@7.pin").ok());
  ASSERT_TRUE(drop_late(1).ok());
  ASSERT_TRUE(prune().ok());
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"job", 2}}));
}

// While a job is renamed, somebody prunes; and the other way round.
TEST_F(RemarksOfSets, ARenameAtAnyMomentOfAPrune) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    // Before and after the old name in a list.
    const std::string from = at % 2 == 0 ? "z" : "a", to = at % 2 == 0 ? "a" : "z";
    save_half({from, at}, 1'000'000 + 100 * at);
    PausedFileSystem paused(fs, at / 2, [&] { ASSERT_TRUE(rename_job(*store, from, to).ok()); });
    const auto pruner = Store::open(paused, "/s").value();
    ASSERT_TRUE(prune_store(*pruner, thorough()).ok()) << at;
    came_to_it = paused.paused();
    ASSERT_TRUE(came_to_it || rename_job(*store, from, to).ok());
    ASSERT_TRUE(prune().ok()) << at;
    EXPECT_TRUE(test::check_numbers(*store, {to, at}, numbers_between(1'000'000 + 100 * at, 1'000'030 + 100 * at)).ok())
        << at;
    ASSERT_TRUE(Catalog(*store).remove({to, at}).ok());
  }
}

TEST_F(RemarksOfSets, APruneOrADropAtAnyMomentOfARename) {
  for (const bool drops : {false, true}) {
    bool came_to_it = true;
    for (uint64_t at = 0; came_to_it; ++at) {
      const auto numbers = numbers_between(2'000'000 + 100 * at, 2'000'030 + 100 * at);
      const SetName old_name{"old", at}, new_name{"new", at};
      save_half(old_name, 2'000'000 + 100 * at);
      PausedFileSystem paused(fs, at, [&] {
        if (drops) (void)Catalog(*store).remove(old_name);
        ASSERT_TRUE(prune().ok());
      });
      const auto renamer = Store::open(paused, "/s").value();
      const Status renamed = rename_job(*renamer, "old", "new");
      came_to_it = paused.paused();
      ASSERT_TRUE(prune().ok()) << at;
      const bool is_there =
          test::check_numbers(*store, new_name, numbers).ok() || test::check_numbers(*store, old_name, numbers).ok();
      EXPECT_TRUE(is_there || drops) << at << renamed.to_string();
      EXPECT_TRUE(!renamed.ok() || drops || test::check_numbers(*store, new_name, numbers).ok()) << at;
      for (const SetName& name : {old_name, new_name}) (void)Catalog(*store).remove(name);
    }
  }
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

TEST_F(RemarksOfSets, ARenameAtAnyMomentOfAPruneThatKeepsTags) {
  PruneOptions options;
  options.wait_seconds = 0;
  options.keep.last = 1;
  options.keep.tags = {"best"};
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const uint64_t first = 4'000'000 + 100 * at;
    const auto numbers = numbers_between(first, first + 30);
    const SetName old_name{"old", 5}, new_name{"new", 5}, newer{"new", 9};
    save_half(old_name, first);
    save_half(newer, first + 50);
    ASSERT_TRUE(Remarks(*store).add_tag(old_name, "best").ok());
    // The prune is held up anywhere, and the whole rename happens then; and the other way round.
    for (const bool rename_is_held_up : {false, true}) {
      const auto rename_it = [&](const Store& own) { return rename_job(own, "old", "new"); };
      const auto prune_it = [&](const Store& own) { return prune_store(own, options).status(); };
      PausedFileSystem paused(fs, at, [&] {
        if (rename_is_held_up) {
          (void)prune_it(*store);
        } else {
          (void)rename_it(*store);
        }
      });
      const auto own = Store::open(paused, "/s").value();
      (void)(rename_is_held_up ? rename_it(*own) : prune_it(*own));
      came_to_it = paused.paused();
      const bool is_there =
          test::check_numbers(*store, new_name, numbers).ok() || test::check_numbers(*store, old_name, numbers).ok();
      EXPECT_TRUE(is_there) << at << (rename_is_held_up ? " of the rename" : " of the prune");
      EXPECT_FALSE(Remarks(*store).of(new_name).value().pinned) << at;
      if (rename_is_held_up) break;
      // Back to its old name.
      (void)Catalog(*store).remove(new_name);
      (void)Catalog(*store).remove(old_name);
      (void)Catalog(*store).remove(newer);
      save_half(old_name, first);
      save_half(newer, first + 50);
      ASSERT_TRUE(Remarks(*store).add_tag(old_name, "best").ok());
    }
    for (const SetName& name : {old_name, new_name, newer}) (void)Catalog(*store).remove(name);
  }
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

TEST_F(RemarksOfSets, ARenameThatIsStoppedLeavesNothingPinned) {
  for (uint64_t step = 1; step <= 3; ++step) {
    save_half({"old", step}, 5'000'000 + 100 * step);
    ASSERT_TRUE(Remarks(*store).add_tag({"old", step}, "best").ok());
  }
  struct StopsAtTheSecond final : ProgressSink {
    explicit StopsAtTheSecond(const Store& of) : catalog(of) {}
    void total(uint64_t) override {}
    void advance(uint64_t) override {}
    void phase(std::string_view) override {}
    void warning(const Status&) override {}
    bool cancelled() const override { return catalog.has({"new", 2}).value(); }
    Catalog catalog;
  } stops(*store);
  EXPECT_EQ(rename_job(*store, "old", "new", stops).code(), StatusCode::cancelled);
  EXPECT_TRUE(Catalog(*store).has({"old", 1}).value());
  EXPECT_TRUE(Remarks(*store).pinned().value().empty());
}

/// A process that is held up just before it commits a set of a job.
class HeldAtCommit final : public ForwardingFileSystem {
 public:
  HeldAtCommit(FileSystem& inner, std::string job)
      : ForwardingFileSystem(inner), folder_("/s/sets/" + std::move(job)) {}
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    if (parent_path(to) == folder_) {
      came.release();
      go_on.acquire();
    }
    return ForwardingFileSystem::rename_no_replace(from, to);
  }
  std::counting_semaphore<> came{0}, go_on{0};

 private:
  const std::string folder_;
};

// The prune has seen neither the rename's lease, which came later, nor the set under either name.
TEST_F(RemarksOfSets, ARenameBesideAPruneDoesNotCommitWhatAThirdHasDropped) {
  bool came_to_it = true;
  for (uint64_t at = 0; came_to_it; ++at) {
    const auto numbers = numbers_between(3'000'000 + 100 * at, 3'000'030 + 100 * at);
    const SetName old_name{"old", at}, new_name{"new", at};
    save_half(old_name, 3'000'000 + 100 * at);
    HeldAtCommit held(fs, "new");
    const auto renames = Store::open(held, "/s").value();
    Status renamed;
    std::thread renamer;
    PausedFileSystem paused(fs, at, [&] {
      renamer = std::thread([&] {
        renamed = rename_job(*renames, "old", "new");
        held.came.release();  // if it failed before
      });
      held.came.acquire();
      (void)Catalog(*store).remove(old_name);
    });
    ASSERT_TRUE(prune_store(*Store::open(paused, "/s").value(), thorough()).ok()) << at;
    came_to_it = paused.paused();
    held.go_on.release(100);
    if (renamer.joinable()) renamer.join();
    EXPECT_TRUE(!came_to_it || !renamed.ok() || test::check_numbers(*store, new_name, numbers).ok()) << at;
    for (const SetName& name : {old_name, new_name}) (void)Catalog(*store).remove(name);
    ASSERT_TRUE(prune().ok()) << at;
  }
}

TEST_F(RemarksOfSets, APinnedSetIsReplacedByNobody) {
  const auto replace_by = [this](uint64_t step) {
    SetRecord record = Catalog(*store).read({"job", step}).value();
    record.name = one;
    record.number += 100;
    return WriterLease::acquire(*store).value()->commit(record, IfExists::replace);
  };
  const Remarks remarks(*store);
  ASSERT_TRUE(remarks.pin(one).ok());
  const Status replaced = replace_by(2);
  EXPECT_EQ(replaced.code(), StatusCode::permission_denied) << replaced.to_string();
  EXPECT_EQ(replaced.subject(), "job@1");
  EXPECT_TRUE(check(1, 1).ok());
  EXPECT_TRUE(replace_by(1).ok()) << "the same content";
  EXPECT_TRUE(check(1, 1).ok());
  ASSERT_TRUE(remarks.unpin(one).value());
  EXPECT_TRUE(replace_by(2).ok());
  EXPECT_TRUE(check(1, 101).ok());
}

// As above, and the new name is pinned, then dropped by somebody who had looked for pins before: all while the prune
// takes its last looks.
TEST_F(RemarksOfSets, APinOfWhatIsRenamedBesideAPruneKeepsIt) {
  // Of the prune: what lies between its first look at the sets and its last.
  constexpr uint64_t kLeastBetween = 4, kMostBetween = 12;
  const SetName old_name{"old", 1}, new_name{"new", 1};
  bool came_to_it = true;
  for (uint64_t at = 0, number = 4'000'000; came_to_it; ++at) {
    for (uint64_t later = at + kLeastBetween; later <= at + kMostBetween; ++later, number += 100) {
      save_half(old_name, number);
      HeldAtCommit held(fs, "new");
      const auto renames = Store::open(held, "/s").value();
      std::thread renamer;
      Status pinned = Status::cancelled();
      PausedFileSystem drops_old(fs, at, [&] {
        renamer = std::thread([&] {
          (void)rename_job(*renames, "old", "new");
          held.came.release();  // if it failed before
        });
        held.came.acquire();
        (void)Catalog(*store).remove(old_name);
      });
      PausedFileSystem drops_new(drops_old, later, [&] {
        held.go_on.release(100);
        renamer.join();
        pinned = Remarks(*store).pin(new_name);
        fs.remove("/s/sets/new/1.set").ignore("the rename has failed");
      });
      ASSERT_TRUE(prune_store(*Store::open(drops_new, "/s").value(), thorough()).ok()) << at << ", " << later;
      came_to_it = drops_old.paused();
      held.go_on.release(100);
      if (renamer.joinable()) renamer.join();
      if (pinned.ok()) {
        ASSERT_TRUE(Remarks(*store).unpin(new_name).ok()) << at << ", " << later;
        EXPECT_TRUE(test::check_numbers(*store, new_name, numbers_between(number, number + 30)).ok())
            << at << ", " << later;
      }
      for (const SetName& name : {old_name, new_name}) (void)Catalog(*store).remove(name);
      ASSERT_TRUE(prune().ok()) << at << ", " << later;
    }
  }
}

TEST_F(RemarksOfSets, ARenameTouchesNothingIfAStepIsTaken) {
  ASSERT_TRUE(test::save_numbers(*store, {"other", 2}, numbers_between(1, 5)).ok());
  EXPECT_EQ(rename_job(*store, "job", "other").code(), StatusCode::already_exists);
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"job", 1}, {"job", 2}, {"other", 2}}));
}

TEST_F(RemarksOfSets, StrangeNamesAreNoRemarks) {
  ASSERT_TRUE(fs.create_directory("/s/remarks").ok());
  for (const char* name : {"job@1", "job@01.pin", "@1.pin", "job@x.pin", "job@1.tag.", "job@1.pinned", "job@1.tag.a@b",
                           "note", "job@1.tag.a.0123456789abcdef0123456789abcdef.tmp"})
    ASSERT_TRUE(fs.create(std::string("/s/remarks/") + name).ok());
  EXPECT_TRUE(Remarks(*store).all().value().empty());
  EXPECT_TRUE(prune().ok());
}

}  // namespace
}  // namespace varve
