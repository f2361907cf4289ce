#include "format/store_header.h"

#include <algorithm>

#include "core/bytes.h"

namespace varve {

namespace {
constexpr std::string_view kStoreMagic = "VARVESTO";
constexpr uint16_t kStoreVersion = 1;
constexpr size_t kHeaderBytes = 48;
}  // namespace

ByteVector encode_store_header(const StoreHeader& header) {
  ByteVector out;
  ByteWriter w(out);
  w.bytes(as_bytes(kStoreMagic));
  w.le16(kStoreVersion);
  w.u8(static_cast<uint8_t>(header.algorithm));
  w.u8(header.score_bytes);
  w.bytes(header.store.bytes);
  out.resize(kHeaderBytes - 4);
  const uint32_t crc = crc32c(out);
  w.le32(crc);
  return out;
}

Result<StoreHeader> decode_store_header(ByteSpan raw, const std::string& path) {
  if (raw.size() != kHeaderBytes || as_text(raw.first(8)) != kStoreMagic ||
      crc32c(raw.first(kHeaderBytes - 4)) != load_le<uint32_t>(raw.data() + kHeaderBytes - 4)) {
    return Status::corrupt("the store's header is damaged", path, Remedy::rebuild_header);
  }
  const auto version = load_le<uint16_t>(raw.data() + 8);
  if (version != kStoreVersion) {
    return Status::unsupported("the store has format version " + std::to_string(version), path, "use a newer Varve");
  }
  StoreHeader header;
  header.algorithm = static_cast<ScoreAlgorithm>(raw[10]);
  header.score_bytes = std::to_integer<uint8_t>(raw[11]);
  std::copy_n(raw.begin() + 12, header.store.bytes.size(), header.store.bytes.begin());
  return header;
}

}  // namespace varve
