#include <algorithm>
#include <string>

#include "core/unique_id.h"
#include "s3/s3_client.h"

namespace varve {

namespace {
/// The object that is tried out, which is removed whatever happens.
class Scratch {
 public:
  Scratch(S3Client& client, std::string key) : client_(client), key_(std::move(key)) {}
  ~Scratch() {
    if (!removed_) client_.remove(key_).ignore("the probe's outcome matters more than what it leaves");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Status refuse(const std::string& why) const {
    return Status::unsupported("this S3 service cannot hold a store: " + why, "s3 object " + key_,
                               "take a service with conditional writes, such as AWS S3, MinIO or Ceph's radosgw");
  }

  Status check_conditions() {
    VARVE_ASSIGN(const std::string first, client_.put(key_, as_bytes("first"), S3Condition::if_absent()));
    const auto again = client_.put(key_, as_bytes("again"), S3Condition::if_absent());
    if (again.ok())
      return refuse("it ignores If-None-Match, so that one writer could overwrite what another committed");
    if (again.status().code() != StatusCode::already_exists) return again.status();

    // Right first: from then on the client knows how the service takes ETags.
    const auto second = client_.put(key_, as_bytes("second"), S3Condition::if_unchanged(first));
    if (!second.ok()) {
      const bool refuses =
          second.status().code() == StatusCode::busy || second.status().code() == StatusCode::unsupported;
      return refuses ? refuse("it does not replace an object by If-Match that is unchanged") : second.status();
    }
    const auto stale = client_.put(key_, as_bytes("stale"), S3Condition::if_unchanged(first));
    if (stale.ok()) return refuse("it ignores If-Match, so that one writer could undo what another has just written");
    if (stale.status().code() != StatusCode::busy) return stale.status();

    VARVE_ASSIGN(const S3Contents contents, client_.read_all(key_, 64));
    if (as_text(contents.bytes) != "second" || contents.etag != *second)
      return refuse("what it gives back is not what was written last");
    return {};
  }

  Result<bool> check_complete() {
    VARVE_ASSIGN(const std::unique_ptr<S3Upload> upload, S3Upload::begin(client_, key_));
    VARVE_TRY(upload->part(1, as_bytes("part")));
    const Result<std::string> completed = upload->complete(S3Condition::if_absent());
    if (completed.ok()) return false;
    if (completed.status().code() == StatusCode::already_exists) return true;
    // A service that does not know the condition may say so.
    if (completed.status().code() == StatusCode::unsupported ||
        completed.status().code() == StatusCode::invalid_argument)
      return false;
    return completed.status();
  }

  Result<bool> is_listed() {
    VARVE_ASSIGN(const S3Listing listing, client_.list(key_));
    return std::any_of(listing.objects.begin(), listing.objects.end(),
                       [&](const S3Object& object) { return object.key == key_; });
  }

  Status remove() {
    VARVE_TRY(client_.remove(key_));
    removed_ = true;
    return {};
  }

 private:
  S3Client& client_;
  const std::string key_;
  bool removed_ = false;
};
}  // namespace

Result<S3Abilities> probe_s3(S3Client& client, const std::string& prefix) {
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  Scratch scratch(client, prefix + "probe-" + id.hex());
  S3Abilities abilities;
  VARVE_TRY(scratch.check_conditions());
  VARVE_ASSIGN(const bool listed, scratch.is_listed());
  VARVE_ASSIGN(abilities.completes_if_absent, scratch.check_complete());
  VARVE_TRY(scratch.remove());
  VARVE_ASSIGN(const bool still_listed, scratch.is_listed());
  abilities.lists_at_once = listed && !still_listed;
  return abilities;
}

}  // namespace varve
