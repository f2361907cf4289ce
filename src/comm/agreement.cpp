#include "comm/agreement.h"

#include <fmt/format.h>

#include <array>

namespace varve {

namespace {
/// As much of a text as fits, without half a character.
std::string_view cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}
}  // namespace

ByteVector encode_status(const Status& status, size_t text_bytes_max) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(status.code()));
  out.text(cut(status.message(), text_bytes_max));
  out.text(cut(status.subject(), text_bytes_max));
  out.text(cut(status.hint(), text_bytes_max));
  return bytes;
}

Status decode_status(ByteSpan bytes, Status& status) {
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint8_t code, in.u8());
  VARVE_ASSIGN(const std::string_view message, in.text());
  VARVE_ASSIGN(const std::string_view subject, in.text());
  VARVE_ASSIGN(const std::string_view hint, in.text());
  if (code > static_cast<uint8_t>(StatusCode::internal)) return Status::corrupt("an impossible kind of failure");
  status = Status();
  if (code != static_cast<uint8_t>(StatusCode::ok)) {
    status = Status(static_cast<StatusCode>(code), std::string(message), std::string(subject), std::string(hint));
  }
  return {};
}

Result<std::vector<RankFailure>> gather_failures(Communicator& ranks, const Status& mine) {
  std::array<uint64_t, 1> fine = {mine.ok() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks.all_min(fine));
  std::vector<RankFailure> failures;
  if (fine[0] == 1) return failures;
  VARVE_ASSIGN(const auto encoded, ranks.all_gather(mine.ok() ? ByteVector() : encode_status(mine)));
  for (uint32_t rank = 0; rank < encoded.size(); ++rank) {
    if (encoded[rank].empty()) continue;
    RankFailure failure{rank, {}};
    VARVE_TRY(decode_status(encoded[rank], failure.what));
    failures.push_back(std::move(failure));
  }
  return failures;
}

Status follow_first(Communicator& ranks, const Status& mine) {
  if (ranks.rank_count() == 1) return mine;
  VARVE_ASSIGN(const ByteVector encoded, ranks.broadcast(ranks.rank() == 0 ? encode_status(mine) : ByteVector(), 0));
  Status first;
  VARVE_TRY(decode_status(encoded, first));
  return first;
}

Status agree(Communicator& ranks, const Status& mine) {
  if (ranks.rank_count() == 1) return mine;
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(ranks, mine));
  if (failures.empty()) return {};
  return failures.front().what.with_context(fmt::format("rank {}", failures.front().rank));
}

}  // namespace varve
