// A program as benchmarks need it: a stencil over two noisy fields, cut into slabs among MPI ranks, that computes on
// all processors and makes checkpoints in the way that is asked for: none, plain files with fsync, the same by a thread
// from a copy (the least that writing all bytes behind a program costs), or Varve.
//
//   stencil run|durable|restart none|files|behind|varve MIB_PER_RANK STEPS CHECKPOINTS FOLDER
//
// run: so many checkpoints at equal distances; durable: one, until it is on disk; restart: the newest, checked against
// the sums that the run left in FOLDER/sums, and a plain copy of as many bytes. Rank 0 prints one JSON object.
#include <fcntl.h>
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "varve/error.h"
#include "varve/mpi.h"
#include "varve/session.h"

namespace {

constexpr size_t kWidth = 256, kPlane = kWidth * kWidth;
constexpr int kFields = 2;

int rank = 0, rank_count = 1;

struct Field {
  std::vector<double> now, next, below = std::vector<double>(kPlane), above = below;

  Field(size_t planes, int number) : now(planes * kPlane), next(now.size()) {
    uint64_t state =
        88172645463325252u + 1234567u * static_cast<uint64_t>(rank) + 99991u * static_cast<uint64_t>(number);
    const auto noise = [&state] {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      return static_cast<double>(state >> 11) / 9007199254740992.0 - 0.5;
    };
    for (size_t i = 0; i < now.size(); ++i) {
      const double x = static_cast<double>(i % kWidth) / kWidth, y = static_cast<double>(i / kWidth % kWidth) / kWidth;
      now[i] = (300 + 50 * std::exp(-40 * ((x - 0.5) * (x - 0.5) + (y - 0.4) * (y - 0.4)))) * (1 + 1e-3 * noise());
    }
  }

  void step() {
    const int up = rank + 1 < rank_count ? rank + 1 : MPI_PROC_NULL, down = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    const double* const last = now.data() + now.size() - kPlane;
    std::copy_n(now.data(), kPlane, below.data());
    std::copy_n(last, kPlane, above.data());
    MPI_Sendrecv(last, kPlane, MPI_DOUBLE, up, 0, below.data(), kPlane, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(now.data(), kPlane, MPI_DOUBLE, down, 1, above.data(), kPlane, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    const size_t planes = now.size() / kPlane;
    for (size_t z = 0; z < planes; ++z) {
      const double* const here = now.data() + z * kPlane;
      const double* const under = z == 0 ? below.data() : here - kPlane;
      const double* const over = z + 1 == planes ? above.data() : here + kPlane;
      double* const to = next.data() + z * kPlane;
      std::copy_n(here, kPlane, to);
      for (size_t y = 1; y + 1 < kWidth; ++y) {
        for (size_t i = y * kWidth + 1; i + 1 < (y + 1) * kWidth; ++i) {
          to[i] = here[i] + 0.1 * (here[i - 1] + here[i + 1] + here[i - kWidth] + here[i + kWidth] + under[i] +
                                   over[i] - 6 * here[i]);
        }
      }
    }
    std::copy_n(next.data(), next.size(), now.data());  // where it is protected
  }
};

uint64_t sum_of(const std::vector<Field>& fields) {
  uint64_t sum = 0, mixed = 1;
  for (const Field& field : fields) {
    for (const double value : field.now) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      sum += bits ^ mixed;
      mixed = mixed * 6364136223846793005u + 1442695040888963407u;
    }
  }
  return sum;
}

double largest(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// A way to make checkpoints.
class Tool {
 public:
  virtual ~Tool() = default;
  /// The step that the fields have now; none: there was nothing.
  virtual std::optional<uint64_t> restart() { return std::nullopt; }
  virtual void checkpoint(uint64_t) {}
  /// Until all of them are on disk.
  virtual void wait() {}
};

class Files final : public Tool {
 public:
  Files(std::string folder, std::vector<Field>& fields) : folder_(std::move(folder)), fields_(fields) {}

  std::optional<uint64_t> restart() override {
    uint64_t newest = 0;
    std::ifstream(folder_ + "/newest") >> newest;
    if (newest == 0) return std::nullopt;
    const int file = ::open(name(newest).c_str(), O_RDONLY);
    if (file < 0) fail("open");
    ::posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (Field& field : fields_) {
      for (size_t done = 0, size = field.now.size() * sizeof(double); done < size;) {
        const ssize_t got = ::read(file, reinterpret_cast<char*>(field.now.data()) + done, size - done);
        if (got <= 0) fail("read");
        done += static_cast<size_t>(got);
      }
    }
    ::close(file);
    return newest;
  }

  void checkpoint(uint64_t step) override {
    const std::string path = name(step), draft = path + ".tmp";
    const int file = ::open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (file < 0) fail("create");
    for (const Field& field : fields_) {
      for (size_t done = 0, size = field.now.size() * sizeof(double); done < size;) {
        const ssize_t put = ::write(file, reinterpret_cast<const char*>(field.now.data()) + done, size - done);
        if (put <= 0) fail("write");
        done += static_cast<size_t>(put);
      }
    }
    if (::fsync(file) != 0) fail("fsync");
    ::close(file);
    if (std::rename(draft.c_str(), path.c_str()) != 0) fail("rename");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) std::ofstream(folder_ + "/newest") << step;
  }

 private:
  std::string name(uint64_t step) const { return folder_ + "/" + std::to_string(step) + "." + std::to_string(rank); }

  const std::string folder_;
  std::vector<Field>& fields_;
};

/// Writes past the page cache, as what has to be done anyway: nothing is hashed, compressed or told anybody.
class FilesBehind final : public Tool {
 public:
  FilesBehind(std::string folder, const std::vector<Field>& fields) : folder_(std::move(folder)), fields_(fields) {
    size_t bytes = 0;
    for (const Field& field : fields) bytes += field.now.size() * sizeof(double);
    copy_.reset(static_cast<std::byte*>(std::aligned_alloc(kPiece, (bytes + kPiece - 1) / kPiece * kPiece)));
    if (!copy_) fail("aligned_alloc");
    std::memset(copy_.get(), 0, bytes);
  }
  ~FilesBehind() override { wait(); }

