#include "backend/s3_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <utility>

#include "backend/block_cache.h"
#include "core/buffer.h"
#include "core/thread_pool.h"
#include "core/unique_id.h"

namespace varve {

namespace {
constexpr uint64_t kBlockBytes = 1_MiB;
constexpr uint64_t kCacheBytes = 256_MiB;
/// An upload of ten thousand parts, the most there may be, is large enough if parts grow.
constexpr uint64_t kPartBytes = 8_MiB, kPartBytesMax = 1_GiB;
constexpr uint32_t kPartsOfOneSize = 1000;
constexpr size_t kPartsAtOnce = 4;

/// What unfinished() tells. Parts of sets, which are records, have another kind of name.
bool is_unfinished(const std::string& name) {
  return name.ends_with(kUnsealedSuffix) && base_name(name).find('@') == std::string::npos;
}

uint64_t part_bytes(uint32_t number) { return std::min(kPartBytes << (number / kPartsOfOneSize), kPartBytesMax); }

/// An object that is read. Small pieces come out of blocks, which stay a while.
class S3Reader final : public RangeReader {
 public:
  S3Reader(S3Client& client, BlockCache& cache, S3Object object)
      : client_(client), cache_(cache), object_(std::move(object)) {}

  Result<uint64_t> size() override { return object_.bytes; }

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    if (offset >= object_.bytes) return size_t{0};
    into = into.first(static_cast<size_t>(std::min<uint64_t>(into.size(), object_.bytes - offset)));
    if (into.size() >= kBlockBytes) {
      VARVE_TRY(fetch(offset, into));
      return into.size();
    }
    for (size_t done = 0; done < into.size();) {
      const uint64_t at = offset + done, number = at / kBlockBytes, within = at % kBlockBytes;
      VARVE_ASSIGN(const BlockCache::Block block, block_of(number));
      const size_t bytes = std::min<size_t>(block->size() - within, into.size() - done);
      std::copy_n(block->begin() + static_cast<ptrdiff_t>(within), bytes, into.begin() + static_cast<ptrdiff_t>(done));
      done += bytes;
    }
    return into.size();
  }

 private:
  Status fetch(uint64_t offset, MutableByteSpan into) {
    const S3Range range{offset, into};
    return client_.read_many(object_.key, {&range, 1}, object_.etag);
  }
  Result<BlockCache::Block> block_of(uint64_t number) {
    // With the ETag: a record that was replaced is another object.
    return cache_.get(object_.key, object_.etag, number, [&]() -> Result<ByteVector> {
      const uint64_t begin = number * kBlockBytes;
      ByteVector bytes(static_cast<size_t>(std::min(kBlockBytes, object_.bytes - begin)));
      VARVE_TRY(fetch(begin, bytes));
      return bytes;
    });
  }

  S3Client& client_;
  BlockCache& cache_;
  const S3Object object_;
};

/// Sends an object in parts as it comes, some of them at the same time; one that is smaller than a part at once.
class S3Sender {
 public:
  S3Sender(S3Client& client, std::string key) : client_(client), key_(std::move(key)) {}

  /// `bytes` follow what was appended before.
  Status append(ByteSpan bytes) {
    while (!bytes.empty()) {
      const size_t room = static_cast<size_t>(part_bytes(next_)) - filling_.size();
      if (room == 0) {
        VARVE_TRY(send_part());
        continue;
      }
      const ByteSpan some = bytes.first(std::min(bytes.size(), room));
      filling_.insert(filling_.end(), some.begin(), some.end());
      bytes = bytes.subspan(some.size());
    }
    return {};
  }

  Status complete() {
    if (upload_ == nullptr) return client_.put(key_, filling_, S3Condition::if_absent()).status();
    if (!filling_.empty()) VARVE_TRY(send_part());
    while (!sending_.empty()) VARVE_TRY(wait_for_oldest());
    // Some services do not look at the condition; the names of what is large are drawn at random.
    const Result<S3Object> there = client_.head(key_);
    if (there.ok()) return Status::already_exists("there is such an object already", key_);
    if (there.status().code() != StatusCode::not_found) return there.status();
    return upload_->complete(S3Condition::if_absent()).status();
  }

