// The C interface of a CheckpointReader: each function turns its arguments, calls, and turns what comes back.
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session_handle.h"
#include "sized_struct.h"
#include "varve/checkpoint_reader.h"
#include "varve/varve_reader.h"

/// What a varve_reader* points at.
struct varve_reader {
  explicit varve_reader(varve::CheckpointReader opened) : reader(std::move(opened)) {}

  const std::string& type_name(const varve::CheckpointVariable& variable) {
    return type_names.try_emplace(&variable, variable.type.name()).first->second;
  }

  varve::CheckpointReader reader;
  std::map<const varve::CheckpointVariable*, std::string> type_names;  ///< of those that were asked for
  varve::c_binding::KeptFailure last_failure;
};

namespace varve::c_binding {
namespace {

/// No array has more.
constexpr size_t kBoxDimensionsMax = 32;

template <class Call>
int with_reader(varve_reader* reader, Call call) {
  if (reader == nullptr) return report_without_session(Status::invalid_argument("there is no reader: NULL"));
  const Status status = without_exceptions([&]() -> Status { return call(*reader); });
  if (!status.ok()) reader->last_failure.keep(status);
  return code_number(status.code());
}

Status check_given(const void* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return Status::invalid_argument("an argument is NULL", what);
}

/// VARVE_BYTE if the numbers are not those of this machine.
int type_number(const ElementType& type) {
  const std::pair<ElementType, int> known[] = {
      {element_type_of<int8_t>(), VARVE_INT8},     {element_type_of<int16_t>(), VARVE_INT16},
      {element_type_of<int32_t>(), VARVE_INT32},   {element_type_of<int64_t>(), VARVE_INT64},
      {element_type_of<uint8_t>(), VARVE_UINT8},   {element_type_of<uint16_t>(), VARVE_UINT16},
      {element_type_of<uint32_t>(), VARVE_UINT32}, {element_type_of<uint64_t>(), VARVE_UINT64},
      {element_type_of<float>(), VARVE_FLOAT},     {element_type_of<double>(), VARVE_DOUBLE}};
  for (const auto& [one, number] : known) {
    if (one == type) return number;
  }
  return VARVE_BYTE;
}

const uint64_t* numbers_or_null(const std::vector<uint64_t>& numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}

/// `type_name`: of its elements; it lives as long as the reader.
Status tell(const CheckpointVariable& variable, const std::string& type_name, varve_variable* into) {
  varve_variable told{};
  told.name = variable.name.c_str();
  told.type_name = type_name.c_str();
  told.type = type_number(variable.type);
  told.element_bytes = variable.type.bytes;
  told.is_one_array = variable.is_one_array ? 1 : 0;
  told.dimensions = variable.cells.size();
  told.cells = numbers_or_null(variable.cells);
  told.bytes = variable.bytes;
  told.part_count = variable.parts.size();
  return write_struct(told, *into, "varve_variable");
}

Result<std::optional<ArraySection>> array_box(const varve_section* theirs) {
  if (theirs == nullptr) return std::optional<ArraySection>();
  VARVE_ASSIGN(const varve_section box, read_struct(*theirs, "varve_section"));
  if (box.dimensions == 0) return std::optional(ArraySection{});
  VARVE_TRY(check_given(box.offset, "offset"));
  VARVE_TRY(check_given(box.cells, "cells"));
  if (box.dimensions > kBoxDimensionsMax) return Status::invalid_argument("no array has so many dimensions");
  return std::optional(
      ArraySection{{box.offset, box.offset + box.dimensions}, {box.cells, box.cells + box.dimensions}});
}

Result<std::span<std::byte>> memory_at(void* into, uint64_t bytes) {
  if (bytes > 0) VARVE_TRY(check_given(into, "into"));
  if (bytes > std::numeric_limits<size_t>::max()) return Status::invalid_argument("no memory can be so large");
  return std::span(static_cast<std::byte*>(into), static_cast<size_t>(bytes));
}

Result<CheckpointReaderOptions> reader_options(const varve_reader_options* theirs) {
  CheckpointReaderOptions said;
  if (theirs == nullptr) return said;
  VARVE_ASSIGN(const varve_reader_options options, read_struct(*theirs, "varve_reader_options"));
  if (options.key_file != nullptr) said.key_file = options.key_file;
  if (options.s3_endpoint != nullptr) said.s3_endpoint = options.s3_endpoint;
  if (options.threads > 0) said.threads = options.threads;
  return said;
}

}  // namespace
}  // namespace varve::c_binding

namespace c_binding = varve::c_binding;
using c_binding::with_reader;
using varve::Status;

