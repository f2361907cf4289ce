#pragma once

#include "core/bytes.h"
#include "redundancy/member_files.h"

namespace varve {

/// What is whole on a member, as a message to the others; of the damages only the first few, cut short.
ByteVector encode_survey(const MemberSurvey& survey);
/// The reverse, of untrusted bytes; corrupt unless they are a survey of that very member.
Result<MemberSurvey> decode_survey(ByteSpan bytes, const ParityGroup& group, uint32_t position);

}  // namespace varve
