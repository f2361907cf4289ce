#include "runtime/cluster.h"

#include <algorithm>
#include <thread>

#include "store/verify.h"

namespace varve::test {

Result<std::unique_ptr<RunSession>> Cluster::open(uint32_t rank, std::unique_ptr<Communicator> ranks,
                                                  const std::string& levels) const {
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = levels;
  options.group = group;
  options.codec = codec;
  if (!key_file.empty()) options.key_file = key_file;
  SessionEnvironment environment;
  environment.files = files_of_node ? &files_of_node(nodes[rank / node_ranks]) : files;
  environment.sources.environment = {{"VARVE_NODE", nodes[rank / node_ranks]}};
  return RunSession::open(std::move(ranks), options, environment);
}

void Cluster::run(const std::string& levels,
                  const std::function<void(uint32_t rank, RunSession&, Model&)>& body) const {
  run_ranks(rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = open(rank, std::move(ranks), levels);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, kCells);
    ASSERT_TRUE(protect(**session, model).ok());
    body(rank, **session, model);
  });
}

void Cluster::go(RunSession& session, Model& model, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step <= last; ++step) {
    model.step(step);
    const Status made = session.checkpoint(step, Persistence::later);
    EXPECT_TRUE(made.ok()) << made.to_string();
    const Status waited = session.wait();
    EXPECT_TRUE(waited.ok()) << waited.to_string();
  }
}

void Cluster::finish(RunSession& session) {
  const Status finished = session.finish(std::chrono::minutes(1));
  EXPECT_TRUE(finished.ok()) << finished.to_string();
}

void Cluster::run_to(const std::string& levels, uint64_t last) const {
  run(levels, [&](uint32_t, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    go(session, model, 1, last);
    finish(session);
  });
}

std::string Cluster::restart_from(const std::string& levels, uint64_t step, uint64_t last) const {
  std::string told;
  run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    const auto from = session.restart();
    EXPECT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(from.value(), step);
    EXPECT_EQ(model, model_at(rank, kCells, step));
    if (last > step) go(session, model, step + 1, last);
    EXPECT_EQ(model, model_at(rank, kCells, std::max(step, last)));
    finish(session);
    if (rank == 0) told = words(session.warnings());
  });
  return told;
}

Status Cluster::restart_status(const std::string& levels) const {
  Status status;
  run(levels, [&](uint32_t rank, RunSession& session, Model&) {
    const Status mine = session.restart().status();
    if (rank == 0) status = mine;
  });
  return status;
}

std::string Cluster::words(const std::vector<Status>& warnings) {
  std::string text;
  for (const Status& warning : warnings) text += warning.to_string() + "\n";
  return text;
}

std::unique_ptr<Store> store_at(const std::string& path) {
  auto store = Store::open(posix_file_system(), path);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return std::move(*store);
}
std::vector<uint64_t> steps_at(const std::string& path) { return Catalog(*store_at(path)).steps("job").value(); }
void drop(const std::string& path, uint64_t step) { ASSERT_TRUE(Catalog(*store_at(path)).remove({"job", step}).ok()); }

void expect_whole(const std::string& path) {
  for (const Damage& damage : verify_store(*store_at(path), /*deep=*/true).value().damages) {
    EXPECT_TRUE(damage.affected_sets.empty()) << damage.what.to_string();
  }
}

}  // namespace varve::test
