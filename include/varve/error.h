#pragma once

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

/// The value, or throws what went wrong.
template <class T>
T or_throw(Result<T> result) {
  if (!result.ok()) throw Error(result.status());
  return std::move(result).value();
}

}  // namespace varve
