#include "session_handle.h"

namespace varve::c_binding {
namespace {

/// Of the last call on this thread that failed and left no session to ask.
KeptFailure& lost_failure() {
  thread_local KeptFailure failure;
  return failure;
}

const KeptFailure& failure_of(const varve_session* session) {
  return session != nullptr ? session->last_failure : lost_failure();
}

}  // namespace

int code_number(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return VARVE_OK;
    case StatusCode::invalid_argument: return VARVE_INVALID_ARGUMENT;
    case StatusCode::not_found: return VARVE_NOT_FOUND;
    case StatusCode::already_exists: return VARVE_ALREADY_EXISTS;
    case StatusCode::corrupt: return VARVE_CORRUPT;
    case StatusCode::io_error: return VARVE_IO_ERROR;
    case StatusCode::no_space: return VARVE_NO_SPACE;
    case StatusCode::permission_denied: return VARVE_PERMISSION_DENIED;
    case StatusCode::unsupported: return VARVE_UNSUPPORTED;
    case StatusCode::resource_limit: return VARVE_RESOURCE_LIMIT;
    case StatusCode::busy: return VARVE_BUSY;
    case StatusCode::cancelled: return VARVE_CANCELLED;
    case StatusCode::internal: return VARVE_INTERNAL;
  }
  return VARVE_INTERNAL;
}

std::optional<StatusCode> code_of_number(int number) {
  for (const StatusCode code :
       {StatusCode::ok, StatusCode::invalid_argument, StatusCode::not_found, StatusCode::already_exists,
        StatusCode::corrupt, StatusCode::io_error, StatusCode::no_space, StatusCode::permission_denied,
        StatusCode::unsupported, StatusCode::resource_limit, StatusCode::busy, StatusCode::cancelled,
        StatusCode::internal}) {
    if (code_number(code) == number) return code;
  }
  return std::nullopt;
}

int report_without_session(const Status& status) {
  if (!status.ok()) lost_failure().keep(status);
  return code_number(status.code());
}

void KeptFailure::keep(const Status& failure) {
  remedy = failure.remedy();
  try {
    message = failure.to_string();
    hint = failure.hint();
  } catch (const std::exception&) {
    message.clear();
    hint.clear();  // no memory for words; the code is still there
  }
}

}  // namespace varve::c_binding

extern "C" {

const char* varve_error_message(const varve_session* session) {
  return varve::c_binding::failure_of(session).message.c_str();
}

const char* varve_error_remedy(const varve_session* session) {
  return varve::remedy_name(varve::c_binding::failure_of(session).remedy).data();  // names are literals, as below
}

const char* varve_error_hint(const varve_session* session) {
  return varve::c_binding::failure_of(session).hint.c_str();
}

const char* varve_code_name(int code) {
  const auto known = varve::c_binding::code_of_number(code);
  return known ? varve::status_code_name(*known).data() : "unknown";  // names are literals, which end with a zero
}

}  // extern "C"
