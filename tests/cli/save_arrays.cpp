// Makes sets of a session for the tests of the program: save_arrays STORE RANKS LAST_STEP. What each rank has:
//   field      its rows of an array of 64-bit floats, 2 * RANKS x 5; the cell of ordinal n of the whole is n + STEP /
//   10 counts     the same rows of 32-bit integers, -n particles  a vector of as many 16-bit numbers as its rank, all
//   of them its rank step       STEP
// and rank 0 alone
//   header     the text "made by save_arrays", as bytes
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "varve/error.h"
#include "varve/session.h"

namespace {

constexpr uint64_t kColumns = 5;

void run(std::unique_ptr<varve::Communicator> ranks, const std::string& store, uint64_t last_step) {
  const uint64_t rank = ranks->rank(), rank_count = ranks->rank_count();
  varve::SessionOptions options;
  options.store = store;
  options.job = "run";
  options.stop_on_signals = false;
  auto session = varve::or_throw(varve::Session::open(std::move(ranks), options));
  std::vector<double> field(2 * kColumns);
  std::vector<int32_t> counts(2 * kColumns);
  std::vector<uint16_t> particles(rank, static_cast<uint16_t>(rank));
  std::string header = "made by save_arrays";
  uint64_t step = 0;
  varve::ArrayShape rows;
  rows.cells = {2, kColumns};
  rows.global_cells = {2 * rank_count, kColumns};
  rows.global_offset = {2 * rank, 0};
  varve::or_throw(session.protect("field", std::span(field), rows));
  varve::or_throw(session.protect("counts", std::span(counts), rows));
  varve::or_throw(session.protect("particles", particles));
  varve::or_throw(session.protect("step", step));
  if (rank == 0) varve::or_throw(session.protect("header", std::as_writable_bytes(std::span(header))));
  for (step = 1; step <= last_step; ++step) {
    for (size_t i = 0; i < field.size(); ++i) {
      const uint64_t n = 2 * rank * kColumns + i;
      field[i] = static_cast<double>(n) + static_cast<double>(step) / 10;
      counts[i] = -static_cast<int32_t>(n);
    }
    varve::or_throw(session.checkpoint(step, varve::Persistence::now));
  }
  varve::or_throw(session.finish());
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 4) return 2;
  std::vector<std::thread> threads;
  for (auto& ranks : varve::make_thread_communicators(static_cast<uint32_t>(std::atoi(arguments[2])))) {
    threads.emplace_back([&, ranks = std::move(ranks)]() mutable {
      try {
        run(std::move(ranks), arguments[1], static_cast<uint64_t>(std::atoi(arguments[3])));
      } catch (const varve::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        std::exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
