#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/s3_records.h"
#include "s3/s3_client.h"

namespace varve {

class BlockCache;

/// A part of a bucket of an S3 service (FORMAT.md, "In a bucket"). Objects are there once their upload is complete.
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

  const std::string& root() const override { return names_.root(); }
  Records& records() override { return records_; }
  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override;
  Result<std::vector<std::string>> unfinished(const std::string& folder) override;
  Result<FileStatus> status(const std::string& name) override;
  /// busy also: a record of which S3Records::is_undecided() is so. A prune removes it in time.
  Status remove(const std::string& name) override;
  /// What a reply has confirmed is durable.
  Status settle(const std::string&) override { return {}; }
  Result<uint64_t> free_bytes(const std::string& folder) override;
  size_t operations_at_once() const override { return 8; }
  /// OK also if such a record stays.
  Status remove_if_there(const std::string& name) override;
  Result<ByteVector> read_record(const std::string& name, uint64_t bytes_max) override;
  Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder) override;
  Result<std::vector<std::string>> list_in_folders(const std::string& folder) override;
  Status settle_with_folders(const std::string&) override { return {}; }

 private:
  S3Backend(std::unique_ptr<HttpTransport> transport, const S3Place& place, const S3Settings& settings);
  /// What is below a folder, by name: an object, or none for what has names below it. Without a delimiter, the names
  /// are whole.
  Result<std::map<std::string, std::optional<FileStatus>>> look_into(const std::string& folder,
                                                                     std::string_view delimiter = "/");

  std::unique_ptr<HttpTransport> own_transport_;  ///< null: somebody else's
  const BucketNames names_;
  const bool is_secure_;  ///< by TLS
  S3Client client_;
  S3Records records_;
  const std::unique_ptr<BlockCache> cache_;  ///< of what is read in small pieces
};

}  // namespace varve
