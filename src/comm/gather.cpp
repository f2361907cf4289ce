#include "comm/gather.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/guarded.h"
#include "core/likeness.h"

namespace varve {

namespace {
/// Of messages; others of ours are the snapshot relay's and those of nodes.
constexpr uint32_t kTag = 20;
constexpr uint64_t kGatheredBytesMax = 256_MiB;

Status send_all(Communicator& ranks, uint32_t to, const ByteVector& told) {
  std::array<std::byte, 8> length{};
  store_le<uint64_t>(length.data(), told.size());
  VARVE_TRY(ranks.send(to, kTag, length));
  return ranks.send(to, kTag, told);
}

Status receive_all(Communicator& ranks, uint32_t from, ByteVector& told) {
  std::array<std::byte, 8> length{};
  VARVE_TRY(ranks.receive(from, kTag, length));
  const auto bytes = load_le<uint64_t>(length.data());
  if (bytes > kGatheredBytesMax - told.size()) return Status::corrupt("ranks tell more than there can be");
  const size_t begin = told.size();
  told.resize(begin + bytes);
  return ranks.receive(from, kTag, MutableByteSpan(told).subspan(begin));
}
}  // namespace

Result<std::vector<ByteVector>> gather_to_first(Communicator& ranks, std::span<const uint32_t> members,
                                                size_t own_place, ByteSpan mine) {
  ByteVector told;
  ByteWriter out(told);
  out.varint(mine.size());
  out.bytes(mine);
  // A member speaks for those behind it, as many as the lowest bit of its place says: so all is in order.
  for (size_t bit = 1; bit < members.size(); bit <<= 1) {
    if ((own_place & bit) != 0) {
      VARVE_TRY(send_all(ranks, members[own_place - bit], told));
      return std::vector<ByteVector>();
    }
    if (own_place + bit < members.size()) VARVE_TRY(receive_all(ranks, members[own_place + bit], told));
  }
  std::vector<ByteVector> all;
  ByteReader in(told);
  while (!in.at_end()) {
    VARVE_ASSIGN(const uint64_t bytes, in.varint());
    VARVE_ASSIGN(const ByteSpan one, in.bytes(bytes));
    all.emplace_back(one.begin(), one.end());
  }
  if (all.size() != members.size()) return Status::corrupt("not each of the ranks has told something once");
  return all;
}

Status gather_told(Communicator& ranks, ByteSpan mine,
                   const std::function<Status(uint32_t rank, ByteSpan told)>& visit) {
  const uint64_t own = ranks.rank();
  // Who says something: the first, turned round so that it is the largest, and the last, from 1 on.
  std::array<uint64_t, 2> who = {mine.empty() ? 0 : UINT64_MAX - own, mine.empty() ? 0 : own + 1};
  VARVE_TRY(ranks.all_max(who));
  if (who[1] == 0) return {};
  const auto first = static_cast<uint32_t>(UINT64_MAX - who[0]);
  VARVE_ASSIGN(ByteVector pattern, ranks.broadcast(own == first ? mine : ByteSpan(), first));
  if (first + uint64_t{1} == who[1]) return visit(first, pattern);
  std::optional<Likeness> likeness;
  const Result<ByteVector> difference = run_guarded([&] {
    likeness.emplace(std::move(pattern));
    return likeness->difference(own == first ? ByteSpan() : mine);
  });
  // No difference begins so.
  constexpr std::array<std::byte, 1> kLacksMemory{};
  VARVE_ASSIGN(const std::vector<ByteVector> told,
               ranks.all_gather(difference.ok() ? ByteSpan(*difference) : ByteSpan(kLacksMemory)));
  VARVE_TRY(difference.status());
  const auto lacks_memory = [&](const ByteVector& one) { return !one.empty() && one.front() == kLacksMemory.front(); };
  if (std::any_of(told.begin(), told.end(), lacks_memory))
    return Status::resource_limit("a rank lacks memory to tell what it has");
  VARVE_TRY(visit(first, likeness->pattern()));
  for (uint32_t rank = first + 1; rank < told.size(); ++rank) {
    if (told[rank].empty()) continue;
    VARVE_ASSIGN(const ByteVector bytes, likeness->restore(told[rank]));
    VARVE_TRY(visit(rank, bytes));
  }
  return {};
}

Result<std::vector<Told>> gather_told(Communicator& ranks, ByteSpan mine) {
  std::vector<Told> all;
  VARVE_TRY(gather_told(ranks, mine, [&](uint32_t rank, ByteSpan told) -> Status {
    all.push_back({rank, ByteVector(told.begin(), told.end())});
    return {};
  }));
  return all;
}

}  // namespace varve
