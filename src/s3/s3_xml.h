#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

// What a service says in XML. All of it comes from outside: what is not well-formed, has a document type, is nested
// deeper or has longer texts than such replies have, is corrupt.

/// An object as lists and HEAD tell of it.
struct S3Object {
  std::string key;
  uint64_t bytes = 0;
  int64_t modified_seconds = 0;  ///< since 1970, by the service's clock
  std::string etag;              ///< without quotes
};

/// A multipart upload that is neither complete nor aborted.
struct S3PendingUpload {
  std::string key, id;
  int64_t begun_seconds = 0;
};

struct S3ListPage {
  std::vector<S3Object> objects;
  std::vector<std::string> prefixes;
  std::string next_token;  ///< empty: this is the last page
};
struct S3UploadPage {
  std::vector<S3PendingUpload> uploads;
  std::string next_key, next_id;  ///< empty: this is the last page
};
struct S3Error {
  std::string code;     ///< "NoSuchKey"; empty: the body was no error
  std::string message;  ///< made fit to be shown: one line of printable ASCII
};

Result<S3ListPage> parse_s3_list(ByteSpan xml);
Result<S3UploadPage> parse_s3_uploads(ByteSpan xml);
/// Of InitiateMultipartUploadResult.
Result<std::string> parse_s3_upload_id(ByteSpan xml);
/// The ETag of CompleteMultipartUploadResult, which Ceph 16 leaves empty.
Result<std::string> parse_s3_completed(ByteSpan xml);
/// What DeleteObjects could not remove, one error each: "KEY: CODE".
Result<std::vector<std::string>> parse_s3_not_removed(ByteSpan xml);
/// Of any body.
S3Error parse_s3_error(ByteSpan body);

/// Seconds since 1970 of "2009-10-12T17:50:30.000Z".
Result<int64_t> parse_iso_time(std::string_view text);
/// Without the quotes around it.
std::string bare_etag(std::string_view etag);

}  // namespace varve
