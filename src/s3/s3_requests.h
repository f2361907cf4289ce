#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/sync.h"
#include "s3/http.h"
#include "s3/s3_place.h"
#include "s3/s3_xml.h"
#include "varve/status.h"

namespace varve {

/// Kinds of requests, as services count and charge them.
enum class S3Verb : uint8_t {
  put,
  get,
  head,
  list,
  remove,
  remove_many,
  upload_begin,
  upload_part,
  upload_complete,
  upload_abort,
  upload_list,
};
inline constexpr size_t kS3VerbCount = 11;
/// "put", "upload_part", for tables.
std::string_view s3_verb_name(S3Verb verb);

/// What has gone over the wire so far.
struct S3Counters {
  std::array<uint64_t, kS3VerbCount> requests{};  ///< by S3Verb; repeated ones count again
  uint64_t repeats = 0;                           ///< how many of them were repeated
  uint64_t bytes_up = 0, bytes_down = 0;          ///< of bodies
  uint64_t of(S3Verb verb) const { return requests[static_cast<size_t>(verb)]; }
};

struct S3RetryOptions {
  /// How long a request is tried again that failed for a reason which may pass: connection refused or lost, no reply in
  /// time, a reply that ends early, 429 and 5xx. Nothing else is tried again.
  double seconds = 60;
  /// The pause before a retry is random, from 0 to a bound, which is this at first and doubles ("full jitter").
  double pause_seconds_first = 0.1;
  double pause_seconds_max = 10;
  Clock* clock = &steady_clock();  ///< outlives what is made with these options
  /// Seconds since 1970 by this machine, which may be wrong.
  std::function<int64_t()> calendar = [] { return calendar_seconds(); };
};

/// A request without what all requests have.
struct S3Call {
  S3Verb verb;
  std::string key;  ///< empty: the bucket itself
  std::string query;
  std::vector<HttpHeader> headers;
  ByteSpan body;
  MutableByteSpan into;              ///< as HttpRequest's
  uint64_t body_bytes_max = 64_KiB;  ///< likewise
  /// Signed as of then, by the service's clock, however often it is tried: the service refuses it once that is long ago
  /// (15 minutes). None: as of when it is sent.
  std::optional<int64_t> signed_at{};
  /// Looks at a reply of status 2xx that came as a whole. io_error: it makes no sense, and may the next time. None: all
  /// are good.
  std::function<Status(const HttpReply&)> check;
};

struct S3Answer {
  /// OK: status 2xx. Otherwise what it is to those who do not look further: not_found (404), permission_denied (401,
  /// 403), busy (412), no_space (a quota), io_error (all retries failed), invalid_argument or unsupported.
  Status status;
  HttpReply reply;   ///< the last one
  std::string code;  ///< of an error: "NoSuchKey"; empty where a reply has no body
  /// An earlier try may have had its effect: its reply was lost.
  bool repeated = false;
};

/// Signs requests to one bucket, sends them, tries again, and keeps the service's time. Thread-safe.
class S3Requests {
 public:
  /// `transport` outlives it.
  S3Requests(HttpTransport& transport, S3Settings settings, std::string bucket, S3RetryOptions options);

  S3Answer send(const S3Call& call);

  /// Seconds since 1970 by the service's clock, as its last reply told it; by this machine's before the first.
  int64_t server_seconds() const { return options_.calendar() + clock_offset_seconds_.load(); }
  S3Counters counters() const;
  /// Where a key is, for messages: "s3://bucket/key".
  std::string subject(std::string_view key) const { return "s3://" + bucket_ + "/" + std::string(key); }

 private:
  class Retries;
  HttpRequest unsigned_request(const S3Call& call) const;
  S3Answer send_once(const S3Call& call, const HttpRequest& request, std::string_view body_sha256,
                     const S3Credentials& credentials);
  S3Credentials credentials() const;
  /// Whether there are others by now than those that the service has refused.
  bool renew_credentials(const S3Credentials& refused);
  Status judge(const S3Call& call, S3Answer& answer) const;
  Status refusal(const S3Call& call, const S3Answer& answer, const S3Error& error) const;
  int64_t signing_offset() const;
  void learn_time(const HttpReply& reply);
  void count(const S3Call& call, const HttpReply& reply);

  HttpTransport& transport_;
  const S3Settings settings_;
  const std::string bucket_;
  const S3RetryOptions options_;
  mutable Mutex mutex_;
  S3Credentials credentials_ VARVE_GUARDED_BY(mutex_);
  std::optional<double> looked_for_newer_at_ VARVE_GUARDED_BY(mutex_);
  std::atomic<int64_t> clock_offset_seconds_{0};
  std::array<std::atomic<uint64_t>, kS3VerbCount> requests_{};
  std::atomic<uint64_t> repeats_{0}, bytes_up_{0}, bytes_down_{0};
};

}  // namespace varve
