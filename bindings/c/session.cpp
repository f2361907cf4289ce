// The C interface over the C++ one: each function turns its arguments, calls, and turns what comes back.
#include <limits>
#include <utility>

#include "session_handle.h"
#include "sized_struct.h"

struct varve_bytes {
  std::vector<std::byte>& to;
};

namespace varve::c_binding {
namespace {

/// Makes a call with a session: its code, and its words kept in the session.
template <class Handle, class Call>
int with_session(Handle* session, Call call) {
  if (session == nullptr) return report_without_session(Status::invalid_argument("there is no session: NULL"));
  const Status status = without_exceptions([&]() -> Status { return call(*session); });
  if (!status.ok()) session->last_failure.keep(status);
  return code_number(status.code());
}

/// A string that the session keeps, made by `call`; "" if it cannot be.
template <class Call>
const char* text_of(varve_session* session, Call call) {
  if (session == nullptr) return "";
  try {
    session->text = call(*session);
    return session->text.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

Status check_pointer(const void* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return Status::invalid_argument("an argument is NULL", what);
}

ArrayShape array_shape(const varve_shape& shape) {
  const auto numbers = [&](const uint64_t* first) {
    return first == nullptr ? std::vector<uint64_t>() : std::vector<uint64_t>(first, first + shape.dimensions);
  };
  return {numbers(shape.cells), numbers(shape.ghosts_low), numbers(shape.ghosts_high), numbers(shape.global_cells),
          numbers(shape.global_offset)};
}

/// Calls `call` with a pointer to the C++ type that `type` stands for.
template <class Call>
Status with_type(int type, void* data, Call call) {
  switch (type) {
    case VARVE_BYTE: return call(static_cast<std::byte*>(data));
    case VARVE_INT8: return call(static_cast<int8_t*>(data));
    case VARVE_INT16: return call(static_cast<int16_t*>(data));
    case VARVE_INT32: return call(static_cast<int32_t*>(data));
    case VARVE_INT64: return call(static_cast<int64_t*>(data));
    case VARVE_UINT8: return call(static_cast<uint8_t*>(data));
    case VARVE_UINT16: return call(static_cast<uint16_t*>(data));
    case VARVE_UINT32: return call(static_cast<uint32_t*>(data));
    case VARVE_UINT64: return call(static_cast<uint64_t*>(data));
    case VARVE_FLOAT: return call(static_cast<float*>(data));
    case VARVE_DOUBLE: return call(static_cast<double*>(data));
    default: return Status::invalid_argument("there is no varve_type of number " + std::to_string(type));
  }
}

/// What a callback of the program has returned.
Status callback_status(int returned, const char* what) {
  if (returned == VARVE_OK) return {};
  const std::string message = std::string("the program's ") + what + " callback returned " + std::to_string(returned);
  return {code_of_number(returned).value_or(StatusCode::invalid_argument), message};
}

}  // namespace
}  // namespace varve::c_binding

using varve::Status;
using varve::c_binding::with_session;
namespace c_binding = varve::c_binding;

extern "C" {

int varve_open(const struct varve_options* options, varve_session** session) {
  const auto alone = [] {
    return varve::Result<std::unique_ptr<varve::Communicator>>(varve::make_single_communicator());
  };
  return c_binding::open_session(alone, options, session);
}

int varve_close(varve_session* session) {
  if (session == nullptr) return VARVE_OK;
  const Status status = c_binding::without_exceptions([&]() -> Status {
    if (session->finished) return {};
    return session->session.finish(std::chrono::hours(24 * 365));
  });
  delete session;
  return c_binding::report_without_session(status);
}

int varve_protect_array(varve_session* session, const char* name, int type, void* data, uint64_t count,
                        const struct varve_shape* shape) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    if (count > 0) VARVE_TRY(c_binding::check_pointer(data, name));
    varve::ArrayShape said;
    if (shape != nullptr) {
      VARVE_ASSIGN(const varve_shape known, c_binding::read_struct(*shape, "varve_shape"));
      said = c_binding::array_shape(known);
    }
    return c_binding::with_type(type, data, [&](auto* first) -> Status {
      if (count > std::numeric_limits<size_t>::max() / sizeof *first) {
        return Status::invalid_argument("an array cannot be so large", name);
      }
      return to.session.protect(name, std::span(first, static_cast<size_t>(count)), said);
    });
  });
}