extern "C" {

int varve_reader_open(const char* store, const char* set, const struct varve_reader_options* options,
                      varve_reader** reader) {
  return c_binding::report_without_session(c_binding::without_exceptions([&]() -> Status {
    VARVE_TRY(c_binding::check_given(reader, "reader"));
    *reader = nullptr;
    VARVE_TRY(c_binding::check_given(store, "store"));
    VARVE_TRY(c_binding::check_given(set, "set"));
    VARVE_ASSIGN(varve::CheckpointReaderOptions said, c_binding::reader_options(options));
    VARVE_ASSIGN(varve::CheckpointReader opened, varve::CheckpointReader::open(store, set, std::move(said)));
    *reader = new varve_reader(std::move(opened));
    return {};
  }));
}

void varve_reader_close(varve_reader* reader) { delete reader; }

const char* varve_reader_error_message(const varve_reader* reader) {
  return reader != nullptr ? reader->last_failure.message.c_str() : varve_error_message(nullptr);
}

const char* varve_reader_error_remedy(const varve_reader* reader) {
  // Names are literals, which end with a zero.
  return reader != nullptr ? varve::remedy_name(reader->last_failure.remedy).data() : varve_error_remedy(nullptr);
}

const char* varve_reader_error_hint(const varve_reader* reader) {
  return reader != nullptr ? reader->last_failure.hint.c_str() : varve_error_hint(nullptr);
}

const char* varve_reader_set(const varve_reader* reader) {
  return reader != nullptr ? reader->reader.set().c_str() : "";
}

uint64_t varve_reader_step(const varve_reader* reader) { return reader != nullptr ? reader->reader.step() : 0; }

uint32_t varve_reader_rank_count(const varve_reader* reader) {
  return reader != nullptr ? reader->reader.rank_count() : 0;
}

int varve_reader_has_all_ranks(const varve_reader* reader) {
  return reader != nullptr && reader->reader.has_all_ranks() ? 1 : 0;
}

uint64_t varve_reader_variable_count(const varve_reader* reader) {
  return reader != nullptr ? reader->reader.variables().size() : 0;
}

int varve_reader_variable(varve_reader* reader, uint64_t ordinal, struct varve_variable* variable) {
  return with_reader(reader, [&](varve_reader& of) -> Status {
    VARVE_TRY(c_binding::check_given(variable, "variable"));
    const std::vector<varve::CheckpointVariable>& variables = of.reader.variables();
    if (ordinal >= variables.size()) return Status::not_found("there are not so many variables");
    return c_binding::tell(variables[ordinal], of.type_name(variables[ordinal]), variable);
  });
}

int varve_reader_find(varve_reader* reader, const char* name, struct varve_variable* variable) {
  return with_reader(reader, [&](varve_reader& of) -> Status {
    VARVE_TRY(c_binding::check_given(name, "name"));
    VARVE_TRY(c_binding::check_given(variable, "variable"));
    VARVE_ASSIGN(const varve::CheckpointVariable* const found, of.reader.variable(name));
    return c_binding::tell(*found, of.type_name(*found), variable);
  });
}

int varve_reader_part(varve_reader* reader, const char* name, uint64_t ordinal, struct varve_part* part) {
  return with_reader(reader, [&](varve_reader& of) -> Status {
    VARVE_TRY(c_binding::check_given(name, "name"));
    VARVE_TRY(c_binding::check_given(part, "part"));
    VARVE_ASSIGN(const varve::CheckpointVariable* const found, of.reader.variable(name));
    if (ordinal >= found->parts.size()) return Status::not_found("it has not so many parts", name);
    const varve::CheckpointPart& known = found->parts[ordinal];
    varve_part told{};
    told.rank = known.rank;
    told.dimensions = known.cells.size();
    told.cells = c_binding::numbers_or_null(known.cells);
    told.global_offset = c_binding::numbers_or_null(known.global_offset);
    told.bytes = known.bytes;
    return c_binding::write_struct(told, *part, "varve_part");
  });
}

int varve_reader_read(varve_reader* reader, const char* name, const struct varve_section* box, void* into,
                      uint64_t bytes) {
  return with_reader(reader, [&](varve_reader& of) -> Status {
    VARVE_TRY(c_binding::check_given(name, "name"));
    VARVE_ASSIGN(const std::optional<varve::ArraySection> cells, c_binding::array_box(box));
    VARVE_ASSIGN(const std::span<std::byte> memory, c_binding::memory_at(into, bytes));
    return cells ? of.reader.read(name, *cells, memory) : of.reader.read(name, memory);
  });
}

int varve_reader_read_rank(varve_reader* reader, const char* name, uint32_t rank, const struct varve_section* box,
                           void* into, uint64_t bytes) {
  return with_reader(reader, [&](varve_reader& of) -> Status {
    VARVE_TRY(c_binding::check_given(name, "name"));
    VARVE_ASSIGN(const std::optional<varve::ArraySection> cells, c_binding::array_box(box));
    VARVE_ASSIGN(const std::span<std::byte> memory, c_binding::memory_at(into, bytes));
    return cells ? of.reader.read_rank(name, rank, *cells, memory) : of.reader.read_rank(name, rank, memory);
  });
}

}  // extern "C"
