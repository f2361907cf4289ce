#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "runtime/ranks.h"
#include "runtime/run_session.h"

namespace varve {
namespace {

using test::run_ranks;
using test::SessionPlace;

/// Counts what is read of arenas.
class CountingReads final : public ForwardingFileSystem {
 public:
  CountingReads() : ForwardingFileSystem(posix_file_system()) {}
  uint64_t bytes() const { return bytes_; }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::open_read(path));
    if (!path.ends_with(".arena")) return file;
    return std::unique_ptr<File>(std::make_unique<Counted>(std::move(file), bytes_));
  }

 private:
  class Counted final : public ForwardingFile {
   public:
    Counted(std::unique_ptr<File> file, std::atomic<uint64_t>& bytes)
        : ForwardingFile(std::move(file)), bytes_(bytes) {}
    Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
      bytes_ += into.size();
      return ForwardingFile::read_at(offset, into);
    }

   private:
    std::atomic<uint64_t>& bytes_;
  };

  std::atomic<uint64_t> bytes_{0};
};

constexpr uint32_t kRanks = 6;
constexpr size_t kVariables = 40, kElements = 6'000;

/// Many variables that are much smaller than a pack, so that packs have something of all ranks.
struct Fields {
  std::vector<std::vector<double>> of;
  explicit Fields(uint32_t rank, bool filled) : of(kVariables, std::vector<double>(filled ? kElements : 0)) {
    for (size_t i = 0; i < kVariables; ++i) {
      for (size_t cell = 0; cell < of[i].size(); ++cell)
        of[i][cell] = std::sin(static_cast<double>(cell * (i + 1)) * 0.37 + static_cast<double>(rank));
    }
  }
  Status protect(RunSession& session) {
    for (size_t i = 0; i < kVariables; ++i) {
      std::vector<double>& values = of[i];
      VARVE_TRY(session.variables().protect_vector(
          "v" + std::to_string(i), element_type_of<double>(), [&values] { return std::as_bytes(std::span(values)); },
          [&values](uint64_t count) {
            values.resize(count);
            return std::as_writable_bytes(std::span(values));
          }));
      VARVE_TRY(session.variables().redistribute("v" + std::to_string(i), Redistribution::evenly));
    }
    return {};
  }
};

struct ANode : testing::Test {
  SessionPlace place;
  CountingReads files;

  void run(uint32_t ranks, bool filled, const std::function<void(uint32_t rank, RunSession&, Fields&)>& body) {
    SessionOptions options = place.options();
    run_ranks(ranks, [&](uint32_t rank, std::unique_ptr<Communicator> communicator) {
      SessionEnvironment environment;
      environment.files = &files;
      environment.sources.environment.clear();
      auto session = RunSession::open(std::move(communicator), options, environment);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Fields fields(rank, filled);
      ASSERT_TRUE(fields.protect(**session).ok());
      body(rank, **session, fields);
      const Status finished = (*session)->finish(std::chrono::minutes(1));
      EXPECT_TRUE(finished.ok()) << finished.to_string();
    });
  }
  void save() {
    run(kRanks, true, [](uint32_t, RunSession& session, Fields&) {
      const Status made = session.checkpoint(1, Persistence::now);
      ASSERT_TRUE(made.ok()) << made.to_string();
    });
  }
  uint64_t arena_bytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place.store))
      if (entry.path().extension() == ".arena") bytes += entry.file_size();
    return bytes;
  }
  /// What restarts of so many ranks read, as a part of all there is.
  double read_by(uint32_t ranks) {
    const uint64_t before = files.bytes();
    run(ranks, false, [&](uint32_t rank, RunSession& session, Fields& fields) {
      const auto step = session.restart();
      ASSERT_TRUE(step.ok()) << step.status().to_string();
      ASSERT_EQ(*step, 1u);
      for (size_t i = 0; i < kVariables; ++i) {
        const size_t each = kElements * kRanks / ranks;
        ASSERT_EQ(fields.of[i].size(), each);
        for (size_t at = 0; at < each; at += 97) {
          const size_t cell = (each * rank + at) % kElements, of = (each * rank + at) / kElements;
          ASSERT_EQ(fields.of[i][at], std::sin(static_cast<double>(cell * (i + 1)) * 0.37 + static_cast<double>(of)));
        }
      }
    });
    const double share = static_cast<double>(files.bytes() - before) / static_cast<double>(arena_bytes());
    RecordProperty("read_by_" + std::to_string(ranks), std::to_string(share));
    return share;
  }
};

// Trees are read by each rank; they are small.

TEST_F(ANode, ReadsAndDecodesWhatSeveralRanksNeedOnce) {
  save();
  EXPECT_LT(read_by(kRanks), 1.5);
}

TEST_F(ANode, DoesSoForAnotherNumberOfRanks) {
  save();
  EXPECT_LT(read_by(3), 1.5);
  EXPECT_LT(read_by(4), 1.5);
  EXPECT_LT(read_by(12), 2.0);
}

TEST_F(ANode, LeavesNothingOfItInItsMemory) {
  save();
  read_by(kRanks);
  EXPECT_EQ(place.memory_files(), 0u);
}

}  // namespace
}  // namespace varve
