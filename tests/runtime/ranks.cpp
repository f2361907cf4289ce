#include "runtime/ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

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

}  // namespace varve::test
