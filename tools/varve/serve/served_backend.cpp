#include "serve/served_backend.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/unique_id.h"
#include "format/set_record.h"
#include "hash/score.h"
#include "store/commit.h"

namespace varve {

namespace {
/// Stands for "the backend" in identities: a client compares them with those of this server alone.
constexpr uint64_t kServedDevice = 1;
/// A client tries for less than that to come back to a file after it has lost its connections.
constexpr double kIdleDraftSeconds = 600;
constexpr size_t kDraftsMax = 65'536;
/// Each is a file of this process, and nobody needs them: the server makes its index itself.
constexpr size_t kIndexDraftsMax = 64;
constexpr uint64_t kSmallFileBytesMax = 1_MiB;
/// Writes that a client may send again: far more than it sends before it has an answer.
constexpr size_t kRepeatedWritesMax = 64;
constexpr int kRenameTriesMax = 10;

uint64_t number_of(ByteSpan bytes) {
  const Result<ScoreFunction> score = ScoreFunction::create(ScoreAlgorithm::blake3, 32);
  return score.ok() ? (*score)(bytes).prefix() : 0;
}

FileIdentity identity_of(const std::string& path, int64_t born_ns) {
  return {kServedDevice, number_of(as_bytes(path)), born_ns};
}

/// By which a small file is known under another name, also by a server that has not seen it before. Two writers never
/// write the same.
int64_t born_of(ByteSpan contents) { return static_cast<int64_t>(number_of(contents) >> 1 | 1); }

/// The client knows best what it asked for.
Status bare(const Status& status) { return status.with_subject(""); }

Status not_a_store_path() { return Status(StatusCode::permission_denied, "not a path of a store"); }

Status lost_draft() {
  return Status(StatusCode::not_found,
                "the server does not have the file that was being written: it was restarted since, or the file was "
                "removed",
                "", Remedy::save_again);
}

Status complete_already() { return Status::io_error("the file is complete, and is not written to any more"); }

/// What an unfinished object is called once it is sealed: the reverse of unfinished_name(). Empty: it is none.
std::string sealed_name(const std::string& path) {
  const StoreName name = store_name_of(path);
  std::string sealed = path.substr(0, path.size() - std::min(path.size(), kUnsealedSuffix.size()));
  if (name == StoreName::arena_draft) return sealed + ".arena";
  return name == StoreName::index_draft && store_name_of(sealed) == StoreName::index_run ? sealed : std::string();
}

bool is_record_draft(StoreName name) {
  return name == StoreName::lease || name == StoreName::mark || name == StoreName::part_failure ||
         name == StoreName::pinning;
}

class StoredReader final : public File {
 public:
  explicit StoredReader(std::unique_ptr<RangeReader> object) : object_(std::move(object)) {}
  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    Result<size_t> got = object_->read_at(offset, into);
    return got.ok() ? got : bare(got.status());
  }
  Result<uint64_t> size() override { return object_->size(); }
  Status write_at(uint64_t, ByteSpan) override { return Status::io_error("the file was opened for reading"); }
  Status truncate(uint64_t) override { return Status::io_error("the file was opened for reading"); }
  Status sync() override { return {}; }

 private:
  const std::unique_ptr<RangeReader> object_;
};
}  // namespace

/// A file that a client has made and that has not got its last name. Its operations are called with its lock.
class ServedBackend::Draft {
 public:
  Draft(Backend& backend, std::string name, const FileIdentity& identity)
      : backend_(backend), name_(std::move(name)), identity_(identity) {}
  virtual ~Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  virtual Result<size_t> read_at(uint64_t offset, MutableByteSpan into) VARVE_REQUIRES(mutex) = 0;
  virtual Status write_at(uint64_t offset, ByteSpan from) VARVE_REQUIRES(mutex) = 0;
  virtual Status truncate(uint64_t bytes) VARVE_REQUIRES(mutex) = 0;
  virtual Status sync() VARVE_REQUIRES(mutex) = 0;
  virtual uint64_t size() const VARVE_REQUIRES(mutex) = 0;
  virtual Result<FoundFile> look() VARVE_REQUIRES(mutex) = 0;
  FoundFile look_at(uint64_t bytes) const {
    FoundFile found;
    found.status.bytes = found.status.allocated_bytes = bytes;
    found.identity = identity_;
    return found;
  }
  /// Makes it the object of that name. When it has succeeded, or has been given up, nothing follows.
  virtual Status become(const std::string& name, IfExists if_exists) VARVE_REQUIRES(mutex) = 0;
  /// busy: it may become an object yet, and has not been given up.
  virtual Status give_up() VARVE_REQUIRES(mutex) = 0;