  void checkpoint(uint64_t step) override {
    wait();
    size_t bytes = 0;
    for (const Field& field : fields_) {
      std::memcpy(copy_.get() + bytes, field.now.data(), field.now.size() * sizeof(double));
      bytes += field.now.size() * sizeof(double);
    }
    writer_ = std::thread([this, bytes, path = folder_ + "/" + std::to_string(step) + "." + std::to_string(rank)] {
      const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT, 0644);
      if (file < 0) fail("create");
      for (size_t done = 0; done < bytes; done += kPiece) {
        const auto piece = static_cast<ssize_t>(std::min(kPiece, bytes - done));
        if (::pwrite(file, copy_.get() + done, static_cast<size_t>(piece), static_cast<off_t>(done)) != piece)
          fail("write");
      }
      if (::fsync(file) != 0) fail("fsync");
      ::close(file);
    });
  }
  void wait() override {
    if (writer_.joinable()) writer_.join();
  }

 private:
  static constexpr size_t kPiece = size_t{4} << 20;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::string folder_;
  const std::vector<Field>& fields_;
  std::unique_ptr<std::byte[], Free> copy_;
  std::thread writer_;
};

class Varve final : public Tool {
 public:
  explicit Varve(std::vector<Field>& fields)
      : session_(varve::or_throw(varve::Session::open(varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD))))) {
    for (int i = 0; i < kFields; ++i) {
      std::vector<double>& values = fields[static_cast<size_t>(i)].now;
      varve::or_throw(session_.protect("field" + std::to_string(i), std::span<double>(values)));
    }
  }

  std::optional<uint64_t> restart() override { return varve::or_throw(session_.restart()); }
  void checkpoint(uint64_t step) override { varve::or_throw(session_.checkpoint(step)); }
  void wait() override { varve::or_throw(session_.wait()); }

 private:
  varve::Session session_;
};

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  double mine = seconds(used.ru_utime) + seconds(used.ru_stime), all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

void note_sum(const std::string& folder, uint64_t step, const std::vector<Field>& fields) {
  std::ofstream(folder + "/sums/" + std::to_string(step) + "." + std::to_string(rank)) << sum_of(fields);
}

