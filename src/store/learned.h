#pragma once

#include <string>

#include "store/store.h"

// What saves of a job have learned about what suits it, for the next one: advice that nobody needs. It is not durable,
// may be older than the last set, and lies only in folders, where to ask for it costs next to nothing (FORMAT.md, "What
// a save has learned").

namespace varve {

/// Empty: there is none, or none that can be read. The contents are the writer's (codec/kept_encoders.h), and not
/// trusted.
ByteVector read_learned(const Store& store, const std::string& job);
/// Takes the place of what was there; empty: there is none any more. Does nothing where it cannot.
void write_learned(const Store& store, const std::string& job, ByteSpan learned);

}  // namespace varve