int varve_protect_scalar(varve_session* session, const char* name, int type, void* value) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(value, name));
    return c_binding::with_type(type, value, [&](auto* first) { return to.session.protect(name, *first); });
  });
}

int varve_append(varve_bytes* to, const void* data, size_t bytes) {
  if (to == nullptr || (data == nullptr && bytes > 0)) return VARVE_INVALID_ARGUMENT;
  const Status status = c_binding::without_exceptions([&]() -> Status {
    const auto* const first = static_cast<const std::byte*>(data);
    to->to.insert(to->to.end(), first, first + bytes);
    return {};
  });
  return c_binding::code_number(status.code());
}

int varve_protect_callbacks(varve_session* session, const char* name, varve_save_function save,
                            varve_load_function load, void* context) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    if (save == nullptr || load == nullptr) return Status::invalid_argument("a callback is NULL", name);
    const auto save_bytes = [save, context](std::vector<std::byte>& bytes) {
      varve_bytes appended{bytes};
      return c_binding::callback_status(save(context, &appended), "save");
    };
    const auto load_bytes = [load, context](std::span<const std::byte> bytes) {
      return c_binding::callback_status(load(context, bytes.data(), bytes.size()), "load");
    };
    return to.session.protect(name, save_bytes, load_bytes);
  });
}

int varve_unprotect(varve_session* session, const char* name) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    return to.session.unprotect(name);
  });
}

int varve_redistribute(varve_session* session, const char* name, int how) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    switch (how) {
      case VARVE_REDISTRIBUTE_NONE: return to.session.redistribute(name, varve::Redistribution::none);
      case VARVE_REDISTRIBUTE_SAME: return to.session.redistribute(name, varve::Redistribution::same);
      default: return Status::invalid_argument("there is no such way to redistribute a variable", name);
    }
  });
}

int varve_make_grid(varve_session* session, const char* name, uint64_t bytes, void** grid) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(grid, name));
    VARVE_ASSIGN(const std::span<std::byte> made, to.session.make_grid<std::byte>(name, bytes));
    *grid = made.data();
    return {};
  });
}

int varve_lend(varve_session* session, const char* name, void** grid) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(grid, name));
    // The session knows how large its grids are.
    VARVE_ASSIGN(const std::span<std::byte> spare,
                 to.session.lend(name, std::span(static_cast<std::byte*>(*grid), size_t{0})));
    *grid = spare.data();
    return {};
  });
}

int varve_restart(varve_session* session, uint64_t* step, int* restarted) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(step, "step"));
    VARVE_ASSIGN(const std::optional<uint64_t> found, to.session.restart());
    if (found) *step = *found;
    if (restarted != nullptr) *restarted = found ? 1 : 0;
    return {};
  });
}

int varve_due(varve_session* session, uint64_t step) {
  bool due = false;
  const int code = with_session(session, [&](varve_session& to) -> Status {
    due = to.session.due(step);
    return {};
  });
  return code == VARVE_OK && due ? 1 : 0;
}

int varve_checkpoint(varve_session* session, uint64_t step, int persistence) {
  return with_session(session, [&](varve_session& to) -> Status {
    if (persistence != VARVE_LATER && persistence != VARVE_NOW) {
      return Status::invalid_argument("there is no varve_persistence of number " + std::to_string(persistence));
    }
    return to.session.checkpoint(step, persistence == VARVE_NOW ? varve::Persistence::now : varve::Persistence::later);
  });
}

int varve_should_stop(const varve_session* session) {
  return session != nullptr && session->session.should_stop() ? 1 : 0;
}

int varve_wait(varve_session* session) {
  return with_session(session, [](varve_session& to) { return to.session.wait(); });
}

