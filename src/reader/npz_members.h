#pragma once

#include <vector>

#include "engine/stored_files.h"
#include "format/tree.h"
#include "reader/stored_variables.h"

namespace varve {

/// Tells what `parts` are, of which the file's layout only says that they are compressed: members of an npz archive.
/// Those that are arrays of numpy get their types, shapes and where their cells begin (PartCoding::deflated). The
/// others stay as they are, and say why, if there is something to say. Reads the archive's directory, and the beginning
/// of each of these members.
void describe_npz_members(StreamReader& reader, const Leaf& leaf, const TreeFile& file,
                          const std::vector<StoredPart*>& parts);

}  // namespace varve
