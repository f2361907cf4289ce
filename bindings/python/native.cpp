// varve._native: the C interface of sessions and readers for Python. What the arguments mean to a Python program is
// said in varve/_session.py and varve/_store.py; here they are numbers, addresses and bytes.
#include "native.h"

#include <pybind11/stl.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "varve/varve_reader.h"

namespace py = pybind11;

namespace varve::python {
namespace {

using Numbers = std::vector<uint64_t>;

const uint64_t* or_null(const Numbers& numbers) { return numbers.empty() ? nullptr : numbers.data(); }

Numbers numbers_at(const uint64_t* first, size_t count) {
  return first == nullptr ? Numbers() : Numbers(first, first + count);
}

/// Calls on a handle of the C interface, one at a time and without the GIL. Python code that is called back from within
/// has it again; what that raises is raised by the call.
template <class Handle>
class Caller {
 public:
  template <class Call>
  void operator()(Handle* handle, const char* what, Call call) {
    if (handle == nullptr) raise({VARVE_INVALID_ARGUMENT, std::string("the ") + what + " is closed"});
    const std::thread::id here = std::this_thread::get_id();
    if (busy_ == here) raise({VARVE_INVALID_ARGUMENT, std::string("a callback uses the ") + what + " that calls it"});
    Failure failure;
    {
      const py::gil_scoped_release others_may_run;
      const std::lock_guard one_at_a_time(mutex_);
      const Busy busy(busy_, here);
      failure.code = call();
      if (failure.code != VARVE_OK) tell(handle, failure);
    }
    raise_what_was_raised();
    if (failure.code != VARVE_OK) raise(failure);
  }
  void raise_what_was_raised() {
    if (const std::exception_ptr raised = std::exchange(raised_, nullptr)) std::rethrow_exception(raised);
  }

  /// Python code that C calls: 0, or VARVE_CANCELLED if it has raised something.
  template <class Call>
  int back(Call call) {
    const py::gil_scoped_acquire ours;
    try {
      call();
      return VARVE_OK;
    } catch (...) {
      if (!raised_) raised_ = std::current_exception();
      return VARVE_CANCELLED;
    }
  }

 private:
  /// Says whose call it is, as long as it lasts.
  class Busy {
   public:
    Busy(std::atomic<std::thread::id>& whose, std::thread::id here) : whose_(whose) { whose_ = here; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { whose_ = std::thread::id(); }

   private:
    std::atomic<std::thread::id>& whose_;
  };

  static void tell(const varve_session* session, Failure& failure) {
    failure.message = varve_error_message(session);
    failure.hint = varve_error_hint(session);
    failure.remedy = varve_error_remedy(session);
  }
  static void tell(const varve_reader* reader, Failure& failure) {
    failure.message = varve_reader_error_message(reader);
    failure.hint = varve_reader_error_hint(reader);
    failure.remedy = varve_reader_error_remedy(reader);
  }

  std::mutex mutex_;
  std::atomic<std::thread::id> busy_{};
  std::exception_ptr raised_;  ///< by Python code within the call; under the GIL
};

/// A variable that Python code gives and takes, or memory that Python keeps.
struct Held {
  Caller<varve_session>* caller = nullptr;
  py::object first{}, second{};
};

class Session {
 public:
  /// Of one process.
  explicit Session(const py::dict& said) {
    const Options options(said);
    opened([&] { return varve_open(options.get(), &session_); });
  }
  /// Of ranks for which `all_gather` gathers bytes.
  Session(uint32_t rank, uint32_t rank_count, py::object all_gather, const py::dict& said) {
    const Options options(said);
    gather_ = std::move(all_gather);
    rank_count_ = rank_count;
    varve_ranks ranks;
    varve_ranks_init(&ranks);
    ranks.rank = rank;
    ranks.rank_count = rank_count;
    ranks.context = this;
    ranks.all_gather = [](void* context, const void* mine, size_t bytes, varve_bytes* const* all) {
      Session& session = *static_cast<Session*>(context);
      return session.caller_.back([&] {
        const py::list given = session.gather_(py::bytes(static_cast<const char*>(mine), bytes));
        if (given.size() != session.rank_count_) throw py::value_error("all_gather() gives one for each rank");
        for (size_t from = 0; from < given.size(); ++from) {
          const std::string_view one = given[from].cast<std::string_view>();
          if (varve_append(all[from], one.data(), one.size()) != VARVE_OK) throw std::bad_alloc();
        }
      });
    };
    opened([&] { return varve_open_ranks(&ranks, options.get(), &session_); });
  }
  /// Takes over what another module has opened.
  explicit Session(uintptr_t address) : session_(reinterpret_cast<varve_session*>(address)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    const py::gil_scoped_release others_may_run;
    varve_close(std::exchange(session_, nullptr));
  }

