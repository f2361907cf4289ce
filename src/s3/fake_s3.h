#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "s3/http.h"
#include "s3/s3_sign.h"
#include "s3/s3_xml.h"

namespace varve {

/// What happens to one request.
enum class S3Fault : uint8_t {
  none,
  refused,          ///< nobody answers: no effect
  lost_request,     ///< the connection is lost on the way there: no effect
  lost_reply,       ///< the connection is lost on the way back: the effect took place
  error_500,        ///< InternalError, no effect
  error_500_after,  ///< the same, though the effect took place
  slow_down,        ///< 503 SlowDown, no effect
  too_many,         ///< 429, no effect
  torn_body,        ///< the reply ends in the middle of its body, which the connection does not notice
  damaged_body,     ///< a bit of an object is another one
  repeated,         ///< sent twice without a reply in between, as libcurl does over a connection that died
  stale_list,       ///< a list without the last change
};

struct FakeS3Options {
  std::string bucket = "bucket";
  S3Credentials credentials{"access", "secret", {}};
  bool says_ended_as_400 = false;  ///< of other credentials: "400 ExpiredToken", as Amazon, not 403
  std::string region = "us-east-1";
  size_t page_entries = 1000;                                             ///< of a list
  std::function<int64_t()> calendar = [] { return calendar_seconds(); };  ///< the service's clock
  // What some services cannot do.
  bool knows_if_none_match = true;
  bool knows_if_match = true;
  bool takes_quoted_etags_only = false;
  bool takes_bare_etags_only = false;  ///< in conditions of writes, as Ceph 16 does
  bool completes_if_absent = true;
};

/// An S3 service in memory, which checks signatures, hashes and conditions as real ones do, and fails as it is told:
/// for tests, and for simulations (its locks are core/sync.h's). Thread-safe.
class FakeS3 final : public HttpTransport {
 public:
  /// Chooses what happens to a request. Called under the service's lock.
  using Faults = std::function<S3Fault(const HttpRequest& request)>;

  explicit FakeS3(FakeS3Options options = {}) : options_(std::move(options)) {}
  HttpReply exchange(const HttpRequest& request) override;

  void set_faults(Faults faults);
  /// The next requests get these, one each; later ones what set_faults() says.
  void fail_next(std::vector<S3Fault> faults);
  /// Called before each request takes effect, without the lock: somebody else acts here.
  void set_before_effect(std::function<void(const HttpRequest&)> act);
  /// What was carried out, in order: "PUT /bucket/key".
  std::vector<std::string> log() const;

  // Behind the clients' backs.
  std::optional<std::string> object(const std::string& key) const;
  void set_object(const std::string& key, std::string_view contents);
  size_t object_count() const;
  size_t upload_count() const;

 private:
  using Fields = std::map<std::string, std::string>;
  struct Object {
    ByteVector bytes;
    std::string etag;
    int64_t modified_seconds = 0;
  };
  struct Upload {
    std::string key;
    int64_t begun_seconds = 0;
    std::map<uint32_t, Object> parts;
  };
  struct Change {
    std::string key;
    std::optional<Object> before;
  };

  S3Fault next_fault(const HttpRequest& request) VARVE_REQUIRES(mutex_);
  HttpReply serve(const HttpRequest& request, bool stale) VARVE_REQUIRES(mutex_);
  std::optional<HttpReply> refuse_signature(const HttpRequest& request) const;
  std::optional<HttpReply> refuse_condition(const HttpRequest& request, const std::string& key) const
      VARVE_REQUIRES(mutex_);
  HttpReply serve_bucket(const HttpRequest& request, const Fields& query, bool stale) VARVE_REQUIRES(mutex_);
  HttpReply serve_object(const HttpRequest& request, const std::string& key, const Fields& query)
      VARVE_REQUIRES(mutex_);
  HttpReply put(const HttpRequest& request, const std::string& key) VARVE_REQUIRES(mutex_);
  HttpReply get(const HttpRequest& request, const std::string& key) const VARVE_REQUIRES(mutex_);
  HttpReply list(const Fields& query, bool stale) const VARVE_REQUIRES(mutex_);
  HttpReply list_uploads(const Fields& query) const VARVE_REQUIRES(mutex_);
  HttpReply remove_many(const HttpRequest& request) VARVE_REQUIRES(mutex_);
  HttpReply put_part(const HttpRequest& request, const Fields& query) VARVE_REQUIRES(mutex_);
  HttpReply complete(const HttpRequest& request, const std::string& key, const std::string& id) VARVE_REQUIRES(mutex_);
  void change(const std::string& key, std::optional<Object> now) VARVE_REQUIRES(mutex_);
  Object make_object(ByteSpan bytes) const;
  HttpReply reply(int status, std::string_view body = {}) const;
  HttpReply error(int status, std::string_view code) const;

  const FakeS3Options options_;
  mutable Mutex mutex_;
  Faults faults_ VARVE_GUARDED_BY(mutex_);
  std::deque<S3Fault> next_faults_ VARVE_GUARDED_BY(mutex_);
  std::function<void(const HttpRequest&)> before_effect_ VARVE_GUARDED_BY(mutex_);
  std::vector<std::string> log_ VARVE_GUARDED_BY(mutex_);
  std::map<std::string, Object> objects_ VARVE_GUARDED_BY(mutex_);
  std::optional<Change> last_change_ VARVE_GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ VARVE_GUARDED_BY(mutex_);
  uint64_t next_upload_ VARVE_GUARDED_BY(mutex_) = 1;
};

/// Each fault of `kinds` with the probability `each`, by the seed.
FakeS3::Faults random_s3_faults(uint64_t seed, double each, std::vector<S3Fault> kinds);

}  // namespace varve
