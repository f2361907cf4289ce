#pragma once

#include <utility>

#include "core/processor_meter.h"

namespace varve {

/// Calls `work` and adds the processor time that it takes, with that of the threads it starts, to `seconds`.
template <class Work>
auto metered(double& seconds, Work&& work) {
  struct Adder {
    double& into;
    ProcessorMeter meter;
    ~Adder() { into += meter.seconds(); }
  } adder{seconds, {}};
  const ProcessorMeter::Scope scope(&adder.meter);
  return std::forward<Work>(work)();
}

}  // namespace varve
