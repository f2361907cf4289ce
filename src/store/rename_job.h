#pragma once

#include <string>

#include "core/progress.h"
#include "store/store.h"

namespace varve {

/// Gives all sets of job `from` the name `to`, with what is said of them; then no set of `from` is left. Each is there
/// under one of both names at any moment, and after a failure at least under the old one: to do it again goes on.
/// not_found: there is no set of `from`. already_exists: `to` has another set of the same step. busy: a program that
/// makes checkpoints of one of the jobs is at work, or parts of a set wait for others.
Status rename_job(const Store& store, const std::string& from, const std::string& to,
                  ProgressSink& progress = null_progress());

}  // namespace varve
