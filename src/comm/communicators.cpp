#include "comm/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "core/bytes.h"
#include "core/status_codec.h"
#include "varve/communicator.h"

namespace varve {

Status rank_ended(uint32_t rank) {
  return Status::io_error("a rank has ended, and cannot be reached", fmt::format("rank {}", rank));
}

Status wrong_message_size(uint32_t from, uint64_t bytes, uint64_t expected_bytes) {
  return Status::corrupt(fmt::format("a message has {} bytes, not {}", bytes, expected_bytes),
                         fmt::format("from rank {}", from));
}

Status check_rank(uint32_t rank, uint32_t rank_count) {
  if (rank < rank_count) return {};
  return Status::invalid_argument(fmt::format("there is no rank {} among {}", rank, rank_count));
}

Status Mailbox::put(uint32_t from, uint32_t tag, ByteSpan message) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return Status::io_error("the receiver of a message has ended");
    waiting_[{from, tag}].emplace_back(message.begin(), message.end());
  }
  changed_.notify_all();
  return {};
}

Status Mailbox::take(uint32_t from, uint32_t tag, MutableByteSpan into) {
  ByteVector message;
  {
    const MutexLock lock(mutex_);
    std::deque<ByteVector>& queue = waiting_[{from, tag}];  // a map's elements stay where they are
    while (queue.empty() && !ended_.contains(from) && !closed_) changed_.wait(mutex_);
    if (queue.empty()) return rank_ended(from);
    message = std::move(queue.front());
    queue.pop_front();
  }
  if (message.size() != into.size()) return wrong_message_size(from, message.size(), into.size());
  if (!message.empty()) std::memcpy(into.data(), message.data(), message.size());
  return {};
}

void Mailbox::sender_ended(uint32_t from) {
  {
    const MutexLock lock(mutex_);
    ended_.insert(from);
  }
  changed_.notify_all();
}

void Mailbox::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    for (auto& [from, messages] : waiting_) messages.clear();  // somebody may wait at one of them
  }
  changed_.notify_all();
}

std::shared_ptr<MeetingPoint::Meeting> MeetingPoint::make_meeting() const {
  auto meeting = std::make_shared<Meeting>();
  meeting->gifts.resize(present_.size());
  return meeting;
}

std::optional<uint32_t> MeetingPoint::missing_rank() const {
  const auto missing = std::find(present_.begin(), present_.end(), false);
  if (missing == present_.end()) return std::nullopt;
  return static_cast<uint32_t>(missing - present_.begin());
}

Result<std::shared_ptr<const MeetingPoint::Gifts>> MeetingPoint::meet(uint32_t rank, std::string_view call,
                                                                      ByteSpan gift) {
  ByteVector mine(gift.begin(), gift.end());
  const MutexLock lock(mutex_);
  if (auto missing = missing_rank()) return rank_ended(*missing);
  const std::shared_ptr<Meeting> meeting = meeting_;
  if (meeting->came == 0) meeting->call = call;
  if (meeting->call != call) meeting->same_call = false;
  meeting->gifts[rank] = std::move(mine);
  if (++meeting->came == present_.size()) {
    // No rank can come to the next meeting before it has left this one, which is complete now.
    meeting_ = make_meeting();
    changed_.notify_all();
  } else {
    while (meeting->came < present_.size() && !missing_rank()) changed_.wait(mutex_);
    // Complete counts, even if a rank has ended since: all ranks of one call are to have one outcome.
    if (meeting->came < present_.size()) return rank_ended(*missing_rank());
  }
  if (!meeting->same_call) return Status::invalid_argument("the ranks make different collective calls");
  return std::shared_ptr<const Gifts>(meeting, &meeting->gifts);
}

void MeetingPoint::leave(uint32_t rank) {
  {
    const MutexLock lock(mutex_);
    present_[rank] = false;
  }
  changed_.notify_all();
}

