#include <algorithm>
#include <cstring>

#include "comm/mailbox.h"
#include "comm/meeting_point.h"
#include "varve/communicator.h"

namespace varve {
namespace {

/// What the ranks of one process share. It lives as long as the last of them.
struct SharedRanks {
  explicit SharedRanks(uint32_t rank_count) : meeting_point(rank_count), mailboxes(rank_count) {}

  MeetingPoint meeting_point;
  std::vector<Mailbox> mailboxes;  ///< by receiver
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<SharedRanks> shared, uint32_t rank) : shared_(std::move(shared)), rank_(rank) {}
  ThreadCommunicator(const ThreadCommunicator&) = delete;
  ThreadCommunicator& operator=(const ThreadCommunicator&) = delete;

  /// Whoever waits for this rank, or will, is told.
  ~ThreadCommunicator() override {
    shared_->meeting_point.leave(rank_);
    shared_->mailboxes[rank_].close();
    for (Mailbox& mailbox : shared_->mailboxes) mailbox.sender_ended(rank_);
  }

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return static_cast<uint32_t>(shared_->mailboxes.size()); }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    VARVE_ASSIGN(const auto gifts, shared_->meeting_point.meet(rank_, "all_gather", mine));
    return *gifts;
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check_rank(root, rank_count()));
    const ByteSpan mine = rank_ == root ? roots : ByteSpan();
    VARVE_ASSIGN(const auto gifts, shared_->meeting_point.meet(rank_, "broadcast", mine));
    return (*gifts)[root];
  }
  Status all_min(std::span<uint64_t> values) override {
    return reduce(values, "all_min", [](uint64_t a, uint64_t b) { return std::min(a, b); });
  }
  Status all_max(std::span<uint64_t> values) override {
    return reduce(values, "all_max", [](uint64_t a, uint64_t b) { return std::max(a, b); });
  }
  Status barrier() override { return shared_->meeting_point.meet(rank_, "barrier", {}).status(); }

  bool concurrent() const override { return true; }
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    VARVE_TRY(check_rank(to, rank_count()));
    return shared_->mailboxes[to].put(rank_, tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check_rank(from, rank_count()));
    return shared_->mailboxes[rank_].take(from, tag, into);
  }

 private:
  template <class Choose>
  Status reduce(std::span<uint64_t> values, std::string_view call, Choose choose) {
    VARVE_ASSIGN(const auto gifts, shared_->meeting_point.meet(rank_, call, std::as_bytes(values)));
    const auto same_size = [&](const ByteVector& gift) { return gift.size() == values.size_bytes(); };
    if (!std::all_of(gifts->begin(), gifts->end(), same_size)) {
      return Status::invalid_argument("the ranks give different numbers of values");
    }
    for (const ByteVector& gift : *gifts) {
      for (size_t i = 0; i < values.size(); ++i) {
        uint64_t given;
        std::memcpy(&given, gift.data() + i * sizeof given, sizeof given);
        values[i] = choose(values[i], given);
      }
    }
    return {};
  }

  const std::shared_ptr<SharedRanks> shared_;
  const uint32_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(uint32_t rank_count) {
  auto shared = std::make_shared<SharedRanks>(rank_count);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    ranks.push_back(std::make_unique<ThreadCommunicator>(shared, rank));
  }
  return ranks;
}

}  // namespace varve
