#include "layout/layout_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>

#include "core/process.h"
#include "core/sync.h"
#include "layout/zarr_folders.h"

namespace varve {
namespace {

/// Files that one process has been handed and not answered yet.
constexpr size_t kFilesInFlightMax = 8;

using Clock = MonotonicClock;

std::string name_in_layout(std::string_view path) { return fmt::format("/{}", path.substr(path.rfind('/') + 1)); }

/// A FIFO must not stop us, so it is opened without waiting, and only regular files are read.
Result<UniqueFd> open_regular(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Status::from_errno(errno, "open the file to find its layout", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "look at the file", path);
  if (!S_ISREG(info.st_mode)) return Status::invalid_argument("not a regular file", path);
  return fd;
}

/// Which reader recognises a file, and what it can tell of it on its own, which is valid.
struct SafeReading {
  std::optional<uint32_t> reader{};
  std::optional<Layout> layout{};
};
SafeReading read_with_first(const LayoutReaders& readers, const ReadAt& read, uint64_t file_bytes) {
  std::array<std::byte, kProbeBytes> buffer{};
  const Result<uint64_t> got = read(0, MutableByteSpan(buffer).first(std::min<uint64_t>(buffer.size(), file_bytes)));
  const ByteSpan first_bytes = ByteSpan(buffer).first(got.ok() ? *got : 0);
  for (uint32_t i = 0; i < readers.size(); ++i) {
    if (!readers[i]->recognises(read, first_bytes, file_bytes)) continue;
    Result<Layout> layout = readers[i]->read_safely(read, file_bytes);
    if (!layout.ok() || !validate_layout(*layout, file_bytes).ok()) return {.reader = i};
    return {.reader = i, .layout = std::move(*layout)};
  }
  return {};
}

}  // namespace

std::optional<Layout> read_layout_safely(const LayoutReaders& readers, const ReadAt& read, uint64_t file_bytes) {
  return read_with_first(readers, read, file_bytes).layout;
}

/// One call of read_many: hands files to reader processes, collects answers, and replaces processes that fail.
class LayoutService::Batch {
 public:
  Batch(LayoutService& service, std::span<const LayoutRequest> requests, const LayoutReadOptions& options)
      : service_(service), requests_(requests), options_(options), outcomes_(requests.size()) {}

