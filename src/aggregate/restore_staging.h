#pragma once

#include <string>
#include <string_view>

#include "core/unique_id.h"

namespace varve {

constexpr std::string_view kRestoreStagingPrefix = ".varve-restore-";

/// The name of a folder in which a restore keeps what it has not published yet.
inline std::string restore_staging_name(const UniqueId& id) { return std::string(kRestoreStagingPrefix) + id.hex(); }

/// Whether a folder of that name is a restore's, or what one that was killed has left.
inline bool is_restore_staging(std::string_view name) {
  return name.starts_with(kRestoreStagingPrefix) &&
         name.size() == kRestoreStagingPrefix.size() + 2 * sizeof(UniqueId::bytes);
}

}  // namespace varve
