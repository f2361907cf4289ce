// The C interface over the C++ one: each function turns its arguments, calls, and turns what comes back.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "session_handle.h"
#include "sized_struct.h"
#include "varve/communicator.h"

struct varve_bytes {
  varve_bytes(std::vector<std::byte>& bytes) : to(bytes) {}
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

Result<DimensionOrder> dimension_order(int order) {
  switch (order) {
    case VARVE_SLOWEST_FIRST: return DimensionOrder::slowest_first;
    case VARVE_FASTEST_FIRST: return DimensionOrder::fastest_first;
    default: return Status::invalid_argument("there is no varve_order of number " + std::to_string(order));
  }
}

ArrayShape array_shape(const varve_shape& shape, DimensionOrder order) {
  const auto numbers = [&](const uint64_t* first) {
    return first == nullptr ? std::vector<uint64_t>() : std::vector<uint64_t>(first, first + shape.dimensions);
  };
  return {numbers(shape.cells),        numbers(shape.ghosts_low),    numbers(shape.ghosts_high),
          numbers(shape.global_cells), numbers(shape.global_offset), order};
}

/// What a program's shape says; nothing if it is null.
Result<ArrayShape> read_shape(const varve_shape* shape) {
  if (shape == nullptr) return ArrayShape();
  VARVE_ASSIGN(const varve_shape known, read_struct(*shape, "varve_shape"));
  VARVE_ASSIGN(const DimensionOrder order, dimension_order(known.order));
  return array_shape(known, order);
}

/// The type of numbers in the order of bytes of this machine; of VARVE_BYTE, of things of so many bytes.
Result<ElementType> element_type(int type, uint64_t bytes_of_byte);

std::vector<std::string> names_of(const char* const* names, size_t count) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.emplace_back(names[i]);
  return all;
}

/// The number of a type; that of bytes if it has none.
int type_number(const ElementType& type) {
  for (int number = VARVE_INT8; number <= VARVE_DOUBLE; ++number) {
    const Result<ElementType> known = element_type(number, 1);
    if (known.ok() && *known == type) return number;
  }
  return VARVE_BYTE;
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

Result<ElementType> element_type(int type, uint64_t bytes_of_byte) {
  ElementType found;
  VARVE_TRY(with_type(type, nullptr, [&](auto* first) {
    found = element_type_of<std::remove_pointer_t<decltype(first)>>();
    return Status();
  }));
  if (type != VARVE_BYTE) return found;
  if (bytes_of_byte > UINT32_MAX) return Status::invalid_argument("an element cannot be so large");
  return ElementType{ElementKind::opaque, ByteOrder::little,
                     static_cast<uint32_t>(std::max<uint64_t>(bytes_of_byte, 1))};
}

/// So many elements at `first`, which may be null where there are none. Throws where no memory can hold so many, so
/// that what runs the callback makes an error of it: their bytes, counted round, would be those of a few.
template <class Byte>
std::span<Byte> span_of(Byte* first, uint64_t count, const ElementType& element) {
  if (count > static_cast<uint64_t>(PTRDIFF_MAX) / element.bytes) {
    throw std::length_error("there cannot be so many elements: " + std::to_string(count));
  }
  return {first, first == nullptr ? 0 : static_cast<size_t>(count * element.bytes)};
}

/// What a callback of the program has returned.
Status callback_status(int returned, const char* what) {
  if (returned == VARVE_OK) return {};
  const std::string message = std::string("the program's ") + what + " callback returned " + std::to_string(returned);
  return {code_of_number(returned).value_or(StatusCode::invalid_argument), message};
}

/// What a program's choice says; the newest if it is null.
Result<RestartChoice> restart_choice(const varve_restart_choice* theirs) {
  RestartChoice chosen;
  if (theirs == nullptr) return chosen;
  VARVE_ASSIGN(const varve_restart_choice said, read_struct(*theirs, "varve_restart_choice"));
  if (said.has_at_most != 0) chosen.at_most = said.at_most;
  if (said.has_exactly != 0) chosen.exactly = said.exactly;
  return chosen;
}

/// A session's files, from the first call that is about them on.
Result<RoutedFiles*> files_of(varve_session& session) {
  if (session.files == nullptr) {
    VARVE_ASSIGN(session.files, RoutedFiles::make(shared_memory_of(session.session)));
  }
  return session.files.get();
}

/// Ranks whose bytes the program gathers.
Result<std::unique_ptr<Communicator>> gathering_ranks(const varve_ranks* theirs) {
  VARVE_TRY(check_pointer(theirs, "ranks"));
  VARVE_ASSIGN(const varve_ranks ranks, read_struct(*theirs, "varve_ranks"));
  if (ranks.all_gather == nullptr) return Status::invalid_argument("a callback is NULL", "all_gather");
  return make_gathering_communicator(
      ranks.rank, ranks.rank_count,
      [ranks](std::span<const std::byte> mine) -> Result<std::vector<std::vector<std::byte>>> {
        std::vector<std::vector<std::byte>> all(ranks.rank_count);
        std::vector<varve_bytes> given(all.begin(), all.end());
        std::vector<varve_bytes*> places;
        for (varve_bytes& one : given) places.push_back(&one);
        VARVE_TRY(
            callback_status(ranks.all_gather(ranks.context, mine.data(), mine.size(), places.data()), "all_gather"));
        return all;
      });
}

}  // namespace
}  // namespace varve::c_binding

