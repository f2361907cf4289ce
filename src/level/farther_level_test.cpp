#include "level/farther_level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "engine/transfer.h"
#include "store/catalog.h"
#include "store/test_sets.h"

namespace varve {
namespace {

const UniqueId kPushingRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();

std::unique_ptr<Store> new_store_on(MemoryFileSystem& disk) {
  EXPECT_TRUE(Store::create(disk, "/s").ok());
  return Store::open(disk, "/s").value();
}

/// Pushes to a level, one set after the other, without a thread.
struct PushToAFartherLevel : testing::Test {
  PushDuty duty_to(const Store& far) {
    PushDuty duty;
    duty.from = near.get();
    duty.to = [to = &far]() -> Result<const Store*> { return to; };
    duty.level = parse_level("dir:/s").value();
    duty.job = "job";
    duty.run = kPushingRun;
    duty.complete_before = [](uint64_t) { return true; };
    duty.policy_for = [](uint64_t) { return IfExists::refuse; };
    duty.note_given_up = [](const Status& what) { ADD_FAILURE() << what.to_string(); };
    duty.thread_count = 1;
    return duty;
  }

  MemoryFileSystem near_disk;
  std::unique_ptr<Store> near = new_store_on(near_disk);
  WarningList warnings;
};

// A sync that has failed once may leave a set there whose name the next look finds, and a loss of power takes away.
TEST_F(PushToAFartherLevel, TakesForThereOnlyWhatSurvivesAPowerCutWhateverSyncHasFailed) {
  ASSERT_TRUE(test::save_numbers(*near, {"job", 1}, test::numbers_between(1, 30), 1).ok());
  bool struck = true;
  for (uint64_t at = 0; struck; ++at) {
    MemoryFileSystem disk;
    new_store_on(disk);
    FaultyFileSystem faulty(disk, {{.kind = FaultKind::failed_sync, .at_operation = at, .seed = at}});
    const auto far = Store::open(faulty, "/s").value();
    bool is_there = false;
    PushDuty duty = duty_to(*far);
    duty.note_there = [&](uint64_t step) {
      is_there = true;
      const auto left = disk.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
      const Status kept =
          test::check_numbers(*Store::open(*left, "/s").value(), {"job", step}, test::numbers_between(1, 30));
      EXPECT_TRUE(kept.ok()) << kept.to_string() << "\n" << faulty.trace();
    };
    LevelPush push(std::move(duty), warnings);
    for (int attempt = 0; attempt < 3 && !is_there; ++attempt) {
      push.note_set(1, 1);
      push.bring_all(null_progress()).ignore("the next attempt is to bring it there");
      EXPECT_EQ(push.owes(1, 1), !is_there);
    }
    EXPECT_TRUE(is_there) << faulty.trace();
    struck = faulty.struck();
  }
}

/// Counts the sets that appear and go from a moment on.
class WatchedSets final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Status rename(const std::string& from, const std::string& to) override {
    note(to);
    return ForwardingFileSystem::rename(from, to);
  }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    note(to);
    return ForwardingFileSystem::rename_no_replace(from, to);
  }
  Status remove(const std::string& path) override {
    note(path);
    return ForwardingFileSystem::remove(path);
  }
  void begin() { counts_ = true; }
  bool has_begun() const { return counts_; }
  int changes() const { return changes_; }

 private:
  void note(const std::string& path) {
    if (counts_ && path.find("/sets/") != std::string::npos) ++changes_;
  }

  std::atomic<bool> counts_ = false;
  std::atomic<int> changes_ = 0;
};

// The other run may come at any moment: whatever is asked before has been allowed, and nothing after it.
TEST_F(PushToAFartherLevel, LeavesItAsItIsOnceAnotherRunHasTakenTheJobOver) {
  ASSERT_TRUE(test::save_numbers(*near, {"job", 2}, test::numbers_between(1, 30), 2).ok());
  MemoryFileSystem beside_disk;
  const auto beside = new_store_on(beside_disk);
  ASSERT_TRUE(test::save_numbers(*beside, {"job", 2}, test::numbers_between(31, 60), 2).ok());
  for (const uint32_t count : {1u, 2u}) {
    bool in_time = false;
    for (int allowed = 0; !in_time; ++allowed) {
      SCOPED_TRACE(testing::Message() << count << " parts, allowed " << allowed << " times");
      MemoryFileSystem disk;
      new_store_on(disk);
      WatchedSets watched(disk);
      const auto far = Store::open(watched, "/s").value();
      ASSERT_TRUE(test::save_numbers(*far, {"job", 1}, {1000}, 1).ok());
      if (count == 2) {
        ASSERT_TRUE(copy_part(*beside, *far, {{"job", 2}, kPushingRun, 1, 2}).ok());
      }
      PushDuty duty = duty_to(*far);
      duty.count = count;
      duty.retention.job = "job";
      duty.retention.keep = 1;
      int left = allowed;
      duty.may_bring = [&] {
        if (left-- > 0) return Status();
        watched.begin();
        return Status::busy("another run has taken this job over");
      };
      LevelPush push(std::move(duty), warnings);
      push.bring_all(null_progress()).ignore("the job may have been taken over");
      push.end(Ending::of_run).ignore("it says the same");
      in_time = !watched.has_begun();
      EXPECT_EQ(watched.changes(), 0);
      EXPECT_EQ(push.owes(2, 2), !Catalog(*far).has({"job", 2}).value()) << "what is not there stays owed";
      if (allowed == 0) {
        EXPECT_FALSE(Catalog(*far).has({"job", 2}).value());
      }
      if (in_time) {
        EXPECT_EQ(Catalog(*far).steps("job").value(), std::vector<uint64_t>{2});
      }
      ASSERT_LT(allowed, 20);
    }
  }
}

TEST_F(PushToAFartherLevel, AsksNobodyAnyMoreWhenItHasEnded) {
  ASSERT_TRUE(test::save_numbers(*near, {"job", 1}, {1}, 1).ok());
  MemoryFileSystem disk;
  const auto far = new_store_on(disk);
  bool has_ended = false;
  PushDuty duty = duty_to(*far);
  duty.retention.job = "job";
  duty.retention.keep = 1;
  duty.may_bring = [&has_ended] {
    EXPECT_FALSE(has_ended) << "who knew may be gone";
    return Status();
  };
  {
    LevelPush push(std::move(duty), warnings);
    EXPECT_TRUE(push.bring_all(null_progress()).ok());
    EXPECT_TRUE(push.end(Ending::of_run).ok());
    has_ended = true;
  }
  EXPECT_TRUE(Catalog(*far).has({"job", 1}).value());
}

}  // namespace
}  // namespace varve
