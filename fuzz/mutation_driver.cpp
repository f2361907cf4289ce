// Runs a fuzz target without libFuzzer: on seeds as they are, and then on mutations of them. It knows nothing of what
// the target covers, so that clang's fuzzer finds more in the same hours; but it is a plain program, in every build.
//
//   fuzz_NAME [--runs N] [--seconds S] [--seed N] [FILE|FOLDER]...
//
// Ends after so many mutations or seconds, whichever comes first. The same seed gives the same inputs. The input at
// which the target aborts, crashes, hangs or takes too much memory is left in a file, which can be given instead of the
// seeds: `fuzz_NAME --runs 0 FILE`.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Of sanitizers, which end the program in their own way.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kSeedBytesMax = 256 * 1024;
constexpr size_t kInputBytesMax = 2 * kSeedBytesMax;
constexpr unsigned kInputSecondsMax = 60;
/// Resident, of the whole program: many times what a target needs for the largest pack.
constexpr long kMemoryBytesMax = 2L << 30;

struct Options {
  uint64_t runs = UINT64_MAX;
  double seconds = 60;
  uint64_t seed = std::random_device()();
  std::vector<std::filesystem::path> sources;
};

// What a signal handler needs of the input at hand.
const Input* current_input = nullptr;
std::array<char, 256> failure_path{};

void keep_input() {
  if (current_input == nullptr) return;
  const int file = ::open(failure_path.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool kept = file >= 0 && ::write(file, current_input->data(), current_input->size()) ==
                                     static_cast<ssize_t>(current_input->size());
  std::fprintf(stderr, "%s %s\n", kept ? "the input is in" : "cannot write", failure_path.data());
  current_input = nullptr;
}

void keep_input_and_die(int number) {
  keep_input();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void watch_for_the_end() {
  std::vector<int> numbers = {SIGABRT, SIGALRM};
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(keep_input);  // and it shows the place of the others
  } else {
    numbers.insert(numbers.end(), {SIGSEGV, SIGBUS, SIGFPE, SIGILL});
  }
  for (int number : numbers) std::signal(number, keep_input_and_die);
}

void run(const Input& input, uint64_t seed, uint64_t number) {
  std::snprintf(failure_path.data(), failure_path.size(), "failed-%s-%llu-%llu", program_invocation_short_name,
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(number));
  current_input = &input;
  ::alarm(kInputSecondsMax);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > kMemoryBytesMax / 1024) {
    std::fprintf(stderr, "too much memory: %ld KiB\n", usage.ru_maxrss);
    std::abort();
  }
  current_input = nullptr;
}

