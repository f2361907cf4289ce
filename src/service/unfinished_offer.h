#pragma once

#include <mutex>

#include "core/bytes.h"
#include "core/sync.h"
#include "service/gather_service.h"

namespace varve {

/// An offer that is still coming, piece by piece, in room that it has taken; after a while the room may be given to
/// others (GatherService::give_up_late_offers()). Thread-safe.
class UnfinishedOffer {
 public:
  /// `give_up_at`: of the service's clock.
  UnfinishedOffer(OfferRoom room, uint64_t bytes, double give_up_at)
      : bytes_(bytes), give_up_at_(give_up_at), room_(std::move(room)) {
    raw_.reserve(bytes);
  }

  uint64_t bytes() const { return bytes_; }
  /// How many have come.
  uint64_t size() const;
  /// The next bytes, no more than are lacking. busy: the offer was given up.
  Status append(ByteSpan piece);
  /// All that has come, with its room: nothing is left here.
  struct Whole {
    ByteVector raw;
    OfferRoom room;
  };
  Whole take();

  bool given_up() const;
  static Status too_late();
  /// Gives the room back if the time has come.
  void give_up_if_late(double now);

 private:
  const uint64_t bytes_;
  const double give_up_at_;
  mutable Mutex mutex_;  ///< guards what follows
  ByteVector raw_;
  OfferRoom room_;
  bool given_up_ = false;
};

}  // namespace varve
