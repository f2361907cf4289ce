#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "s3/s3_sign.h"
#include "varve/status.h"

namespace varve {

/// `s3://bucket/prefix`: a part of a bucket.
struct S3Place {
  std::string bucket;
  std::string prefix;  ///< what the keys of all its objects begin with: empty, or ends with "/"

  /// Looks at the text alone. invalid_argument: not such an address, no name for a bucket (3 to 63 of a-z, 0-9, "-" and
  /// "."), or a prefix that is no key.
  static Result<S3Place> parse(std::string_view text);
  /// The reverse, without the "/" at the end.
  std::string to_string() const;
  /// The key of an object of this name; invalid_argument as check_s3_key() says.
  Result<std::string> key(std::string_view name) const;
};

/// A key may have letters, digits and "-._~", in parts with "/" between them, none of which is empty, "." or "..", 1024
/// in all: what no client, proxy or signature writes in another way. invalid_argument: it has others.
Status check_s3_key(std::string_view key);

/// What a user says; what is empty is looked for in the environment and the files of AWS's own programs.
struct S3Options {
  std::string endpoint;  ///< "http[s]://host[:port]"
  std::string region;
  std::string profile;             ///< the section of those files
  std::optional<bool> path_style;  ///< "host/bucket/key" instead of "bucket.host/key"
};

/// How a service is reached, and as whom.
struct S3Settings {
  std::string origin;  ///< "https://host[:port]", in lower case, without a port that https or http has anyway
  std::string region;
  bool path_style = false;
  std::string ca_file;  ///< certificates to trust; empty: those of the system
  S3Credentials credentials;
  /// Those that files or variables have by now, if they can be found: temporary ones end while a process lives. Any
  /// thread; null: there are never others.
  std::function<std::optional<S3Credentials>()> newer_credentials{};
};

/// A variable's value, or none.
using S3Environment = std::function<std::optional<std::string>(const std::string& name)>;
/// Of this process.
S3Environment process_environment();

/// Options come before variables, variables before files:
/// - credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, unless the options name a profile; else
///   the profile of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), else of AWS_CONFIG_FILE (~/.aws/config);
/// - profile: AWS_PROFILE, else "default";
/// - region: AWS_REGION, AWS_DEFAULT_REGION, `region` of the profile, else us-east-1;
/// - endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, `endpoint_url` of the profile, else AWS's own of the region;
/// - certificates: AWS_CA_BUNDLE, `ca_bundle` of the profile;
/// - path style: if an endpoint was said, or the bucket's name has dots, which certificates do not match.
/// invalid_argument: no credentials, half of them, or an endpoint that is none. not_found: a profile that was named is
/// nowhere. unsupported: the profile gets its credentials from a program or a role. Nothing that is secret is in them.
Result<S3Settings> find_s3_settings(const S3Place& place, const S3Options& options,
                                    const S3Environment& environment = process_environment());

}  // namespace varve
