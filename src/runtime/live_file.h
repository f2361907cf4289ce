#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/process_identity.h"
#include "snapshot/shared_segment.h"

namespace varve {

/// Whose file it is in the memory of a node in which a run, or a server, tells how it goes, by the file's name.
struct LiveFile {
  uint32_t user = 0;
  std::string job_key{};      ///< as of SegmentFamily; or "server"
  ProcessIdentity process{};  ///< of this start of the machine, as all that is in its memory
  uint32_t rank = 0;

  /// "varve-live-1000-0123456789abcdef-4711-4026531836-987654-0.prom"
  std::string name() const;
};

/// None: it is no such name.
std::optional<LiveFile> parse_live_file_name(std::string_view name);

/// The memory of this node, as the environment and the options file of this process name it (option shared_memory).
std::string live_folder();

/// The path of the calling process's file, after those that dead processes of the user have left are removed: of the
/// same job at once, of others when they are a day old, until when people may want to see that they were killed. Empty:
/// the system does not say who the process is.
std::string take_live_file(const SegmentFamily& family, uint32_t rank);

}  // namespace varve
