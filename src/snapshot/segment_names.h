#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/unique_id.h"

namespace varve {

/// 16 hexadecimal digits that stand for a job of a store: programs with the same one would meet.
std::string make_job_key(std::string_view canonical_store_path, std::string_view job);

/// Whose segments, where.
struct SegmentFamily {
  std::string folder;  ///< of a memory file system: "/dev/shm"
  uint32_t user = 0;   ///< numeric id
  std::string job_key;
  /// Where slots and grids go that have no room in `folder`: the first one that has. All of a node know the same.
  std::vector<std::string> spill_folders{};
  bool operator==(const SegmentFamily&) const = default;

  /// What the file names of all of them begin with: "varve-1000-0123456789abcdef-".
  std::string file_prefix() const;
};

/// The segments of one rank of one run.
struct SegmentOwner {
  SegmentFamily family;
  UniqueId run;
  uint32_t rank = 0;
  bool operator==(const SegmentOwner&) const = default;

  /// `what`: "control", "slot0", "slot1", "grid-<n>".
  std::string path(std::string_view what) const;
  std::string control_path() const { return path("control"); }
  std::string slot_path(uint32_t slot) const;
  std::string grid_path(uint32_t grid) const;
  /// Where a segment of this path may be instead, by preference; itself first.
  std::vector<std::string> places_of(const std::string& path) const;
};

/// The parts of a segment's file name.
struct SegmentName {
  UniqueId run;
  uint32_t rank = 0;
  std::string what;
};
/// Nothing if it is no segment of this family.
std::optional<SegmentName> parse_segment_name(const SegmentFamily& family, std::string_view file_name);

}  // namespace varve
