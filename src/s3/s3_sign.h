#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "s3/http.h"

namespace varve {

/// Who asks. Never printed, and never part of a message.
struct S3Credentials {
  std::string access_key_id, secret_access_key;
  std::string session_token;  ///< of temporary ones; empty: they are not
  bool operator==(const S3Credentials&) const = default;
};

/// 64 hexadecimal digits.
std::string sha256_hex(ByteSpan bytes);
/// The 16 bytes of an MD5 sum; none where the system's rules forbid this hash.
std::optional<ByteVector> md5_of(ByteSpan bytes);
std::string to_base64(ByteSpan bytes);

/// As in a query: all but letters, digits and "-._~" becomes %XX.
std::string percent_encode(std::string_view text);
/// The reverse. `plus_is_blank`: as services encode keys in lists. corrupt: a % without two digits.
Result<std::string> percent_decode(std::string_view text, bool plus_is_blank);

/// Adds the headers by which a service knows who asks, and that the request is as it was: AWS Signature Version 4
/// (docs.aws.amazon.com, "Create a signed AWS API request"), over all headers that the request has, its host, its query
/// (which is sorted), and the body's hash. `seconds` since 1970 should be the service's time.
///
/// libcurl signs as well (CURLOPT_AWS_SIGV4), but version 7.88 by the local clock alone: told another time by
/// X-Amz-Date, it sends that header twice. It sorts no query, and signs headers that it then does not send.
void sign_request(HttpRequest& request, const S3Credentials& credentials, std::string_view region,
                  std::string_view body_sha256, int64_t seconds);

/// "20130524T000000Z".
std::string amz_date(int64_t seconds);

}  // namespace varve
