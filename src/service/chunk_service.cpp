#include "service/chunk_service.h"

#include <chrono>

#include "service/protocol.h"

namespace varve {

namespace {
/// How long a question waits for an index of all arenas: longer only costs space.
constexpr std::chrono::seconds kPatience(5);
/// How many look-ups ahead memory is fetched (bench/index_bench.cpp).
constexpr size_t kAhead = 16;

int64_t arenas_changed(const std::string& store_path) {
  const Result<FileStatus> status = posix_file_system().stat(join_path(store_path, "arenas"));
  return status.ok() ? status->modified_ns : 0;
}
}  // namespace

ChunkService::ChunkService(std::string store_path, uint64_t memory_bytes)
    : store_path_(std::move(store_path)), memory_bytes_(memory_bytes) {}

ChunkService::~ChunkService() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (opener_.joinable()) opener_.join();
}

Status ChunkService::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                          std::vector<ChunkCandidate>& candidates) {
  const std::shared_ptr<const Snapshot> snapshot = current();
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const size_t before = candidates.size();
    if (snapshot && i + kAhead < prefixes.size()) snapshot->index->prefetch(prefixes[i + kAhead]);
    if (snapshot) snapshot->index->find(prefixes[i], candidates);
    if (candidates.size() > before + kFindCandidatesMax) candidates.resize(before + kFindCandidatesMax);
    counts[i] = static_cast<uint32_t>(candidates.size() - before);
  }
  return {};
}

void ChunkService::keep_up() {
  const std::lock_guard lock(mutex_);
  want();
}

void ChunkService::want() {
  try {
    if (!opener_.joinable()) opener_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return;  // the system refuses another thread, and what is known answers
  }
  if (wanted_) return;
  wanted_ = true;
  opening_began_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

std::shared_ptr<const ChunkService::Snapshot> ChunkService::current() {
  const int64_t changed_ns = arenas_changed(store_path_);
  std::unique_lock lock(mutex_);
  auto up_to_date = [&] { return snapshot_ && seen_ns_ >= changed_ns; };
  // The first opening that ends may have begun before the last arenas came.
  for (int openings = 0; openings < 2 && !up_to_date() && !ending_; ++openings) {
    want();
    changed_.wait_until(lock, opening_began_ + kPatience, [&] { return up_to_date() || ending_ || !wanted_; });
  }
  return snapshot_;
}

Result<std::shared_ptr<const ChunkService::Snapshot>> ChunkService::open(std::shared_ptr<const Snapshot> old) const {
  auto snapshot = std::make_shared<Snapshot>();
  VARVE_ASSIGN(const std::optional<SpreadMember> member, read_spread_member(posix_file_system(), store_path_));
  VARVE_ASSIGN(snapshot->store, Store::open(posix_file_system(), store_path_, nullptr,
                                            member ? ArenaSpread(member->count) : ArenaSpread()));
  VARVE_ASSIGN(snapshot->arenas, snapshot->store->list_arenas());
  // Most changes of the folder are arenas that are being written.
  if (old && old->arenas == snapshot->arenas) return old;
  VARVE_ASSIGN(snapshot->index, ChunkIndex::open(*snapshot->store, {}, memory_bytes_));
  snapshot->store->drop_arena_cache();
  return std::shared_ptr<const Snapshot>(std::move(snapshot));
}

void ChunkService::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return wanted_ || ending_; });
    if (ending_) return;
    const std::shared_ptr<const Snapshot> old = snapshot_;
    lock.unlock();
    const int64_t changed_ns = arenas_changed(store_path_);
    Result<std::shared_ptr<const Snapshot>> opened = open(old);
    lock.lock();
    if (opened.ok()) {
      snapshot_ = std::move(*opened);
      seen_ns_ = changed_ns;
    }
    wanted_ = false;
    changed_.notify_all();
  }
}

}  // namespace varve