namespace {

/// One rank: what it gives is what all gave. It can send to itself.
class SingleCommunicator : public Communicator {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t rank_count() const override { return 1; }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    return std::vector<ByteVector>{ByteVector(mine.begin(), mine.end())};
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check_rank(root, 1));
    return ByteVector(roots.begin(), roots.end());
  }
  Status all_min(std::span<uint64_t> /*values*/) override { return {}; }
  Status all_max(std::span<uint64_t> /*values*/) override { return {}; }
  Status barrier() override { return {}; }

  bool concurrent() const override { return true; }
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    VARVE_TRY(check_rank(to, 1));
    return mailbox_.put(0, tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check_rank(from, 1));
    return mailbox_.take(0, tag, into);
  }

 private:
  Mailbox mailbox_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

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

  ~ThreadCommunicator() override { ThreadCommunicator::revoke(); }

  /// Whoever waits for this rank, or will, is told.
  void revoke() override {
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

namespace {
/// Before what a member tells another one: whether it is a failure (u8), and how many bytes follow (u64).
constexpr size_t kHeaderBytes = 9;
/// More in one call would be a mistake, or garbage.
constexpr uint64_t kMessageBytesMax = 64_GiB;

/// Of the parent, with each member: of messages from it, and of those to it.
struct FirstTags {
  std::vector<uint32_t> from, to;
};

class GatheringCommunicator final : public Communicator {
 public:
  GatheringCommunicator(uint32_t rank, uint32_t rank_count, AllGather gather)
      : rank_(rank), rank_count_(rank_count), gather_(std::move(gather)) {}

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return rank_count_; }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    if (revoked_) return rank_ended(rank_);
    VARVE_ASSIGN(std::vector<ByteVector> all, gather_(mine));
    if (all.size() != rank_count_) {
      return Status::io_error(fmt::format("{} ranks gave something, of {}", all.size(), rank_count_));
    }
    return all;
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check_rank(root, rank_count_));
    VARVE_ASSIGN(std::vector<ByteVector> all, all_gather(root == rank_ ? roots : ByteSpan()));
    return std::move(all[root]);
  }
  Status all_min(std::span<uint64_t> values) override {
    return reduce(values, [](uint64_t a, uint64_t b) { return std::min(a, b); });
  }
  Status all_max(std::span<uint64_t> values) override {
    return reduce(values, [](uint64_t a, uint64_t b) { return std::max(a, b); });
  }
  Status barrier() override { return all_gather({}).status(); }

  bool concurrent() const override { return false; }
  Status send(uint32_t, uint32_t, ByteSpan) override { return no_messages(); }
  Status receive(uint32_t, uint32_t, MutableByteSpan) override { return no_messages(); }
  void revoke() override { revoked_ = true; }

 private:
  static Status no_messages() { return Status::unsupported("these ranks can only gather"); }

  template <class Combine>
  Status reduce(std::span<uint64_t> values, Combine combine) {
    VARVE_ASSIGN(const std::vector<ByteVector> all, all_gather(std::as_bytes(values)));
    std::vector<uint64_t> combined(values.begin(), values.end());
    for (uint32_t from = 0; from < rank_count_; ++from) {
      if (all[from].size() != values.size_bytes()) {
        return wrong_message_size(from, all[from].size(), values.size_bytes());
      }
      for (size_t i = 0; i < combined.size(); ++i) {
        uint64_t theirs = 0;
        std::memcpy(&theirs, all[from].data() + i * sizeof theirs, sizeof theirs);
        combined[i] = combine(combined[i], theirs);
      }
    }
    std::copy(combined.begin(), combined.end(), values.begin());
    return {};
  }

  const uint32_t rank_, rank_count_;
  const AllGather gather_;
  std::atomic<bool> revoked_ = false;
};