  std::vector<LayoutOutcome> run() {
    for (;;) {
      hand_out();
      bool working =
          std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.in_flight.empty(); });
      if (!working) break;
      wait_for_answers();
    }
    for (Lane& lane : lanes_) service_.give_back(std::move(lane.client));
    return std::move(outcomes_);
  }

 private:
  /// A file that some reader wants.
  struct Task {
    size_t index = 0;
    uint32_t reader_index = 0;
    UniqueFd fd;
  };
  /// An acquired process and its files, in the order in which it answers.
  struct Lane {
    ReaderClient client;
    std::deque<Task> in_flight;
    Clock::time_point deadline;  ///< for the first of them
  };

  std::string reader_name(const Task& task) const {
    if (task.reader_index == kSidecarReader) return "layout description";
    return fmt::format("{} reader", service_.options_.readers[task.reader_index]->name());
  }

  void set_opaque(size_t index, std::optional<std::string> reason) {
    const LayoutRequest& request = requests_[index];
    outcomes_[index].layout = opaque_layout(request.file_bytes, name_in_layout(request.path));
    if (reason) outcomes_[index].warning = *reason + "; saved as one opaque variable";
  }

  void set_result(const Task& task, Result<Layout> result) {
    const LayoutRequest& request = requests_[task.index];
    Status status = result.ok() ? validate_layout(*result, request.file_bytes) : result.status();
    if (status.ok()) {
      outcomes_[task.index].layout = std::move(*result);
    } else if (task.reader_index == kSidecarReader) {
      set_opaque(task.index, fmt::format("the description {}{} cannot be used: {}", request.path, kSidecarSuffix,
                                         status.to_string()));
    } else {
      set_opaque(task.index, fmt::format("the {} rejects {}: {}", reader_name(task), request.path, status.to_string()));
    }
  }

  /// Who can tell the layout of this file? If no reader process is needed, the outcome is set and there is no task.
  std::optional<Task> probe(size_t index) {
    const LayoutRequest& request = requests_[index];
    if (request.file_bytes == 0) {
      set_opaque(index, std::nullopt);
      return std::nullopt;
    }
    Result<UniqueFd> file = open_regular(request.path);
    if (!file.ok()) {
      set_opaque(index, file.status().to_string());
      return std::nullopt;
    }
    SafeReading reading = read_with_first(service_.options_.readers, read_file_at(file->get()), request.file_bytes);
    if (reading.layout) {
      outcomes_[index].layout = std::move(*reading.layout);
      return std::nullopt;
    }
    if (reading.reader) return Task{index, *reading.reader, std::move(*file)};
    if (options_.sidecars) {
      Result<UniqueFd> sidecar = open_regular(request.path + std::string(kSidecarSuffix));
      if (sidecar.ok()) return Task{index, kSidecarReader, std::move(*sidecar)};
      if (std::optional<Layout> chunk = zarr_folders_.chunk_layout(request.path, request.file_bytes)) {
        if (validate_layout(*chunk, request.file_bytes).ok()) {
          outcomes_[index].layout = std::move(*chunk);
          return std::nullopt;
        }
      }
    }
    set_from_raw_description(index);
    return std::nullopt;
  }

  void set_from_raw_description(size_t index) {
    const LayoutRequest& request = requests_[index];
    // What describes other files is none of those that hold numbers.
    const bool is_sidecar = options_.sidecars && request.path.ends_with(kSidecarSuffix);
    if (!options_.raw || is_sidecar) return set_opaque(index, std::nullopt);
    Result<Layout> layout = raw_layout(*options_.raw, request.file_bytes, name_in_layout(request.path));
    Status status = layout.ok() ? validate_layout(*layout, request.file_bytes) : layout.status();
    if (!status.ok()) return set_opaque(index, fmt::format("{}: {}", request.path, status.to_string()));
    outcomes_[index].layout = std::move(*layout);
  }

  /// The next file that needs a process; files that need none are settled on the way.
  std::optional<Task> next_task() {
    if (!again_.empty()) {
      Task task = std::move(again_.front());
      again_.pop_front();
      return task;
    }
    while (next_request_ < requests_.size()) {
      if (std::optional<Task> task = probe(next_request_++)) return task;
    }
    return std::nullopt;
  }

  /// Gives files to processes until all have enough or no file is left.
  void hand_out() {
    while (std::optional<Task> task = next_task()) {
      Result<Lane*> lane = choose_lane();
      if (!lane.ok()) {
        set_opaque(task->index, fmt::format("no reader process for {} ({})", requests_[task->index].path,
                                            lane.status().to_string()));
        continue;
      }
      bool sent = *lane != nullptr &&
                  (*lane)->client.send(task->reader_index, task->fd.get(), requests_[task->index].file_bytes);
      if (sent) {
        if ((*lane)->in_flight.empty()) restart_clock(**lane);
        (*lane)->in_flight.push_back(std::move(*task));
        continue;
      }
      again_.push_front(std::move(*task));
      bool died_idle = *lane != nullptr && (*lane)->in_flight.empty();
      if (!died_idle) return;
      drop_lane(**lane);  // nobody's fault here: the next process gets the file
    }
  }

  /// The process with the fewest files, or one more if that is busy and others idle. Null: all have enough to do.
  Result<Lane*> choose_lane() {
    auto by_load = [](const Lane& a, const Lane& b) { return a.in_flight.size() < b.in_flight.size(); };
    auto least = std::min_element(lanes_.begin(), lanes_.end(), by_load);
    if (least != lanes_.end() && least->in_flight.empty()) return &*least;
    Result<std::optional<ReaderClient>> more = service_.acquire(/*wait=*/lanes_.empty());
    if (!more.ok() && lanes_.empty()) return more.status();
    if (more.ok() && *more) {
      lanes_.push_back(Lane{std::move(**more), {}, {}});
      return &lanes_.back();
    }
    return least->in_flight.size() < kFilesInFlightMax ? &*least : nullptr;
  }

  void restart_clock(Lane& lane) { lane.deadline = Clock::now() + service_.options_.limits.timeout; }

  void wait_for_answers() {
    std::vector<pollfd> waiting;
    Clock::time_point earliest = Clock::time_point::max();
    for (const Lane& lane : lanes_) {
      waiting.push_back({lane.client.response_fd(), POLLIN, 0});
      if (!lane.in_flight.empty()) earliest = std::min(earliest, lane.deadline);
    }
    auto left = std::chrono::ceil<std::chrono::milliseconds>(earliest - Clock::now()).count();
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    // From the last to the first, so that dropping a lane does not move those still to be looked at.
    for (size_t i = lanes_.size(); i-- > 0;) {
      if (waiting[i].revents != 0) {
        take_answers(lanes_[i]);
      } else if (!lanes_[i].in_flight.empty() && Clock::now() >= lanes_[i].deadline) {
        auto seconds = std::chrono::duration<double>(service_.options_.limits.timeout).count();
        fail_first(lanes_[i], fmt::format("took longer than {} s", seconds));
      }
    }
  }

  void take_answers(Lane& lane) {
    bool alive = lane.client.receive();
    for (;;) {
      Result<std::optional<Result<Layout>>> answer = lane.client.next_answer();
      bool unasked = answer.ok() && *answer && lane.in_flight.empty();
      if (!answer.ok() || unasked) return fail_first(lane, "gave an answer that makes no sense");
      if (!*answer) break;
      set_result(lane.in_flight.front(), std::move(**answer));
      lane.in_flight.pop_front();
      restart_clock(lane);
    }
    if (!alive) fail_first(lane, std::nullopt);
  }

  /// The process failed on the first of its files. The others get another one. `how`: unless its end tells.
  void fail_first(Lane& lane, const std::optional<std::string>& how) {
    std::deque<Task> tasks = std::move(lane.in_flight);
    std::string end = drop_lane(lane);
    if (tasks.empty()) return;
    const Task& guilty = tasks.front();
    set_opaque(guilty.index,
               fmt::format("the {} {} on {}", reader_name(guilty), how.value_or(end), requests_[guilty.index].path));
    tasks.pop_front();
    std::move(tasks.rbegin(), tasks.rend(), std::front_inserter(again_));
  }

  /// Ends the process and returns how it ended. `lane` is gone afterwards.
  std::string drop_lane(Lane& lane) {
    std::string end = service_.spawner_.end(lane.client).words;
    lanes_.erase(lanes_.begin() + (&lane - lanes_.data()));
    service_.forget_one();
    return end;
  }

  LayoutService& service_;
  std::span<const LayoutRequest> requests_;
  const LayoutReadOptions& options_;
  std::vector<LayoutOutcome> outcomes_;
  ZarrFolders zarr_folders_;
  size_t next_request_ = 0;
  std::deque<Task> again_;  ///< were handed to a process that failed before their turn
  std::vector<Lane> lanes_;
};

