// What an S3 service sends, as a client takes it apart: any bytes are a list, uploads, an outcome or an error, or a
// Status.
#include <cstdlib>

#include "s3/http.h"
#include "s3/s3_sign.h"
#include "s3/s3_xml.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan input(reinterpret_cast<const std::byte*>(data), size);
  if (const Result<S3ListPage> page = parse_s3_list(input); page.ok()) {
    for (const S3Object& object : page->objects) {
      if (object.modified_seconds < 0) std::abort();
    }
  }
  parse_s3_uploads(input).status().ignore("it only must not crash");
  parse_s3_completed(input).status().ignore("it only must not crash");
  parse_s3_not_removed(input).status().ignore("it only must not crash");
  if (const Result<std::string> id = parse_s3_upload_id(input); id.ok() && id->empty()) std::abort();
  const S3Error error = parse_s3_error(input);
  for (const std::string& text : {error.code, error.message}) {
    for (const char c : text) {
      if (c < ' ' || c > '~') std::abort();
    }
  }
  // What was encoded is decoded to the same.
  if (const Result<std::string> same = percent_decode(percent_encode(as_text(input)), true);
      !same.ok() || *same != as_text(input)) {
    std::abort();
  }
  percent_decode(as_text(input), true).status().ignore("it only must not crash");
  if (const Result<int64_t> seconds = parse_http_date(as_text(input)); seconds.ok() && *seconds < 0) std::abort();
  return 0;
}