/// Changes that damage and hostile hands make: bits, numbers at the limits, bytes lost, doubled or taken from
/// elsewhere.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  Input mutated(const std::vector<Input>& seeds) {
    Input input = seeds[below(seeds.size())];
    // Few changes let an input get far; many reach combinations.
    uint64_t changes = 1;
    while (changes < 16 && below(2) == 0) ++changes;
    for (; changes > 0; --changes) change(input, seeds);
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    return input;
  }

 private:
  uint64_t below(uint64_t end) { return random_() % end; }

  /// A place below `end`, often near the beginning: headers and counts lie there.
  size_t place(size_t end) {
    if (end <= 1 || below(2) == 0) return below(std::max<size_t>(end, 1));
    return below(std::min<uint64_t>(end, uint64_t{1} << (1 + below(16))));
  }

  void change(Input& input, const std::vector<Input>& seeds) {
    const auto at = static_cast<std::ptrdiff_t>(place(input.size()));
    const auto left = static_cast<std::ptrdiff_t>(input.size()) - at;
    const std::ptrdiff_t length = std::min<std::ptrdiff_t>(left, 1 + static_cast<std::ptrdiff_t>(place(1024)));
    const uint64_t kind = input.empty() ? 7 : below(10);
    switch (kind) {
      case 0:
      case 1: input[static_cast<size_t>(at)] ^= static_cast<uint8_t>(1U << below(8)); break;
      case 2: input[static_cast<size_t>(at)] = static_cast<uint8_t>(random_()); break;
      case 3:
      case 4: change_number(input, static_cast<size_t>(at)); break;
      case 5: input.erase(input.begin() + at, input.begin() + at + length); break;
      case 6: input.resize(static_cast<size_t>(at)); break;
      case 7: {
        const Input fresh(1 + below(16), static_cast<uint8_t>(below(2) == 0 ? 0 : random_()));
        input.insert(input.begin() + at, fresh.begin(), fresh.end());
        break;
      }
      case 8: {
        const Input doubled(input.begin() + at, input.begin() + at + length);
        const auto to = static_cast<std::ptrdiff_t>(place(input.size()));
        input.insert(input.begin() + to, doubled.begin(), doubled.end());
        break;
      }
      default: copy_from(seeds[below(seeds.size())], input, static_cast<size_t>(at)); break;
    }
  }

  /// A number of any width and byte order: one more or less, or one at which something may overflow.
  void change_number(Input& input, size_t at) {
    static constexpr std::array<uint64_t, 14> limits = {0,          1,           0x7f,       0x80,
                                                        0xff,       0x7fff,      0xffff,     0x7fffffff,
                                                        0xffffffff, 0x100000000, 0x3fffffff, uint64_t{1} << 62,
                                                        INT64_MAX,  UINT64_MAX};
    const size_t width = std::min<size_t>(size_t{1} << below(4), input.size() - at);
    const bool big_endian = below(2) == 0;
    auto byte = [&](size_t i) -> uint8_t& { return input[at + (big_endian ? width - 1 - i : i)]; };
    uint64_t number = 0;
    for (size_t i = 0; i < width; ++i) number |= uint64_t{byte(i)} << (8 * i);
    number = below(2) == 0 ? limits[below(limits.size())] : number + below(33) - 16;
    for (size_t i = 0; i < width; ++i) byte(i) = static_cast<uint8_t>(number >> (8 * i));
  }

  /// Bytes of another input over those of this one.
  void copy_from(const Input& other, Input& input, size_t at) {
    if (other.empty()) return;
    const size_t from = below(2) == 0 && at < other.size() ? at : place(other.size());
    const size_t length = std::min({1 + place(256), other.size() - from, input.size() - at});
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), length,
                input.begin() + static_cast<std::ptrdiff_t>(at));
  }

  std::mt19937_64 random_;
};

/// The files, in an order that is always the same. Large ones would only make all else rare.
std::vector<Input> read_seeds(const std::vector<std::filesystem::path>& sources) {
  std::vector<std::filesystem::path> files;
  for (const auto& source : sources) {
    if (!std::filesystem::is_directory(source)) {
      files.push_back(source);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source)) {
      if (entry.is_regular_file() && !entry.is_symlink() && entry.file_size() <= kSeedBytesMax) files.push_back(entry);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> seeds;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      std::exit(2);
    }
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_options(const std::vector<std::string_view>& arguments, Options& options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) {
      options.sources.emplace_back(arguments[i]);
      continue;
    }
    const std::string_view name = arguments[i];
    if (++i == arguments.size()) return false;
    const bool understood = name == "--runs"      ? parse(arguments[i], options.runs)
                            : name == "--seconds" ? parse(arguments[i], options.seconds)
                            : name == "--seed"    ? parse(arguments[i], options.seed)
                                                  : false;
    if (!understood) return false;
  }
  return true;
}

}  // namespace

int main(int argument_count, char** arguments) {
  Options options;
  if (!parse_options({arguments + 1, arguments + argument_count}, options)) {
    std::fprintf(stderr, "usage: %s [--runs N] [--seconds S] [--seed N] [FILE|FOLDER]...\n", arguments[0]);
    return 2;
  }
  watch_for_the_end();
  std::vector<Input> seeds = read_seeds(options.sources);
  // A folder of seeds that is empty is a mistake; none at all is a choice.
  if (seeds.empty() && !options.sources.empty()) {
    std::fprintf(stderr, "no seeds are there\n");
    return 2;
  }
  if (seeds.empty()) seeds.emplace_back();
  std::fprintf(stderr, "%zu seeds, --seed %llu\n", seeds.size(), static_cast<unsigned long long>(options.seed));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  uint64_t number = 0;
  for (const Input& seed : seeds) run(seed, options.seed, number++);
  Mutator mutator(options.seed);
  uint64_t runs = 0;
  for (; runs < options.runs && std::chrono::steady_clock::now() < end; ++runs) {
    run(mutator.mutated(seeds), options.seed, number++);
  }
  ::alarm(0);
  std::fprintf(stderr, "%llu mutations\n", static_cast<unsigned long long>(runs));
  return 0;
}
