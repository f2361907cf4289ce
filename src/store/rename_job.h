#pragma once

#include <string>

#include "core/progress.h"
#include "store/store.h"

namespace varve {

/// Gives all sets of job `from` the name `to`, with what is said of them. Each is there under one of both names at any
/// moment, also after a failure: to do it again goes on. not_found: there is no set of `from`. already_exists, and
/// nothing was done: `to` has another set of the same step. busy: a program that makes checkpoints of one of the jobs
/// is at work, parts of a set wait for others, or somebody drops or replaces a set meanwhile. What protects sets of
/// nodes' own stores (src/redundancy) goes by their names: the caller sees to it that there is none.
Status rename_job(const Store& store, const std::string& from, const std::string& to,
                  ProgressSink& progress = null_progress());

}  // namespace varve
