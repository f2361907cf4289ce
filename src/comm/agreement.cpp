#include "comm/agreement.h"

#include <fmt/format.h>

#include <array>

#include "core/guarded.h"
#include "core/status_codec.h"

namespace varve {

Result<std::vector<RankFailure>> gather_failures(Communicator& ranks, const Status& mine) {
  std::array<uint64_t, 1> fine = {mine.ok() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks.all_min(fine));
  std::vector<RankFailure> failures;
  if (fine[0] == 1) return failures;
  VARVE_ASSIGN(const auto encoded, ranks.all_gather(mine.ok() ? ByteVector() : encode_status(mine)));
  for (uint32_t rank = 0; rank < encoded.size(); ++rank) {
    if (encoded[rank].empty()) continue;
    RankFailure failure{rank, {}};
    VARVE_TRY(decode_status(encoded[rank], failure.what));
    failures.push_back(std::move(failure));
  }
  return failures;
}

Status follow_first(Communicator& ranks, const Status& mine) {
  if (ranks.rank_count() == 1) return mine;
  VARVE_ASSIGN(const ByteVector encoded, ranks.broadcast(ranks.rank() == 0 ? encode_status(mine) : ByteVector(), 0));
  Status first;
  VARVE_TRY(decode_status(encoded, first));
  return first;
}

Result<ByteVector> told_by_first(Communicator& ranks, const std::function<Result<ByteVector>()>& make) {
  if (ranks.rank_count() == 1) return run_guarded(make);
  // Whether it was made, and it, or why not.
  ByteVector told;
  if (ranks.rank() == 0) {
    const auto tell = [&](bool is_made, const ByteVector& what) {
      told.reserve(1 + what.size());
      told.assign(1, std::byte{is_made});
      told.insert(told.end(), what.begin(), what.end());
    };
    const Status made = run_guarded([&]() -> Status {
      VARVE_ASSIGN(const ByteVector bytes, make());
      tell(true, bytes);
      return {};
    });
    if (!made.ok() && !run_guarded([&] { tell(false, encode_status(made)); }).ok()) told.clear();
  }
  VARVE_ASSIGN(told, ranks.broadcast(told, 0));
  if (told.empty()) return Status::resource_limit("the first rank lacks memory to say what it has found");
  const bool is_made = told.front() != std::byte{0};
  told.erase(told.begin());
  if (is_made) return told;
  Status why;
  VARVE_TRY(decode_status(told, why));
  return why.ok() ? Status::corrupt("what the first rank says makes no sense") : why;
}

Status agree(Communicator& ranks, const Status& mine) {
  if (ranks.rank_count() == 1) return mine;
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(ranks, mine));
  if (failures.empty()) return {};
  return failures.front().what.with_context(fmt::format("rank {}", failures.front().rank));
}

}  // namespace varve
