#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

/// Where what programs of this user keep outlives them on this machine: $XDG_STATE_HOME/varve, else
/// ~/.local/state/varve. It need not be there. invalid_argument: neither variable is set.
Result<std::string> state_folder();

/// Makes `text` all that a file says, at one blow for who reads it, which is not durable. A draft beside it, whose name
/// ends in ".tmp", is never one that somebody else has put there.
Status replace_text_file(const std::string& path, std::string_view text, uint32_t mode = 0600);

}  // namespace varve
