#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace varve {

/// Makes the headers of a store's places anew that are missing or damaged: from that of another place, or else from
/// what most of the arenas say. Returns the headers made, by their paths. corrupt if nothing says what the header was,
/// or if what says it is not agreed on. not_found if there is no store at all.
Result<std::vector<std::string>> restore_store_headers(const std::vector<Backend*>& places);

}  // namespace varve
