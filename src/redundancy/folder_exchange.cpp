#include "redundancy/block_exchange.h"

namespace varve {

FolderExchange::FolderExchange(const ParityGroup& group, const std::vector<Place>& places) {
  for (uint32_t position = 0; position < places.size(); ++position) {
    readers_.emplace_back(*places[position].fs, places[position].folder, group.member(position).files);
  }
}

Status FolderExchange::fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const BlockRequest& request = requests[i];
    if (request.member >= readers_.size()) return Status::internal("a block of no member is asked for");
    MemberReader& reader = readers_[request.member];
    VARVE_TRY(request.kind == BlockRequest::Kind::stream ? reader.read_stream(request.offset, into[i])
                                                         : reader.read_parity_file(request.offset, into[i]));
  }
  return {};
}

}  // namespace varve
