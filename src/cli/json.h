#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "level/store_level.h"
#include "store/set_record.h"
#include "varve/status.h"

namespace varve::cli {

/// What --json prints. Keys are the names of the engine's fields, in their order; sizes are bytes; a set is "job@step".
/// Stable: keys may be added, but none changes its meaning (docs/GUIDE.md, "JSON").
using Json = nlohmann::ordered_json;

/// {"code", "message", "subject", "hint"}; the last two may be empty.
Json to_json(const Status& status);
Json to_json(const SetRecord& record);
Json to_json(const LevelCopy& copy);
Json to_json(const std::vector<SetName>& names);

/// One line. Bytes of names that are not UTF-8 become U+FFFD; numbers that are not finite become null.
std::string json_line(const Json& json);

}  // namespace varve::cli