  void protect_array(const std::string& name, int type, uintptr_t address, uint64_t count, const Numbers& cells,
                     const Numbers& ghosts_low, const Numbers& ghosts_high, const Numbers& global_cells,
                     const Numbers& global_offset, bool fastest_first, py::object owner) {
    varve_shape shape;
    varve_shape_init(&shape);
    shape.dimensions = cells.size();
    shape.cells = or_null(cells);
    shape.ghosts_low = or_null(ghosts_low);
    shape.ghosts_high = or_null(ghosts_high);
    shape.global_cells = or_null(global_cells);
    shape.global_offset = or_null(global_offset);
    shape.order = fastest_first ? VARVE_FASTEST_FIRST : VARVE_SLOWEST_FIRST;
    void* const data = reinterpret_cast<void*>(address);
    call([&] {
      return cells.empty() ? varve_protect_scalar(session_, name.c_str(), type, data)
                           : varve_protect_array(session_, name.c_str(), type, data, count, &shape);
    });
    hold(name, {&caller_, std::move(owner), {}});
  }

  /// Each box as (address, count, cells, offset, the object that keeps the memory).
  using Box = std::tuple<uintptr_t, uint64_t, Numbers, Numbers, py::object>;
  void protect_boxes(const std::string& name, int type, const Numbers& global_cells, const std::vector<Box>& boxes,
                     bool fastest_first) {
    const int order = fastest_first ? VARVE_FASTEST_FIRST : VARVE_SLOWEST_FIRST;
    std::vector<varve_shape> shapes(boxes.size());
    std::vector<varve_box> all(boxes.size());
    std::vector<const varve_box*> pointers;
    py::list owners;
    for (size_t i = 0; i < boxes.size(); ++i) {
      const auto& [address, count, cells, offset, owner] = boxes[i];
      varve_shape_init(&shapes[i]);
      shapes[i].dimensions = cells.size();
      shapes[i].cells = or_null(cells);
      shapes[i].global_offset = or_null(offset);
      shapes[i].order = order;
      varve_box_init(&all[i]);
      all[i].data = reinterpret_cast<void*>(address);
      all[i].count = count;
      all[i].shape = &shapes[i];
      pointers.push_back(&all[i]);
      owners.append(owner);
    }
    call([&] {
      return varve_protect_boxes(session_, name.c_str(), type, global_cells.size(), global_cells.data(),
                                 pointers.data(), pointers.size(), order);
    });
    hold(name, {&caller_, std::move(owners), {}});
  }

  /// `data`() gives the address and the count of elements, `resize`(count) an address where so many have room.
  void protect_vector(const std::string& name, int type, uint64_t element_bytes, py::object data, py::object resize) {
    auto held = std::make_unique<Held>(Held{&caller_, std::move(data), std::move(resize)});
    const varve_data_function give = [](void* context, uint64_t* count) -> const void* {
      uintptr_t address = 0;
      Held& vector = *static_cast<Held*>(context);
      *count = 0;
      const int code = vector.caller->back(
          [&] { std::tie(address, *count) = vector.first().cast<std::pair<uintptr_t, uint64_t>>(); });
      if (code == VARVE_OK) return reinterpret_cast<const void*>(address);
      *count = 1;  // of which there is no first: the call fails
      return nullptr;
    };
    const varve_resize_function make_room = [](void* context, uint64_t count) -> void* {
      uintptr_t address = 0;
      Held& vector = *static_cast<Held*>(context);
      const int code = vector.caller->back([&] { address = vector.second(count).cast<uintptr_t>(); });
      return code == VARVE_OK ? reinterpret_cast<void*>(address) : nullptr;
    };
    call(
        [&] { return varve_protect_vector(session_, name.c_str(), type, element_bytes, give, make_room, held.get()); });
    hold(name, std::move(held));
  }

