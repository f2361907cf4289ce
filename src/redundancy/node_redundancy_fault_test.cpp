// Redundancy of node-local stores when something fails on one node while the others work: every fault and every crash,
// at every operation.
#include <gtest/gtest.h>

#include <atomic>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "redundancy/test_nodes.h"

namespace varve {
namespace {

using test::Nodes;

const SetName kOlder{"job", 1}, kNewer{"job", 2};
constexpr uint32_t kStruck = 1;

/// Three nodes with two sets that share arenas, the first of which is protected.
Nodes plain_nodes() {
  Nodes nodes(3);
  nodes.save(kOlder);
  if (!nodes.protect(kOlder, "xor:3").ok()) std::abort();
  nodes.save(kNewer);
  return nodes;
}

using Act = std::function<Status(Nodes&, FileSystem& own)>;

Status protect(Nodes& nodes, FileSystem& own) { return nodes.protect(kNewer, "xor:3", true, {{kStruck, &own}}); }

/// OK if both sets are whole afterwards.
Status restore(Nodes& nodes, FileSystem& own) {
  VARVE_ASSIGN(const std::vector<RestoredSet> sets, nodes.restore(true, {{kStruck, &own}}));
  for (const RestoredSet& each : sets) VARVE_TRY(each.status);
  return sets.size() == 2 ? Status() : Status::not_found("a protected set");
}

FaultyFileSystem::OperationCount count_operations(const Nodes& start, const Act& act) {
  Nodes nodes = start.copy();
  FaultyFileSystem counter(nodes.fs(kStruck));
  const Status status = act(nodes, counter);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return counter.operation_count();
}

/// What is in a store is whole: no set is seen of which something is missing.
void expect_no_broken_set(Nodes& nodes, uint32_t node) {
  const auto store = Store::open(nodes.fs(node), Nodes::path());
  if (!store.ok()) {
    EXPECT_EQ(store.status().code(), StatusCode::not_found) << store.status().to_string();
    return;
  }
  const VerifyReport report = verify_store(**store, true).value();
  EXPECT_TRUE(report.whole()) << report.damages.front().what.to_string();
}

/// After a loss of any node, both sets are what they were on all.
void expect_protected(const Nodes& start) {
  for (uint32_t lost = 0; lost < 3; ++lost) {
    Nodes nodes = start.copy();
    nodes.lose(lost, "new");
    const Status restored = restore(nodes, nodes.fs(kStruck));
    EXPECT_TRUE(restored.ok()) << restored.to_string();
    for (uint32_t node = 0; node < 3; ++node) {
      for (const SetName& set : {kOlder, kNewer}) {
        const Status checked = nodes.check(node, set, node);
        EXPECT_TRUE(checked.ok()) << checked.to_string();
      }
    }
  }
}

const std::vector<FaultKind> kMutatingFaults = {FaultKind::no_space, FaultKind::io_error, FaultKind::short_write,
                                                FaultKind::failed_sync, FaultKind::failed_rename};

/// All faults at all operations; `check` gets how it ended.
void for_each_fault(const Nodes& start, const Act& act, const std::function<void(Nodes&, const Status&)>& check) {
  const FaultyFileSystem::OperationCount count = count_operations(start, act);
  const auto strike = [&](const Fault& fault) {
    Nodes nodes = start.copy();
    Status status;
    {
      FaultyFileSystem faulty(nodes.fs(kStruck), {fault});
      status = act(nodes, faulty);
      SCOPED_TRACE(faulty.trace());
      EXPECT_NE(status.code(), StatusCode::internal) << status.to_string();
    }
    SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault.kind)) + " at " + std::to_string(fault.at_operation) +
                 ": " + status.to_string());
    check(nodes, status);
  };
  for (const FaultKind kind : kMutatingFaults) {
    for (uint64_t at = 0; at < count.mutating; ++at) strike({.kind = kind, .at_operation = at, .seed = at});
  }
  for (const FaultKind kind : {FaultKind::failed_read, FaultKind::flipped_bit}) {
    for (uint64_t at = 0; at < count.reading; ++at) strike({.kind = kind, .at_operation = at, .seed = at});
  }
}

void for_each_crash(const Nodes& start, const Act& act, const std::function<void(Nodes&, const Status&)>& check) {
  const uint64_t count = count_operations(start, act).mutating;
  for (uint64_t at = 0; at <= count; ++at) {
    for (const CrashPolicy& policy : {CrashPolicy{CrashPolicy::Kind::keep_all},
                                      {CrashPolicy::Kind::drop_unsynced},
                                      {CrashPolicy::Kind::torn, 1},
                                      {CrashPolicy::Kind::torn, 2}}) {
      Nodes nodes = start.copy();
      Status status;
      {
        FaultyFileSystem faulty(nodes.fs(kStruck),
                                {{.kind = FaultKind::crash, .at_operation = at, .seed = policy.seed}});
        status = act(nodes, faulty);
      }
      nodes.crash(kStruck, policy);
      SCOPED_TRACE("crash at " + std::to_string(at) + ": " + status.to_string());
      check(nodes, status);
    }
  }
}

/// Both sets are there on the struck node, and protecting succeeds when it is done again.
void check_protecting(Nodes& nodes, const Status& status) {
  for (const SetName& set : {kOlder, kNewer}) {
    const Status checked = nodes.check(kStruck, set, kStruck);
    EXPECT_TRUE(checked.ok()) << checked.to_string();
  }
  if (status.ok()) expect_protected(nodes);
  const Status again = protect(nodes, nodes.fs(kStruck));
  EXPECT_TRUE(again.ok()) << again.to_string();
  expect_protected(nodes);
}

TEST(NodeRedundancyFaults, OfProtectingAreSaidByAllAndHarmNothing) {
  for_each_fault(plain_nodes(), protect, check_protecting);
}

