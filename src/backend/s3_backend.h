#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "backend/backend.h"
#include "core/sync.h"
#include "s3/s3_client.h"

namespace varve {

class BlockCache;

/// A part of a bucket of an S3 service (FORMAT.md, "In a bucket"). Objects are there once their upload is complete. A
/// record becomes an object by one PUT that fails if the name is taken, after the record was seen to be there still;
/// the request is signed as of that moment, and no service takes it later than 15 minutes after it. So a record that
/// says what is to be committed may be removed by others only when it has not been touched for late_commit_seconds().
class S3Backend final : public Backend {
 public:
  /// By the settings of the environment (s3_place.h). `text`: "s3://bucket/prefix".
  static Result<std::unique_ptr<S3Backend>> connect(std::string_view text, const S3Options& options = {});
  /// `transport` outlives it.
  S3Backend(HttpTransport& transport, const S3Place& place, const S3Settings& settings, S3ClientOptions options = {});
  ~S3Backend() override;

  /// unsupported, with the reason: the service cannot hold a store (probe_s3()).
  Status check_abilities();
  S3Client& client() { return client_; }

  const std::string& root() const override { return root_; }
  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override;
  Result<std::vector<std::string>> unfinished(const std::string& folder) override;
  Result<FileStatus> status(const std::string& name) override;
  Result<ByteVector> read_record(const std::string& name, uint64_t bytes_max) override;
  Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder) override;
  Result<std::vector<std::string>> list_in_folders(const std::string& folder) override;
  Status remove(const std::string& name) override;
  Status remove_if_there(const std::string& name) override;
  /// What a reply has confirmed is durable.
  Status settle(const std::string&) override { return {}; }
  Status settle_with_folders(const std::string&) override { return {}; }
  Status publish(const std::string& name, ByteSpan contents) override;
  Status replace(const std::string& name, ByteSpan contents) override;
  Result<std::unique_ptr<HeldRecord>> hold(const std::string& name, ByteSpan contents) override;
  Status touch(const std::string& name) override;
  Status remove_unchanged(const std::string& name, ByteSpan contents) override;
  double late_commit_seconds() const override { return 3600; }
  size_t operations_at_once() const override { return 8; }
  Result<int64_t> now() override;
  Result<uint64_t> free_bytes(const std::string& folder) override;

 private:
  /// A record of which this process knows what it says.
  struct Held {
    Held(ByteSpan says, std::string is) : contents(says.begin(), says.end()), etag(std::move(is)) {}
    Mutex mutex;  ///< orders all writes of the record
    ByteVector contents VARVE_GUARDED_BY(mutex);
    std::string etag VARVE_GUARDED_BY(mutex);
    /// By the service's clock: the record was written anew, and with this, after that. 0: never.
    int64_t looked_at VARVE_GUARDED_BY(mutex) = 0;
  };
  class Record;
  Result<std::string> key_of(const std::string& name) const;
  /// What lies below a key, as a name; none if no name of ours has this key.
  static std::optional<std::string> name_of(std::string_view key);
  /// What is below a folder, by name: an object, or none for what has names below it. Without a delimiter, the names
  /// are whole.
  Result<std::map<std::string, std::optional<FileStatus>>> look_into(const std::string& folder,
                                                                     std::string_view delimiter = "/");
  Result<S3Object> look_at(const std::string& key);
  Status remove_upload(const std::string& name);
  bool is_undecided(const std::string& name);
  std::shared_ptr<Held> held(const std::string& name);
  Status write(Held& held, const std::string& name, ByteSpan contents) VARVE_REQUIRES(held.mutex);

  std::unique_ptr<HttpTransport> own_transport_;  ///< null: somebody else's
  const S3Place place_;
  const std::string root_;
  const bool is_secure_;  ///< by TLS
  S3Client client_;
  const std::unique_ptr<BlockCache> cache_;  ///< of what is read in small pieces
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Held>> held_ VARVE_GUARDED_BY(mutex_);
  /// Records of which nobody knows yet whether they have become objects.
  std::set<std::string> undecided_ VARVE_GUARDED_BY(mutex_);

  S3Backend(std::unique_ptr<HttpTransport> transport, const S3Place& place, const S3Settings& settings);
};

}  // namespace varve
