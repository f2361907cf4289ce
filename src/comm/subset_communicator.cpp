#include "comm/subset_communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "comm/mailbox.h"
#include "core/bytes.h"
#include "core/status_codec.h"

namespace varve {

namespace {
/// Before what a member tells another one: whether it is a failure (u8), and how many bytes follow (u64).
constexpr size_t kHeaderBytes = 9;
/// More in one call would be a mistake, or garbage.
constexpr uint64_t kMessageBytesMax = 64_GiB;

class SubsetCommunicator final : public Communicator {
 public:
  SubsetCommunicator(Communicator& parent, std::vector<uint32_t> members, uint32_t rank, uint32_t first_tag)
      : parent_(parent), members_(std::move(members)), rank_(rank), first_tag_(first_tag) {}

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return static_cast<uint32_t>(members_.size()); }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    Result<ByteVector> packed = ByteVector();
    if (rank_ == 0) {
      packed = collect(mine);
    } else {
      tell(0, mine).ignore("the first member notices that this one's part is missing");
    }
    VARVE_ASSIGN(const ByteVector all, spread(std::move(packed), 0));
    return unpack(all);
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check_rank(root, rank_count()));
    return spread(root == rank_ ? ByteVector(roots.begin(), roots.end()) : ByteVector(), root);
  }
  Status all_min(std::span<uint64_t> values) override {
    return reduce(values, [](uint64_t a, uint64_t b) { return std::min(a, b); });
  }
  Status all_max(std::span<uint64_t> values) override {
    return reduce(values, [](uint64_t a, uint64_t b) { return std::max(a, b); });
  }
  Status barrier() override { return all_gather({}).status(); }

  bool concurrent() const override { return true; }
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    VARVE_TRY(check_rank(to, rank_count()));
    return parent_.send(members_[to], message_tag(tag), message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check_rank(from, rank_count()));
    return parent_.receive(members_[from], message_tag(tag), into);
  }

 private:
  uint32_t message_tag(uint32_t tag) const { return first_tag_ + 1 + tag; }

  Status tell(uint32_t to, ByteSpan bytes, bool failure = false) {
    std::array<std::byte, kHeaderBytes> header;
    header[0] = std::byte{failure};
    store_le<uint64_t>(header.data() + 1, bytes.size());
    VARVE_TRY(parent_.send(members_[to], first_tag_, header));
    return bytes.empty() ? Status() : parent_.send(members_[to], first_tag_, bytes);
  }
  Status tell_outcome(uint32_t to, const Result<ByteVector>& outcome) {
    return outcome.ok() ? tell(to, *outcome) : tell(to, encode_status(outcome.status()), true);
  }
  /// What a member tells, or the failure that it tells of.
  Result<ByteVector> hear(uint32_t from) {
    std::array<std::byte, kHeaderBytes> header;
    VARVE_TRY(parent_.receive(members_[from], first_tag_, header));
    const auto bytes = load_le<uint64_t>(header.data() + 1);
    if (bytes > kMessageBytesMax) return Status::corrupt("a message is longer than any can be");
    ByteVector told(bytes);
    if (bytes > 0) VARVE_TRY(parent_.receive(members_[from], first_tag_, told));
    if (header[0] == std::byte{0}) return told;
    Status failure;
    VARVE_TRY(decode_status(told, failure));
    return failure.ok() ? Status::corrupt("a rank tells of a failure that is none") : failure;
  }

  /// The first member's: the parts of all, as texts one after another; or the first failure, once all have been heard.
  Result<ByteVector> collect(ByteSpan mine) {
    ByteVector packed;
    ByteWriter out(packed);
    out.text(as_text(mine));
    Status failure;
    for (uint32_t from = 1; from < rank_count(); ++from) {
      const Result<ByteVector> part = hear(from);
      if (part.ok()) out.text(as_text(*part));
      if (failure.ok()) failure = part.status();
    }
    if (!failure.ok()) return failure;
    return packed;
  }
  Result<std::vector<ByteVector>> unpack(ByteSpan packed) const {
    std::vector<ByteVector> parts;
    ByteReader in(packed);
    for (uint32_t member = 0; member < rank_count(); ++member) {
      VARVE_ASSIGN(const std::string_view part, in.text());
      parts.emplace_back(as_bytes(part).begin(), as_bytes(part).end());
    }
    return parts;
  }

  /// Passes on what the root has, or its failure, from one to the next: a binomial tree, so that the root need not tell
  /// all. Who has not heard passes on that it has not.
  Result<ByteVector> spread(Result<ByteVector> outcome, uint32_t root) {
    const uint32_t count = rank_count(), own = (rank_ + count - root) % count;
    const uint32_t below = own == 0 ? std::bit_ceil(count) : own & (~own + 1);
    if (own != 0) outcome = hear((own - below + root) % count);
    for (uint32_t step = below / 2; step > 0; step /= 2) {
      if (own + step < count) {
        tell_outcome((own + step + root) % count, outcome).ignore("who cannot be reached has ended, and knows");
      }
    }
    return outcome;
  }

  template <class Choose>
  Status reduce(std::span<uint64_t> values, Choose choose) {
    VARVE_ASSIGN(const std::vector<ByteVector> all, all_gather(std::as_bytes(values)));
    const auto same_size = [&](const ByteVector& given) { return given.size() == values.size_bytes(); };
    if (!std::all_of(all.begin(), all.end(), same_size)) {
      return Status::invalid_argument("the ranks give different numbers of values");
    }
    for (const ByteVector& given : all) {
      for (size_t i = 0; i < values.size(); ++i) {
        uint64_t value;
        std::memcpy(&value, given.data() + i * sizeof value, sizeof value);
        values[i] = choose(values[i], value);
      }
    }
    return {};
  }

  Communicator& parent_;
  const std::vector<uint32_t> members_;  ///< ranks of the parent
  const uint32_t rank_;
  const uint32_t first_tag_;
};
}  // namespace

Result<std::unique_ptr<Communicator>> make_subset_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t first_tag) {
  if (!parent.concurrent()) {
    return Status::unsupported("some ranks can only talk by messages of their own", "MPI",
                               "ask MPI_Init_thread for MPI_THREAD_MULTIPLE");
  }
  std::vector<uint32_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const auto own = std::find(members.begin(), members.end(), parent.rank());
  if (own == members.end() || sorted.back() >= parent.rank_count() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Status::invalid_argument("the members of a subset are different ranks, this one among them");
  }
  const auto rank = static_cast<uint32_t>(own - members.begin());
  return std::unique_ptr<Communicator>(
      std::make_unique<SubsetCommunicator>(parent, std::move(members), rank, first_tag));
}

}  // namespace varve
