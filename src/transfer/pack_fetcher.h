#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "codec/chooser.h"
#include "core/sync.h"
#include "store/partial_pack.h"
#include "store/set_needs.h"
#include "store/store.h"

namespace varve {

/// A pack on its way to another store.
struct FetchedPack {
  /// As it lay in its arena; or, if `anew` is there, encoded anew.
  ArenaReader::RawFrame frame;
  FrameEntry entry;  ///< what `frame` is, by its own table
  std::optional<EncodedPack> anew;
  uint64_t recoded_from_bytes = 0;  ///< of the frame, if `anew` is a smaller one by another codec; else 0
  bool checked = false;             ///< every chunk that it holds matches its score
};

/// Takes packs out of a store, whole. Thread-safe.
class PackFetcher {
 public:
  /// `check_chunks`: see TransferOptions. With `recode`, packs that this policy makes smaller are encoded by it.
  PackFetcher(const Store& from, bool check_chunks, std::optional<CodecPolicy> recode)
      : from_(from), check_chunks_(check_chunks), recode_(std::move(recode)) {}

  /// A copy of the pack that holds all that is needed: any whole one, else one that is put together from several. Its
  /// frame has passed its checksums, and its table matches the pack's score.
  /// not_found, corrupt: there is none. unsupported: a pack that needs others, of a later version.
  Result<FetchedPack> fetch(const Score& score, const SetNeeds::PackNeed& need, const PackShape& shape);

 private:
  Result<FetchedPack> take_whole(const Store::Place& place, const Score& score, const PackShape& shape);
  /// What is lacking or damaged in one copy may be whole in another.
  Result<FetchedPack> put_together(const Score& score, const SetNeeds::PackNeed& need);
  Status recode(FetchedPack& fetched, Pack& pack, const PackShape& shape);
  std::shared_ptr<Encoder> encoder_for(const std::string& class_key);

  const Store& from_;
  const bool check_chunks_;
  const std::optional<CodecPolicy> recode_;
  Mutex mutex_;  ///< guards encoders_
  std::map<std::string, std::shared_ptr<Encoder>> encoders_;
};

}  // namespace varve
