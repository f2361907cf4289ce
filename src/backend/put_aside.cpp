#include "backend/put_aside.h"

#include <utility>

#include "core/file_system.h"
#include "core/unique_id.h"
#include "hash/score.h"

namespace varve {

namespace {
constexpr std::string_view kAsideSuffix = ".aside";
constexpr size_t kAsideHashBytes = 20;

/// Not a checksum: records end in theirs, so that all have the same one.
Result<std::string> hash_of(ByteSpan contents) {
  VARVE_ASSIGN(const ScoreFunction hash, ScoreFunction::create(ScoreAlgorithm::sha256, kAsideHashBytes));
  return hash(contents).hex(kAsideHashBytes);
}

/// Takes ".PART" off the end of `text`.
std::optional<std::string> take_last_part(std::string_view& text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string part(text.substr(dot + 1));
  text = text.substr(0, dot);
  return part;
}
}  // namespace

Result<std::string> PutAside::path_for(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  VARVE_ASSIGN(const std::string hash, hash_of(contents));
  return name + "." + hash + "." + id.hex() + std::string(kAsideSuffix);
}

std::optional<PutAside> PutAside::parse(std::string_view path) {
  if (!path.ends_with(kAsideSuffix)) return std::nullopt;
  path.remove_suffix(kAsideSuffix.size());
  const std::optional<std::string> id = take_last_part(path);
  std::optional<std::string> hash = take_last_part(path);
  const bool fits = id && hash && UniqueId::parse(*id).ok() && hash->size() == 2 * kAsideHashBytes &&
                    hash->find_first_not_of("0123456789abcdef") == std::string::npos && !base_name(path).empty();
  if (!fits) return std::nullopt;
  return PutAside{std::string(path), *std::move(hash)};
}

bool PutAside::is_to_go(ByteSpan contents) const {
  const Result<std::string> now = hash_of(contents);
  return now.ok() && *now == hash;
}

}  // namespace varve
