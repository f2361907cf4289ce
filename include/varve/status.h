#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace varve {

/// What kind of failure it was. The command line maps each to an exit code (docs/GUIDE.md, "Exit codes").
enum class StatusCode {
  ok,
  invalid_argument,   ///< the caller asked for something that makes no sense
  not_found,          ///< a store, set, file or arena that was named does not exist
  already_exists,     ///< what was to be created exists
  corrupt,            ///< stored or received bytes contradict their checksum, score or format
  io_error,           ///< the operating system failed to read or write
  no_space,           ///< file system full, or quota reached
  permission_denied,  ///< the operating system refused access
  unsupported,        ///< a valid thing that this build or version cannot do (say what is missing)
  resource_limit,     ///< a limit of Varve would be exceeded (hostile or oversized input)
  busy,               ///< somebody else is in the way; trying again may help
  cancelled,          ///< the caller asked to stop
  internal,           ///< a bug in Varve
};

/// The stable lower-case name of `code` ("not_found"), as printed with --json.
std::string_view status_code_name(StatusCode code);

/// The outcome of an operation: OK, or what happened, to what, and what the user can do about it.
/// Cheap when OK (one null pointer). Immutable, so it may be read by several threads.
class [[nodiscard]] Status {
 public:
  Status() = default;  ///< OK
  /// `message` says what happened, `subject` to what (a path, a set, a variable), `hint` what can be done.
  Status(StatusCode code, std::string message, std::string subject = {}, std::string hint = {});

  static Status invalid_argument(std::string message, std::string subject = {}, std::string hint = {});
  static Status not_found(std::string message, std::string subject = {}, std::string hint = {});
  static Status already_exists(std::string message, std::string subject = {}, std::string hint = {});
  static Status corrupt(std::string message, std::string subject = {}, std::string hint = {});
  static Status io_error(std::string message, std::string subject = {}, std::string hint = {});
  static Status unsupported(std::string message, std::string subject = {}, std::string hint = {});
  static Status resource_limit(std::string message, std::string subject = {}, std::string hint = {});
  static Status busy(std::string message, std::string subject = {}, std::string hint = {});
  static Status cancelled(std::string message = "stopped on request");
  static Status internal(std::string message, std::string subject = {});
  /// From an `errno` value: picks the code (ENOSPC and EDQUOT: no_space, ENOENT: not_found, EEXIST: already_exists,
  /// EACCES and EPERM: permission_denied, others io_error) and names the failed `operation`.
  static Status from_errno(int error_number, std::string_view operation, std::string subject);

  bool ok() const { return detail_ == nullptr; }
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::ok; }
  std::string_view message() const { return detail_ ? std::string_view(detail_->message) : std::string_view(); }
  std::string_view subject() const { return detail_ ? std::string_view(detail_->subject) : std::string_view(); }
  std::string_view hint() const { return detail_ ? std::string_view(detail_->hint) : std::string_view(); }

  /// "message: subject (hint)" for people; "ok" when OK.
  std::string to_string() const;

  /// The same failure with `context` put before its message ("cannot save job@7: disk full: /store/...").
  Status with_context(std::string_view context) const;
  /// The same failure with this hint, if it had none.
  Status with_hint(std::string hint) const;

  /// Says in the code that this failure is meant to be ignored, and why.
  void ignore(const char* why) const { (void)why; }

 private:
  struct Detail {
    StatusCode code;
    std::string message, subject, hint;
  };
  std::shared_ptr<const Detail> detail_;
};

/// A value, or the Status that says why there is none. Never holds an OK Status.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace varve

#define VARVE_CONCAT_INNER(a, b) a##b
#define VARVE_CONCAT(a, b) VARVE_CONCAT_INNER(a, b)

/// Returns from the current function if `expression` (a Status) is not OK.
#define VARVE_TRY(expression)                                                                 \
  do {                                                                                        \
    if (::varve::Status varve_status = (expression); !varve_status.ok()) return varve_status; \
  } while (false)

/// Declares `declaration` from a Result's value, or returns its Status from the current function.
#define VARVE_ASSIGN(declaration, expression) \
  VARVE_ASSIGN_INNER(VARVE_CONCAT(varve_result_, __LINE__), declaration, expression)
#define VARVE_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return result.status();                 \
  declaration = std::move(result).value()
