#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "varve/status.h"

namespace varve {

/// What the log of a job tells (docs/INTERNALS.md, "The log of a run"): its runs, and what became of each checkpoint,
/// as one object. Its keys are in docs/GUIDE.md, "timeline"; times are seconds since 1970. Whatever stands in a log is
/// taken for what it may be: lines that make no sense are left out, and counted.
///
/// `path`: the newest log; the one that was put aside before it is read first. not_found: neither is there.
Result<nlohmann::ordered_json> read_timeline(const std::string& path, const std::string& job);

/// The same of a log's text. `skipped`: lines that were left out already.
nlohmann::ordered_json timeline_of_text(std::string_view text, const std::string& job, uint64_t skipped = 0);

/// As one HTML page that loads nothing. `text` is shown where scripts are switched off.
std::string timeline_page(const nlohmann::ordered_json& timeline, const std::string& text);

}  // namespace varve