using varve::Status;
using varve::c_binding::with_session;
varve_session* varve::c_binding::make_handle(Session opened, uint32_t rank) {
  return new varve_session(std::move(opened), rank);
}

namespace c_binding = varve::c_binding;

extern "C" {

int varve_open(const struct varve_options* options, varve_session** session) {
  const auto alone = [] {
    return varve::Result<std::unique_ptr<varve::Communicator>>(varve::make_single_communicator());
  };
  return c_binding::open_session(alone, options, session);
}

int varve_open_ranks(const struct varve_ranks* ranks, const struct varve_options* options, varve_session** session) {
  return c_binding::open_session([ranks] { return c_binding::gathering_ranks(ranks); }, options, session);
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
    VARVE_ASSIGN(const varve::ArrayShape said, c_binding::read_shape(shape));
    return c_binding::with_type(type, data, [&](auto* first) -> Status {
      if (count > std::numeric_limits<size_t>::max() / sizeof *first) {
        return Status::invalid_argument("an array cannot be so large", name);
      }
      return to.session.protect(name, std::span(first, static_cast<size_t>(count)), said);
    });
  });
}

int varve_protect_boxes(varve_session* session, const char* name, int type, size_t dimensions,
                        const uint64_t* global_cells, const struct varve_box* const* boxes, size_t box_count,
                        int order) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(global_cells, name));
    if (box_count > 0) VARVE_TRY(c_binding::check_pointer(boxes, name));
    VARVE_ASSIGN(const varve::DimensionOrder in_order, c_binding::dimension_order(order));
    return c_binding::with_type(type, nullptr, [&](auto* none) -> Status {
      using Element = std::remove_pointer_t<decltype(none)>;
      std::vector<varve::ArrayBox<Element>> all;
      for (size_t i = 0; i < box_count; ++i) {
        VARVE_TRY(c_binding::check_pointer(boxes[i], name));
        VARVE_ASSIGN(const varve_box box, c_binding::read_struct(*boxes[i], "varve_box"));
        if (box.count > 0) VARVE_TRY(c_binding::check_pointer(box.data, name));
        if (box.count > std::numeric_limits<size_t>::max() / sizeof(Element)) {
          return Status::invalid_argument("an array cannot be so large", name);
        }
        VARVE_ASSIGN(varve::ArrayShape shape, c_binding::read_shape(box.shape));
        all.push_back({std::span(static_cast<Element*>(box.data), static_cast<size_t>(box.count)), std::move(shape)});
      }
      return to.session.protect_boxes(name, std::vector<uint64_t>(global_cells, global_cells + dimensions), all,
                                      in_order);
    });
  });
}