  /// Its length, without waiting for what is being done with it; none: that takes the lock.
  virtual std::optional<uint64_t> bytes_so_far() const { return std::nullopt; }
  /// Removes it without waiting for what is being done with it, if that may be; false: it is to be given up.
  virtual bool abandon() { return false; }
  bool abandoned() const { return abandoned_; }

  const FileIdentity& identity() const { return identity_; }
  void note_use() { used_at_ = steady_clock().seconds(); }
  double used_at() const { return used_at_; }

  Mutex mutex;  ///< held while the backend is asked
  Status ended VARVE_GUARDED_BY(mutex);

 protected:
  Backend& backend_;
  const std::string name_;
  std::atomic<bool> abandoned_{false};

 private:
  const FileIdentity identity_;
  std::atomic<double> used_at_{steady_clock().seconds()};
};

namespace {
using ServedDraft = ServedBackend::Draft;

/// An open handle of a draft.
class DraftFile final : public File {
 public:
  explicit DraftFile(std::shared_ptr<ServedDraft> draft) : draft_(std::move(draft)) {}
  ~DraftFile() override { draft_->note_use(); }
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    const MutexLock lock(draft_->mutex);
    VARVE_TRY(begin());
    Result<size_t> got = draft_->read_at(offset, into);
    return got.ok() ? got : bare(got.status());
  }
  Status write_at(uint64_t offset, ByteSpan from) override {
    const MutexLock lock(draft_->mutex);
    VARVE_TRY(begin());
    return bare(draft_->write_at(offset, from));
  }
  Status truncate(uint64_t bytes) override {
    const MutexLock lock(draft_->mutex);
    VARVE_TRY(begin());
    return bare(draft_->truncate(bytes));
  }
  Status sync() override {
    const MutexLock lock(draft_->mutex);
    VARVE_TRY(begin());
    return bare(draft_->sync());
  }
  Result<uint64_t> size() override {
    const MutexLock lock(draft_->mutex);
    VARVE_TRY(begin());
    return draft_->size();
  }

 private:
  Status begin() VARVE_REQUIRES(draft_->mutex) {
    draft_->note_use();
    return draft_->abandoned() ? lost_draft() : draft_->ended;
  }

  const std::shared_ptr<ServedDraft> draft_;
};

/// Of an arena or an index run.
class ObjectDraft final : public ServedDraft {
 public:
  ObjectDraft(Backend& backend, const std::string& sealed, const FileIdentity& identity, bool in_order,
              std::unique_ptr<ObjectWriter> object)
      : ServedDraft(backend, sealed, identity), in_order_(in_order), object_(std::move(object)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) VARVE_REQUIRES(mutex) override {
    VARVE_TRY(failure_);
    if (sealed_) return complete_already();
    return object_->read_at(offset, into);
  }

  Status write_at(uint64_t offset, ByteSpan from) VARVE_REQUIRES(mutex) override {
    VARVE_TRY(failure_);
    if (sealed_ || bytes_) return complete_already();
    const Write write{offset, from.size(), crc32c(from)};
    // A client that has lost its connection sends again what was not answered.
    if (std::find(recent_.begin(), recent_.end(), write) != recent_.end()) return {};
    if (in_order_ && offset != written_) return keep(Status::unsupported("an arena is not written in order"));
    VARVE_TRY(keep(object_->write_at(offset, from)));
    written_ = std::max(written_, offset + from.size());
    shown_bytes_ = written_;
    recent_.push_back(write);
    if (recent_.size() > kRepeatedWritesMax) recent_.pop_front();
    return {};
  }

