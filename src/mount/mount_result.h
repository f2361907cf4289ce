#pragma once

#include <cerrno>
#include <utility>
#include <variant>

#include "varve/status.h"

namespace varve {

/// Why an operation on the mounted folder failed, as the program sees it: an errno; 0 is success.
struct [[nodiscard]] Errno {
  int number = 0;
  bool ok() const { return number == 0; }
  bool operator==(const Errno&) const = default;
};

/// A value, or why there is none.
template <class T>
class [[nodiscard]] MountResult {
 public:
  MountResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  MountResult(Errno why) : state_(std::in_place_index<1>, why) {}

  bool ok() const { return state_.index() == 0; }
  Errno error() const { return ok() ? Errno{} : std::get<1>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  std::variant<T, Errno> state_;
};

/// The errno that says best what a Status says.
Errno errno_of(const Status& status);

}  // namespace varve

/// Returns from the current function if `expression` (an Errno) is a failure.
#define MOUNT_TRY(expression)                                                                   \
  do {                                                                                          \
    if (const ::varve::Errno mount_errno = (expression); !mount_errno.ok()) return mount_errno; \
  } while (false)

/// Declares `declaration` from a MountResult's value, or returns its Errno from the current function.
#define MOUNT_ASSIGN(declaration, expression) \
  MOUNT_ASSIGN_INNER(VARVE_CONCAT(mount_outcome_, __LINE__), declaration, expression)
#define MOUNT_ASSIGN_INNER(outcome, declaration, expression) \
  auto outcome = (expression);                               \
  if (!outcome.ok()) return outcome.error();                 \
  declaration = *std::move(outcome)
