#pragma once

#include <type_traits>

#include "varve/status.h"

namespace varve {

namespace detail {
template <class T>
struct GuardedOutcome {
  using Type = Result<T>;
};
template <>
struct GuardedOutcome<void> {
  using Type = Status;
};
template <>
struct GuardedOutcome<Status> {
  using Type = Status;
};
template <class T>
struct GuardedOutcome<Result<T>> {
  using Type = Result<T>;
};

}  // namespace detail

/// What a guarded call gives: the callable's own Status or Result, Result<T> of a plain T, Status of a void.
template <class T>
using GuardedOutcome = typename detail::GuardedOutcome<T>::Type;

/// What an exception becomes where none may go on: at the end of a thread. Inside of a handler only.
Status status_from_current_exception();

/// Calls `callable`, and makes its Status of an exception: also where the system has no memory left, a thread of ours
/// does not take the program with it.
template <class Callable>
GuardedOutcome<std::invoke_result_t<Callable&>> run_guarded(Callable&& callable) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Callable&>>) {
      callable();
      return Status();
    } else {
      return callable();
    }
  } catch (...) {
    return status_from_current_exception();
  }
}

}  // namespace varve
