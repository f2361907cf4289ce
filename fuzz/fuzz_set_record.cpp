// Any bytes are a set record or a Status; what was decoded encodes again. Its checksum is added, so that what lies
// behind it is reached.
#include <cstdlib>

#include "format/set_record.h"
#include "fuzz_layout.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan fields = fuzz_bytes(data, size);
  for (size_t score_bytes : {20, 32}) {
    const ScoreFunction score = ScoreFunction::create(ScoreFunction::preferred().algorithm(), score_bytes).value();
    (void)decode_set_record(fields, score).ok();
    ByteVector raw(fields.begin(), fields.end());
    ByteWriter out(raw);
    write_score(out, score(fields), score_bytes);
    const Result<SetRecord> record = decode_set_record(raw, score);
    if (!record.ok()) continue;
    if (!check_job_name(record->name.job).ok()) std::abort();
    const ByteVector encoded = encode_set_record(*record, score);
    const Result<SetRecord> again = decode_set_record(encoded, score);
    if (!again.ok() || encode_set_record(*again, score) != encoded) std::abort();
  }
  return 0;
}
