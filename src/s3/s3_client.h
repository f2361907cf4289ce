#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "s3/http.h"
#include "s3/s3_place.h"
#include "s3/s3_requests.h"
#include "s3/s3_xml.h"
#include "varve/status.h"

namespace varve {

/// What must be so for a write to take place. The service decides, in one step with the write.
struct S3Condition {
  enum class Kind : uint8_t { none, absent, unchanged };
  Kind kind = Kind::none;
  std::string etag;  ///< of what is there, if it must be unchanged

  static S3Condition none() { return {}; }
  /// There is no object of this key (`If-None-Match: *`).
  static S3Condition if_absent() { return {Kind::absent, {}}; }
  /// The object is there, and is the one with this ETag (`If-Match`).
  static S3Condition if_unchanged(std::string etag) { return {Kind::unchanged, std::move(etag)}; }
};

/// A whole object.
struct S3Contents {
  ByteVector bytes;
  std::string etag;
  int64_t modified_seconds = 0;  ///< since 1970, by the service's clock
};

/// What became of a write.
struct S3Outcome {
  Status status;
  /// It was sent more than once: an earlier try may be on its way still, and be carried out at any time before the
  /// service refuses it for its age, if the condition holds then. Whatever the status says.
  bool repeated = false;
};

/// A run of bytes of an object that is wanted.
struct S3Range {
  uint64_t offset = 0;
  MutableByteSpan into;
};

/// What is there below a prefix.
struct S3Listing {
  std::vector<S3Object> objects;
  std::vector<std::string> prefixes;  ///< what keys have in common up to the delimiter, instead of their objects
};

struct S3ClientOptions {
  S3RetryOptions retries;
  size_t requests_at_once = 8;       ///< of one read_many()
  uint64_t gap_bytes_max = 128_KiB;  ///< read_many() reads this much that nobody wants, rather than ask once more
  uint64_t read_bytes_max = 16_MiB;  ///< of one request of read_many() that serves several ranges
  size_t list_entries_max = 20'000'000;
  /// ETags of 32 hexadecimal digits are MD5 sums of what was written at once. They are compared, unless the reply says
  /// that the service encrypts with keys of its own, which gives others.
  bool check_etags = true;
};

/// The objects of one bucket of an S3 service. Thread-safe; calls block.
///
/// Every request that failed for a reason which may pass is tried again (S3RetryOptions); io_error: to no avail. Other
/// failures of all calls: permission_denied (credentials, rights, certificates), not_found (the bucket),
/// invalid_argument (an address or key that makes no sense, another region), unsupported (the service cannot do this),
/// no_space (a quota), corrupt (a reply that makes no sense), resource_limit (one without end). Keys are whole
/// (S3Place::key() makes them of names), and such that check_s3_key() takes. No message has a secret in it.
class S3Client {
 public:
  /// `transport` outlives it.
  S3Client(HttpTransport& transport, const S3Place& place, S3Settings settings, S3ClientOptions options = {});

  // Writing -----------------------------------------------------------------------------------------------------------

  /// Writes an object of up to 5 GiB, which is durable and seen by all when this returns. Returns its ETag.
  /// already_exists: it had to be absent, and is not. busy: it had to be unchanged, and was replaced or removed, and
  /// nothing but that is busy here. If a reply was lost and the request, sent again, is refused since an object is
  /// there, that is a success if the object has the very same bytes: so what two writers write should differ.
  Result<std::string> put(const std::string& key, ByteSpan bytes, const S3Condition& condition = S3Condition::none());
  /// The same, with `signed_at` as S3Call's. busy also: it was sent too late, and had no effect.
  S3Outcome put_as_of(const std::string& key, ByteSpan bytes, const S3Condition& condition, int64_t signed_at);

  /// Removes an object; OK also if there is none.
  Status remove(const std::string& key);
  /// The same, with `signed_at` as S3Call's.
  S3Outcome remove_as_of(const std::string& key, int64_t signed_at);
  /// The same for many, a thousand with each request. Some may be gone also if this fails.
  Status remove_many(std::span<const std::string> keys);

  // Reading -----------------------------------------------------------------------------------------------------------

  /// Reads from `offset` on until `into` is full or the object ends, and returns how many bytes that are: 0 from its
  /// end on. not_found: no such object. busy: `etag` is not empty, and the object is another one by now.
  Result<uint64_t> read(const std::string& key, uint64_t offset, MutableByteSpan into, std::string_view etag = {});
  /// Reads many ranges of one object, several at once and neighbours together. Their memory must not overlap. corrupt:
  /// the object ends before one of them does. Otherwise as read().
  Status read_many(const std::string& key, std::span<const S3Range> ranges, std::string_view etag = {});
  /// The first bytes of an object, as many as it has and as go into `into`, which is not empty; and what head() tells.
  Result<S3Object> read_begin(const std::string& key, MutableByteSpan into);
  /// All of an object. not_found: there is none. resource_limit: it has more than `bytes_max` bytes.
  Result<S3Contents> read_all(const std::string& key, uint64_t bytes_max);
  /// not_found: no such object, or no such bucket: the reply does not say which.
  Result<S3Object> head(const std::string& key);

