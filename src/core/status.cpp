#include "varve/status.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace varve {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid_argument";
    case StatusCode::not_found: return "not_found";
    case StatusCode::already_exists: return "already_exists";
    case StatusCode::corrupt: return "corrupt";
    case StatusCode::io_error: return "io_error";
    case StatusCode::no_space: return "no_space";
    case StatusCode::permission_denied: return "permission_denied";
    case StatusCode::unsupported: return "unsupported";
    case StatusCode::resource_limit: return "resource_limit";
    case StatusCode::busy: return "busy";
    case StatusCode::cancelled: return "cancelled";
    case StatusCode::internal: return "internal";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message, std::string subject, Hint hint)
    : detail_(std::make_shared<Detail>(Detail{code, std::move(message), std::move(subject), std::move(hint)})) {}

#define VARVE_STATUS_FACTORY(name)                                                      \
  Status Status::name(std::string message, std::string subject, Hint hint) {            \
    return {StatusCode::name, std::move(message), std::move(subject), std::move(hint)}; \
  }
VARVE_STATUS_FACTORY(invalid_argument)
VARVE_STATUS_FACTORY(not_found)
VARVE_STATUS_FACTORY(already_exists)
VARVE_STATUS_FACTORY(corrupt)
VARVE_STATUS_FACTORY(io_error)
VARVE_STATUS_FACTORY(unsupported)
VARVE_STATUS_FACTORY(resource_limit)
VARVE_STATUS_FACTORY(busy)
#undef VARVE_STATUS_FACTORY

Status Status::cancelled(std::string message) { return {StatusCode::cancelled, std::move(message)}; }

Status Status::internal(std::string message, std::string subject) {
  return {StatusCode::internal, std::move(message), std::move(subject), "this is a bug in Varve; please report it"};
}

Status Status::from_errno(int error_number, std::string_view operation, std::string subject) {
  StatusCode code = StatusCode::io_error;
  Hint hint;
  if (error_number == ENOSPC || error_number == EDQUOT) {
    code = StatusCode::no_space;
    hint = Remedy::free_space;
  } else if (error_number == ENOENT || error_number == ENOTDIR) {
    code = StatusCode::not_found;
  } else if (error_number == EEXIST || error_number == ENOTEMPTY) {
    code = StatusCode::already_exists;
  } else if (error_number == EACCES || error_number == EPERM || error_number == EROFS) {
    code = StatusCode::permission_denied;
  } else if (error_number == ENOMEM || error_number == EMFILE || error_number == ENFILE) {
    code = StatusCode::resource_limit;
  }
  return {code, fmt::format("cannot {}: {}", operation, std::generic_category().message(error_number)),
          std::move(subject), std::move(hint)};
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string text = detail_->message;
  if (!detail_->subject.empty()) text += ": " + detail_->subject;
  if (!detail_->hint.text.empty()) text += " (" + detail_->hint.text + ")";
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {detail_->code, fmt::format("{}: {}", context, detail_->message), detail_->subject, detail_->hint};
}

Status Status::with_hint(Hint hint) const {
  if (ok() || !detail_->hint.text.empty()) return *this;
  return {detail_->code, detail_->message, detail_->subject, std::move(hint)};
}

Status Status::with_code(StatusCode code) const {
  return ok() ? *this : Status(code, detail_->message, detail_->subject, detail_->hint);
}

Status Status::with_subject(std::string subject) const {
  return ok() ? *this : Status(detail_->code, detail_->message, std::move(subject), detail_->hint);
}

}  // namespace varve
