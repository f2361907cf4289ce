#include "varve/element_type.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace varve {

std::string ElementType::name() const {
  const char* suffix = bytes == 1 ? "" : order == ByteOrder::little ? "LE" : "BE";
  switch (kind) {
    case ElementKind::opaque: return bytes == 1 ? "BYTES" : fmt::format("O{}", bytes);
    case ElementKind::text: return fmt::format("T{}", bytes);
    case ElementKind::signed_integer: return fmt::format("I{}{}", uint64_t{bytes} * 8, suffix);
    case ElementKind::unsigned_integer: return fmt::format("U{}{}", uint64_t{bytes} * 8, suffix);
    case ElementKind::floating: return fmt::format("F{}{}", uint64_t{bytes} * 8, suffix);
  }
  return "BYTES";
}

Result<ElementType> ElementType::parse(std::string_view name) {
  std::string upper;
  for (char c : name) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  const Status bad =
      Status::invalid_argument("unknown element type", std::string(name),
                               "write f32, f64, i8 to i64 or u8 to u64, with `be` after it if big-endian");
  if (upper == "BYTES") return ElementType{};
  if (upper.size() < 2) return bad;
  ElementType type;
  switch (upper[0]) {
    case 'F': type.kind = ElementKind::floating; break;
    case 'I': type.kind = ElementKind::signed_integer; break;
    case 'U': type.kind = ElementKind::unsigned_integer; break;
    case 'T': type.kind = ElementKind::text; break;
    case 'O': type.kind = ElementKind::opaque; break;
    default: return bad;
  }
  uint32_t size = 0;
  auto [end, error] = std::from_chars(upper.data() + 1, upper.data() + upper.size(), size);
  if (error != std::errc() || size == 0) return bad;
  std::string_view rest(end, static_cast<size_t>(upper.data() + upper.size() - end));
  if (!type.numeric()) {
    type.bytes = size;
    return rest.empty() ? Result<ElementType>(type) : Result<ElementType>(bad);
  }
  if (size % 8 != 0 || size > 128) return bad;
  type.bytes = size / 8;
  if (rest == "BE") {
    type.order = type.bytes > 1 ? ByteOrder::big : ByteOrder::little;
  } else if (!rest.empty() && rest != "LE") {
    return bad;
  }
  return type;
}

}  // namespace varve
