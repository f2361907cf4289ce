#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

/// The ranks that checkpoint together. All of them make the same collective calls in the same order, from one thread at
/// a time; send() and receive() may be called beside them by other threads if concurrent(). A rank that has died makes
/// calls fail, or end the program, as the library below does it.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t rank_count() const = 0;

  /// Collective: what every rank gave, by rank. Lengths may differ.
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine) = 0;
  /// Collective: what `root` gave.
  virtual Result<std::vector<std::byte>> broadcast(std::span<const std::byte> roots, uint32_t root) = 0;
  /// Collective: the smallest and the largest of each element over all ranks; made for calls in every step.
  virtual Status all_min(std::span<uint64_t> values) = 0;
  virtual Status all_max(std::span<uint64_t> values) = 0;
  /// Collective: returns when all ranks have called it.
  virtual Status barrier() = 0;

  /// Whether threads of ours may send and receive while the program makes calls of its own (MPI_THREAD_MULTIPLE).
  virtual bool concurrent() const = 0;
  /// Blocking messages between two ranks, in order for each pair and tag; one thread at a time for each of these. Tags
  /// up to 32,767 are there with every library. Only if concurrent(), else unsupported. A message may wait for its
  /// receiver, so that a rank that sends to itself needs another thread to receive.
  virtual Status send(uint32_t to, uint32_t tag, std::span<const std::byte> message) = 0;
  /// Fills `into` with a message of exactly that size; corrupt if it has another.
  virtual Status receive(uint32_t from, uint32_t tag, std::span<std::byte> into) = 0;

  /// This rank makes no more calls: all of its own fail from now on, and those of other ranks fail that need it, those
  /// that wait already among them, as far as the library below can tell them (MPI with MPIX_Comm_revoke(), threads).
  /// Not collective; thread-safe. By itself it does nothing.
  virtual void revoke() {}

  /// all_max() in two calls, of the same values, which stay as they are in between: the first waits for nobody, and
  /// other calls may come before the second, which waits until all ranks have come to the first. Collective, both. By
  /// themselves they do all of it in the second.
  virtual Status begin_all_max(std::span<uint64_t> /*values*/) { return {}; }
  virtual Status finish_all_max(std::span<uint64_t> values) { return all_max(values); }
};

/// One rank alone.
std::unique_ptr<Communicator> make_single_communicator();

/// `rank_count` ranks in one process, for programs that compute with threads and for tests: each is used by a thread of
/// its own, and may outlive the others. concurrent().
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(uint32_t rank_count);

/// What make_gathering_communicator() asks for: as Communicator::all_gather() is.
using AllGather = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte> mine)>;

/// Ranks of a program that can gather bytes, by whatever library: all other collective calls are made of that. Not
/// concurrent(). invalid_argument unless `rank` is one of `rank_count`.
Result<std::unique_ptr<Communicator>> make_gathering_communicator(uint32_t rank, uint32_t rank_count,
                                                                  AllGather all_gather);

}  // namespace varve