 private:
  Status send_part() {
    if (upload_ == nullptr) {
      VARVE_ASSIGN(upload_, S3Upload::begin(client_, key_));
      pool_.emplace(kPartsAtOnce);
    }
    if (sending_.size() >= kPartsAtOnce) VARVE_TRY(wait_for_oldest());
    auto part = std::make_shared<ByteVector>(std::move(filling_));
    filling_ = {};
    sending_.push_back(pool_->submit([this, part, number = next_++] { return upload_->part(number, *part); }));
    return {};
  }
  Status wait_for_oldest() {
    const Status sent = sending_.front().wait();
    sending_.pop_front();
    return sent;
  }

  S3Client& client_;
  const std::string key_;
  ByteVector filling_;
  uint32_t next_ = 1;
  std::unique_ptr<S3Upload> upload_;
  std::deque<Task<Status>> sending_;
  std::optional<ThreadPool> pool_;  ///< ends, with its tasks, before what they use
};

/// An object that comes in order. What follows the end that seal() tells is padding of the last write.
class S3Writer final : public ObjectWriter {
 public:
  S3Writer(S3Client& client, std::string key, std::string name)
      : sender_(client, std::move(key)), name_(std::move(name)) {}

  Status write_at(uint64_t offset, ByteSpan from) override {
    if (offset != sent_ + last_.size()) return Status::internal("an object is not written in order", name_);
    VARVE_TRY(sender_.append(last_));
    sent_ += last_.size();
    last_.assign(from.begin(), from.end());
    return {};
  }
  Result<size_t> read_at(uint64_t, MutableByteSpan) override {
    return Status::unsupported("what is on its way to a bucket cannot be read", name_);
  }
  Status seal(uint64_t bytes) override {
    if (bytes < sent_ || bytes > sent_ + last_.size()) return Status::internal("an object ends elsewhere", name_);
    VARVE_TRY(sender_.append(ByteSpan(last_).first(static_cast<size_t>(bytes - sent_))));
    return sender_.complete();
  }

 private:
  S3Sender sender_;
  const std::string name_;
  uint64_t sent_ = 0;
  ByteVector last_;
};

/// An object that comes in any order: by way of a file that nobody else sees.
class S3SpooledWriter final : public ObjectWriter {
 public:
  static Result<std::unique_ptr<ObjectWriter>> create(S3Client& client, std::string key) {
    VARVE_ASSIGN(const UniqueId id, UniqueId::random());
    std::error_code failed;
    std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
    if (failed) folder = "/tmp";
    const std::string path = folder / fmt::format("varve-{}.spool", id.hex());
    VARVE_ASSIGN(std::unique_ptr<File> file, posix_file_system().create(path));
    VARVE_TRY(posix_file_system().remove(path));
    return std::unique_ptr<ObjectWriter>(new S3SpooledWriter(client, std::move(key), std::move(file)));
  }

  Status write_at(uint64_t offset, ByteSpan from) override { return file_->write_at(offset, from); }
  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override { return file_->read_at(offset, into); }
  Status seal(uint64_t bytes) override {
    S3Sender sender(client_, key_);
    ByteVector window(static_cast<size_t>(std::min(bytes, kBlockBytes)));
    for (uint64_t at = 0; at < bytes; at += window.size()) {
      const MutableByteSpan part(window.data(), static_cast<size_t>(std::min<uint64_t>(window.size(), bytes - at)));
      VARVE_TRY(read_exactly(*file_, at, part, key_));
      VARVE_TRY(sender.append(part));
    }
    return sender.complete();
  }

 private:
  S3SpooledWriter(S3Client& client, std::string key, std::unique_ptr<File> file)
      : client_(client), key_(std::move(key)), file_(std::move(file)) {}

