#include "redundancy/survey_codec.h"

#include <algorithm>

#include "core/status_codec.h"

namespace varve {

namespace {
constexpr size_t kDamagesMax = 4;
constexpr size_t kDamageTextBytesMax = 300;
}  // namespace

// Redundancy file lost u8 | files varint | a bit for each, the first the lowest | damages varint | each a Status.

ByteVector encode_survey(const MemberSurvey& survey) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.u8(survey.parity_lost ? 1 : 0);
  out.varint(survey.lost_files.size());
  ByteVector bits((survey.lost_files.size() + 7) / 8);
  for (size_t i = 0; i < survey.lost_files.size(); ++i) {
    if (survey.lost_files[i]) bits[i / 8] |= static_cast<std::byte>(1u << i % 8);
  }
  out.bytes(bits);
  const size_t damage_count = std::min(survey.damages.size(), kDamagesMax);
  out.varint(damage_count);
  for (size_t i = 0; i < damage_count; ++i) put_status(out, survey.damages[i], kDamageTextBytesMax);
  return bytes;
}

Result<MemberSurvey> decode_survey(ByteSpan bytes, const ParityGroup& group, uint32_t position) {
  MemberSurvey survey = MemberSurvey::all_whole(group, position);
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint8_t parity_lost, in.u8());
  VARVE_ASSIGN(const uint64_t file_count, in.varint());
  if (parity_lost > 1 || file_count != survey.lost_files.size()) {
    return Status::corrupt("what a node says of its files makes no sense", group.name_of(position));
  }
  survey.parity_lost = parity_lost == 1;
  VARVE_ASSIGN(const ByteSpan bits, in.bytes((file_count + 7) / 8));
  for (size_t i = 0; i < file_count; ++i) {
    survey.lost_files[i] = (bits[i / 8] & static_cast<std::byte>(1u << i % 8)) != std::byte{0};
  }
  VARVE_ASSIGN(const uint64_t damage_count, in.count());
  for (uint64_t i = 0; i < damage_count; ++i) {
    Status damage;
    VARVE_TRY(get_status(in, damage));
    survey.damages.push_back(std::move(damage));
  }
  if (!in.at_end()) return Status::corrupt("what a node says of its files has bytes left", group.name_of(position));
  return survey;
}

}  // namespace varve
