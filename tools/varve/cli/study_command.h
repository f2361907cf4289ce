#pragma once

#include <string>

#include "study/study.h"

namespace varve::cli {

/// A study in words and tables for a terminal.
std::string study_text(const StudyResult& result);

}  // namespace varve::cli