  Status truncate(uint64_t bytes) VARVE_REQUIRES(mutex) override {
    VARVE_TRY(failure_);
    if (bytes_ == bytes) return {};
    if (sealed_ || bytes_) return complete_already();
    if (bytes > written_) return Status::unsupported("a file ends behind what was written");
    bytes_ = bytes;
    shown_bytes_ = bytes;
    return {};
  }

  /// It has its last name then, as what is on its way to a bucket is not durable. Nobody refers to it yet.
  Status sync() VARVE_REQUIRES(mutex) override { return seal(); }
  uint64_t size() const VARVE_REQUIRES(mutex) override { return bytes_.value_or(written_); }

  std::optional<uint64_t> bytes_so_far() const override { return shown_bytes_; }
  Result<FoundFile> look() VARVE_REQUIRES(mutex) override { return look_at(size()); }

  Status become(const std::string& name, IfExists) VARVE_REQUIRES(mutex) override {
    if (name != name_) return Status(StatusCode::permission_denied, "an arena or an index run has its own name");
    return seal();
  }

  Status give_up() VARVE_REQUIRES(mutex) override { return {}; }
  /// What has its last name by then stays: whoever has seen it may rely on it, and a prune takes it away.
  bool abandon() override {
    abandoned_ = true;
    return true;
  }

 private:
  struct Write {
    uint64_t offset = 0, bytes = 0;
    uint32_t crc = 0;
    bool operator==(const Write&) const = default;
  };

  Status keep(Status status) VARVE_REQUIRES(mutex) {
    if (!status.ok()) {
      failure_ = status;
      object_.reset();
    }
    return status;
  }

  Status seal() VARVE_REQUIRES(mutex) {
    VARVE_TRY(failure_);
    if (sealed_) return {};
    VARVE_TRY(keep(object_->seal(size())));
    object_.reset();
    sealed_ = true;
    return {};
  }

  const bool in_order_;
  std::unique_ptr<ObjectWriter> object_ VARVE_GUARDED_BY(mutex);
  std::deque<Write> recent_ VARVE_GUARDED_BY(mutex);
  uint64_t written_ VARVE_GUARDED_BY(mutex) = 0;
  std::atomic<uint64_t> shown_bytes_{0};
  std::optional<uint64_t> bytes_ VARVE_GUARDED_BY(mutex);  ///< once the client has said where it ends
  bool sealed_ VARVE_GUARDED_BY(mutex) = false;
  Status failure_ VARVE_GUARDED_BY(mutex);  ///< after which it is given up
};