  /// `save`() gives bytes, `load`(bytes) takes them.
  void protect_callbacks(const std::string& name, py::object save, py::object load) {
    auto held = std::make_unique<Held>(Held{&caller_, std::move(save), std::move(load)});
    const varve_save_function give = [](void* context, varve_bytes* to) {
      Held& object = *static_cast<Held*>(context);
      return object.caller->back([&] {
        const py::bytes saved = object.first();
        const auto bytes = saved.cast<std::string_view>();
        if (varve_append(to, bytes.data(), bytes.size()) != VARVE_OK) throw std::bad_alloc();
      });
    };
    const varve_load_function take = [](void* context, const void* data, size_t bytes) {
      Held& object = *static_cast<Held*>(context);
      return object.caller->back([&] { object.second(py::bytes(static_cast<const char*>(data), bytes)); });
    };
    call([&] { return varve_protect_callbacks(session_, name.c_str(), give, take, held.get()); });
    hold(name, std::move(held));
  }

  void unprotect(const std::string& name) {
    call([&] { return varve_unprotect(session_, name.c_str()); });
    held_.erase(name);
  }
  void redistribute(const std::string& name, int how) {
    call([&] { return varve_redistribute(session_, name.c_str(), how); });
  }

  std::optional<uint64_t> restart(std::optional<uint64_t> at_most, std::optional<uint64_t> exactly) {
    varve_restart_choice choice;
    varve_restart_choice_init(&choice);
    choice.has_at_most = at_most ? 1 : 0;
    choice.has_exactly = exactly ? 1 : 0;
    choice.at_most = at_most.value_or(0);
    choice.exactly = exactly.value_or(0);
    uint64_t step = 0;
    int found = 0;
    call([&] { return varve_restart_from(session_, &choice, &step, &found); });
    return found != 0 ? std::optional(step) : std::nullopt;
  }
  std::optional<uint64_t> reject() {
    uint64_t step = 0;
    int found = 0;
    call([&] { return varve_reject(session_, &step, &found); });
    return found != 0 ? std::optional(step) : std::nullopt;
  }
  void drop(uint64_t step) {
    call([&] { return varve_drop(session_, step); });
  }

  /// (step, ranks or 0, seconds since 1970 or 0, place) of each.
  std::vector<std::tuple<uint64_t, uint64_t, int64_t, std::string>> restart_points() {
    std::vector<std::tuple<uint64_t, uint64_t, int64_t, std::string>> points;
    call([&] {
      uint64_t count = 0;
      int code = varve_list_restart_points(session_, &count);
      for (uint64_t i = 0; code == VARVE_OK && i < count; ++i) {
        varve_restart_point point;
        varve_restart_point_init(&point);
        code = varve_restart_point_at(session_, i, &point);
        if (code == VARVE_OK) points.emplace_back(point.step, point.rank_count, point.made_s, point.place);
      }
      return code;
    });
    return points;
  }

  using Part = std::tuple<uint64_t, Numbers, Numbers>;
  /// (name, type, bytes of an element, bytes, cells of the whole or none, parts as (rank, cells, offset or none)).
  std::vector<std::tuple<std::string, int, uint64_t, uint64_t, Numbers, std::vector<Part>>> saved_variables(
      uint64_t step) {
    std::vector<std::tuple<std::string, int, uint64_t, uint64_t, Numbers, std::vector<Part>>> variables;
    call([&] {
      uint64_t count = 0;
      int code = varve_list_saved_variables(session_, step, &count);
      for (uint64_t i = 0; code == VARVE_OK && i < count; ++i) {
        varve_saved_variable one;
        varve_saved_variable_init(&one);
        code = varve_saved_variable_at(session_, i, &one);
        std::vector<Part> parts;
        for (uint64_t p = 0; code == VARVE_OK && p < one.part_count; ++p) {
          varve_saved_part part;
          varve_saved_part_init(&part);
          code = varve_saved_part_of(session_, i, p, &part);
          parts.emplace_back(part.rank, numbers_at(part.cells, part.dimensions),
                             numbers_at(part.global_offset, part.dimensions));
        }
        variables.emplace_back(one.name, one.type, one.element_bytes, one.bytes,
                               numbers_at(one.global_cells, one.dimensions), std::move(parts));
      }
      return code;
    });
    return variables;
  }

