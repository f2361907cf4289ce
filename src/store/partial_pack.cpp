#include "store/partial_pack.h"

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

ElementType element_type_of_class(const std::string& class_key) {
  const size_t mark = class_key.rfind("_Array");
  if (mark == std::string::npos || mark == 0) return {};
  const size_t begin = class_key.rfind('_', mark - 1) + 1;
  const Result<ElementType> named = ElementType::parse(class_key.substr(begin, mark - begin));
  return named.ok() ? *named : ElementType{};
}

Result<EncodedPack> encode_partial_pack(PackMeta table, const std::vector<bool>& held, ByteSpan raw) {
  table.held_runs = runs_of(held);
  VARVE_ASSIGN(const std::string chain_name, recipe_name(table.recipe));
  ElementType type = element_type_of_class(table.class_key);
  if (raw.size() % type.bytes != 0) type = {};
  const PackShape shape{type, {Run{raw.size() / type.bytes, {}, false}}};
  VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(chain_name));
  VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
  table.recipe = std::move(encoded.recipe);
  return EncodedPack{std::move(table), std::move(encoded.body)};
}

}  // namespace varve
