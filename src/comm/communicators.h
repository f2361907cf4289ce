#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "varve/communicator.h"

namespace varve {

/// Messages on their way to one rank of this process; they wait in memory until they are taken. Thread-safe.
class Mailbox {
 public:
  /// io_error if the rank that they are for has ended.
  Status put(uint32_t from, uint32_t tag, ByteSpan message);
  /// Waits for the next message of `from` with this tag, and fills `into` with it. corrupt: it has another size; it is
  /// gone then. io_error: `from` has ended, and has left no more, or the rank that the messages are for has.
  Status take(uint32_t from, uint32_t tag, MutableByteSpan into);

  /// No more will come from this rank.
  void sender_ended(uint32_t from);
  /// The rank that the messages are for has ended.
  void close();

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  /// By sender and tag.
  std::map<std::pair<uint32_t, uint32_t>, std::deque<ByteVector>> waiting_ VARVE_GUARDED_BY(mutex_);
  std::set<uint32_t> ended_ VARVE_GUARDED_BY(mutex_);
  bool closed_ VARVE_GUARDED_BY(mutex_) = false;
};

/// What calls that need a rank which has ended give.
Status rank_ended(uint32_t rank);

/// What a message of another size than expected gives.
Status wrong_message_size(uint32_t from, uint64_t bytes, uint64_t expected_bytes);

/// invalid_argument unless `rank` is one of the `rank_count` ranks.
Status check_rank(uint32_t rank, uint32_t rank_count);

/// Where the ranks of one process meet for collective calls. Thread-safe.
class MeetingPoint {
 public:
  using Gifts = std::vector<ByteVector>;  ///< what each rank has given

  explicit MeetingPoint(uint32_t rank_count) : present_(rank_count, true), meeting_(make_meeting()) {}

  /// Returns when all ranks have come, with what each has given; shared by all, and nobody changes it. io_error: a rank
  /// has ended, and never comes. invalid_argument: ranks have come for different calls.
  Result<std::shared_ptr<const Gifts>> meet(uint32_t rank, std::string_view call, ByteSpan gift);

  /// The rank does not come any more.
  void leave(uint32_t rank);

 private:
  struct Meeting {
    Gifts gifts;
    std::string_view call;  ///< that the first rank came for; a literal
    bool same_call = true;
    uint32_t came = 0;
  };

  std::shared_ptr<Meeting> make_meeting() const VARVE_REQUIRES(mutex_);
  std::optional<uint32_t> missing_rank() const VARVE_REQUIRES(mutex_);

  Mutex mutex_;  ///< of the meetings too: one is not changed any more once all have come
  ConditionVariable changed_;
  std::vector<bool> present_ VARVE_GUARDED_BY(mutex_);
  std::shared_ptr<Meeting> meeting_ VARVE_GUARDED_BY(mutex_);  ///< that the next rank to come joins
};

/// Some ranks of a communicator as one of their own, made of the parent's messages alone, its collective calls too: so
/// a thread beside the program's may use it while the program makes collective calls of the parent, and ranks that are
/// no members need not know of it. Members are numbered as they stand in `members`, which is the same on all of them.
///
/// A collective call that fails on one member fails on all that need its part, so that none waits in vain.
///
/// `parent` outlives it. Collective calls use the parent's tag `first_tag`, messages of tag t use `first_tag` + 1 + t:
/// nobody else uses those between its members. concurrent().
///
/// unsupported unless the parent is concurrent(); invalid_argument unless the members are different ranks of it, this
/// rank among them.
Result<std::unique_ptr<Communicator>> make_subset_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t first_tag);

/// The same where a rank may be several members, each on a thread of its own: this is for the one that stands at
/// `member`, which is of this rank. Messages have tags below kMemberTags then, and with m the most members of a rank,
/// m * m * kMemberTags tags of the parent are used from `first_tag` on; invalid_argument where there are not so many.
inline constexpr uint32_t kMemberTags = 16;
Result<std::unique_ptr<Communicator>> make_member_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t member, uint32_t first_tag);

}  // namespace varve