/// What is small enough to be in memory.
class ContentsDraft : public ServedDraft {
 public:
  using Memory = ServedBackend::Memory;
  /// `copies`: how often its contents are in memory.
  ContentsDraft(Backend& backend, std::string name, const FileIdentity& identity, uint64_t bytes_max, Memory& memory,
                uint64_t copies)
      : ServedDraft(backend, std::move(name), identity), bytes_max_(bytes_max), memory_(memory), copies_(copies) {}
  ~ContentsDraft() override { memory_.bytes -= copies_ * taken_bytes_; }

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) VARVE_REQUIRES(mutex) override {
    if (offset >= contents_.size()) return size_t{0};
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(into.size(), contents_.size() - offset));
    std::copy_n(contents_.begin() + static_cast<ptrdiff_t>(offset), bytes, into.begin());
    return bytes;
  }
  Status write_at(uint64_t offset, ByteSpan from) VARVE_REQUIRES(mutex) override {
    if (offset > bytes_max_ || from.size() > bytes_max_ - offset) return too_large();
    if (offset + from.size() > contents_.size()) VARVE_TRY(resize(static_cast<size_t>(offset) + from.size()));
    std::copy(from.begin(), from.end(), contents_.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  Status truncate(uint64_t bytes) VARVE_REQUIRES(mutex) override {
    return bytes > bytes_max_ ? too_large() : resize(static_cast<size_t>(bytes));
  }
  uint64_t size() const VARVE_REQUIRES(mutex) override { return contents_.size(); }

 protected:
  ByteVector contents_ VARVE_GUARDED_BY(mutex);

 private:
  static Status too_large() { return Status::resource_limit("the file is larger than one of its kind can be"); }

  Status resize(size_t bytes) VARVE_REQUIRES(mutex) {
    if (bytes > taken_bytes_) {
      const uint64_t wanted = std::max<uint64_t>(bytes, std::min(2 * taken_bytes_, bytes_max_));
      const uint64_t more = copies_ * (wanted - taken_bytes_);
      if ((memory_.bytes += more) > memory_.bytes_max) {
        memory_.bytes -= more;
        return Status::busy("the server has as much in memory of files that are being written as it takes");
      }
      taken_bytes_ = wanted;
      contents_.reserve(static_cast<size_t>(wanted));
    }
    contents_.resize(bytes);
    return {};
  }

  const uint64_t bytes_max_;
  Memory& memory_;
  const uint64_t copies_;
  uint64_t taken_bytes_ VARVE_GUARDED_BY(mutex) = 0;
};

/// Of a lease, a mark, a set that is being pinned, or what tells that a part will not come.
class RecordDraft final : public ContentsDraft {
 public:
  RecordDraft(Backend& backend, const std::string& name, const FileIdentity& identity, const std::string& path,
              Memory& memory, std::unique_ptr<HeldRecord> record)
      : ContentsDraft(backend, name, identity, kSetRecordBytesMax, memory, kCopies),
        path_(path),
        record_(std::move(record)) {}

  Status write_at(uint64_t offset, ByteSpan from) VARVE_REQUIRES(mutex) override {
    VARVE_TRY(ContentsDraft::write_at(offset, from));
    // What is written first is whose the lease is, or why a part will not come: others are to see that.
    return stored_.empty() && offset == 0 ? sync() : Status();
  }

  Status sync() VARVE_REQUIRES(mutex) override {
    VARVE_TRY(record_->rewrite(contents_));
    stored_ = contents_;
    return {};
  }

  Result<FoundFile> look() VARVE_REQUIRES(mutex) override {
    FoundFile found;
    VARVE_ASSIGN(found.status, backend_.status(name_));
    found.identity = identity_of(path_, born_of(contents_));
    return found;
  }

  Status become(const std::string& name, IfExists if_exists) VARVE_REQUIRES(mutex) override {
    if (stored_ != contents_) VARVE_TRY(sync());
    const Status become = record_->become(name, if_exists);
    const bool decided = become.ok() || become.code() == StatusCode::already_exists ||
                         become.code() == StatusCode::not_found || become.code() == StatusCode::busy;
    if (decided) return become;
    // Its own record under that name can have come by this alone.
    return backend_.records().confirm(name, stored_).ok() ? Status() : become;
  }

  Status give_up() VARVE_REQUIRES(mutex) override {
    const Status removed = backend_.remove(name_);
    if (removed.code() != StatusCode::busy) record_.reset();
    return removed;
  }

 private:
  static constexpr uint64_t kCopies = 3;  ///< its own, what was stored, and the backend's

  const std::string path_;
  std::unique_ptr<HeldRecord> record_ VARVE_GUARDED_BY(mutex);
  ByteVector stored_ VARVE_GUARDED_BY(mutex);  ///< what the record says
};

/// Of a header, a remark, or a file of runs/; or one that is made to see what time it is (FolderBackend::now()).
class SmallDraft final : public ContentsDraft {
 public:
  SmallDraft(Backend& backend, const std::string& name, const FileIdentity& identity, const std::string& path,
             Memory& memory, int64_t made_ns)
      : ContentsDraft(backend, name, identity, kSmallFileBytesMax, memory, 1), path_(path), made_ns_(made_ns) {}

  Status sync() VARVE_REQUIRES(mutex) override {
    // What ends like an upload would be taken for one.
    if (name_.ends_with(kUnsealedSuffix)) return Status::unsupported("a file of that name is not kept in a bucket");
    VARVE_TRY(stored_ ? backend_.records().replace(name_, contents_) : backend_.records().publish(name_, contents_));
    stored_ = true;
    return {};
  }

  Result<FoundFile> look() VARVE_REQUIRES(mutex) override {
    FoundFile found;
    if (stored_) {
      VARVE_ASSIGN(found.status, backend_.status(name_));
    } else {
      found.status.bytes = found.status.allocated_bytes = contents_.size();
      found.status.modified_ns = made_ns_;
    }
    found.identity = identity_of(path_, born_of(contents_));
    return found;
  }

  Status become(const std::string& name, IfExists if_exists) VARVE_REQUIRES(mutex) override {
    VARVE_TRY(if_exists == IfExists::replace ? backend_.records().replace(name, contents_)
                                             : backend_.records().publish(name, contents_));
    if (stored_) backend_.remove_if_there(name_).ignore("a leftover draft is harmless");
    return {};
  }

  Status give_up() VARVE_REQUIRES(mutex) override { return stored_ ? backend_.remove(name_) : Status(); }

 private:
  const std::string path_;
  const int64_t made_ns_;
  bool stored_ VARVE_GUARDED_BY(mutex) = false;
};
}  // namespace

