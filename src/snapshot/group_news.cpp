#include "snapshot/group_news.h"

#include "core/status_codec.h"

namespace varve {

namespace {
constexpr size_t kTextBytesMax = 300;

void put_step(ByteWriter& out, const std::optional<uint64_t>& step) {
  out.u8(step ? 1 : 0);
  out.le64(step.value_or(0));
}

Result<std::optional<uint64_t>> get_step(ByteReader& in) {
  VARVE_ASSIGN(const uint8_t there, in.u8());
  VARVE_ASSIGN(const uint64_t step, in.le64());
  return there != 0 ? std::optional(step) : std::nullopt;
}
}  // namespace

ByteVector encode_news(const GroupNews& news) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_step(out, news.newest_persistent);
  put_step(out, news.finished_step);
  out.le64(news.bytes_to_write);
  out.le64(news.bytes_written);
  put_step(out, news.failed_step);
  put_status(out, news.last_error, kTextBytesMax);
  return bytes;
}

Result<GroupNews> decode_news(ByteSpan bytes) {
  ByteReader in(bytes);
  GroupNews news;
  VARVE_ASSIGN(news.newest_persistent, get_step(in));
  VARVE_ASSIGN(news.finished_step, get_step(in));
  VARVE_ASSIGN(news.bytes_to_write, in.le64());
  VARVE_ASSIGN(news.bytes_written, in.le64());
  VARVE_ASSIGN(news.failed_step, get_step(in));
  VARVE_TRY(get_status(in, news.last_error));
  return news;
}

}  // namespace varve
