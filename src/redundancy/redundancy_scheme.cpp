#include "redundancy/redundancy_scheme.h"

#include <fmt/format.h>

#include "core/quantity.h"
#include "redundancy/erasure_kernels.h"

namespace varve {

namespace {
constexpr std::string_view kPartner = "partner", kXor = "xor:", kReedSolomon = "rs:";

Status not_a_scheme(std::string_view text) {
  return Status::invalid_argument("not a scheme of redundancy", std::string(text),
                                  fmt::format("partner, xor:G with 2 to {} nodes, or rs:K+M with at most {} in sum",
                                              kErasurePartsMax, kErasurePartsMax));
}

/// A number of parts, or 0 for what is none.
uint32_t parse_parts(std::string_view digits) {
  const Result<uint64_t> number = parse_number(digits, kErasurePartsMax);
  return number.ok() ? static_cast<uint32_t>(*number) : 0;
}
}  // namespace

Result<Redundancy> Redundancy::parse(std::string_view text) {
  if (text == kPartner) return Redundancy{};
  if (text.starts_with(kXor)) {
    const uint32_t nodes = parse_parts(text.substr(kXor.size()));
    if (nodes < 2) return not_a_scheme(text);
    return Redundancy{Scheme::exclusive_or, nodes - 1, 1};
  }
  const size_t plus = text.find('+');
  if (!text.starts_with(kReedSolomon) || plus == std::string_view::npos) return not_a_scheme(text);
  const uint32_t data_parts = parse_parts(text.substr(kReedSolomon.size(), plus - kReedSolomon.size()));
  const uint32_t parity_parts = parse_parts(text.substr(plus + 1));
  if (data_parts == 0 || parity_parts == 0 || data_parts + parity_parts > kErasurePartsMax) return not_a_scheme(text);
  return Redundancy{Scheme::reed_solomon, data_parts, parity_parts};
}

std::string Redundancy::text() const {
  switch (scheme) {
    case Scheme::partner: return std::string(kPartner);
    case Scheme::exclusive_or: return fmt::format("{}{}", kXor, nodes_min());
    case Scheme::reed_solomon: return fmt::format("{}{}+{}", kReedSolomon, data_parts, parity_parts);
  }
  return {};
}

}  // namespace varve
