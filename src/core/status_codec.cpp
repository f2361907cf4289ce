#include "core/status_codec.h"

namespace varve {

namespace {
/// As much of a text as fits, without half a character.
std::string_view cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t bytes = bytes_max;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

/// Of a remedy that this version does not know, nothing can be said.
Hint hint_of(uint8_t remedy, std::string words) {
  if (remedy == static_cast<uint8_t>(Remedy::none)) return words;
  return remedy <= kRemedyMax ? Hint(static_cast<Remedy>(remedy), std::move(words)) : Hint();
}
}  // namespace

void put_status(ByteWriter& out, const Status& status, size_t text_bytes_max) {
  out.u8(static_cast<uint8_t>(status.code()));
  out.text(cut(status.message(), text_bytes_max));
  out.text(cut(status.subject(), text_bytes_max));
  const bool in_words = status.remedy() == Remedy::none;
  out.u8(static_cast<uint8_t>(status.remedy()));
  out.text(cut(in_words ? status.hint() : status.remedy_argument(), text_bytes_max));
}

Status get_status(ByteReader& in, Status& status) {
  VARVE_ASSIGN(const uint8_t code, in.u8());
  VARVE_ASSIGN(const std::string_view message, in.text());
  VARVE_ASSIGN(const std::string_view subject, in.text());
  VARVE_ASSIGN(const uint8_t remedy, in.u8());
  VARVE_ASSIGN(const std::string_view words, in.text());
  if (code > static_cast<uint8_t>(StatusCode::internal)) return Status::corrupt("an impossible kind of failure");
  status = Status();
  if (code != static_cast<uint8_t>(StatusCode::ok)) {
    status = Status(static_cast<StatusCode>(code), std::string(message), std::string(subject),
                    hint_of(remedy, std::string(words)));
  }
  return {};
}

ByteVector encode_status(const Status& status, size_t text_bytes_max) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_status(out, status, text_bytes_max);
  return bytes;
}

Status decode_status(ByteSpan bytes, Status& status) {
  ByteReader in(bytes);
  return get_status(in, status);
}

}  // namespace varve
