#pragma once

#include <string_view>

#include "store/spread_member.h"

namespace varve {

/// What a file that says which place of a store its folder is holds. corrupt if it makes no sense.
Result<SpreadMember> parse_spread_member(std::string_view text);

}  // namespace varve
