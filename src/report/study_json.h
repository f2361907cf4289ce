#pragma once

#include <nlohmann/json.hpp>

#include "study/study.h"

namespace varve {

/// All of a study as one object (docs/STUDY.md, "JSON"). Keys are the names of the study's fields; sizes are bytes,
/// times seconds, speeds bytes per second, shares fractions; an estimate is {"value", "low", "high"}. A part that was
/// not reached is null.
nlohmann::ordered_json study_json(const StudyResult& result);

/// Text of it that is safe wherever it is put: bytes that are not UTF-8 become U+FFFD, numbers that are not finite
/// null.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace varve
