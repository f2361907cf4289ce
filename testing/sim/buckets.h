#pragma once

#include <string>

#include "sim/simulator.h"

namespace varve::sim {

/// As play_stores(), of a store in a bucket of an S3 service.
void play_buckets(Simulator& simulator, const std::string& scratch);

}  // namespace varve::sim