int varve_protect_vector(varve_session* session, const char* name, int type, uint64_t element_bytes,
                         varve_data_function data, varve_resize_function resize, void* context) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    if (data == nullptr || resize == nullptr) return Status::invalid_argument("a callback is NULL", name);
    VARVE_ASSIGN(const varve::ElementType element, c_binding::element_type(type, element_bytes));
    const auto bytes = [data, context, element]() -> std::span<const std::byte> {
      uint64_t count = 0;
      const auto* const first = static_cast<const std::byte*>(data(context, &count));
      // Nothing is saved in place of what it could not give; what runs this makes an error of it.
      if (first == nullptr && count > 0) throw std::runtime_error("the callback gave no elements, but a count of them");
      return c_binding::span_of(first, count, element);
    };
    const auto make_room = [resize, context, element](uint64_t count) -> std::span<std::byte> {
      auto* const first = static_cast<std::byte*>(resize(context, count));
      return c_binding::span_of(first, count, element);
    };
    return to.session.protect_vector(name, element, bytes, make_room);
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
      case VARVE_REDISTRIBUTE_EVENLY: return to.session.redistribute(name, varve::Redistribution::evenly);
      case VARVE_REDISTRIBUTE_IGNORE: return to.session.redistribute(name, varve::Redistribution::ignore);
      default: return Status::invalid_argument("there is no such way to redistribute a variable", name);
    }
  });
}

int varve_redistribute_by_owner(varve_session* session, const char* name, varve_owner_function owner, void* context,
                                const char* const* together, size_t together_count) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    if (owner == nullptr) return Status::invalid_argument("a callback is NULL", name);
    varve::ElementOwners owners;
    owners.owner = [owner, context](const std::byte* element) { return owner(context, element); };
    return to.session.redistribute(name, std::move(owners), c_binding::names_of(together, together_count));
  });
}

int varve_redistribute_by_cell(varve_session* session, const char* name, const char* array, varve_cell_function cell,
                               void* context, const char* const* together, size_t together_count) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(array, "array"));
    if (cell == nullptr) return Status::invalid_argument("a callback is NULL", name);
    varve::ElementOwners owners;
    owners.array = array;
    owners.cell = [cell, context](const std::byte* element, std::span<uint64_t> numbers) {
      cell(context, element, numbers.data());
    };
    return to.session.redistribute(name, std::move(owners), c_binding::names_of(together, together_count));
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
  return varve_restart_from(session, nullptr, step, restarted);
}

int varve_restart_from(varve_session* session, const struct varve_restart_choice* choice, uint64_t* step,
                       int* restarted) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(step, "step"));
    VARVE_ASSIGN(const varve::RestartChoice chosen, c_binding::restart_choice(choice));
    VARVE_ASSIGN(const std::optional<uint64_t> found, to.session.restart(chosen));
    if (to.files != nullptr) to.files->stand_at(found);
    if (found) *step = *found;
    if (restarted != nullptr) *restarted = found ? 1 : 0;
    return {};
  });
}

int varve_restart_with_files(varve_session* session, const struct varve_restart_choice* choice, uint64_t* step,
                             int* restarted) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(step, "step"));
    VARVE_ASSIGN(const varve::RestartChoice chosen, c_binding::restart_choice(choice));
    VARVE_ASSIGN(c_binding::RoutedFiles * files, c_binding::files_of(to));
    VARVE_ASSIGN(const std::optional<uint64_t> found, files->restart(to.session, to.rank, chosen, to.warnings_left));
    if (found) *step = *found;
    if (restarted != nullptr) *restarted = found ? 1 : 0;
    return {};
  });
}

int varve_route_file(varve_session* session, uint64_t step, const char* name, char* path, size_t path_bytes) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(path, "path"));
    VARVE_ASSIGN(c_binding::RoutedFiles * files, c_binding::files_of(to));
    VARVE_ASSIGN(const std::string found, files->route(step, name));
    if (found.size() >= path_bytes) return Status::resource_limit("there is no room for a path", found);
    found.copy(path, found.size());
    path[found.size()] = '\0';
    return {};
  });
}

FILE* varve_fopen(varve_session* session, uint64_t step, const char* name, const char* mode) {
  FILE* opened = nullptr;
  const int code = with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(name, "name"));
    VARVE_TRY(c_binding::check_pointer(mode, "mode"));
    VARVE_ASSIGN(c_binding::RoutedFiles * files, c_binding::files_of(to));
    VARVE_ASSIGN(const std::string path, files->route(step, name));
    opened = std::fopen(path.c_str(), mode);
    return opened != nullptr ? Status() : Status::from_errno(errno, "open", path);
  });
  return code == VARVE_OK ? opened : nullptr;
}

uint64_t varve_file_count(const varve_session* session) {
  return session == nullptr || session->files == nullptr ? 0 : session->files->loaded().size();
}

