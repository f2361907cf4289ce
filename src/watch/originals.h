#pragma once

#include "watch/set_finder.h"

namespace varve {

/// Removes the files of a set that is saved, and folders that are empty then, up to the set's own, if it has one.
/// busy: something has changed since the set was found; that, and what comes behind, is left. A file that is replaced
/// at the very moment is not told from the old one: programs write new files under new names.
Status remove_originals(const std::string& watched_folder, const FoundSet& set);

}  // namespace varve
