// The limit of stage 1 of a checkpoint: a plain copy of so many bytes by so many threads, each with a part of its own,
// from and to private memory that was touched before. Arguments: bytes, threads, repeats. Prints the seconds of each
// repeat.
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

/// Bytes of one thread, and where they are copied to.
struct Part {
  explicit Part(size_t bytes) : from(bytes, 1), to(bytes, 2) {}
  std::vector<char> from, to;
};

void copy_repeatedly(size_t bytes, int repeats, std::barrier<>& together, std::vector<double>* seconds) {
  using Clock = std::chrono::steady_clock;
  Part part(bytes);
  for (int i = 0; i < repeats; ++i) {
    together.arrive_and_wait();
    const Clock::time_point begin = Clock::now();
    std::memcpy(part.to.data(), part.from.data(), bytes);
    part.from[static_cast<size_t>(i) % bytes] = part.to[0];  // so that no copy can be left out
    together.arrive_and_wait();                              // the slowest thread counts
    if (seconds != nullptr) seconds->push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

}  // namespace

int main(int count, char** arguments) {
  const size_t bytes = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : size_t{256} << 20;
  const int threads = count > 2 ? std::atoi(arguments[2]) : 2, repeats = count > 3 ? std::atoi(arguments[3]) : 5;
  if (threads < 1 || repeats < 1 || bytes < static_cast<size_t>(threads)) return 2;
  std::barrier<> together(threads);
  std::vector<double> seconds;
  std::vector<std::thread> others;
  const size_t share = bytes / static_cast<size_t>(threads);
  for (int i = 1; i < threads; ++i) others.emplace_back([&] { copy_repeatedly(share, repeats, together, nullptr); });
  copy_repeatedly(share, repeats, together, &seconds);
  for (std::thread& other : others) other.join();
  for (double each : seconds) std::printf("%.9f\n", each);
  return 0;
}