  bool due(uint64_t step) {
    bool is_due = false;
    call([&] {
      is_due = varve_due(session_, step) != 0;
      return VARVE_OK;
    });
    return is_due;
  }
  void checkpoint(uint64_t step, bool wait) {
    call([&] { return varve_checkpoint(session_, step, wait ? VARVE_NOW : VARVE_LATER); });
  }
  bool should_stop() { return session_ != nullptr && varve_should_stop(session_) != 0; }
  void wait() {
    call([&] { return varve_wait(session_); });
  }
  void finish(double seconds) {
    call([&] { return varve_finish(session_, seconds); });
  }
  void abandon() {
    call([&] { return varve_abandon(session_); });
  }
  void close() {
    if (session_ == nullptr) return;
    int code = VARVE_OK;
    {
      const py::gil_scoped_release others_may_run;
      code = varve_close(std::exchange(session_, nullptr));
    }
    held_.clear();
    if (code != VARVE_OK) raise_without_session(code);
  }

  py::dict progress() {
    varve_state state;
    varve_state_init(&state);
    call([&] { return varve_progress(session_, &state); });
    py::dict told;
    told["newest_snapshot"] = state.has_snapshot != 0 ? py::object(py::int_(state.newest_snapshot)) : py::none();
    told["newest_persistent"] = state.has_persistent != 0 ? py::object(py::int_(state.newest_persistent)) : py::none();
    told["bytes_to_write"] = state.bytes_to_write;
    told["bytes_written"] = state.bytes_written;
    told["skipped"] = state.skipped;
    told["last_error"] = state.last_error != VARVE_OK ? text(varve_last_error) : py::none();
    return told;
  }
  py::list levels() {
    py::list told;
    const uint32_t count = session_ == nullptr ? 0 : varve_level_count(session_);
    for (uint32_t level = 0; level < count; ++level) {
      varve_level_state state;
      varve_level_state_init(&state);
      call([&] { return varve_level_progress(session_, level, &state); });
      py::dict one;
      one["name"] = py::str(varve_level_name(session_, level));
      one["newest"] = state.has_newest != 0 ? py::object(py::int_(state.newest)) : py::none();
      one["waiting"] = state.waiting;
      one["last_error"] =
          state.last_error != VARVE_OK ? py::object(py::str(varve_level_error(session_, level))) : py::none();
      told.append(one);
    }
    return told;
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> all;
    call([&] {
      while (const char* one = varve_next_warning(session_)) all.emplace_back(one);
      return VARVE_OK;
    });
    return all;
  }
  py::object effective_options() { return text(varve_effective_options); }
  py::object report() { return text(varve_report); }
  py::object report_json() { return text(varve_report_json); }

 private:
  template <class Call>
  void call(Call call) {
    caller_(session_, "session", call);
  }
  template <class Open>
  void opened(Open open) {
    int code = VARVE_OK;
    {
      const py::gil_scoped_release others_may_run;
      code = open();
    }
    caller_.raise_what_was_raised();
    if (code != VARVE_OK) raise_without_session(code);
  }
  /// A string of the session, copied before another call can change it.
  py::object text(const char* (*get)(varve_session*)) {
    std::string copied;
    call([&] {
      copied = get(session_);
      return VARVE_OK;
    });
    return py::str(copied);
  }
  void hold(const std::string& name, Held held) { hold(name, std::make_unique<Held>(std::move(held))); }
  void hold(const std::string& name, std::unique_ptr<Held> held) { held_[name] = std::move(held); }

  varve_session* session_ = nullptr;
  Caller<varve_session> caller_;
  py::object gather_{};
  uint32_t rank_count_ = 1;
  std::map<std::string, std::unique_ptr<Held>> held_;  ///< by variable
};

class Reader {
 public:
  Reader(const std::string& store, const std::string& set, const std::optional<std::string>& key_file,
         const std::optional<std::string>& s3_endpoint, uint32_t threads) {
    varve_reader_options options;
    varve_reader_options_init(&options);
    if (key_file) options.key_file = key_file->c_str();
    if (s3_endpoint) options.s3_endpoint = s3_endpoint->c_str();
    options.threads = threads;
    int code = VARVE_OK;
    {
      const py::gil_scoped_release others_may_run;
      code = varve_reader_open(store.c_str(), set.c_str(), &options, &reader_);
    }
    if (code != VARVE_OK) raise_without_session(code);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    const py::gil_scoped_release others_may_run;
    varve_reader_close(reader_);
  }

  std::string set() const { return varve_reader_set(reader_); }
  uint64_t step() const { return varve_reader_step(reader_); }
  uint32_t rank_count() const { return varve_reader_rank_count(reader_); }
  bool has_all_ranks() const { return varve_reader_has_all_ranks(reader_) != 0; }