const char* varve_file_name(const varve_session* session, uint64_t index) {
  return index < varve_file_count(session) ? session->files->loaded()[index].name.c_str() : nullptr;
}

int varve_reject(varve_session* session, uint64_t* step, int* restarted) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(step, "step"));
    const varve::Result<std::optional<uint64_t>> rejected = to.session.reject();
    if (rejected.status().code() == varve::StatusCode::invalid_argument && to.files != nullptr &&
        to.files->has_loaded()) {
      return rejected.status().with_context(
          "the older checkpoint is not one to go on from like this; if it has files, varve_restart_with_files() loads "
          "it");
    }
    VARVE_ASSIGN(const std::optional<uint64_t> found, rejected);
    if (to.files != nullptr) to.files->stand_at(found);
    if (found) *step = *found;
    if (restarted != nullptr) *restarted = found ? 1 : 0;
    return {};
  });
}

int varve_drop(varve_session* session, uint64_t step) {
  return with_session(session, [&](varve_session& to) { return to.session.drop(step); });
}

int varve_list_restart_points(varve_session* session, uint64_t* count) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(count, "count"));
    VARVE_ASSIGN(to.points, to.session.restart_points());
    *count = to.points.size();
    return {};
  });
}

int varve_restart_point_at(const varve_session* session, uint64_t index, struct varve_restart_point* point) {
  return with_session(session, [&](const varve_session& of) -> Status {
    VARVE_TRY(c_binding::check_pointer(point, "point"));
    if (index >= of.points.size()) return Status::not_found("there are not so many checkpoints");
    const varve::RestartPoint& found = of.points[index];
    varve_restart_point told{};
    told.step = found.step;
    told.rank_count = found.rank_count;
    if (found.made_at) {
      told.made_s = std::chrono::duration_cast<std::chrono::seconds>(found.made_at->time_since_epoch()).count();
    }
    told.place = found.place.c_str();
    return c_binding::write_struct(told, *point, "varve_restart_point");
  });
}

int varve_list_saved_variables(varve_session* session, uint64_t step, uint64_t* count) {
  return with_session(session, [&](varve_session& to) -> Status {
    VARVE_TRY(c_binding::check_pointer(count, "count"));
    VARVE_ASSIGN(to.variables, to.session.saved_variables(step));
    *count = to.variables.size();
    return {};
  });
}

int varve_saved_variable_at(const varve_session* session, uint64_t index, struct varve_saved_variable* variable) {
  return with_session(session, [&](const varve_session& of) -> Status {
    VARVE_TRY(c_binding::check_pointer(variable, "variable"));
    if (index >= of.variables.size()) return Status::not_found("there are not so many variables");
    const varve::SavedVariable& found = of.variables[index];
    varve_saved_variable told{};
    told.name = found.name.c_str();
    told.type = c_binding::type_number(found.type);
    told.element_bytes = found.type.bytes;
    told.bytes = found.bytes;
    told.dimensions = found.global_cells.size();
    told.global_cells = found.global_cells.empty() ? nullptr : found.global_cells.data();
    told.part_count = found.parts.size();
    return c_binding::write_struct(told, *variable, "varve_saved_variable");
  });
}

int varve_saved_part_of(const varve_session* session, uint64_t variable, uint64_t part,
                        struct varve_saved_part* saved) {
  return with_session(session, [&](const varve_session& of) -> Status {
    VARVE_TRY(c_binding::check_pointer(saved, "saved"));
    if (variable >= of.variables.size() || part >= of.variables[variable].parts.size()) {
      return Status::not_found("there are not so many variables, or parts of it");
    }
    const varve::SavedVariable::Part& found = of.variables[variable].parts[part];
    varve_saved_part told{};
    told.rank = found.rank;
    told.dimensions = found.cells.size();
    told.cells = found.cells.empty() ? nullptr : found.cells.data();
    told.global_offset = found.global_offset.empty() ? nullptr : found.global_offset.data();
    return c_binding::write_struct(told, *saved, "varve_saved_part");
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
    const auto how = persistence == VARVE_NOW ? varve::Persistence::now : varve::Persistence::later;
    return to.files == nullptr ? to.session.checkpoint(step, how) : to.files->checkpoint(to.session, step, how);
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

int varve_abandon(varve_session* session) {
  return with_session(session, [](varve_session& to) {
    to.finished = true;
    return to.session.abandon();
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
