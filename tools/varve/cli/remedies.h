#pragma once

#include <string>

#include "varve/status.h"

namespace varve::cli {

/// What can be done about a failure, in commands and options where there are some for it; "" if nothing is known.
std::string hint_of(const Status& failure);

/// As Status::to_string(), with that hint: "message: subject (hint)".
std::string in_one_line(const Status& failure);

}  // namespace varve::cli
