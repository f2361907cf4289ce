#include "comm/gather.h"

#include <array>

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

}  // namespace varve
