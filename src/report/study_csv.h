#pragma once

#include <string>

#include "study/study.h"

namespace varve {

/// A study as one long table: a line for each figure, which says what it is of (docs/STUDY.md, "CSV").
std::string study_csv(const StudyResult& result);

}  // namespace varve
