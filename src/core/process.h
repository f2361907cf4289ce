#pragma once

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace varve {

/// Owns a file descriptor and closes it; -1 is "none".
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int descriptor) : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  /// Gives the descriptor up without closing it.
  int release() { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1) {
    // The result of close() is of no use: what must be durable was synced before, and EINTR still closes on Linux.
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_ = -1;
};

/// While this exists, the calling thread gets no signal, and threads that it starts never do: signals are the
/// program's.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// Empty where the system does not say.
std::string host_name();

/// The number of the calling process on its machine.
uint32_t own_process_number();

/// Where a file really lies that only this machine sees, such as one below /dev/shm: simulated machines share one
/// system.
std::string path_on_machine(const std::string& path);

/// Whether no process of this machine has this number, for certain.
bool is_process_gone(uint32_t number);

/// Lets this program have as many files open as its user may: the usual soft limit is for programs that use select().
void raise_descriptor_limit();

/// How much more memory the programs of this machine may take, as far as the system says: what is free or can be freed,
/// and what the limits of the control groups of this process leave. 0 if nobody knows.
uint64_t available_memory_bytes();

/// `wanted`, or less where this process may have few files open: at most one in `share` of those. At least 4.
size_t descriptors_for(size_t wanted, size_t share);

}  // namespace varve