TEST(NodeRedundancyFaults, LetACrashHappenWhileASetIsProtected) {
  for_each_crash(plain_nodes(), protect, check_protecting);
}

TEST(NodeRedundancyFaults, LetACrashHappenWhileASetIsProtectedInAnotherWay) {
  Nodes start = plain_nodes();
  ASSERT_TRUE(start.protect(kNewer, "partner").ok());
  for_each_crash(start, protect, check_protecting);
}

/// What a node has, without the leases that a crash has left: prunes remove them.
std::map<std::string, ByteVector> lasting_files(Nodes& nodes, uint32_t node) {
  std::map<std::string, ByteVector> files = nodes.files(node);
  std::erase_if(files, [](const auto& file) { return file.first.starts_with(Nodes::path() + "/writers/"); });
  return files;
}

/// The struck node has nothing but whole sets, and restoring succeeds when it is done again.
void check_restoring(const Nodes& whole, Nodes& nodes, const Status& status) {
  expect_no_broken_set(nodes, kStruck);
  Nodes complete = whole.copy();
  if (status.ok()) {
    EXPECT_EQ(nodes.files(kStruck), complete.files(kStruck)) << "it said that all was durable";
  }
  const Status again = restore(nodes, nodes.fs(kStruck));
  EXPECT_TRUE(again.ok()) << again.to_string();
  for (uint32_t node = 0; node < 3; ++node) EXPECT_EQ(lasting_files(nodes, node), complete.files(node));
}

class RestoringFaults : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(whole_.protect(kNewer, "xor:3").ok());
    replaced_ = whole_.copy();
    replaced_.lose(kStruck, "new");
    damaged_ = whole_.copy();
    damaged_.damage(kStruck, damaged_.arenas(kStruck).at(0));
    ASSERT_TRUE(damaged_.fs(kStruck).remove(Nodes::path() + "/sets/job/2.set").ok());
  }
  void check(Nodes& nodes, const Status& status) { check_restoring(whole_, nodes, status); }

  Nodes whole_ = plain_nodes(), replaced_ = whole_.copy(), damaged_ = whole_.copy();
};

TEST_F(RestoringFaults, OfAReplacedNodeAreSaidByAllAndHarmNothing) {
  for_each_fault(replaced_, restore, [&](Nodes& nodes, const Status& status) { check(nodes, status); });
}

TEST_F(RestoringFaults, LetACrashHappenWhileANodeIsReplaced) {
  for_each_crash(replaced_, restore, [&](Nodes& nodes, const Status& status) { check(nodes, status); });
}

TEST_F(RestoringFaults, LetACrashHappenWhileANodeIsRepaired) {
  for_each_crash(damaged_, restore, [&](Nodes& nodes, const Status& status) {
    Nodes complete = whole_.copy();
    if (status.ok()) {
      EXPECT_EQ(nodes.files(kStruck), complete.files(kStruck));
    }
    const Status again = restore(nodes, nodes.fs(kStruck));
    EXPECT_TRUE(again.ok()) << again.to_string();
    for (uint32_t node = 0; node < 3; ++node) EXPECT_EQ(lasting_files(nodes, node), complete.files(node));
  });
}

/// Lets one read of a file's bytes fail, and no other.
class OneFailingRead final : public ForwardingFileSystem {
 public:
  OneFailingRead(FileSystem& inner, int number) : ForwardingFileSystem(inner), left_(number) {}
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::open_read(path));
    return std::unique_ptr<File>(std::make_unique<Reader>(std::move(file), left_));
  }
  bool has_struck() const { return left_ < 0; }

 private:
  struct Reader final : ForwardingFile {
    Reader(std::unique_ptr<File> inner, std::atomic<int>& reads_left)
        : ForwardingFile(std::move(inner)), left(reads_left) {}
    Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
      if (left.fetch_sub(1) == 0) return Status::io_error("once");
      return ForwardingFile::read_at(offset, into);
    }
    std::atomic<int>& left;
  };
  std::atomic<int> left_;
};

TEST_F(RestoringFaults, OfOneReadAreNoLoss) {
  Nodes lost = whole_.copy();
  lost.lose(0, "new");
  int restored = 0, number = 0;
  for (bool struck = true; struck; ++number) {
    Nodes nodes = lost.copy();
    OneFailingRead failing(nodes.fs(kStruck), number);
    const Status status = restore(nodes, failing);
    struck = failing.has_struck();
    if (status.ok()) ++restored;
    // What is read before the files may fail, and says so.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::io_error) << status.to_string();
  }
  EXPECT_GT(restored, number / 2);
}

TEST_F(RestoringFaults, LeaveAFolderInWhichAStoreCanBeMade) {
  // The replacement crashes, and then another node is lost: nothing can be rebuilt, and the run begins anew.
  const uint64_t count = count_operations(replaced_, restore).mutating;
  for (uint64_t at = 0; at <= count; ++at) {
    Nodes nodes = replaced_.copy();
    {
      FaultyFileSystem faulty(nodes.fs(kStruck), {{.kind = FaultKind::crash, .at_operation = at}});
      restore(nodes, faulty).ignore("it crashes");
    }
    nodes.crash(kStruck, {CrashPolicy::Kind::keep_all});
    nodes.lose(0);
    restore(nodes, nodes.fs(kStruck)).ignore("it is refused, at least in part");
    const auto opened = Store::open(nodes.fs(kStruck), Nodes::path());
    const Status made = opened.ok() ? Status() : Store::create(nodes.fs(kStruck), Nodes::path());
    EXPECT_TRUE(made.ok()) << "crash at " << at << ": " << made.to_string();
    expect_no_broken_set(nodes, kStruck);
  }
}

}  // namespace
}  // namespace varve
