// The communicators over MPI: run it with mpirun, with any number of ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "comm/communicator_contract.h"
#include "comm/mpi_communicator.h"
#include "core/bytes.h"

namespace varve {

namespace {

using MakeRanks = std::function<Result<std::unique_ptr<Communicator>>()>;

void run_on(const MakeRanks& make, const std::function<void(Communicator&)>& body) {
  auto ranks = make();
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  body(**ranks);
  ranks->reset();
  // The next run begins when all have ended this one, so that a failure is not mistaken for another's.
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The world backwards, which is not the world.
Result<std::unique_ptr<Communicator>> make_backwards() {
  MPI_Comm backwards = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
  auto ranks = make_mpi_communicator(backwards);
  MPI_Comm_free(&backwards);
  return ranks;
}

/// Two halves side by side, which are to have nothing to do with each other.
Result<std::unique_ptr<Communicator>> make_half() {
  MPI_Comm half = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  auto ranks = make_mpi_communicator(half);
  MPI_Comm_free(&half);
  return ranks;
}

}  // namespace

std::vector<TestRanks> ranks_under_test() {
  const auto ranks = [](std::string name, MakeRanks make) {
    return TestRanks{std::move(name), [make = std::move(make)](const auto& body) { run_on(make, body); }};
  };
  return {ranks("world", [] { return make_mpi_communicator(MPI_COMM_WORLD); }),
          ranks("in_pieces", [] { return make_mpi_communicator_in_pieces(MPI_COMM_WORLD, 4096); }),
          ranks("backwards", make_backwards), ranks("half", make_half)};
}

namespace {

TEST(MpiCommunicator, IsConcurrentJustWhenMpiAllowsSeveralThreads) {
  int threads = 0;
  MPI_Query_thread(&threads);
  auto ranks = make_mpi_communicator(MPI_COMM_WORLD);
  ASSERT_TRUE(ranks.ok());
  EXPECT_EQ((*ranks)->concurrent(), threads == MPI_THREAD_MULTIPLE);
}

TEST(MpiCommunicator, DoesNotMeetTheMessagesOfTheProgram) {
  auto ranks = make_mpi_communicator(MPI_COMM_WORLD);
  ASSERT_TRUE(ranks.ok());
  if (!(*ranks)->concurrent()) GTEST_SKIP() << "this MPI allows one thread only";
  const int me = static_cast<int>((*ranks)->rank());
  const int theirs = 1;
  int received = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(&theirs, 1, MPI_INT, me, 6, MPI_COMM_WORLD, &request);
  std::thread sender([&] { EXPECT_TRUE((*ranks)->send((*ranks)->rank(), 6, as_bytes("ours")).ok()); });
  ByteVector into(4);
  EXPECT_TRUE((*ranks)->receive((*ranks)->rank(), 6, into).ok());
  EXPECT_EQ(as_text(into), "ours");
  MPI_Recv(&received, 1, MPI_INT, me, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  sender.join();
  EXPECT_EQ(received, theirs);
}

TEST(MpiCommunicator, RefusesWhatIsNoCommunicatorOfRanks) {
  EXPECT_EQ(make_mpi_communicator(MPI_COMM_NULL).status().code(), StatusCode::invalid_argument);
}

TEST(MpiCommunicator, RefusesTagsThatMpiDoesNotHave) {
  auto ranks = make_mpi_communicator(MPI_COMM_WORLD);
  ASSERT_TRUE(ranks.ok());
  if (!(*ranks)->concurrent()) GTEST_SKIP() << "this MPI allows one thread only";
  EXPECT_EQ((*ranks)->send(0, ~0u, {}).code(), StatusCode::invalid_argument);
}

/// More than an int can count. Takes 10 GB on two ranks: for the long tests.
TEST(MpiCommunicator, MovesMoreThanTwoGibibytesAtOnce) {
  if (std::getenv("VARVE_TEST_LARGE_MESSAGES") == nullptr) GTEST_SKIP() << "VARVE_TEST_LARGE_MESSAGES is not set";
  auto made = make_mpi_communicator(MPI_COMM_WORLD);
  ASSERT_TRUE(made.ok());
  Communicator& ranks = **made;
  const uint64_t count = 2_GiB + 12'345;
  const auto expected = [](uint64_t place) { return static_cast<std::byte>(place * 0x9e3779b97f4a7c15u >> 56); };
  ByteVector mine;
  if (ranks.rank() == 0) {
    mine.resize(count);
    for (uint64_t i = 0; i < count; ++i) mine[i] = expected(i);
  }
  const auto check = [&](const ByteVector& bytes) {
    ASSERT_EQ(bytes.size(), count);
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(bytes[i], expected(i)) << i;
  };
  {
    auto given = ranks.broadcast(mine, 0);
    ASSERT_TRUE(given.ok()) << given.status().to_string();
    check(*given);
  }
  {
    auto all = ranks.all_gather(mine);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    check(all->front());
  }
  if (!ranks.concurrent() || ranks.rank_count() == 1) return;
  if (ranks.rank() == 0) {
    EXPECT_TRUE(ranks.send(1, 2, mine).ok());
  }
  if (ranks.rank() == 1) {
    ByteVector into(count);
    EXPECT_TRUE(ranks.receive(0, 2, into).ok());
    check(into);
  }
}

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
