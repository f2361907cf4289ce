#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/bytes.h"
#include "core/process.h"
#include "core/sync.h"
#include "layout/layout.h"
#include "layout/layout_reader.h"
#include "varve/status.h"

namespace varve {

/// What a reader process may use up before it is ended.
struct ReaderLimits {
  std::chrono::milliseconds timeout{20'000};  ///< for one file
  uint64_t memory_bytes = 2_GiB;              ///< of address space, beyond what it was born with
};

/// Which reader a request means: an index into the LayoutReaders, or this one, which reads a sidecar file.
inline constexpr uint32_t kSidecarReader = UINT32_MAX;

/// The caller's end of one reader process: requests go in, layouts come out, in the same order. One thread at a time.
/// Nothing that comes out is believed: sizes are bounded and the decoding is checked.
class ReaderClient {
 public:
  ReaderClient(pid_t pid, UniqueFd requests, UniqueFd responses)
      : pid_(pid), requests_(std::move(requests)), responses_(std::move(responses)) {}

  /// Hands over a file. False if the process takes no more now, or is gone (receive() then tells).
  bool send(uint32_t reader_index, int fd, uint64_t file_bytes);
  /// Hands over a socket, over which the process decodes arrays until it is closed (DecodingService). False: as above.
  bool send_socket(uint32_t reader_index, int socket, uint64_t file_bytes);

  /// Takes in what has arrived, without waiting. False if the process is gone; what came before can still be taken.
  bool receive();

  /// The next answer, if all of it has arrived: a layout (not validated), or why the reader has none. A failed outer
  /// Result means garbage: the process cannot be used any more.
  Result<std::optional<Result<Layout>>> next_answer();

  pid_t pid() const { return pid_; }
  int response_fd() const { return responses_.get(); }

 private:
  pid_t pid_;
  UniqueFd requests_;
  UniqueFd responses_;
  ByteVector received_;
  size_t consumed_ = 0;
};

/// How a reader process ended.
struct ReaderEnd {
  std::string words = "was ended";  ///< "crashed (signal 11)"
  bool was_killed = true;           ///< by somebody else, as far as is known: that says nothing of the file
};

/// Starts and ends reader processes. They descend from a process that is forked when this object is made, so later ones
/// do not inherit locks, threads or memory that the program has by then. They hold no other file descriptors, write no
/// files, leave no core dumps and die with their parent. Thread-safe.
class ReaderSpawner {
 public:
  /// `readers` must outlive this object. Nothing is forked yet.
  ReaderSpawner(const LayoutReaders& readers, ReaderLimits limits) : readers_(readers), limits_(limits) {}
  ReaderSpawner(const ReaderSpawner&) = delete;
  ReaderSpawner& operator=(const ReaderSpawner&) = delete;
  ~ReaderSpawner();

  /// Forks the ancestor of all reader processes. Best called before the program has threads and much memory.
  Status start();

  /// A fresh reader process. If their ancestor was killed, a new one is forked.
  Result<ReaderClient> spawn();

  /// Whether this is the process that started them: a process that was forked from it has no part in them.
  bool owns();
  /// Kills the process if it still runs, and returns how it ended.
  ReaderEnd end(const ReaderClient& client);

 private:
  Status start_locked() VARVE_REQUIRES(mutex_);
  void stop_locked() VARVE_REQUIRES(mutex_);
  /// In a process that was forked from the one that started them.
  void forget_inherited() VARVE_REQUIRES(mutex_);

  const LayoutReaders& readers_;
  const ReaderLimits limits_;
  Mutex mutex_;  ///< held during an exchange on control_
  UniqueFd control_ VARVE_GUARDED_BY(mutex_);
  pid_t ancestor_ VARVE_GUARDED_BY(mutex_) = -1;
  pid_t owner_ VARVE_GUARDED_BY(mutex_) = -1;
};

// What runs in the child processes, and the messages between them and ReaderSpawner and ReaderClient.

/// One exchange on the control socket: a command, then a reply.
struct SpawnerCommand {
  enum class Kind : uint32_t { spawn, end };
  Kind kind = Kind::spawn;
  int32_t pid = 0;  ///< whom to end
};
/// `pid` of the new process, or -1 and errno in `detail`; for end, the wait status in `detail`, -1 if it is not known.
/// With a new process come two descriptors: where to send requests, and where to receive from.
struct SpawnerReply {
  int32_t pid = 0;
  int32_t detail = 0;
};
/// With it comes the descriptor of the file. The answer is a length (le64), then: ok u8, layout | code u8, message,
/// subject. With `decodes`, it is the descriptor of a socket, over which cells of the file's arrays are asked for until
/// it is closed (array_exchange.h); there is no other answer.
struct ReaderRequest {
  uint32_t reader_index = 0;
  uint32_t decodes = 0;  ///< 0 or 1
  uint64_t file_bytes = 0;
};

/// No answer is longer: enough for the most variables and extents of ordinary names.
inline constexpr uint64_t kAnswerBytesMax = 1_GiB;

/// Sends `message` (a trivial struct; both ends are the same program) with `fd_count` descriptors. The errno of the
/// failure, or 0.
int send_message(int socket, ByteSpan message, const int* fds, size_t fd_count, bool wait);
/// Receives a message of exactly `message.size()` bytes with up to `fd_count` descriptors (-1: not there). False: the
/// other end is gone or sent something else.
bool receive_message(int socket, MutableByteSpan message, int* fds, size_t fd_count);

/// The life of the ancestor of all readers: obeys commands until `control` is closed or its parent dies.
[[noreturn]] void run_ancestor(int control, pid_t parent, const LayoutReaders& readers, const ReaderLimits& limits);

}  // namespace varve
