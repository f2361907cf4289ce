#include "runtime/ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <filesystem>

#include "comm/communicators.h"
#include "runtime/switched_file_system.h"

namespace varve::test {

SessionPlace::SessionPlace() { std::filesystem::create_directory(memory); }

SessionOptions SessionPlace::options() const {
  SessionOptions options;
  options.store = store;
  options.job = "job";
  options.shared_memory = memory;
  options.stop_on_signals = false;
  options.every_steps = 1;
  return options;
}

size_t SessionPlace::memory_files() const {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(memory), {}));
}

void run_ranks(uint32_t rank_count, const std::function<void(uint32_t rank, std::unique_ptr<Communicator>)>& body) {
  auto ranks = make_thread_communicators(rank_count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&body, rank, own = std::move(ranks[rank])]() mutable { body(rank, std::move(own)); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<CellBox> cut(const std::vector<uint64_t>& cells, size_t box_count, std::mt19937& random) {
  std::vector<CellBox> boxes{{std::vector<uint64_t>(cells.size(), 0), cells}};
  while (boxes.size() < box_count) {
    CellBox& box = boxes[std::uniform_int_distribution<size_t>(0, boxes.size() - 1)(random)];
    const size_t d = std::uniform_int_distribution<size_t>(0, cells.size() - 1)(random);
    const uint64_t kept = std::uniform_int_distribution<uint64_t>(0, box.cells[d])(random);
    CellBox rest = box;
    rest.offset[d] += kept;
    rest.cells[d] -= kept;
    box.cells[d] = kept;
    boxes.push_back(std::move(rest));
  }
  return boxes;
}

std::vector<CellBox> divide(const std::vector<uint64_t>& cells, uint32_t rank_count, std::mt19937& random) {
  std::vector<CellBox> boxes = cut(cells, rank_count, random);
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

void run_and_kill(const std::function<void()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    if (testing::Test::HasFailure()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it failed before";
}

Model::Model(uint32_t rank, size_t cells) : field(cells) {
  for (size_t i = 0; i < cells; ++i) field[i] = static_cast<double>(rank + 1) + static_cast<double>(i % 97) / 97.0;
}

void Model::step(uint64_t number) {
  for (size_t i = 0; i + 1 < field.size(); ++i) {
    field[i] = 0.5 * (field[i] + field[i + 1]) + 1e-3 * static_cast<double>(number % 7);
  }
  sum = sum * 31 + number;
}

Model model_at(uint32_t rank, size_t cells, uint64_t steps) {
  Model model(rank, cells);
  for (uint64_t step = 1; step <= steps; ++step) model.step(step);
  return model;
}

Status protect(Session& session, Model& model) {
  VARVE_TRY(session.protect("field", model.field));
  return session.protect("sum", model.sum);
}

Status protect(RunSession& session, Model& model) {
  VARVE_TRY(session.variables().protect_array("field", element_type_of<double>(), model.field.data(),
                                              model.field.size(), {}));
  return session.variables().protect_scalar("sum", element_type_of<uint64_t>(), &model.sum);
}

std::unique_ptr<RunSession> open_on(FileSystem& files, std::unique_ptr<Communicator> ranks,
                                    const SessionOptions& options) {
  SessionEnvironment environment;
  environment.files = &files;
  environment.sources.environment.clear();
  auto session = RunSession::open(std::move(ranks), options, environment);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? std::move(*session) : nullptr;
}

void die_with_a_snapshot(const SessionOptions& options, size_t cells, uint64_t step) {
  run_and_kill([&] {
    SwitchedFileSystem files;
    const auto session = open_on(files, make_single_communicator(), options);
    Model model(0, cells);
    ASSERT_TRUE(protect(*session, model).ok());
    model.step(1);
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    files.set(SwitchedFileSystem::Mode::full);
    for (uint64_t each = 2; each <= step; ++each) model.step(each);
    ASSERT_TRUE(session->checkpoint(step, Persistence::later).ok());
    ASSERT_FALSE(session->wait().ok());
    ::kill(::getpid(), SIGKILL);
  });
}

}  // namespace varve::test
