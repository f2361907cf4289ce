#include <gtest/gtest.h>

#include "aggregate/inspect.h"
#include "runtime/ranks.h"

namespace varve {
namespace {

using test::Model;
using test::model_at;
using test::run_ranks;
using test::SessionPlace;

constexpr size_t kCells = 20'000;

/// Runs steps until `last`, each with a checkpoint, and ends the session.
void run_to(Session& session, Model& model, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step <= last; ++step) {
    model.step(step);
    if (session.due(step)) {
      const Status made = session.checkpoint(step);
      EXPECT_TRUE(made.ok()) << made.to_string();
    }
  }
  const Status finished = session.finish();
  EXPECT_TRUE(finished.ok()) << finished.to_string();
}

class ASessionOfRanks : public testing::TestWithParam<uint32_t> {
 protected:
  SessionPlace place;
};

INSTANTIATE_TEST_SUITE_P(Ranks, ASessionOfRanks, testing::Values(1, 2, 4, 8));

TEST_P(ASessionOfRanks, GoesOnFromItsLastCheckpoint) {
  for (const char* group : {"node", "rank", "3"}) {
    SCOPED_TRACE(group);
    const SessionPlace own;
    auto options = own.options();
    options.group = group;
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      EXPECT_EQ(session->restart().value(), std::nullopt);
      run_to(*session, model, 1, 3);
    });
    EXPECT_EQ(own.memory_files(), 0u);
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      const auto from = session->restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      EXPECT_EQ(*from, 3u);
      EXPECT_EQ(model, model_at(rank, kCells, 3));
      run_to(*session, model, 4, 6);
      EXPECT_EQ(model, model_at(rank, kCells, 6));
    });
    const auto store = Store::open(posix_file_system(), own.store).value();
    EXPECT_EQ(Catalog(*store).steps("job").value(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(Catalog(*store).read({"job", 6}).value().rank_count, GetParam());
    EXPECT_TRUE(list_parts(*store).value().empty());
  }
}

}  // namespace
}  // namespace varve