ServedBackend::~ServedBackend() = default;

std::shared_ptr<ServedBackend::Draft> ServedBackend::Drafts::find(const std::string& path) {
  const MutexLock lock(mutex_);
  const auto found = drafts_.find(path);
  if (found == drafts_.end()) return nullptr;
  found->second->note_use();
  return found->second;
}

Status ServedBackend::Drafts::add(const std::string& path, std::shared_ptr<Draft> draft, IfExists if_exists) {
  const MutexLock lock(mutex_);
  if (drafts_.size() >= kDraftsMax) return Status::resource_limit("the server has too many files that are written");
  const auto [at, added] = drafts_.try_emplace(path, draft);
  if (!added && if_exists == IfExists::refuse) return Status::already_exists("the file is there already");
  at->second.swap(draft);  // the old one ends after the lock
  return {};
}

void ServedBackend::Drafts::forget(const std::string& path, const Draft* draft) {
  std::shared_ptr<Draft> forgotten;  // ends after the lock
  const MutexLock lock(mutex_);
  const auto found = drafts_.find(path);
  if (found == drafts_.end() || found->second.get() != draft) return;
  forgotten = std::move(found->second);
  drafts_.erase(found);
}

void ServedBackend::Drafts::forget_idle() {
  std::vector<std::shared_ptr<Draft>> forgotten;
  const MutexLock lock(mutex_);
  const double since = steady_clock().seconds() - kIdleDraftSeconds;
  for (auto draft = drafts_.begin(); draft != drafts_.end();) {
    // Whoever is at work with it has it, too.
    const bool idle = draft->second.use_count() == 1 && draft->second->used_at() <= since;
    if (idle) forgotten.push_back(std::move(draft->second));
    draft = idle ? drafts_.erase(draft) : std::next(draft);
  }
}

size_t ServedBackend::Drafts::count(StoreName name) {
  const MutexLock lock(mutex_);
  const auto is_one = [name](const auto& draft) { return store_name_of(draft.first) == name; };
  return static_cast<size_t>(std::count_if(drafts_.begin(), drafts_.end(), is_one));
}

void ServedBackend::Drafts::list(const std::string& folder, std::set<std::string>& names) {
  const MutexLock lock(mutex_);
  for (const auto& [path, draft] : drafts_) {
    const size_t slash = path.rfind('/');
    const std::string_view in = std::string_view(path).substr(0, slash == std::string::npos ? 0 : slash);
    if (in == folder && !is_record_draft(store_name_of(path))) names.insert(base_name(path));
  }
}

Result<ServedFile> ServedBackend::open_read(const std::string& path) {
  if (!is_store_path(path)) return not_a_store_path();
  ServedFile file;
  const StoreName name = store_name_of(path);
  const std::shared_ptr<Draft> draft = is_record_draft(name) ? nullptr : drafts_.find(path);
  if (draft) {
    const MutexLock lock(draft->mutex);
    VARVE_TRY(draft->ended);
    file.bytes = draft->size();
    file.file = std::make_unique<DraftFile>(draft);
    file.identity = draft->identity();
    return file;
  }
  Result<std::unique_ptr<RangeReader>> object = backend_.open(shown_name(path));
  if (!object.ok()) return bare(object.status());
  VARVE_ASSIGN(file.bytes, (*object)->size());
  file.file = std::make_unique<StoredReader>(std::move(*object));
  // Sets and arenas are known by their names: what has the same one and is as long is the same.
  file.identity = identity_of(path, 0);
  return file;
}

