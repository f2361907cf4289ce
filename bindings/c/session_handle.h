#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "routed_files.h"
#include "varve/session.h"
#include "varve/varve.h"

namespace varve::c_binding {

/// What is told of a failure when it is asked for, later.
struct KeptFailure {
  std::string message, hint;
  Remedy remedy = Remedy::none;
  void keep(const Status& failure);
};

}  // namespace varve::c_binding

/// What a varve_session* of the C interface points at.
struct varve_session {
  varve_session(varve::Session opened, uint32_t own_rank) : session(std::move(opened)), rank(own_rank) {}

  varve::Session session;
  const uint32_t rank;
  std::unique_ptr<varve::c_binding::RoutedFiles> files;  ///< once there are some
  bool finished = false;
  mutable varve::c_binding::KeptFailure last_failure;
  std::string text;                         ///< that was returned last
  std::vector<varve::RestartPoint> points;  ///< that were listed last
  std::vector<varve::SavedVariable> variables;
  std::deque<varve::Status> warnings_left;  ///< taken from the session, not from here yet
};

namespace varve::c_binding {

/// The number that is promised for a code.
int code_number(StatusCode code);

/// OK, or the failure with the text where varve_error_message(NULL) finds it.
int report_without_session(const Status& status);

/// The code of a number, if it is one.
std::optional<StatusCode> code_of_number(int number);

/// Runs `call`, which gives a Status; what it throws becomes one too, since no exception may enter C.
template <class Call>
Status without_exceptions(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status::resource_limit("out of memory");
  } catch (const std::exception& exception) {
    return Status::internal("a call failed unexpectedly", exception.what());
  } catch (...) {
    return Status::internal("a call failed unexpectedly");
  }
}

/// What the C options say; nothing if they are null. invalid_argument: a number that is none of its enum, or the struct
/// does not say its size; unsupported: it says more than is known.
Result<SessionOptions> session_options(const varve_options* options);

/// What C has of a session of this rank; varve_close() frees it.
varve_session* make_handle(Session opened, uint32_t rank);

/// Opens a session for C on the ranks that `make_ranks` gives.
template <class MakeRanks>
int open_session(MakeRanks make_ranks, const varve_options* options, varve_session** session) {
  const Status status = without_exceptions([&]() -> Status {
    if (session == nullptr) return Status::invalid_argument("there is no place for the session: NULL");
    *session = nullptr;
    VARVE_ASSIGN(SessionOptions said, session_options(options));
    VARVE_ASSIGN(std::unique_ptr<Communicator> ranks, make_ranks());
    const uint32_t rank = ranks->rank();
    VARVE_ASSIGN(Session opened, Session::open(std::move(ranks), std::move(said)));
    *session = make_handle(std::move(opened), rank);
    return {};
  });
  return report_without_session(status);
}

}  // namespace varve::c_binding
