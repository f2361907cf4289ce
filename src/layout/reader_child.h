#pragma once

#include "layout/layout_reader.h"
#include "layout/reader_process.h"

namespace varve {

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
/// subject.
struct ReaderRequest {
  uint32_t reader_index = 0;
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
