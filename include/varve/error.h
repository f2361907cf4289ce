#pragma once

#include <cstdio>
#include <stdexcept>
#include <utility>

#include "varve/status.h"

namespace varve {

/// A failed Status as an exception, for programs that prefer them. The library itself throws none.
class Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.to_string()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// Throws what went wrong.
inline void or_throw(const Status& status) {
  if (!status.ok()) throw Error(status);
}

/// Says on standard error what went wrong, and goes on: a program can do without a checkpoint, until it fails itself.
inline void or_warn(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "varve: %s\n", status.to_string().c_str());
}

/// The value, or throws what went wrong.
template <class T>
T or_throw(Result<T> result) {
  if (!result.ok()) throw Error(result.status());
  return std::move(result).value();
}

}  // namespace varve
