#pragma once

#include <memory>

#include "service/gather_service.h"
#include "service/protocol.h"
#include "service/pulse.h"
#include "service/unfinished_offer.h"

namespace varve {

/// One connection's part in a set that is gathered: takes the offer as it comes, piece by piece, and then passes
/// questions and answers on. One thread.
class OfferIntake {
 public:
  explicit OfferIntake(GatherService& gather) : gather_(gather) {}
  ~OfferIntake();
  OfferIntake(const OfferIntake&) = delete;
  OfferIntake& operator=(const OfferIntake&) = delete;

  Status offer(const Request& request, ByteSpan data);
  Result<FileQuestion> answer(const Request& request, ByteSpan data, const SignOfLife& alive);

 private:
  GatherService& gather_;
  std::shared_ptr<UnfinishedOffer> coming_;  ///< from its first piece on
  std::shared_ptr<NodeFiles> files_;
};

}  // namespace varve