  using Part = std::tuple<int64_t, Numbers, Numbers, uint64_t>;
  using Variable = std::tuple<std::string, std::string, uint32_t, bool, Numbers, uint64_t, uint64_t>;
  /// (name, type, bytes of an element, whether it is one array, cells, bytes, parts) of each.
  std::vector<Variable> variables() {
    std::vector<Variable> all;
    call([&] {
      const uint64_t count = varve_reader_variable_count(reader_);
      int code = VARVE_OK;
      for (uint64_t i = 0; code == VARVE_OK && i < count; ++i) {
        varve_variable one;
        varve_variable_init(&one);
        code = varve_reader_variable(reader_, i, &one);
        if (code != VARVE_OK) break;
        all.emplace_back(one.name, one.type_name, one.element_bytes, one.is_one_array != 0,
                         numbers_at(one.cells, one.dimensions), one.bytes, one.part_count);
      }
      return code;
    });
    return all;
  }
  /// (rank or -1, cells, offset or none, bytes) of each part.
  std::vector<Part> parts(const std::string& name, uint64_t count) {
    std::vector<Part> all;
    call([&] {
      int code = VARVE_OK;
      for (uint64_t i = 0; code == VARVE_OK && i < count; ++i) {
        varve_part part;
        varve_part_init(&part);
        code = varve_reader_part(reader_, name.c_str(), i, &part);
        if (code != VARVE_OK) break;
        all.emplace_back(part.rank, numbers_at(part.cells, part.dimensions),
                         numbers_at(part.global_offset, part.dimensions), part.bytes);
      }
      return code;
    });
    return all;
  }
  /// Reads a box of the whole, or of what a rank has; all of it without `cells`.
  void read(const std::string& name, std::optional<uint32_t> rank, const std::optional<Numbers>& offset,
            const std::optional<Numbers>& cells, uintptr_t into, uint64_t bytes) {
    varve_section box;
    varve_section_init(&box);
    if (offset && cells) {
      box.dimensions = cells->size();
      box.offset = or_null(*offset);
      box.cells = or_null(*cells);
    }
    const varve_section* const chosen = offset && cells ? &box : nullptr;
    void* const memory = reinterpret_cast<void*>(into);
    call([&] {
      return rank ? varve_reader_read_rank(reader_, name.c_str(), *rank, chosen, memory, bytes)
                  : varve_reader_read(reader_, name.c_str(), chosen, memory, bytes);
    });
  }

 private:
  template <class Call>
  void call(Call call) {
    caller_(reader_, "reader", call);
  }

  varve_reader* reader_ = nullptr;
  Caller<varve_reader> caller_;
};

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("version") = varve_version_text();
  py::class_<Session>(module, "Session")
      .def(py::init<const py::dict&>())
      .def(py::init<uint32_t, uint32_t, py::object, const py::dict&>())
      .def(py::init<uintptr_t>())
      .def("protect_array", &Session::protect_array)
      .def("protect_boxes", &Session::protect_boxes)
      .def("protect_vector", &Session::protect_vector)
      .def("protect_callbacks", &Session::protect_callbacks)
      .def("unprotect", &Session::unprotect)
      .def("redistribute", &Session::redistribute)
      .def("restart", &Session::restart)
      .def("reject", &Session::reject)
      .def("drop", &Session::drop)
      .def("restart_points", &Session::restart_points)
      .def("saved_variables", &Session::saved_variables)
      .def("due", &Session::due)
      .def("checkpoint", &Session::checkpoint)
      .def("should_stop", &Session::should_stop)
      .def("wait", &Session::wait)
      .def("finish", &Session::finish)
      .def("abandon", &Session::abandon)
      .def("close", &Session::close)
      .def("progress", &Session::progress)
      .def("levels", &Session::levels)
      .def("warnings", &Session::warnings)
      .def("effective_options", &Session::effective_options)
      .def("report", &Session::report)
      .def("report_json", &Session::report_json);
  py::class_<Reader>(module, "Reader")
      .def(py::init<const std::string&, const std::string&, const std::optional<std::string>&,
                    const std::optional<std::string>&, uint32_t>())
      .def_property_readonly("set", &Reader::set)
      .def_property_readonly("step", &Reader::step)
      .def_property_readonly("rank_count", &Reader::rank_count)
      .def_property_readonly("has_all_ranks", &Reader::has_all_ranks)
      .def("variables", &Reader::variables)
      .def("parts", &Reader::parts)
      .def("read", &Reader::read);
}

}  // namespace varve::python
