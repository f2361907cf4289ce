#pragma once

#include <memory>
#include <string>

#include "core/file_system.h"
#include "service/protocol.h"

namespace varve {

/// The file of a reply that came with its descriptor, to be used without the server. Null: none came, or it is not that
/// of the file that the reply speaks of. `direct` as in CreateOptions; `path` is for messages.
std::unique_ptr<File> attached_file(const Reply& opened, const std::string& path, bool direct);

}  // namespace varve
