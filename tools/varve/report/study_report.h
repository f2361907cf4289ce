#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "report/page.h"
#include "study/study.h"

namespace varve {

/// A study as one long table: a line for each figure, which says what it is of (docs/STUDY.md, "CSV").
std::string study_csv(const StudyResult& result);

/// All of a study as one object (docs/STUDY.md, "JSON"). Keys are the names of the study's fields; sizes are bytes,
/// times seconds, speeds bytes per second, shares fractions; an estimate is {"value", "low", "high"}. A part that was
/// not reached is null.
nlohmann::ordered_json study_json(const StudyResult& result);

/// A study as one HTML page that loads nothing: data, style, script and the charting library are in it. `text` is shown
/// where scripts are switched off. unsupported: this program was built without the charting library.
Result<std::string> study_page(const nlohmann::ordered_json& study, const std::string& text);

/// Whether study_page() can be made.
bool has_charts();

}  // namespace varve
