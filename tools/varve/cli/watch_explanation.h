#pragma once

#include "cli/session.h"
#include "watch/watcher.h"

namespace varve::cli {

/// Prints what a watcher with these options would take for sets, steps and ranks, and why. Looks at the watched folders
/// alone.
Result<ExitCode> explain_watch(Session& session, const WatchOptions& options);

}  // namespace varve::cli