Result<std::shared_ptr<ServedBackend::Draft>> ServedBackend::make_draft(const std::string& path, bool direct) {
  const StoreName name = store_name_of(path);
  if (name == StoreName::spread_draft)
    return Status::unsupported("a store in a bucket cannot be one of several places of a store");
  VARVE_ASSIGN(const UniqueId random, UniqueId::random());
  const FileIdentity identity = identity_of(path, born_of(random.bytes));
  if (is_record_draft(name)) {
    VARVE_ASSIGN(std::unique_ptr<HeldRecord> record, backend_.records().hold(full(path), {}));
    return std::shared_ptr<Draft>(
        std::make_shared<RecordDraft>(backend_, full(path), identity, path, memory_, std::move(record)));
  }
  if (const std::string sealed = sealed_name(path); !sealed.empty()) {
    const bool is_arena = name == StoreName::arena_draft;
    if (!is_arena && drafts_.count(name) >= kIndexDraftsMax)
      return Status::busy("as many index runs are being written as the server takes");
    VARVE_ASSIGN(std::unique_ptr<ObjectWriter> object,
                 backend_.put(full(sealed), {.direct = direct, .durable = is_arena}));
    return std::shared_ptr<Draft>(
        std::make_shared<ObjectDraft>(backend_, full(sealed), identity, is_arena, std::move(object)));
  }
  int64_t made_ns = 0;
  if (name == StoreName::index_draft) {
    VARVE_ASSIGN(made_ns, backend_.records().now());
  }
  return std::shared_ptr<Draft>(std::make_shared<SmallDraft>(backend_, full(path), identity, path, memory_, made_ns));
}

Result<ServedFile> ServedBackend::create(const std::string& path, bool direct) {
  if (!is_store_path(path)) return not_a_store_path();
  drafts_.forget_idle();
  const bool is_record = is_record_draft(store_name_of(path));
  if (!is_record && drafts_.find(path)) return Status::already_exists("the file is there already");
  const auto made = make_draft(path, direct);
  if (!made.ok()) return bare(made.status());
  ServedFile file;
  file.file = std::make_unique<DraftFile>(*made);
  file.identity = (*made)->identity();
  // A record that was there is so no more: the backend has made this one.
  VARVE_TRY(drafts_.add(path, *made, is_record ? IfExists::replace : IfExists::refuse));
  return file;
}

Result<ServedFile> ServedBackend::open_again(const std::string& path, bool, const FileIdentity& identity) {
  if (!is_store_path(path)) return not_a_store_path();
  const std::shared_ptr<Draft> draft = drafts_.find(path);
  if (!draft || draft->identity() != identity) return lost_draft();
  const MutexLock lock(draft->mutex);
  VARVE_TRY(draft->ended);
  ServedFile file;
  file.bytes = draft->size();
  file.file = std::make_unique<DraftFile>(draft);
  file.identity = identity;
  return file;
}

Status ServedBackend::create_directory(const std::string& path) {
  return is_store_path(path) ? bare(backend_.make_folder(full(path))) : not_a_store_path();
}

Status ServedBackend::remove_directory(const std::string& path) {
  if (!is_store_path(path) || path.empty()) return not_a_store_path();
  const Result<std::vector<DirectoryEntry>> inside = backend_.list(full(path));
  if (!inside.ok()) return bare(inside.status());
  if (!inside->empty()) return Status::already_exists("the directory is not empty");
  return bare(backend_.remove_folder(full(path)));
}

Status ServedBackend::sync_directory(const std::string& path) {
  return is_store_path(path) ? bare(backend_.settle(full(path))) : not_a_store_path();
}

Result<uint64_t> ServedBackend::free_bytes(const std::string& path) {
  if (!is_store_path(path)) return not_a_store_path();
  Result<uint64_t> bytes = backend_.free_bytes(full(path));
  return bytes.ok() ? bytes : bare(bytes.status());
}

Status ServedBackend::touch(const std::string& path) {
  if (!is_store_path(path)) return not_a_store_path();
  drafts_.find(path);  // its writer lives
  return bare(backend_.records().touch(full(path)));
}

