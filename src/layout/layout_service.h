#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/sync.h"
#include "layout/layout.h"
#include "layout/layout_reader.h"
#include "layout/raw_layout.h"
#include "layout/reader_process.h"
#include "varve/status.h"

namespace varve {

/// Where the variables of a file lie. It is always valid for the file's size (validate_layout).
struct LayoutOutcome {
  Layout layout;
  /// Why the layout is that of an opaque file although something should have been known of it. A sentence for the user,
  /// with the file's path: "the HDF5 reader crashed (signal 11) on /scratch/dump.h5; saved as one opaque variable".
  std::optional<std::string> warning;
};

struct LayoutRequest {
  std::string path;
  uint64_t file_bytes = 0;
};

struct LayoutReadOptions {
  /// What files are whose format nobody recognises, and beside which there is no description.
  std::optional<RawDescription> raw;
  /// Look for a description beside files whose format nobody recognises: PATH.varve-layout, or that of the array of
  /// Zarr whose chunk it is.
  bool sidecars = true;
};

/// More of them than this are not kept busy by what uses the layouts.
inline constexpr unsigned kUsefulReaderProcesses = 4;

struct LayoutServiceOptions {
  unsigned worker_count = 1;  ///< reader processes at most; each is started when it is first needed
  ReaderLimits limits;
  LayoutReaders readers = built_in_readers();
};

/// Finds out where the variables of files lie. Format readers run in processes of their own, since the libraries they
/// use may crash, hang or run out of memory on a damaged or hostile file: that costs this file's layout and a new
/// process, nothing else.
///
/// A recognised format wins over a sidecar file, that over the description of an array of Zarr, and that over
/// LayoutReadOptions::raw. A file that nobody recognises (or a FIFO, or one that cannot be opened) never reaches a
/// reader: it is one opaque variable. Opaque and raw variables have the name of the file, without its directory, after
/// a
/// '/'.
///
/// Thread-safe. Make it early: start() forks, and what the program has in memory by then is shared with the fork
/// (copied when either writes to it) until the service is destroyed.
class LayoutService {
 public:
  static Result<std::unique_ptr<LayoutService>> start(LayoutServiceOptions options = {});
  LayoutService(const LayoutService&) = delete;
  LayoutService& operator=(const LayoutService&) = delete;
  /// No call may be running.
  ~LayoutService();

  /// The layout of the file at `path`, which is `file_bytes` long.
  LayoutOutcome read(const std::string& path, uint64_t file_bytes, const LayoutReadOptions& options = {});

  /// The same for many files, in their order. Much cheaper for small files: requests are sent ahead, and idle reader
  /// processes share the work.
  std::vector<LayoutOutcome> read_many(std::span<const LayoutRequest> requests, const LayoutReadOptions& options = {});

 private:
  class Batch;
  explicit LayoutService(LayoutServiceOptions options);

  /// A reader process for the caller alone. While all are busy: waits if `wait`, else nothing.
  Result<std::optional<ReaderClient>> acquire(bool wait);
  void give_back(ReaderClient client);
  /// Says that an acquired process is gone.
  void forget_one();

  const LayoutServiceOptions options_;
  ReaderSpawner spawner_;
  Mutex mutex_;  ///< never held while spawner_ is called
  ConditionVariable freed_;
  std::vector<ReaderClient> idle_ VARVE_GUARDED_BY(mutex_);
  unsigned running_ VARVE_GUARDED_BY(mutex_) = 0;  ///< idle or acquired
};

}  // namespace varve
