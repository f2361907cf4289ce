#pragma once

#include <cstdint>
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

/// The stable lower-case name of `code` ("not_found"), for programs.
std::string_view status_code_name(StatusCode code);

/// What can be done about a failure, for programs that act on it or say it in words of their own. Some are about
/// something, which their argument names. The numbers are sent to other processes: new ones go to the end.
enum class Remedy : uint8_t {
  none,                            ///< none is known, or the hint is in words only
  save_again,                      ///< a prune took the writer for dead; nothing was committed
  name_the_job,                    ///< the name that was found for it will not do
  name_the_step,                   ///< there is none after the newest
  choose_another_step,             ///< or drop the set that is there. Argument: that set
  list_sets,                       ///< to see which there are
  list_files,                      ///< to see which the set has. Argument: the set
  list_variables,                  ///< to see which the set's files have. Argument: the set
  drop_set,                        ///< it is damaged, and the others are not. Argument: the set
  drop_set_in_one_store,           ///< or keep the stores apart. Argument: the set
  try_again_or_drop_sets,          ///< dropping all sets of the job lets it start anew
  verify_or_drop_sets,             ///< dropping all sets of the job lets it start anew
  verify,                          ///< to learn what is damaged
  replace_arena,                   ///< by a copy of it, or by a repair from another store
  verify_and_replace_arena,        ///< verifying tells which sets need it
  rebuild_header,                  ///< by a repair: the arenas say what was in it
  keep_going,                      ///< restores what is whole. Verifying deeply tells what is not
  repair_from_another_store,       ///< verifying deeply tells what is affected
  take_another_job,                ///< a session cannot use this job's set. Argument: the set
  overwrite,                       ///< or restore into another folder
  lay_more_ranks_together,         ///< in a group, so that a set has fewer
  make_chunks_larger,              ///< so that a file is in fewer pieces
  create_store,                    ///< Argument: the path where it should be
  create_store_with_score_bits,    ///< so that two stores have the same. Argument: how many
  rebalance,                       ///< spreads the store over the other places; or name it alone
  free_space,                      ///< by a prune, or of other files
  free_space_or_raise_quota,       ///< the space is counted, not short
  use_less_memory,                 ///< or have more
  make_key,                        ///< Argument: the path of the key file
  name_key_file,                   ///< the server needs one
  share_key_file,                  ///< the two sides have different ones
  try_again_or_allow_connections,  ///< the server has as many as it takes
  take_job_over,                   ///< if the run that has the job is known to be gone; else wait for its end
};

inline constexpr uint8_t kRemedyMax = static_cast<uint8_t>(Remedy::take_job_over);

/// The stable lower-case name of `remedy` ("drop_set"), for programs.
std::string_view remedy_name(Remedy remedy);

/// What can be done about a failure: a remedy and what it is about, or words.
struct Hint {
  Hint() = default;
  Hint(const char* words) : text(words) {}
  Hint(std::string words) : text(std::move(words)) {}
  Hint(Remedy what, std::string about = {});

  Remedy remedy = Remedy::none;
  std::string argument;  ///< of the remedy
  std::string text;      ///< for people; it names no command of any program
};

/// The outcome of an operation: OK, or what happened, to what, and what the user can do about it.
/// Cheap when OK (one null pointer). Immutable, so it may be read by several threads.
class [[nodiscard]] Status {
 public:
  Status() = default;  ///< OK
  /// `message` says what happened, `subject` to what (a path, a set, a variable), `hint` what can be done.
  Status(StatusCode code, std::string message, std::string subject = {}, Hint hint = {});

  static Status invalid_argument(std::string message, std::string subject = {}, Hint hint = {});
  static Status not_found(std::string message, std::string subject = {}, Hint hint = {});
  static Status already_exists(std::string message, std::string subject = {}, Hint hint = {});
  static Status corrupt(std::string message, std::string subject = {}, Hint hint = {});
  static Status io_error(std::string message, std::string subject = {}, Hint hint = {});
  static Status unsupported(std::string message, std::string subject = {}, Hint hint = {});
  static Status resource_limit(std::string message, std::string subject = {}, Hint hint = {});
  static Status busy(std::string message, std::string subject = {}, Hint hint = {});
  static Status cancelled(std::string message = "stopped on request");
  static Status internal(std::string message, std::string subject = {});
  /// From an `errno` value: picks the code (ENOSPC and EDQUOT: no_space, ENOENT: not_found, EEXIST: already_exists,
  /// EACCES and EPERM: permission_denied, others io_error) and names the failed `operation`.
  static Status from_errno(int error_number, std::string_view operation, std::string subject);

  bool ok() const { return detail_ == nullptr; }
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::ok; }
  std::string_view message() const { return detail_ ? std::string_view(detail_->message) : std::string_view(); }
  std::string_view subject() const { return detail_ ? std::string_view(detail_->subject) : std::string_view(); }
  /// In words, also of a remedy.
  std::string_view hint() const { return detail_ ? std::string_view(detail_->hint.text) : std::string_view(); }
  Remedy remedy() const { return detail_ ? detail_->hint.remedy : Remedy::none; }
  std::string_view remedy_argument() const {
    return detail_ ? std::string_view(detail_->hint.argument) : std::string_view();
  }

  /// "message: subject (hint)" for people; "ok" when OK.
  std::string to_string() const;

  /// The same failure with `context` put before its message ("cannot save job@7: disk full: /store/...").
  Status with_context(std::string_view context) const;
  /// The same failure with this hint, if it had none.
  Status with_hint(Hint hint) const;
  /// The same failure of another kind, or of another subject.
  Status with_code(StatusCode code) const;
  Status with_subject(std::string subject) const;

  /// Says in the code that this failure is meant to be ignored, and why.
  void ignore(const char* why) const { (void)why; }

 private:
  struct Detail {
    StatusCode code;
    std::string message, subject;
    Hint hint;
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
