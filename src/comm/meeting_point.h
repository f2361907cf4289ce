#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"

namespace varve {

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

  std::shared_ptr<Meeting> make_meeting() const;
  std::optional<uint32_t> missing_rank() const;

  Mutex mutex_;  ///< guards everything below; a meeting is not changed any more once all have come
  ConditionVariable changed_;
  std::vector<bool> present_;
  std::shared_ptr<Meeting> meeting_;  ///< that the next rank to come joins
};

}  // namespace varve
