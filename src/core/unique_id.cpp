#include "core/unique_id.h"

#include <algorithm>

#include "core/sync.h"

namespace varve {

Result<UniqueId> UniqueId::random() {
  UniqueId id;
  VARVE_TRY(fill_with_random(id.bytes));
  return id;
}

Result<UniqueId> UniqueId::read(ByteReader& in) {
  UniqueId id;
  VARVE_ASSIGN(const ByteSpan bytes, in.bytes(id.bytes.size()));
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

Result<UniqueId> UniqueId::parse(std::string_view hex) {
  UniqueId id;
  if (hex.size() != 2 * id.bytes.size())
    return Status::invalid_argument("not an id of 32 hexadecimal digits", std::string(hex));
  for (size_t i = 0; i < hex.size(); ++i) {
    char c = hex[i];
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return Status::invalid_argument("not an id of 32 hexadecimal digits", std::string(hex));
    id.bytes[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? digit << 4 : digit);
  }
  return id;
}

}  // namespace varve
