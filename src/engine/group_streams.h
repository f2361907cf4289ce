#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/save.h"
#include "engine/scheme.h"
#include "engine/source.h"
#include "format/tree.h"

namespace varve {

/// A group's files as a save takes them apart: every variable, and the skeleton of every file, is a stream of a
/// similarity class. Small variables are in the skeleton.
struct GroupStreams {
  std::vector<TreeFile> files;           ///< as the source has them; without references
  std::vector<std::string> class_keys;   ///< in alphabetical order
  std::vector<Stream> streams;           ///< by file, then position
  std::vector<std::string> bundle_keys;  ///< class keys of their packs, by Stream::Bundle::number - 1
  uint64_t raw_bytes = 0;                ///< of the regular files
  uint64_t variable_count = 0;           ///< small ones too
};

/// Finds the variables of the source's files, and makes streams of them by the options' scheme and rule. Warnings go to
/// `progress`.
Result<GroupStreams> describe_streams(Source& source, const SaveOptions& options, ProgressSink& progress);

/// The streams of each class, by its id, in the order in which the scheme `aware` lays them down.
using ClassStreams = std::vector<Stream*>;
std::vector<ClassStreams> streams_by_class(GroupStreams& group);
/// How long they are together.
uint64_t class_bytes(const ClassStreams& streams);

/// Whether nothing is known of the file but its bytes (opaque_layout).
bool is_opaque(const Layout& layout);

/// The unit of the block schemes: the options' blocks, rounded up to whole chunks.
uint64_t whole_block_bytes(const SaveOptions& options);

}  // namespace varve