  S3Client& client_;
  const std::string key_;
  const std::unique_ptr<File> file_;
};

FileStatus status_of(const S3Object& object) {
  return {
      .bytes = object.bytes, .allocated_bytes = object.bytes, .modified_ns = object.modified_seconds * 1'000'000'000};
}

/// Whoever opens an object reads where it begins: that comes with the first request, unless it is there already.
Result<S3Object> look_at_begin(S3Client& client, BlockCache& cache, const std::string& key) {
  if (cache.has_some_of(key)) return client.head(key);
  ByteVector begin(kBlockBytes);
  VARVE_ASSIGN(S3Object object, client.read_begin(key, begin));
  begin.resize(static_cast<size_t>(std::min(object.bytes, kBlockBytes)));
  begin.shrink_to_fit();
  if (!begin.empty()) cache.add(key, object.etag, 0, std::move(begin));
  return object;
}

Status remove_upload(S3Client& client, const BucketNames& names, const std::string& name) {
  VARVE_ASSIGN(const std::string key, names.key_of(name.substr(0, name.size() - kUnsealedSuffix.size())));
  VARVE_ASSIGN(const std::vector<S3PendingUpload> uploads, client.list_uploads(key));
  if (uploads.empty()) return Status::not_found("there is no such upload", name);
  for (const S3PendingUpload& upload : uploads) VARVE_TRY(client.abort_upload(upload.key, upload.id));
  return {};
}
}  // namespace

S3Backend::S3Backend(HttpTransport& transport, const S3Place& place, const S3Settings& settings,
                     S3ClientOptions options)
    : names_(place),
      is_secure_(settings.origin.starts_with("https://")),
      client_(transport, place, settings, std::move(options)),
      records_(client_, names_),
      cache_(std::make_unique<BlockCache>(kCacheBytes)) {}

S3Backend::S3Backend(std::unique_ptr<HttpTransport> transport, const S3Place& place, const S3Settings& settings)
    : S3Backend(*transport, place, settings) {
  own_transport_ = std::move(transport);
}

S3Backend::~S3Backend() = default;

Result<std::unique_ptr<S3Backend>> S3Backend::connect(std::string_view text, const S3Options& options) {
  VARVE_ASSIGN(const S3Place place, S3Place::parse(text));
  VARVE_ASSIGN(const S3Settings settings, find_s3_settings(place, options));
  VARVE_ASSIGN(std::unique_ptr<HttpTransport> transport, make_curl_transport({.ca_file = settings.ca_file}));
  return std::unique_ptr<S3Backend>(new S3Backend(std::move(transport), place, settings));
}

Status S3Backend::check_abilities() { return probe_s3(client_, names_.prefix()).status(); }

Result<std::unique_ptr<ObjectWriter>> S3Backend::put(const std::string& name, PutOptions options) {
  VARVE_ASSIGN(std::string key, names_.key_of(name));
  if (!options.durable) return S3SpooledWriter::create(client_, std::move(key));
  return std::unique_ptr<ObjectWriter>(std::make_unique<S3Writer>(client_, std::move(key), name));
}

Result<std::unique_ptr<RangeReader>> S3Backend::open(const std::string& name) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  VARVE_ASSIGN(S3Object object, look_at_begin(client_, *cache_, key));
  return std::unique_ptr<RangeReader>(std::make_unique<S3Reader>(client_, *cache_, std::move(object)));
}

Result<std::map<std::string, std::optional<FileStatus>>> S3Backend::look_into(const std::string& folder,
                                                                              std::string_view delimiter) {
  VARVE_ASSIGN(std::string prefix, names_.key_of(folder));
  if (folder != root()) prefix += "/";
  // A list has no checksum, and a name that one lacks may be that of a set. Without TLS, what either of two has is
  // there; what is not, nobody finds.
  std::array<S3Listing, 2> listings;
  const size_t times = is_secure_ ? 1 : listings.size();
  VARVE_TRY(parallel_for(times, times, [&](size_t i) -> Status {
    VARVE_ASSIGN(listings[i], client_.list(prefix, delimiter));
    return {};
  }));
  std::map<std::string, std::optional<FileStatus>> entries;
  const auto take = [&](std::string_view key, const std::optional<FileStatus>& status) {
    std::string_view part = key.substr(prefix.size());
    if (part.ends_with('/')) part.remove_suffix(1);
    const auto name = BucketNames::name_of(part);
    if (name && !name->empty()) entries[*name] = status;
  };
  for (const S3Listing& listing : listings) {
    for (const S3Object& object : listing.objects) take(object.key, status_of(object));
    for (const std::string& below : listing.prefixes) take(below, std::nullopt);
  }
  return entries;
}

