#pragma once

#include <string>

#include "service/protocol.h"

namespace varve {

/// The Status of a reply that is not done, about `path`, which the server does not know by its full name.
Status failure_of(const Reply& reply, const std::string& path);

}  // namespace varve
