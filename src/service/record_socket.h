#pragma once

#include <cstddef>
#include <memory>

namespace varve {

/// Takes TLS records to a connected, non-blocking socket and from there, many with one call of the system: a call for
/// each, and the wake-up on the other side, cost as much as the encryption. One thread at a time.
///
/// Results are those of send() and recv(): negative, with `errno`, if the socket fails or is not ready (EAGAIN).
class RecordSocket {
 public:
  explicit RecordSocket(int socket) : socket_(socket) {}

  /// From now on, bytes are gathered. Before, each call is one of the socket's, and no memory is needed: the other side
  /// has not shown yet who it is.
  void gather();

  /// Takes all of it, or nothing. What is gathered goes out when there is no room for more, and with flush().
  long put(const char* data, size_t bytes);
  /// 0: everything is on its way.
  long flush();
  /// At least one byte; 0: the other side has closed.
  long get(char* into, size_t bytes);
  /// Sets how many bytes are to have come, if that is possible, before who waits for the socket is woken. Every wake-up
  /// costs both sides, and there is one for each 64 KiB otherwise.
  void wake_at(size_t bytes);
  /// Whether something can be had without waiting.
  bool has_input() const { return input_.begin < input_.end; }
  /// When all output is on its way, before a long wait: wakes at the first byte, and leaves its memory, but for input
  /// that is not taken yet, to other sockets that the calling thread uses.
  void rest();

 private:
  struct Held {
    std::unique_ptr<char[]> bytes;  ///< null: not needed yet
    size_t begin = 0, end = 0;
  };

  const int socket_;
  bool gathers_ = false;
  Held input_, output_;
  int wake_bytes_ = 1;
};

}  // namespace varve
