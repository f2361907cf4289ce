#pragma once

#include <cstdint>
#include <string_view>

#include "service/protocol.h"

namespace varve {

/// What the clients who show a key may do (PROTOCOL.md, "Rights").
enum class Rights : uint8_t {
  all,     ///< whatever a store needs
  append,  ///< add to the store, and take away nothing but what is one's own and unfinished
  read,    ///< look
};

std::string_view name_of(Rights rights);
/// Of "all", "append" or "read"; invalid_argument otherwise.
Result<Rights> parse_rights(std::string_view text);

/// Whether a request may be made at all, by what it asks for and the names in it: nobody may do what no writer of a
/// store needs, such as renaming a sealed arena. permission_denied, which says what right is lacking. Whose a name is,
/// and what lies there, is looked at by RequestHandler.
Status check_allowed(Rights rights, const Request& request);

}  // namespace varve
