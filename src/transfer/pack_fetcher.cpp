#include "transfer/pack_fetcher.h"

#include <algorithm>

#include "store/class_key.h"
#include "store/pack_ranges.h"

namespace varve {

namespace {
/// Beyond so many classes what trials have found is forgotten.
constexpr size_t kEncodersMax = 10'000;

Status located(const Status& wrong, const ArenaReader& arena) {
  if (!wrong.subject().empty() && wrong.subject().find(arena.path()) != std::string_view::npos) return wrong;
  return {wrong.code(), std::string(wrong.message()), arena.path(), std::string(wrong.hint())};
}
}  // namespace

Result<FetchedPack> PackFetcher::fetch(const Score& score, const SetNeeds::PackNeed& need, const PackShape& shape) {
  for (const bool all : {false, true}) {
    VARVE_ASSIGN(const std::vector<Store::Place> places, from_.find_pack(score, need.hint, all));
    for (const Store::Place& place : places) {
      if (!holds_ranges(*place.arena, place.ordinal, need.ranges)) continue;
      Result<FetchedPack> fetched = take_whole(place, score, shape);
      if (fetched.ok() || fetched.status().code() == StatusCode::resource_limit) return fetched;
    }
  }
  return put_together(score, need);
}

Result<FetchedPack> PackFetcher::take_whole(const Store::Place& place, const Score& score, const PackShape& shape) {
  const ArenaReader& arena = *place.arena;
  FetchedPack fetched;
  VARVE_ASSIGN(fetched.frame, arena.read_raw(FrameKind::pack, place.ordinal));
  Result<PackMeta> meta = decode_pack_meta(fetched.frame.meta, from_.score());
  if (!meta.ok()) return located(meta.status(), arena);
  if (meta->score != score) return Status::corrupt("a pack is not what the arena's index says", arena.path());
  if (!meta->needs.empty())
    return Status::unsupported("a pack's decoding needs other packs", arena.path(), "use a newer Varve");
  const uint64_t raw_bytes = meta->raw_bytes();
  // By the pack's own table: the source's index goes no further than the source.
  fetched.entry = {score,
                   0,
                   static_cast<uint32_t>(fetched.frame.meta.size()),
                   fetched.frame.body.size(),
                   raw_bytes,
                   meta->chunks.size(),
                   raw_bytes - meta->held_bytes()};
  if (!check_chunks_ && !recode_) return fetched;
  // It lies in the frame, which is still wanted: the pack only borrows it.
  Result<Pack> pack = Pack::decode(std::move(*meta), Buffer(), fetched.frame.body, from_.score());
  // A codec that this build lacks: what its checksums say is all that can be known.
  if (pack.status().code() == StatusCode::unsupported) return fetched;
  if (!pack.ok()) return located(pack.status(), arena);
  if (const Status whole = pack->verify_all(); !whole.ok()) return located(whole, arena);
  fetched.checked = true;
  if (recode_) VARVE_TRY(recode(fetched, *pack, shape));
  return fetched;
}

Status PackFetcher::recode(FetchedPack& fetched, Pack& pack, const PackShape& shape) {
  const PackMeta& old = pack.meta();
  const bool thinned = !old.held_runs.empty();
  ByteVector copied;
  ByteSpan raw;
  if (thinned) {
    VARVE_ASSIGN(copied, bytes_of_chunks(pack, old.held()));
    raw = copied;
  } else if (!old.chunks.empty()) {
    VARVE_ASSIGN(raw, pack.range(0, old.raw_bytes()));
  }
  if (raw.empty()) return {};
  const PackShape& known = thinned ? flat_shape(old.class_key, raw.size()) : shape;
  VARVE_ASSIGN(EncodedBytes encoded, encoder_for(old.class_key)->encode(raw, known));
  if (encoded.recipe.size() + encoded.body.size() >= old.recipe.size() + fetched.frame.body.size()) return {};
  EncodedPack anew{old, std::move(encoded.body)};
  anew.meta.recipe = std::move(encoded.recipe);
  // What takes the place of a good copy is read once before it does.
  VARVE_ASSIGN(Pack again, Pack::decode(anew.meta, Buffer(), anew.body, from_.score()));
  const Status same = again.verify_all();
  if (!same.ok()) return Status::internal("a pack that was encoded anew does not decode", old.class_key);
  fetched.recoded_from_bytes = kFrameHeaderBytes + fetched.entry.meta_bytes + fetched.entry.body_bytes;
  fetched.anew = std::move(anew);
  fetched.frame = {};
  return {};
}

Result<FetchedPack> PackFetcher::put_together(const Score& score, const SetNeeds::PackNeed& need) {
  VARVE_ASSIGN(Pack pack, from_.read_pack({score, need.hint}, need.ranges));
  FetchedPack fetched;
  VARVE_ASSIGN(fetched.anew, partial_pack(pack, need.ranges));
  fetched.checked = true;
  return fetched;
}

std::shared_ptr<Encoder> PackFetcher::encoder_for(const std::string& class_key) {
  const std::lock_guard lock(mutex_);
  if (encoders_.size() > kEncodersMax) encoders_.clear();
  std::shared_ptr<Encoder>& encoder = encoders_[class_key];
  if (encoder == nullptr) encoder = make_encoder(*recode_, contents_of_class(class_key));
  return encoder;
}

}  // namespace varve