Result<std::vector<DirectoryEntry>> S3Backend::list(const std::string& folder) {
  VARVE_ASSIGN(const auto entries, look_into(folder));
  std::vector<DirectoryEntry> list;
  for (const auto& [name, status] : entries) list.push_back({name, !status});
  return list;
}

Result<ByteVector> S3Backend::read_record(const std::string& name, uint64_t bytes_max) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  VARVE_ASSIGN(S3Contents contents, client_.read_all(key, bytes_max));
  return std::move(contents.bytes);
}

Result<std::map<std::string, Result<FileStatus>>> S3Backend::list_with_status(const std::string& folder) {
  VARVE_ASSIGN(const auto entries, look_into(folder));
  std::map<std::string, Result<FileStatus>> objects;
  for (const auto& [name, status] : entries) {
    if (status) objects.emplace(name, *status);
  }
  return objects;
}

Result<std::vector<std::string>> S3Backend::list_in_folders(const std::string& folder) {
  VARVE_ASSIGN(const auto entries, look_into(folder, {}));
  std::vector<std::string> names;
  for (const auto& [name, status] : entries) {
    if (std::count(name.begin(), name.end(), '/') == 1) names.push_back(name);
  }
  return names;
}

Result<std::vector<std::string>> S3Backend::unfinished(const std::string& folder) {
  VARVE_ASSIGN(const std::string prefix, names_.key_of(folder));
  VARVE_ASSIGN(const std::vector<S3PendingUpload> uploads, client_.list_uploads(prefix + "/"));
  std::set<std::string> names;
  for (const S3PendingUpload& upload : uploads) {
    if (const auto name = BucketNames::name_of(std::string_view(upload.key).substr(prefix.size() + 1)))
      names.insert(unfinished_name(join_path(folder, *name)));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<FileStatus> S3Backend::status(const std::string& name) {
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  const Result<S3Object> object = client_.head(key);
  if (object.ok()) return status_of(*object);
  if (object.status().code() != StatusCode::not_found) return object.status();
  // The names of objects have a dot, or are ids; only jobs are called as people like.
  const std::string last = base_name(name);
  const bool is_job = parent_path(name) == join_path(names_.root(), "sets");
  if (is_job || (last.find('.') == std::string::npos && !UniqueId::parse(last).ok())) {
    VARVE_ASSIGN(const S3Listing below, client_.list(key + "/", "/"));
    if (!below.objects.empty() || !below.prefixes.empty()) return FileStatus{.is_directory = true};
  }
  return Status::not_found("no such object", name);
}

Status S3Backend::remove(const std::string& name) {
  if (is_unfinished(name)) return remove_upload(client_, names_, name);
  if (records_.is_undecided(name)) return Status::busy("the record may become an object yet", name);
  // To remove what is not there is a success, too.
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  VARVE_TRY(client_.head(key).status());
  return remove_if_there(name);
}

Status S3Backend::remove_if_there(const std::string& name) {
  if (records_.is_undecided(name)) return {};  // a prune removes it in time
  if (is_unfinished(name)) {
    const Status aborted = remove_upload(client_, names_, name);
    return aborted.code() == StatusCode::not_found ? Status() : aborted;
  }
  if (records_.may_be_made_anew(name)) return records_.remove_noted(name);
  VARVE_ASSIGN(const std::string key, names_.key_of(name));
  return client_.remove(key);
}

Result<uint64_t> S3Backend::free_bytes(const std::string& folder) {
  return Status::unsupported("nobody knows how much room is left in a bucket", folder);
}

}  // namespace varve
