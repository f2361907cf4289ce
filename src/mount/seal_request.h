#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// Asks the mount that `folder` is in to seal the open set whose folder it is; returns when it is committed.
/// invalid_argument: it is in no mount of a store.
Status request_seal(const std::string& folder);
/// What the mount knows of the set, in lines for people.
Result<std::string> request_set_state(const std::string& folder);

}  // namespace varve