class SubsetCommunicator final : public Communicator {
 public:
  /// `first_tags`: with each member, from this one and to it.
  SubsetCommunicator(Communicator& parent, std::vector<uint32_t> members, uint32_t rank, FirstTags first_tags)
      : parent_(parent), members_(std::move(members)), rank_(rank), first_tags_(std::move(first_tags)) {}

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return static_cast<uint32_t>(members_.size()); }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    ByteVector packed;
    ByteWriter(packed).text(as_text(mine));
    const auto append = [](ByteVector& all, const ByteVector& more) -> Status {
      all.insert(all.end(), more.begin(), more.end());
      return {};
    };
    VARVE_ASSIGN(const ByteVector all, spread(collect(std::move(packed), append), 0));
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
    return parent_.send(members_[to], first_tags_.to[to] + 1 + tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check_rank(from, rank_count()));
    return parent_.receive(members_[from], first_tags_.from[from] + 1 + tag, into);
  }

 private:
  Status tell(uint32_t to, ByteSpan bytes, bool failure = false) {
    std::array<std::byte, kHeaderBytes> header;
    header[0] = std::byte{failure};
    store_le<uint64_t>(header.data() + 1, bytes.size());
    VARVE_TRY(parent_.send(members_[to], first_tags_.to[to], header));
    return bytes.empty() ? Status() : parent_.send(members_[to], first_tags_.to[to], bytes);
  }
  Status tell_outcome(uint32_t to, const Result<ByteVector>& outcome) {
    return outcome.ok() ? tell(to, *outcome) : tell(to, encode_status(outcome.status()), true);
  }
  /// What a member tells, or the failure that it tells of.
  Result<ByteVector> hear(uint32_t from) {
    std::array<std::byte, kHeaderBytes> header;
    VARVE_TRY(parent_.receive(members_[from], first_tags_.from[from], header));
    const auto bytes = load_le<uint64_t>(header.data() + 1);
    if (bytes > kMessageBytesMax) return Status::corrupt("a message is longer than any can be");
    ByteVector told(bytes);
    if (bytes > 0) VARVE_TRY(parent_.receive(members_[from], first_tags_.from[from], told));
    if (header[0] == std::byte{0}) return told;
    Status failure;
    VARVE_TRY(decode_status(told, failure));
    return failure.ok() ? Status::corrupt("a rank tells of a failure that is none") : failure;
  }

  /// What all have, put together by `add`, in their order; only the first member gets it. A binomial tree, so that no
  /// member hears of all. The first failure of any of them instead, once all have been heard.
  template <class Add>
  Result<ByteVector> collect(Result<ByteVector> outcome, const Add& add) {
    for (uint32_t step = 1; step < rank_count(); step *= 2) {
      if ((rank_ & step) != 0) {
        tell_outcome(rank_ - step, outcome).ignore("who waits for it notices that it is missing");
        return ByteVector();
      }
      if (rank_ + step >= rank_count()) continue;
      const Result<ByteVector> part = hear(rank_ + step);
      if (!outcome.ok()) continue;
      const Status added = part.ok() ? add(*outcome, *part) : part.status();
      if (!added.ok()) outcome = added;
    }
    return outcome;
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
    const ByteSpan mine = std::as_bytes(values);
    const auto choose_each = [&](ByteVector& chosen, const ByteVector& others) -> Status {
      if (others.size() != chosen.size()) return Status::invalid_argument("the ranks give different numbers of values");
      for (size_t at = 0; at < chosen.size(); at += sizeof(uint64_t)) {
        uint64_t a, b;
        std::memcpy(&a, chosen.data() + at, sizeof a);
        std::memcpy(&b, others.data() + at, sizeof b);
        a = choose(a, b);
        std::memcpy(chosen.data() + at, &a, sizeof a);
      }
      return {};
    };
    VARVE_ASSIGN(const ByteVector all, spread(collect(ByteVector(mine.begin(), mine.end()), choose_each), 0));
    if (all.size() != mine.size()) return Status::invalid_argument("the ranks give different numbers of values");
    std::memcpy(values.data(), all.data(), all.size());
    return {};
  }

  Communicator& parent_;
  const std::vector<uint32_t> members_;  ///< ranks of the parent
  const uint32_t rank_;
  const FirstTags first_tags_;
};

Status check_concurrent(const Communicator& parent) {
  if (parent.concurrent()) return {};
  return Status::unsupported("some ranks can only talk by messages of their own", "MPI",
                             "ask MPI_Init_thread for MPI_THREAD_MULTIPLE");
}
}  // namespace

Result<std::unique_ptr<Communicator>> make_gathering_communicator(uint32_t rank, uint32_t rank_count,
                                                                  AllGather all_gather) {
  VARVE_TRY(check_rank(rank, rank_count));
  return std::unique_ptr<Communicator>(
      std::make_unique<GatheringCommunicator>(rank, rank_count, std::move(all_gather)));
}

Result<std::unique_ptr<Communicator>> make_subset_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t first_tag) {
  VARVE_TRY(check_concurrent(parent));
  std::vector<uint32_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const auto own = std::find(members.begin(), members.end(), parent.rank());
  if (own == members.end() || sorted.back() >= parent.rank_count() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Status::invalid_argument("the members of a subset are different ranks, this one among them");
  }
  const auto rank = static_cast<uint32_t>(own - members.begin());
  const std::vector<uint32_t> tags(members.size(), first_tag);
  return std::unique_ptr<Communicator>(
      std::make_unique<SubsetCommunicator>(parent, std::move(members), rank, FirstTags{tags, tags}));
}

Result<std::unique_ptr<Communicator>> make_member_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t member, uint32_t first_tag) {
  constexpr uint32_t kTagMax = 32'767;
  VARVE_TRY(check_concurrent(parent));
  std::vector<uint32_t> count_of(parent.rank_count()), ordinals;  // a member's, among those of its rank
  for (const uint32_t rank : members) {
    VARVE_TRY(check_rank(rank, parent.rank_count()));
    ordinals.push_back(count_of[rank]++);
  }
  if (member >= members.size() || members[member] != parent.rank())
    return Status::invalid_argument("a member of a subset is not of this rank");
  const uint64_t most = *std::max_element(count_of.begin(), count_of.end());
  if (first_tag + most * most * kMemberTags > kTagMax)
    return Status::invalid_argument(fmt::format("a rank cannot be {} members of a subset", most));
  FirstTags tags;
  const auto width = static_cast<uint32_t>(most);
  for (const uint32_t other : ordinals) {
    tags.from.push_back(first_tag + (other * width + ordinals[member]) * kMemberTags);
    tags.to.push_back(first_tag + (ordinals[member] * width + other) * kMemberTags);
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<SubsetCommunicator>(parent, std::move(members), member, std::move(tags)));
}

}  // namespace varve