  /// All objects whose keys begin with `prefix`, which may be empty, in the order in which the service has them. With a
  /// delimiter, those that have it behind the prefix are not there, but what they have in common up to it. Keys may be
  /// such as check_s3_key() refuses, if others write to the bucket.
  Result<S3Listing> list(const std::string& prefix, std::string_view delimiter = {});

  // Uploads of several parts, see S3Upload ----------------------------------------------------------------------------

  /// Returns the id of a new one. Until it is completed or aborted, its parts take room, and only list_uploads() shows
  /// it.
  Result<std::string> begin_upload(const std::string& key);
  /// Number 1 to 10,000; another one of the same number replaces it. 5 MiB at least, but for the last. Returns the
  /// part's ETag. not_found: there is no such upload (any more).
  Result<std::string> upload_part(const std::string& key, const std::string& id, uint32_t number, ByteSpan bytes);
  struct Part {
    uint32_t number = 0;
    std::string etag;
    uint64_t bytes = 0;
  };
  /// Makes an object of the parts, which are in order of their numbers; as put(). A condition other than none is sent,
  /// but not all services look at it (S3Abilities). Returns the object's ETag; empty: the service does not say (head()
  /// tells). not_found: there is no such upload.
  Result<std::string> complete_upload(const std::string& key, const std::string& id, std::span<const Part> parts,
                                      const S3Condition& condition = S3Condition::none());
  /// Gives it up, and its parts; OK also if there is no such upload.
  Status abort_upload(const std::string& key, const std::string& id);
  /// Those whose keys begin with `prefix`.
  Result<std::vector<S3PendingUpload>> list_uploads(const std::string& prefix);

  // -------------------------------------------------------------------------------------------------------------------

  /// Seconds since 1970 by the service's clock, as its last reply told it; before the first, by this machine's.
  int64_t server_seconds() const { return requests_.server_seconds(); }
  S3Counters counters() const { return requests_.counters(); }

 private:
  /// `repeated`: as S3Outcome's.
  Result<std::string> put_noting(const std::string& key, ByteSpan bytes, const S3Condition& condition,
                                 std::optional<int64_t> signed_at, bool& repeated);
  S3Outcome remove_noting(const std::string& key, std::optional<int64_t> signed_at);
  Result<std::string> put_unchanged(const std::string& key, ByteSpan bytes, const std::string& etag,
                                    std::optional<int64_t> signed_at, bool& repeated);
  S3Answer send_put(const std::string& key, ByteSpan bytes, const HttpHeader* condition,
                    std::optional<int64_t> signed_at, bool& repeated);
  std::optional<std::string> find_equal(const std::string& key, ByteSpan bytes);
  Result<std::string> settle_complete(const std::string& key, std::span<const Part> parts, const Status& refused);

  const S3ClientOptions options_;
  S3Requests requests_;
  /// How the service takes ETags in conditions of writes: with quotes, as HTTP says, or without, as Ceph 16 does and
  /// AWS documents. Found out by a write that was not refused.
  enum class EtagForm : uint8_t { unknown, bare, quoted };
  std::atomic<EtagForm> etag_form_{EtagForm::unknown};
};

/// One object that is written in parts, several of them at once if the caller likes. Aborted, as far as the service can
/// be reached, if it is given up.
class S3Upload {
 public:
  /// `client` outlives it.
  static Result<std::unique_ptr<S3Upload>> begin(S3Client& client, std::string key);
  ~S3Upload();
  S3Upload(const S3Upload&) = delete;
  S3Upload& operator=(const S3Upload&) = delete;

  /// As S3Client::upload_part(). Any thread, in any order.
  Status part(uint32_t number, ByteSpan bytes);
  /// Once all part() have returned OK, with numbers from 1 on without a gap. From then on there is the object, durable
  /// and seen by all. Returns what S3Client::complete_upload() does.
  Result<std::string> complete(const S3Condition& condition = S3Condition::none());
  /// Instead of complete().
  Status abort();
  const std::string& id() const { return id_; }

 private:
  S3Upload(S3Client& client, std::string key, std::string id)
      : client_(client), key_(std::move(key)), id_(std::move(id)) {}

  S3Client& client_;
  const std::string key_, id_;
  bool ended_ = false;
  Mutex mutex_;
  std::vector<S3Client::Part> parts_ VARVE_GUARDED_BY(mutex_);
};

/// What a service can do, as probe_s3() has seen it.
struct S3Abilities {
  bool completes_if_absent = false;  ///< looks at the condition of complete_upload()
  bool lists_at_once = false;        ///< what was written or removed is seen so by the next list
};

/// Finds out with an object of its own below `prefix` (empty, or with "/" at its end) whether a store can be there, and
/// removes it. unsupported, with the reason: the service writes although a condition does not hold, so that two writers
/// could both commit one set, or what it gives back is not what was written. Takes about ten requests.
Result<S3Abilities> probe_s3(S3Client& client, const std::string& prefix);

}  // namespace varve
