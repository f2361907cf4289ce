#include "service/offer_intake.h"

#include "level/node_label.h"

namespace varve {

OfferIntake::~OfferIntake() {
  if (files_) gather_.leave(files_);
}

Status OfferIntake::offer(const Request& request, ByteSpan data) {
  if (files_) return Status::invalid_argument("a connection offers one set");
  if (request.bytes > kOfferedBytesMax) return Status::resource_limit("an offer is too large");
  const bool is_first = raw_.empty();
  if (request.offset != raw_.size() || (!is_first && request.bytes != raw_bytes_) ||
      data.size() > request.bytes - request.offset)
    return Status::invalid_argument("the pieces of an offer do not follow one another");
  if (is_first) {
    raw_room_.give_back();
    VARVE_TRY(raw_room_.take(request.bytes));
    raw_.reserve(request.bytes);
    raw_bytes_ = request.bytes;
  }
  raw_.insert(raw_.end(), data.begin(), data.end());
  if (raw_.size() < request.bytes) return {};

  NodeOffer offer;
  const std::optional<SetName> set = parse_set_name(request.path);
  if (!set) return Status::invalid_argument("a set is JOB@STEP", request.path);
  offer.set = *set;
  offer.node = request.node;
  offer.node_count = request.node_count;
  offer.room = OfferRoom(gather_);
  VARVE_ASSIGN(offer.files, decode_offered_files(raw_, [&](uint64_t bytes) { return offer.room.take(bytes); }));
  ByteVector().swap(raw_);
  raw_room_.give_back();
  VARVE_ASSIGN(files_, gather_.join(std::move(offer)));
  return {};
}

Result<FileQuestion> OfferIntake::answer(const Request& request, ByteSpan data, const SignOfLife& alive) {
  if (!files_) return Status::invalid_argument("there is no offer that is being answered for");
  return files_->next(request.failure, data, request.bytes, alive);
}

}  // namespace varve
