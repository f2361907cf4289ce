#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "varve/varve.h"

namespace varve::python {

/// What a call of the C interface said of its failure.
struct Failure {
  int code = VARVE_OK;
  std::string message{}, hint{}, remedy{};
};

/// Raises the exception of varve/_errors.py that belongs to a failure. The GIL is held.
[[noreturn]] void raise(const Failure& failure);

/// Raises the last failure on this thread of a call that left no session to ask.
[[noreturn]] void raise_without_session(int code);

/// A dict of options by the names of varve_options, as that struct; what it points at lives as long as this.
class Options {
 public:
  explicit Options(const pybind11::dict& said);
  const varve_options* get() const { return &options_; }

 private:
  pybind11::dict kept_;
  varve_options options_;
};

}  // namespace varve::python