LayoutService::LayoutService(LayoutServiceOptions options)
    : options_(std::move(options)), spawner_(options_.readers, options_.limits) {}

LayoutService::~LayoutService() = default;

Result<std::unique_ptr<LayoutService>> LayoutService::start(LayoutServiceOptions options) {
  if (options.worker_count == 0) return Status::invalid_argument("a layout service needs at least one reader process");
  std::unique_ptr<LayoutService> service(new LayoutService(std::move(options)));
  VARVE_TRY(service->spawner_.start());
  return service;
}

Result<std::optional<ReaderClient>> LayoutService::acquire(bool wait) {
  using Maybe = std::optional<ReaderClient>;
  {
    const MutexLock lock(mutex_);
    while (idle_.empty() && running_ >= options_.worker_count) {
      if (!wait) return Maybe();
      freed_.wait(mutex_);
    }
    if (!idle_.empty()) {
      Maybe client(std::move(idle_.back()));
      idle_.pop_back();
      return client;
    }
    ++running_;
  }
  Result<ReaderClient> fresh = spawner_.spawn();
  if (!fresh.ok()) {
    forget_one();
    return fresh.status();
  }
  return Maybe(std::move(*fresh));
}

void LayoutService::give_back(ReaderClient client) {
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(client));
  freed_.notify_one();
}

void LayoutService::forget_one() {
  const MutexLock lock(mutex_);
  --running_;
  freed_.notify_one();
}

LayoutOutcome LayoutService::read(const std::string& path, uint64_t file_bytes, const LayoutReadOptions& options) {
  LayoutRequest request{path, file_bytes};
  return std::move(read_many({&request, 1}, options).front());
}

std::vector<LayoutOutcome> LayoutService::read_many(std::span<const LayoutRequest> requests,
                                                    const LayoutReadOptions& options) {
  return Batch(*this, requests, options).run();
}

}  // namespace varve
