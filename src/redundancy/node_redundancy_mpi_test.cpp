// Redundancy of node-local stores over MPI: run it with mpirun, on four ranks or more, each of which is a node with a
// folder of its own on this machine.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>

#include "redundancy/node_redundancy.h"
#include "store/test_sets.h"
#include "store/verify.h"
#include "varve/mpi.h"

namespace varve {
namespace {

class MpiNodes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    leaders_ = make_mpi_communicator(MPI_COMM_WORLD).value();
    ASSERT_GE(leaders_->rank_count(), 4u);
    std::string folder = std::filesystem::temp_directory_path() / "varve-mpi-nodes-XXXXXX";
    if (leaders_->rank() == 0) {
      ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    }
    folder_ = as_text(leaders_->broadcast(as_bytes(folder), 0).value());
    place_ = {&posix_file_system(), join_path(folder_, "node-" + std::to_string(leaders_->rank())),
              "n" + std::to_string(leaders_->rank())};
    ASSERT_TRUE(Store::create(*place_.fs, place_.path).ok());
  }
  void TearDown() override {
    ASSERT_TRUE(leaders_->barrier().ok());
    if (leaders_->rank() == 0) std::filesystem::remove_all(folder_);
    leaders_.reset();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  uint64_t rank() const { return leaders_->rank(); }
  std::vector<uint64_t> numbers(uint64_t step) const {
    // Some megabytes on one node, so that blocks are many, and sent by rendezvous.
    return test::numbers_between(rank() * 100'000 + step * 10'000,
                                 rank() * 100'000 + step * 10'000 + (rank() == 1 ? 5000 : 20));
  }
  void save(uint64_t step) {
    const Status saved =
        test::save_numbers(*Store::open(*place_.fs, place_.path).value(), {"job", step}, numbers(step));
    ASSERT_TRUE(saved.ok()) << saved.to_string();
  }
  void lose(const std::string& name) {
    std::filesystem::remove_all(place_.path);
    place_.node = name;
  }
  void expect_whole(uint64_t step) {
    const auto store = Store::open(*place_.fs, place_.path);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    const Status checked = test::check_numbers(**store, {"job", step}, numbers(step));
    EXPECT_TRUE(checked.ok()) << checked.to_string();
    EXPECT_TRUE(verify_store(**store, true).value().whole());
  }

  std::unique_ptr<Communicator> leaders_;
  std::string folder_;
  NodePlace place_;
};

TEST_P(MpiNodes, AreRebuiltAfterTheLossOfOne) {
  const Redundancy redundancy = Redundancy::parse(GetParam()).value();
  for (uint64_t step : {1, 2}) {
    save(step);
    const auto protection = protect_set(*leaders_, place_, {"job", step}, redundancy);
    ASSERT_TRUE(protection.ok()) << protection.status().to_string();
  }
  ASSERT_TRUE(leaders_->barrier().ok());
  if (rank() == 1) lose("spare");
  const auto restored = restore_lost(*leaders_, place_);
  ASSERT_TRUE(restored.ok()) << restored.status().to_string();
  ASSERT_EQ(restored->size(), 2u);
  for (const RestoredSet& set : *restored) {
    EXPECT_TRUE(set.status.ok()) << set.status.to_string();
    ASSERT_EQ(set.rebuilt.size(), 1u);
    EXPECT_TRUE(set.rebuilt[0].starts_with("node spare was rebuilt in the place of node n1: ")) << set.rebuilt[0];
    expect_whole(set.set.step);
  }
  EXPECT_EQ(retain_redundancy(*leaders_, place_, "job", 1).value(), (std::vector<SetName>{{"job", 1}}));
}

TEST_P(MpiNodes, AreRefusedTogetherWhenTooManyAreLost) {
  const Redundancy redundancy = Redundancy::parse(GetParam()).value();
  save(1);
  ASSERT_TRUE(protect_set(*leaders_, place_, {"job", 1}, redundancy).ok());
  ASSERT_TRUE(leaders_->barrier().ok());
  // Of each scheme's groups of four nodes, or pairs, one node is left at most.
  if (rank() != 3) lose("x" + std::to_string(rank()));
  const auto restored = restore_lost(*leaders_, place_);
  ASSERT_TRUE(restored.ok()) << restored.status().to_string();
  ASSERT_EQ(restored->size(), 1u);
  EXPECT_EQ(restored->front().status.code(), StatusCode::not_found) << restored->front().status.to_string();
  if (rank() == 3) expect_whole(1);
}

INSTANTIATE_TEST_SUITE_P(All, MpiNodes, testing::Values("partner", "xor:4", "rs:2+2"));

}  // namespace
}  // namespace varve

int main(int argc, char** argv) {
  const bool one_thread = std::getenv("VARVE_TEST_ONE_THREAD") != nullptr;
  int given = 0;
  MPI_Init_thread(&argc, &argv, one_thread ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &given);
  testing::InitGoogleTest(&argc, argv);
  int result = RUN_ALL_TESTS();
  // What failed on one rank only is to fail the program on all, so that none waits for it.
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return result;
}
