#include "redundancy/node_label.h"

#include <fmt/format.h>

#include <charconv>

namespace varve {

namespace {
/// A number in its shortest form.
template <class Number>
std::optional<Number> parse_number(std::string_view digits) {
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return std::to_string(number) == digits ? std::optional(number) : std::nullopt;
}
}  // namespace

std::optional<SetName> parse_set_name(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> step = parse_number<uint64_t>(text.substr(at + 1));
  if (!step || !check_job_name(text.substr(0, at)).ok()) return std::nullopt;
  return SetName{std::string(text.substr(0, at)), *step};
}

std::string NodeLabel::text() const { return fmt::format("{}.{}-of-{}", set.to_string(), group + 1, group_count); }

std::optional<NodeLabel> NodeLabel::parse(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view groups = text.substr(dot + 1);
  const size_t of = groups.find("-of-");
  if (of == std::string_view::npos) return std::nullopt;
  std::optional<SetName> set = parse_set_name(text.substr(0, dot));
  const std::optional<uint32_t> number = parse_number<uint32_t>(groups.substr(0, of));
  const std::optional<uint32_t> count = parse_number<uint32_t>(groups.substr(of + 4));
  if (!set || !number || !count || *number == 0 || *number > *count) return std::nullopt;
  return NodeLabel{std::move(*set), *number - 1, *count};
}

}  // namespace varve
