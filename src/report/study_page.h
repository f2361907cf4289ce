#pragma once

#include <string>

#include "report/study_json.h"

namespace varve {

/// A study as one HTML page that loads nothing: data, style, script and the charting library are in it. `text` is shown
/// where scripts are switched off. unsupported: this program was built without the charting library.
Result<std::string> study_page(const nlohmann::ordered_json& study, const std::string& text);

/// Whether study_page() can be made.
bool has_charts();

}  // namespace varve
