#include "layout/raw_layout.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "layout/layout.h"

namespace varve {
namespace {

Status bad_description(std::string_view text) {
  return Status::invalid_argument("not a description of raw files", std::string(text),
                                  "write TYPE[:N,N,...][@HEADER_BYTES], such as f64:128,128,64");
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A shape, or an offset; empty: it is not said.
Result<std::vector<uint64_t>> sidecar_numbers(const nlohmann::json& entry, const char* member,
                                              const std::string& variable) {
  std::vector<uint64_t> numbers;
  const auto list = entry.find(member);
  if (list == entry.end()) return numbers;
  if (!list->is_array()) return Status::invalid_argument("a shape is not a list of numbers", variable);
  if (list->size() > kDimensionsMax) return Status::resource_limit("too many dimensions", variable);
  for (const nlohmann::json& number : *list) {
    if (!number.is_number_unsigned()) return Status::invalid_argument("a shape is not a list of numbers", variable);
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

/// One entry of a sidecar's list. `end` is where the variable before it ends.
Result<Variable> sidecar_variable(const nlohmann::json& entry, uint64_t end, uint64_t file_bytes) {
  if (!entry.is_object()) return Status::invalid_argument("a variable is not a JSON object");
  auto name = entry.find("name");
  auto type = entry.find("type");
  if (name == entry.end() || !name->is_string()) return Status::invalid_argument("a variable has no name");
  Variable variable;
  variable.name = name->get<std::string>();
  if (type == entry.end() || !type->is_string())
    return Status::invalid_argument("a variable has no type", variable.name);
  VARVE_ASSIGN(variable.type, ElementType::parse(type->get_ref<const std::string&>()));
  VARVE_ASSIGN(variable.shape, sidecar_numbers(entry, "shape", variable.name));
  uint64_t offset = end;
  if (auto given = entry.find("offset"); given != entry.end()) {
    if (!given->is_number_unsigned()) return Status::invalid_argument("an offset is not a number", variable.name);
    offset = given->get<uint64_t>();
  }
  std::optional<uint64_t> bytes = array_bytes(variable.shape, variable.type.bytes);
  if (!bytes || offset > file_bytes || *bytes > file_bytes - offset) {
    return Status::invalid_argument(fmt::format("a variable does not fit into the file's {} bytes", file_bytes),
                                    variable.name);
  }
  if (*bytes > 0) variable.extents = {{offset, *bytes}};
  return variable;
}

/// The variables that a sidecar describes.
Result<nlohmann::json> sidecar_list(std::string_view json) {
  if (json.size() > kSidecarBytesMax) return Status::resource_limit("the layout description is too large");
  nlohmann::json document = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  auto list = document.is_object() ? document.find("variables") : document.end();
  if (list == document.end() || !list->is_array()) {
    return Status::invalid_argument("the layout description is not a JSON object with a list `variables`");
  }
  return std::move(*list);
}

}  // namespace

Result<RawDescription> parse_raw_description(std::string_view text) {
  RawDescription description;
  std::string_view rest = text;
  if (size_t at = rest.find('@'); at != std::string_view::npos) {
    std::optional<uint64_t> header = parse_number(rest.substr(at + 1));
    if (!header) return bad_description(text);
    description.header_bytes = *header;
    rest = rest.substr(0, at);
  }
  size_t colon = rest.find(':');
  VARVE_ASSIGN(description.type, ElementType::parse(rest.substr(0, colon)));
  if (colon == std::string_view::npos) return description;
  rest.remove_prefix(colon + 1);
  for (;;) {
    size_t comma = rest.find(',');
    std::optional<uint64_t> length = parse_number(rest.substr(0, comma));
    if (!length || *length == 0 || description.shape.size() == kDimensionsMax) return bad_description(text);
    description.shape.push_back(*length);
    if (comma == std::string_view::npos) return description;
    rest.remove_prefix(comma + 1);
  }
}

Result<Layout> raw_layout(const RawDescription& description, uint64_t file_bytes, std::string variable_name) {
  Variable variable;
  variable.type = description.type;
  variable.shape = description.shape;
  uint64_t data_bytes = file_bytes - std::min(file_bytes, description.header_bytes);
  if (variable.shape.empty()) variable.shape = {data_bytes / description.type.bytes};
  std::optional<uint64_t> bytes = array_bytes(variable.shape, description.type.bytes);
  if (description.header_bytes > file_bytes || bytes != data_bytes) {
    std::string said = bytes ? fmt::format("{} + {}", description.header_bytes, *bytes) : "far more";
    return Status::invalid_argument(
        fmt::format("the description of raw files means {} bytes, but the file has {}", said, file_bytes));
  }
  Layout layout{.format = "raw", .variables = {}};
  if (data_bytes == 0) return layout;
  variable.name = std::move(variable_name);
  variable.extents = {{description.header_bytes, data_bytes}};
  layout.variables.push_back(std::move(variable));
  return layout;
}

Result<std::vector<SidecarPlace>> sidecar_places(std::string_view json) {
  VARVE_ASSIGN(const nlohmann::json list, sidecar_list(json));
  std::vector<SidecarPlace> places;
  for (const nlohmann::json& entry : list) {
    if (!entry.is_object()) return Status::invalid_argument("a variable is not a JSON object");
    const auto name = entry.find("name");
    if (name == entry.end() || !name->is_string()) return Status::invalid_argument("a variable has no name");
    SidecarPlace place{name->get<std::string>(), {}, {}};
    VARVE_ASSIGN(place.global_shape, sidecar_numbers(entry, "global_shape", place.name));
    VARVE_ASSIGN(place.global_offset, sidecar_numbers(entry, "global_offset", place.name));
    if (place.global_shape.empty()) {
      if (place.global_offset.empty()) continue;
      return Status::invalid_argument("global_offset says nothing without global_shape", place.name);
    }
    if (place.global_offset.empty()) place.global_offset.resize(place.global_shape.size());
    if (place.global_offset.size() != place.global_shape.size())
      return Status::invalid_argument("global_offset has other dimensions than global_shape", place.name);
    if (!array_bytes(place.global_shape, 1)) return Status::invalid_argument("global_shape is too large", place.name);
    for (size_t d = 0; d < place.global_shape.size(); ++d) {
      if (place.global_offset[d] > place.global_shape[d])
        return Status::invalid_argument("global_offset is beyond global_shape", place.name);
    }
    places.push_back(std::move(place));
  }
  return places;
}

Result<Layout> sidecar_layout(std::string_view json, uint64_t file_bytes) {
  VARVE_ASSIGN(const nlohmann::json list, sidecar_list(json));
  Layout layout{.format = "raw", .variables = {}};
  uint64_t end = 0;
  for (const nlohmann::json& entry : list) {
    VARVE_ASSIGN(Variable variable, sidecar_variable(entry, end, file_bytes));
    if (!variable.extents.empty()) end = variable.extents[0].offset + variable.extents[0].bytes;
    layout.variables.push_back(std::move(variable));
  }
  return layout;
}

}  // namespace varve