int varve_finish(varve_session* session, double limit_seconds) {
  return with_session(session, [&](varve_session& to) -> Status {
    if (!(limit_seconds >= 0)) return Status::invalid_argument("a time to wait is below 0");
    to.finished = true;
    return to.session.finish(std::chrono::duration<double>(std::min(limit_seconds, 1e9)));
  });
}

int varve_progress(const varve_session* session, struct varve_state* state) {
  return with_session(session, [&](const varve_session& of) -> Status {
    VARVE_TRY(c_binding::check_pointer(state, "state"));
    const varve::SessionProgress now = of.session.progress();
    varve_state told{};
    told.has_snapshot = now.newest_snapshot ? 1 : 0;
    told.has_persistent = now.newest_persistent ? 1 : 0;
    told.newest_snapshot = now.newest_snapshot.value_or(0);
    told.newest_persistent = now.newest_persistent.value_or(0);
    told.bytes_to_write = now.bytes_to_write;
    told.bytes_written = now.bytes_written;
    told.skipped = now.skipped;
    told.last_error = c_binding::code_number(now.last_error.code());
    return c_binding::write_struct(told, *state, "varve_state");
  });
}

uint32_t varve_level_count(const varve_session* session) {
  uint32_t count = 0;
  if (session == nullptr) return count;
  c_binding::without_exceptions([&]() -> Status {
    count = static_cast<uint32_t>(session->session.progress().levels.size());
    return {};
  }).ignore("no level can be told of then");
  return count;
}

const char* varve_level_name(varve_session* session, uint32_t level) {
  return c_binding::text_of(session, [level](varve_session& of) {
    const std::vector<varve::LevelProgress> levels = of.session.progress().levels;
    return level < levels.size() ? levels[level].level : std::string();
  });
}

int varve_level_progress(const varve_session* session, uint32_t level, struct varve_level_state* state) {
  return with_session(session, [&](const varve_session& of) -> Status {
    VARVE_TRY(c_binding::check_pointer(state, "state"));
    const std::vector<varve::LevelProgress> levels = of.session.progress().levels;
    varve_level_state told{};
    if (level < levels.size()) {
      const varve::LevelProgress& now = levels[level];
      told.has_newest = now.newest ? 1 : 0;
      told.newest = now.newest.value_or(0);
      told.waiting = now.waiting;
      told.last_error = c_binding::code_number(now.last_error.code());
    }
    VARVE_TRY(c_binding::write_struct(told, *state, "varve_level_state"));
    return level < levels.size() ? Status() : Status::not_found("there are not so many levels");
  });
}

const char* varve_level_error(varve_session* session, uint32_t level) {
  return c_binding::text_of(session, [level](varve_session& of) {
    const std::vector<varve::LevelProgress> levels = of.session.progress().levels;
    const bool failed = level < levels.size() && !levels[level].last_error.ok();
    return failed ? levels[level].last_error.to_string() : std::string();
  });
}

const char* varve_last_error(varve_session* session) {
  return c_binding::text_of(session, [](varve_session& of) {
    const Status last = of.session.progress().last_error;
    return last.ok() ? std::string() : last.to_string();
  });
}

const char* varve_next_warning(varve_session* session) {
  bool any = false;
  const char* const text = c_binding::text_of(session, [&any](varve_session& of) -> std::string {
    for (Status& warning : of.session.warnings()) of.warnings_left.push_back(std::move(warning));
    if (of.warnings_left.empty()) return {};
    const Status oldest = of.warnings_left.front();
    of.warnings_left.pop_front();
    any = true;
    return oldest.to_string();
  });
  return any ? text : nullptr;
}

const char* varve_effective_options(varve_session* session) {
  return c_binding::text_of(session, [](varve_session& of) { return of.session.effective_options(); });
}

const char* varve_report(varve_session* session) {
  return c_binding::text_of(session, [](varve_session& of) { return of.session.report(); });
}

const char* varve_report_json(varve_session* session) {
  return c_binding::text_of(session, [](varve_session& of) { return of.session.report_json(); });
}

}  // extern "C"
