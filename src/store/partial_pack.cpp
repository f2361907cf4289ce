#include "store/partial_pack.h"

#include "store/class_key.h"
#include "store/pack_ranges.h"

namespace varve {

namespace {
std::vector<uint64_t> runs_of(const std::vector<bool>& held) {
  std::vector<uint64_t> runs;
  for (const bool here : held) {
    // Runs alternate, beginning with held chunks: an even number of them means that the next run is of held ones.
    const bool last_run_held = runs.size() % 2 == 1;
    if (runs.empty() || last_run_held != here) {
      if (runs.empty() && !here) runs.push_back(0);
      runs.push_back(0);
    }
    ++runs.back();
  }
  return runs;
}
}  // namespace

PackShape flat_shape(const std::string& class_key, uint64_t bytes) {
  ElementType type = element_type_of_class(class_key);
  if (bytes % type.bytes != 0) type = {};
  return {type, {Run{bytes / type.bytes, {}, false}}};
}

Result<ByteVector> bytes_of_chunks(Pack& pack, const std::vector<bool>& wanted) {
  ByteVector raw;
  uint64_t offset = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t chunk_bytes = pack.meta().chunks[i].bytes;
    if (wanted[i]) {
      VARVE_ASSIGN(const ByteSpan bytes, pack.range(offset, chunk_bytes));
      raw.insert(raw.end(), bytes.begin(), bytes.end());
    }
    offset += chunk_bytes;
  }
  return raw;
}

Result<EncodedPack> partial_pack(Pack& pack, const std::vector<Extent>& ranges) {
  const std::vector<bool> wanted = chunks_in_ranges(pack.meta(), ranges);
  VARVE_ASSIGN(const ByteVector raw, bytes_of_chunks(pack, wanted));
  return encode_partial_pack(pack.meta(), wanted, raw);
}

Result<EncodedPack> encode_partial_pack(PackMeta table, const std::vector<bool>& held, ByteSpan raw) {
  table.held_runs = runs_of(held);
  VARVE_ASSIGN(const std::string chain_name, recipe_name(table.recipe));
  const PackShape shape = flat_shape(table.class_key, raw.size());
  VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(chain_name));
  VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
  table.recipe = std::move(encoded.recipe);
  return EncodedPack{std::move(table), std::move(encoded.body)};
}

}  // namespace varve