Result<FoundFile> ServedBackend::stat(const std::string& path) {
  if (!is_store_path(path)) return not_a_store_path();
  FoundFile found;
  const StoreName name = store_name_of(path);
  if (name == StoreName::root || name == StoreName::folder) {
    found.status.is_directory = true;
    return found;
  }
  if (const std::shared_ptr<Draft> draft = drafts_.find(path)) {
    if (const auto bytes = draft->bytes_so_far()) return draft->look_at(*bytes);
    const MutexLock lock(draft->mutex);
    VARVE_TRY(draft->ended);
    Result<FoundFile> looked = draft->look();
    return looked.ok() ? looked : bare(looked.status());
  }
  Result<FileStatus> status = sealed_name(path).empty() ? backend_.status(shown_name(path)) : lost_draft();
  if (!status.ok()) return bare(status.status());
  found.status = *status;
  found.identity = identity_of(path, 0);
  return found;
}

Result<std::vector<DirectoryEntry>> ServedBackend::list(const std::string& path) {
  if (!is_store_path(path)) return not_a_store_path();
  Result<std::vector<DirectoryEntry>> entries = backend_.list(full(path));
  if (!entries.ok()) return bare(entries.status());
  std::set<std::string> unfinished;
  if (path == "arenas" || path == "index") {
    const Result<std::vector<std::string>> names = backend_.unfinished(full(path));
    if (!names.ok()) return bare(names.status());
    for (const std::string& name : *names) unfinished.insert(base_name(name));
  }
  drafts_.list(path, unfinished);
  for (const DirectoryEntry& entry : *entries) unfinished.erase(entry.name);
  for (const std::string& name : unfinished) entries->push_back({name, false});
  return entries;
}

Result<bool> ServedBackend::is_same(const std::string& path, const FileIdentity& identity) {
  if (!is_store_path(path)) return not_a_store_path();
  const Result<ByteVector> contents = backend_.read_record(full(path), kSetRecordBytesMax);
  if (!contents.ok()) return bare(contents.status());
  return identity.device == kServedDevice && identity.born_ns == born_of(*contents);
}

Status ServedBackend::rename(const std::string& from, const std::string& to, bool replace) {
  if (!is_store_path(from) || !is_store_path(to) || from.empty() || to.empty()) return not_a_store_path();
  const IfExists if_exists = replace ? IfExists::replace : IfExists::refuse;
  const std::shared_ptr<Draft> draft = drafts_.find(from);
  if (!draft) return bare(rename_stored(from, to, if_exists));
  {
    const MutexLock lock(draft->mutex);
    VARVE_TRY(draft->ended);
    VARVE_TRY(bare(draft->become(full(to), if_exists)));
    draft->ended = Status::not_found("the file has another name now");
  }
  drafts_.forget(from, draft.get());
  return {};
}

namespace {
/// A server that is gone may have made it a set, and not come to remove it; or be about to. It stays in any case: that
/// server may have asked more than once, and what is still on its way needs it.
Status rename_lost_lease(Backend& backend, const std::string& from, const std::string& to) {
  const Result<ByteVector> lease = backend.read_record(from, kSetRecordBytesMax);
  if (lease.status().code() == StatusCode::not_found) return lost_draft();
  VARVE_TRY(lease.status());
  const Status there = backend.records().confirm(to, *lease);
  if (there.code() != StatusCode::not_found) return there;
  return Status(StatusCode::busy, "the server was restarted since the save began", "", Remedy::save_again);
}
}  // namespace

Status ServedBackend::rename_stored(const std::string& from, const std::string& to, IfExists if_exists) {
  switch (store_name_of(from)) {
    case StoreName::lease: return rename_lost_lease(backend_, full(from), full(to));
    case StoreName::arena_draft:
      // It may have been sealed before: the name is its writer's alone.
      return to == sealed_name(from) && backend_.status(full(to)).ok() ? Status() : lost_draft();
    case StoreName::header_draft:
    case StoreName::run_file: return rename_small(from, to, if_exists);
    case StoreName::record: return backend_.status(full(from)).status();  // put aside: shown_name()
    case StoreName::record_aside: return {};
    case StoreName::none:
    case StoreName::root:
    case StoreName::folder:
    case StoreName::job_folder:
    case StoreName::header:
    case StoreName::spread:
    case StoreName::spread_draft:
    case StoreName::part:
    case StoreName::part_failure:
    case StoreName::pinning:
    case StoreName::remark:
    case StoreName::remark_draft:
    case StoreName::arena:
    case StoreName::mark:
    case StoreName::index_run:
    case StoreName::index_draft: break;
  }
  return lost_draft();
}

