#include <variant>

#include "native.h"

namespace py = pybind11;

namespace varve::python {
namespace {

using Member = std::variant<const char * varve_options::*, uint32_t varve_options::*, uint64_t varve_options::*,
                            double varve_options::*, int varve_options::*>;

struct NamedMember {
  const char* name;
  Member member;
};

const NamedMember kMembers[] = {
    {"options_file", &varve_options::options_file},
    {"store", &varve_options::store},
    {"levels", &varve_options::levels},
    {"job", &varve_options::job},
    {"group", &varve_options::group},
    {"effort", &varve_options::effort},
    {"codec", &varve_options::codec},
    {"scheme", &varve_options::scheme},
    {"threads", &varve_options::threads},
    {"when_busy", &varve_options::when_busy},
    {"memory_bytes", &varve_options::memory_bytes},
    {"every_steps", &varve_options::every_steps},
    {"every_seconds", &varve_options::every_seconds},
    {"mean_time_between_failures", &varve_options::mean_time_between_failures},
    {"keep_last", &varve_options::keep_last},
    {"write_bytes_per_second", &varve_options::write_bytes_per_second},
    {"stop_after_seconds", &varve_options::stop_after_seconds},
    {"stop_file", &varve_options::stop_file},
    {"stop_on_signals", &varve_options::stop_on_signals},
    {"low_priority", &varve_options::low_priority},
    {"shared_memory", &varve_options::shared_memory},
    {"key_file", &varve_options::key_file},
    {"snapshot_folder", &varve_options::snapshot_folder},
    {"take_over", &varve_options::take_over},
    {"print_warnings", &varve_options::print_warnings},
    {"wait_limit", &varve_options::wait_limit},
    {"s3_endpoint", &varve_options::s3_endpoint},
    {"variables_may_change", &varve_options::variables_may_change},
    {"metrics_file", &varve_options::metrics_file},
    {"timeline", &varve_options::timeline},
};

const Member& member_of(const std::string& name) {
  for (const NamedMember& known : kMembers) {
    if (name == known.name) return known.member;
  }
  throw py::type_error("a session has no option '" + name + "'");
}

/// `value` is true, false, or one of the names of varve_when_busy.
int number_of_choice(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? VARVE_YES : VARVE_NO;
  const auto name = value.cast<std::string>();
  if (name == "wait") return VARVE_BUSY_WAIT;
  if (name == "skip") return VARVE_BUSY_SKIP;
  if (name == "two_slots") return VARVE_BUSY_TWO_SLOTS;
  if (name == "automatic") return VARVE_BUSY_AUTOMATIC;
  raise({VARVE_INVALID_ARGUMENT, "there is no such way to be busy: when_busy='" + name + "'",
         "it is 'wait', 'skip', 'two_slots' or 'automatic'"});
}

}  // namespace

Options::Options(const py::dict& said) {
  varve_options_init(&options_);
  for (const auto& [name, value] : said) {
    if (value.is_none()) continue;
    const auto set = [this, value = value](auto member) {
      using Value = std::remove_reference_t<decltype(options_.*member)>;
      if constexpr (std::is_same_v<Value, const char*>) {
        // Bytes, as paths may be anything.
        const py::bytes text = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(py::str(value).ptr()));
        if (!text) throw py::error_already_set();
        kept_[py::int_(kept_.size())] = text;
        options_.*member = PyBytes_AsString(text.ptr());
      } else if constexpr (std::is_same_v<Value, int>) {
        options_.*member = number_of_choice(value);
      } else {
        options_.*member = value.cast<Value>();
      }
    };
    try {
      std::visit(set, member_of(name.cast<std::string>()));
    } catch (const py::cast_error&) {
      raise({VARVE_INVALID_ARGUMENT,
             "an option cannot have this value: " + std::string(py::str(name)) + "=" + std::string(py::repr(value)),
             "docs/GUIDE.md, \"Options of a run\", says what each may be"});
    }
  }
}

void raise(const Failure& failure) {
  const py::object make = py::module_::import("varve._errors").attr("make");
  const py::object error = make(varve_code_name(failure.code), failure.message, failure.hint, failure.remedy);
  PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void raise_without_session(int code) {
  raise({code, varve_error_message(nullptr), varve_error_hint(nullptr), varve_error_remedy(nullptr)});
}

}  // namespace varve::python
