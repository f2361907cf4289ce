// What operators see of a run: that the accounting of blocked time is whole, and that looking on fails nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ranks.h"
#include "runtime/timeline_log.h"

namespace varve::test {
namespace {

constexpr size_t kCells = 20'000;

class Monitoring : public testing::Test {
 protected:
  std::vector<nlohmann::json> events(const std::string& folder) const {
    std::vector<nlohmann::json> events;
    std::ifstream file(timeline_path(folder, "job"));
    for (std::string line; std::getline(file, line);) events.push_back(nlohmann::json::parse(line));
    return events;
  }
  static double blocked_in(const nlohmann::json& event) {
    double sum = 0;
    if (event.contains("blocked")) {
      for (const auto& [cause, seconds] : event["blocked"].items()) sum += seconds.get<double>();
    }
    return sum;
  }

  SessionPlace place_;
};

/// The time of a call, as the program sees it.
template <class Call>
auto timed(double& sum, const Call& call) {
  const double begin = steady_clock().seconds();
  auto outcome = call();
  sum += steady_clock().seconds() - begin;
  return outcome;
}

TEST_F(Monitoring, BlockedTimeIsNoMoreThanThatOfTheCallsAndNoLessThanTheReports) {
  double called = 0;
  nlohmann::json report;
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    double waited = 0;
    auto session = timed(waited, [&] { return Session::open(std::move(ranks), place_.options()); });
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_TRUE(timed(waited, [&] { return session->restart(); }).ok());
    for (uint64_t step = 1; step <= 6; ++step) {
      model.step(step);
      if (!timed(waited, [&] { return session->due(step); })) continue;
      const Persistence persistence = step % 3 == 0 ? Persistence::now : Persistence::later;
      EXPECT_TRUE(timed(waited, [&] { return session->checkpoint(step, persistence); }).ok());
      if (step == 4) {
        EXPECT_TRUE(timed(waited, [&] { return session->wait(); }).ok());
      }
    }
    EXPECT_TRUE(timed(waited, [&] { return session->finish(); }).ok());
    if (rank == 0) {
      called = waited;
      report = nlohmann::json::parse(session->report_json());
    }
  });
  double told = 0;
  size_t checkpoints = 0, stored = 0;
  const std::vector<nlohmann::json> all = events(place_.store + "/runs");
  for (const nlohmann::json& event : all) {
    told += blocked_in(event);
    checkpoints += event["event"] == "checkpoint" ? 1 : 0;
    stored += event["event"] == "stored" ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 6u);
  EXPECT_EQ(stored, 6u);
  EXPECT_EQ(all.front()["event"], "open");
  EXPECT_EQ(all.back()["event"], "end");
  // A log has microseconds.
  const double rounding = 1e-6 * 10 * static_cast<double>(all.size());
  EXPECT_LE(told, called + rounding);
  EXPECT_GE(told, report["blocked_seconds"].get<double>() - rounding);
}

TEST_F(Monitoring, OfARunThatGoesBackTellsOfBothCourses) {
  auto session = Session::open(place_.options()).value();
  Model model(0, kCells);
  ASSERT_TRUE(protect(session, model).ok());
  ASSERT_TRUE(session.restart().ok());
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE(session.checkpoint(step, Persistence::now).ok());
  ASSERT_EQ(session.restart({.exactly = 2}).value(), 2u);
  ASSERT_TRUE(session.checkpoint(3, Persistence::now).ok());
  ASSERT_TRUE(session.finish().ok());
  std::string told;
  for (const nlohmann::json& event : events(place_.store + "/runs")) {
    const std::string kind = event["event"];
    if (kind == "restart" || kind == "stored") told += kind + event.value("step", "") + " ";
  }
  EXPECT_EQ(told, "restart stored1 stored2 stored3 restart2 stored3 ");
}

TEST_F(Monitoring, FailsNothingAndEndsInTime) {
  SessionOptions options = place_.options();
  options.metrics_file = place_.folder / "no/such/folder.prom";
  options.timeline = place_.folder / "no/such";
  auto session = Session::open(options).value();
  Model model(0, kCells);
  ASSERT_TRUE(protect(session, model).ok());
  ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
  EXPECT_TRUE(session.finish().ok());
  EXPECT_EQ(place_.memory_files(), 0u);
}

TEST_F(Monitoring, OfASessionThatWasAbandonedSaysSo) {
  auto session = Session::open(place_.options()).value();
  Model model(0, kCells);
  ASSERT_TRUE(protect(session, model).ok());
  ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
  ASSERT_TRUE(session.abandon().ok());
  const std::vector<nlohmann::json> all = events(place_.store + "/runs");
  EXPECT_EQ(all.back()["event"], "end");
  EXPECT_NE(all.back()["why"].get<std::string>().find("gave its session up"), std::string::npos);
}

}  // namespace
}  // namespace varve::test