/// What a client has put aside, to see whether it is to go, keeps its name in the bucket, and is removed if it is that
/// still: nothing of it is remembered here, so that it does not matter if this server is started anew in between.
std::string ServedBackend::shown_name(const std::string& path) const {
  const std::optional<PutAside> aside = PutAside::parse(path);
  return full(aside ? aside->name : path);
}

Status ServedBackend::remove_aside(const PutAside& aside) {
  const std::string record = full(aside.name);
  const Result<ByteVector> there = backend_.read_record(record, kSetRecordBytesMax);
  if (there.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(there.status());
  if (aside.is_to_go(*there)) {
    VARVE_ASSIGN(const bool is_gone, backend_.records().remove_committed(record, *there));
    if (is_gone) return {};
  }
  return Status::busy("another set has the name by now");
}

Status ServedBackend::rename_small(const std::string& from, const std::string& to, IfExists if_exists) {
  for (int tries = 0; tries < kRenameTriesMax; ++tries) {
    const Result<ByteVector> contents = backend_.read_record(full(from), kSmallFileBytesMax);
    if (!contents.ok() && tries > 0) backend_.remove_if_there(full(to)).ignore("a copy that nobody asks for");
    VARVE_TRY(contents.status());
    // The second time it is this one's own.
    const bool may_replace = tries > 0 || if_exists == IfExists::replace;
    VARVE_TRY(may_replace ? backend_.records().replace(full(to), *contents)
                          : backend_.records().publish(full(to), *contents));
    VARVE_TRY(backend_.records().remove_unchanged(full(from), *contents));
    const Status there = backend_.status(full(from)).status();
    if (there.code() == StatusCode::not_found) return {};
    VARVE_TRY(there);
  }
  return Status::busy("somebody else changes the file again and again");
}

Status ServedBackend::remove_lease(const std::string& path) {
  if (const std::shared_ptr<Draft> draft = drafts_.find(path)) {
    // A commit that is under way is waited for.
    const MutexLock lock(draft->mutex);
    VARVE_TRY(draft->ended);
    const Status given_up = draft->give_up();
    // It was held here, so that nobody else can commit it. Busy: what was begun may take effect later.
    if (given_up.code() != StatusCode::busy) {
      draft->ended = lost_draft();
      drafts_.forget(path, draft.get());
      return given_up;
    }
  }
  const Result<FileStatus> status = backend_.status(full(path));
  VARVE_TRY(status.status());
  VARVE_ASSIGN(const int64_t now_ns, backend_.records().now());
  const double silent_seconds = static_cast<double>(now_ns - status->modified_ns) * 1e-9;
  VARVE_ASSIGN(const bool gone, WriterLease::give_up(backend_, full(path), silent_seconds));
  if (!gone) return Status::busy("the lease may become a set yet, or have done so: try again in an hour");
  if (const std::shared_ptr<Draft> draft = drafts_.find(path)) drafts_.forget(path, draft.get());
  return {};
}

Status ServedBackend::remove(const std::string& path) {
  if (!is_store_path(path) || path.empty()) return not_a_store_path();
  if (store_name_of(path) == StoreName::lease) return bare(remove_lease(path));
  const std::shared_ptr<Draft> draft = drafts_.find(path);
  if (!draft) {
    const std::optional<PutAside> aside = PutAside::parse(path);
    return bare(aside ? remove_aside(*aside) : backend_.remove(full(path)));
  }
  if (draft->abandon()) {
    drafts_.forget(path, draft.get());
    return {};
  }
  const MutexLock lock(draft->mutex);
  VARVE_TRY(draft->ended);
  draft->ended = lost_draft();
  drafts_.forget(path, draft.get());
  return bare(draft->give_up());
}

}  // namespace varve
