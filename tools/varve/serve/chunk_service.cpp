#include "serve/chunk_service.h"

#include <chrono>

#include "core/guarded.h"
#include "core/sync.h"
#include "format/store_header.h"
#include "service/protocol.h"

namespace varve {

namespace {
/// How long a question waits for an index of all arenas: longer only costs space.
constexpr std::chrono::seconds kPatience(5);
/// How many look-ups ahead memory is fetched (bench/index_bench.cpp).
constexpr size_t kAhead = 16;
/// How often arenas that others brought are looked for, where nothing shows that they came.
constexpr std::chrono::seconds kLookEvery(5);
constexpr uint64_t kHeldIndexBytes = 256_MiB;
}  // namespace

ChunkService::ChunkService(Backend& store, std::string folder, uint64_t memory_bytes)
    : backend_(store), folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

ChunkService::~ChunkService() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (opener_.joinable()) opener_.join();
}

Status ChunkService::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                          std::vector<ChunkCandidate>& candidates) {
  const SnapshotPointer snapshot = current();
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const size_t before = candidates.size();
    if (snapshot && i + kAhead < prefixes.size()) snapshot->prefetch(prefixes[i + kAhead]);
    if (snapshot) snapshot->find(prefixes[i], candidates);
    if (candidates.size() > before + kFindCandidatesMax) candidates.resize(before + kFindCandidatesMax);
    counts[i] = static_cast<uint32_t>(candidates.size() - before);
  }
  return {};
}

void ChunkService::keep_up() {
  const MutexLock lock(mutex_);
  news_ = true;
  want();
}

void ChunkService::want() {
  if (!opener_.joinable()) {
    Result<Thread> started = start_thread([this] { run(); });
    if (!started.ok()) return;  // the system refuses another thread, and what is known answers
    opener_ = *std::move(started);
  }
  if (wanted_) return;
  wanted_ = true;
  opening_began_ = MonotonicClock::now();
  changed_.notify_all();
}

int64_t ChunkService::changed_ns(const SnapshotPointer& snapshot) const {
  if (folder_.empty()) {
    const auto looks = MonotonicClock::now().time_since_epoch() / kLookEvery;
    return static_cast<int64_t>(looks) + 1;
  }
  const char* const watched = snapshot ? snapshot->watched() : "arenas";
  const Result<FileStatus> status = posix_file_system().stat(join_path(folder_, watched));
  return status.ok() ? status->modified_ns : 0;
}

ChunkService::SnapshotPointer ChunkService::current() {
  MutexLock lock(mutex_);
  // The first opening that ends may have begun before the last arenas came.
  for (int openings = 0; openings < 2 && !ending_; ++openings) {
    const SnapshotPointer seen = snapshot_;
    lock.unlock();
    const int64_t changed = changed_ns(seen);
    lock.lock();
    auto up_to_date = [&]() VARVE_REQUIRES(mutex_) { return snapshot_ && (snapshot_ != seen || seen_ns_ >= changed); };
    if (up_to_date()) break;
    want();
    const auto over = [&]() VARVE_REQUIRES(mutex_) { return up_to_date() || ending_ || !wanted_; };
    changed_.wait_until(mutex_, opening_began_ + kPatience, over);
  }
  return snapshot_;
}

Result<ChunkService::SnapshotPointer> ChunkService::open(const SnapshotPointer& old) const {
  VARVE_ASSIGN(const std::optional<SpreadMember> member, read_spread_member(backend_));
  if (member && member->count > 1) return open_place(old);
  auto snapshot = std::make_shared<Snapshot>();
  VARVE_ASSIGN(snapshot->store, Store::open(backend_));
  VARVE_ASSIGN(snapshot->arenas, snapshot->store->list_arenas());
  // Most changes of the folder are arenas that are being written.
  if (old && !old->runs && old->arenas == snapshot->arenas) return old;
  VARVE_ASSIGN(snapshot->index, ChunkIndex::open(*snapshot->store, {}, memory_bytes_));
  snapshot->store->drop_arena_cache();
  return SnapshotPointer(std::move(snapshot));
}

Result<ChunkService::SnapshotPointer> ChunkService::open_place(const SnapshotPointer& old) const {
  const std::string path = store_header_path(backend_.root());
  VARVE_ASSIGN(const ByteVector raw, backend_.read_record(path, 4096));
  VARVE_ASSIGN(const StoreHeader header, decode_store_header(raw, path));
  auto snapshot = std::make_shared<Snapshot>();
  // How many places there are, the first one tells, and the clients that have asked it.
  snapshot->runs.emplace(backend_, join_path(backend_.root(), "index"), header.store,
                         IndexFolder::Options{.scope = std::nullopt, .held_bytes = kHeldIndexBytes});
  VARVE_TRY(snapshot->runs->list());
  if (old && old->runs && old->runs->listed() == snapshot->runs->listed()) return old;
  VARVE_TRY(snapshot->runs->load(nullptr));
  return SnapshotPointer(std::move(snapshot));
}

ChunkService::SnapshotPointer ChunkService::merged(const SnapshotPointer& snapshot) const {
  if (!snapshot->runs || !snapshot->runs->runs().merge_wanted()) return nullptr;
  auto merge = [&]() -> Result<SnapshotPointer> {
    auto merged = std::make_shared<Snapshot>();
    merged->runs.emplace(*snapshot->runs);
    VARVE_TRY(merged->runs->merge(nullptr));
    return SnapshotPointer(std::move(merged));
  };
  Result<SnapshotPointer> merged = run_guarded(merge);  // also without memory for it, what is known answers
  return merged.ok() ? *std::move(merged) : nullptr;
}

void ChunkService::run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!wanted_ && !ending_) changed_.wait(mutex_);
    if (ending_) return;
    const SnapshotPointer old = snapshot_;
    news_ = false;
    lock.unlock();
    int64_t changed = changed_ns(old);
    Result<SnapshotPointer> opened = SnapshotPointer();
    try {
      opened = open(old);
    } catch (const std::bad_alloc&) {
      opened = Status::resource_limit("the server is out of memory");  // what is known answers
    }
    // Another folder than was watched before: what it was like is not known yet.
    if (opened.ok() && (!old || std::string_view((*opened)->watched()) != old->watched())) changed = 0;
    lock.lock();
    if (opened.ok()) {
      snapshot_ = *opened;
      seen_ns_ = changed;
    }
    wanted_ = news_;
    opening_began_ = MonotonicClock::now();
    changed_.notify_all();
    if (!opened.ok() || wanted_) continue;
    lock.unlock();
    SnapshotPointer fewer = merged(*opened);
    lock.lock();
    if (fewer) snapshot_ = std::move(fewer);  // what came meanwhile shows by the folder's time
  }
}

}  // namespace varve
