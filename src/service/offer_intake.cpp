#include "service/offer_intake.h"

#include "redundancy/node_label.h"

namespace varve {

OfferIntake::~OfferIntake() {
  if (files_) gather_.leave(files_);
}

Status OfferIntake::offer(const Request& request, ByteSpan data) {
  if (files_) return Status::invalid_argument("a connection offers one set");
  if (request.bytes > kOfferedBytesMax) return Status::resource_limit("an offer is too large");
  if (coming_ && coming_->given_up()) {
    coming_.reset();
    if (request.offset > 0) return UnfinishedOffer::too_late();
  }
  const uint64_t come = coming_ ? coming_->size() : 0;
  const bool is_first = come == 0;
  if (request.offset != come || (!is_first && request.bytes != coming_->bytes()) ||
      data.size() > request.bytes - request.offset)
    return Status::invalid_argument("the pieces of an offer do not follow one another");
  if (is_first) {
    coming_.reset();
    VARVE_ASSIGN(coming_, gather_.begin_offer(request.bytes));
  }
  VARVE_TRY(coming_->append(data));
  if (come + data.size() < request.bytes) return {};

  NodeOffer offer;
  const std::optional<SetName> set = parse_set_name(request.path);
  if (!set) return Status::invalid_argument("a set is JOB@STEP", request.path);
  offer.set = *set;
  offer.node = request.node;
  offer.node_count = request.node_count;
  offer.room = OfferRoom(gather_);
  {
    const UnfinishedOffer::Whole whole = coming_->take();
    coming_.reset();
    VARVE_ASSIGN(offer.files, decode_offered_files(whole.raw, [&](uint64_t bytes) { return offer.room.take(bytes); }));
  }
  VARVE_ASSIGN(files_, gather_.join(std::move(offer)));
  return {};
}

Result<FileQuestion> OfferIntake::answer(const Request& request, ByteSpan data, const SignOfLife& alive) {
  if (!files_) return Status::invalid_argument("there is no offer that is being answered for");
  return files_->next(request.failure, data, request.bytes, alive);
}

}  // namespace varve