bool is_what_was_saved(const std::string& folder, uint64_t step, const std::vector<Field>& fields) {
  uint64_t sum = 0;
  std::ifstream(folder + "/sums/" + std::to_string(step) + "." + std::to_string(rank)) >> sum;
  int mine = sum == sum_of(fields) ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all == 1;
}

int run(const std::string& mode, const std::string& kind, size_t mib, uint64_t steps, uint64_t checkpoints,
        const std::string& folder) {
  const size_t planes = std::max<size_t>((mib << 20) / sizeof(double) / kFields / kPlane, 1);
  std::vector<Field> fields;
  for (int i = 0; i < kFields; ++i) fields.emplace_back(planes, i);
  if (mode == "restart") {
    for (Field& field : fields) std::fill(field.now.begin(), field.now.end(), 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double opened = MPI_Wtime();
  std::unique_ptr<Tool> tool = std::make_unique<Tool>();
  if (kind == "files") tool = std::make_unique<Files>(folder + "/files", fields);
  if (kind == "behind") tool = std::make_unique<FilesBehind>(folder + "/files", fields);
  if (kind == "varve") tool = std::make_unique<Varve>(fields);
  const std::optional<uint64_t> from = tool->restart();
  const double restart_seconds = largest(MPI_Wtime() - opened);
  if (mode == "restart") {
    const bool right = from && is_what_was_saved(folder, *from, fields);
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = MPI_Wtime();
    for (Field& field : fields) std::copy_n(field.next.data(), field.next.size(), field.now.data());
    const double copy_seconds = largest(MPI_Wtime() - before);
    if (rank == 0) {
      std::printf("{\"restart_seconds\": %.4f, \"copy_seconds\": %.4f, \"right\": %s}\n", restart_seconds, copy_seconds,
                  right ? "true" : "false");
    }
    return right ? 0 : 1;
  }
  for (Field& field : fields) field.step();
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = MPI_Wtime(), aside = 0;
  const double used = processor_seconds();
  std::string blocked;
  const auto checkpoint = [&](uint64_t step) {
    const double before = MPI_Wtime();
    note_sum(folder, step, fields);
    MPI_Barrier(MPI_COMM_WORLD);
    const double at = MPI_Wtime();
    aside += at - before;
    tool->checkpoint(step);
    const double seconds = largest(MPI_Wtime() - at);
    blocked += (blocked.empty() ? "" : ", ") + std::to_string(seconds);
  };
  if (mode == "durable") {
    checkpoint(1);
    begin = MPI_Wtime() - begin;
    const double at = MPI_Wtime();
    tool->wait();
    MPI_Barrier(MPI_COMM_WORLD);
    const double durable = largest(MPI_Wtime() - at);
    if (rank == 0) std::printf("{\"blocked_seconds\": [%s], \"wait_seconds\": %.4f}\n", blocked.c_str(), durable);
    return 0;
  }
  for (uint64_t step = 1; step <= steps; ++step) {
    for (Field& field : fields) field.step();
    const uint64_t every = checkpoints == 0 ? 0 : steps / (checkpoints + 1);
    if (every > 0 && step % every == 0 && step / every <= checkpoints) checkpoint(step);
  }
  tool->wait();
  tool.reset();
  MPI_Barrier(MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - begin - aside, processor = processor_seconds() - used;
  rusage mine{};
  ::getrusage(RUSAGE_SELF, &mine);
  const double peak = largest(static_cast<double>(mine.ru_maxrss) / 1024);
  if (rank == 0) {
    std::printf("{\"seconds\": %.4f, \"processor_seconds\": %.4f, \"peak_mib\": %.1f, \"blocked_seconds\": [%s]}\n",
                seconds, processor, peak, blocked.c_str());
  }
  return 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  int status = 2;
  if (argument_count == 7) {
    status = run(arguments[1], arguments[2], std::strtoull(arguments[3], nullptr, 10),
                 std::strtoull(arguments[4], nullptr, 10), std::strtoull(arguments[5], nullptr, 10), arguments[6]);
  } else if (rank == 0) {
    std::fprintf(stderr, "stencil run|durable|restart none|files|behind|varve MIB_PER_RANK STEPS CHECKPOINTS FOLDER\n");
  }
  MPI_Finalize();
  return status;
}
