#include "store/arena_mover.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "core/sync.h"
#include "store/balance.h"

namespace varve {

namespace {
constexpr uint64_t kCopyBytes = 4_MiB;
/// What the id of a mover's lease ends with (FORMAT.md, "Several places").
constexpr std::string_view kMoverTag = "arena mover.";
constexpr std::chrono::milliseconds kLookAgain(200);

Result<UniqueId> mover_id() {
  VARVE_ASSIGN(UniqueId id, UniqueId::random());
  const ByteSpan tag = as_bytes(kMoverTag);
  std::copy(tag.begin(), tag.end(), id.bytes.end() - static_cast<ptrdiff_t>(tag.size()));
  return id;
}

/// Reads a file in pieces, in order.
template <class Work>
Status for_each_piece(File& file, uint64_t bytes, const std::string& path, const Work& work) {
  ByteVector buffer(static_cast<size_t>(std::min(kCopyBytes, bytes)));
  for (uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const MutableByteSpan piece = MutableByteSpan(buffer).first(static_cast<size_t>(std::min(kCopyBytes, bytes - at)));
    VARVE_TRY(read_exactly(file, at, piece, path));
    VARVE_TRY(work(at, ByteSpan(piece)));
  }
  return {};
}

Result<uint32_t> checksum(File& file, uint64_t bytes, const std::string& path) {
  uint32_t sum = 0;
  const Status read = for_each_piece(file, bytes, path, [&sum](uint64_t, ByteSpan piece) {
    sum = crc32c(piece, sum);
    return Status();
  });
  VARVE_TRY(read);
  return sum;
}
}  // namespace

bool is_mover_lease(std::string_view lease_name) {
  const Result<UniqueId> id = UniqueId::parse(lease_name);
  return id.ok() && as_text(ByteSpan(id->bytes)).ends_with(kMoverTag);
}

Result<RebalanceReport> ArenaMover::run() {
  if (places_.size() > 1) VARVE_TRY(become_sole_mover());
  VARVE_ASSIGN(const std::vector<Arena> listed, list());
  VARVE_ASSIGN(const std::vector<Arena> arenas, without_copies(listed));
  std::vector<Load> loads;
  loads.reserve(arenas.size());
  // Without bytes, it stays.
  for (const Arena& arena : arenas) loads.push_back({arena.fixed ? 0 : arena.bytes, arena.place});
  const std::vector<uint32_t> goals = balanced_places(loads, static_cast<uint32_t>(places_.size()));

  RebalanceReport report;
  report.bytes_of_places.resize(places_.size());
  uint64_t bytes_to_move = 0;
  for (size_t i = 0; i < arenas.size(); ++i) {
    ++report.arenas;
    report.bytes += arenas[i].bytes;
    report.bytes_of_places[goals[i]] += arenas[i].bytes;
    if (goals[i] != arenas[i].place) bytes_to_move += arenas[i].bytes;
  }
  progress_.phase("moving");
  progress_.total(bytes_to_move);
  for (size_t i = 0; i < arenas.size(); ++i) {
    if (goals[i] == arenas[i].place) continue;
    if (progress_.cancelled()) return Status::cancelled();
    VARVE_TRY(move(arenas[i], goals[i]));
    ++report.moved_arenas;
    report.moved_bytes += arenas[i].bytes;
    progress_.advance(arenas[i].bytes);
  }
  return report;
}

Status ArenaMover::become_sole_mover() {
  VARVE_ASSIGN(const UniqueId id, mover_id());
  VARVE_ASSIGN(lease_, WriterLease::acquire(store_, id));
  // After the own lease is there: of two that begin at the same time, one at least sees the other.
  VARVE_ASSIGN(const std::vector<DirectoryEntry> leases, store_.fs().list(store_.writers_path()));
  for (const DirectoryEntry& lease : leases) {
    if (lease.name == id.hex() || !WriterLease::owns(lease.name, id)) continue;
    if (!WriterLease::known_dead(store_, lease.name)) VARVE_TRY(wait_for_silence(lease.name));
    const Status removed = store_.fs().remove(join_path(store_.writers_path(), lease.name));
    if (removed.code() != StatusCode::not_found) VARVE_TRY(removed);
  }
  return {};
}

/// Returns when another mover can be taken for dead, or has ended.
Status ArenaMover::wait_for_silence(const std::string& lease) {
  using Clock = MonotonicClock;
  const std::string path = join_path(store_.writers_path(), lease);
  progress_.phase("waiting");
  std::optional<int64_t> beat_ns;
  const auto begin = Clock::now();
  while (true) {
    const Result<FileStatus> status = store_.fs().stat(path);
    if (status.status().code() == StatusCode::not_found) return {};
    VARVE_TRY(status.status());
    if (beat_ns && *beat_ns != status->modified_ns)
      return Status::busy("arenas of this store are being moved already", store_.path(), "wait for that to end");
    beat_ns = status->modified_ns;
    if (std::chrono::duration<double>(Clock::now() - begin).count() >= options_.silence_seconds) return {};
    if (progress_.cancelled()) return Status::cancelled();
    sleep_for(kLookAgain);
  }
}

Result<std::vector<ArenaMover::Arena>> ArenaMover::list() const {
  std::vector<Arena> arenas;
  for (uint32_t place = 0; place < places_.size(); ++place) {
    FileSystem& fs = *places_[place].fs;
    VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, fs.list(arenas_of(place)));
    for (const DirectoryEntry& entry : entries) {
      const std::optional<ArenaId> id = parse_arena_file_name(entry.name);
      if (!id) continue;
      const Result<FileStatus> status = fs.stat(path_at(*id, place));
      if (status.status().code() == StatusCode::not_found) continue;  // pruned meanwhile
      VARVE_TRY(status.status());
      arenas.push_back({*id, place, status->bytes});
    }
  }
  return arenas;
}

/// Ends the moves that were stopped between copy and removal: each arena is once in the list then, and at one place.
Result<std::vector<ArenaMover::Arena>> ArenaMover::without_copies(std::vector<Arena> listed) {
  auto order = [this](const Arena& arena) {
    return std::tuple(arena.id, store_.spread().place_of(arena.id) != arena.place, arena.place);
  };
  std::sort(listed.begin(), listed.end(), [&](const Arena& a, const Arena& b) { return order(a) < order(b); });
  std::vector<Arena> arenas;
  for (const Arena& arena : listed) {
    if (arenas.empty() || arenas.back().id != arena.id) {
      arenas.push_back(arena);
      continue;
    }
    if (progress_.cancelled()) return Status::cancelled();
    Arena& kept = arenas.back();
    const Status same = check_same(arena.id, kept.place, arena.place);
    if (same.code() == StatusCode::corrupt) {
      progress_.warning(same);
      kept.fixed = true;
      continue;
    }
    VARVE_TRY(same);
    // The copy may have come without its name being durable.
    VARVE_TRY(places_[kept.place].fs->sync_directory(arenas_of(kept.place)));
    VARVE_TRY(remove_at(arena.id, arena.place));
  }
  return arenas;
}

Status ArenaMover::move(const Arena& arena, uint32_t to_place) {
  FileSystem& to = *places_[to_place].fs;
  const std::string path = path_at(arena.id, arena.place);
  const std::string part = join_path(arenas_of(to_place), arena.id.hex() + ".part");
  to.remove(part).ignore("there is none, unless an earlier move was stopped");
  VARVE_ASSIGN(const std::unique_ptr<File> source, places_[arena.place].fs->open_read(path));
  const Status copied = copy(*source, to, part, path, arena.bytes);
  if (!copied.ok()) {
    to.remove(part).ignore("prune removes it");
    return copied;
  }
  const Status named = to.rename_no_replace(part, path_at(arena.id, to_place));
  if (named.code() == StatusCode::already_exists) {
    // A mover of an earlier version, which does not know about leases, was quicker.
    to.remove(part).ignore("prune removes it");
    VARVE_TRY(check_same(arena.id, arena.place, to_place));
  } else {
    VARVE_TRY(named);
  }
  VARVE_TRY(to.sync_directory(arenas_of(to_place)));
  return remove_at(arena.id, arena.place);
}

Status ArenaMover::copy(File& source, FileSystem& to, const std::string& part, const std::string& path,
                        uint64_t bytes) const {
  VARVE_ASSIGN(const std::unique_ptr<File> copy, to.create(part));
  uint32_t sum = 0;
  const Status written = for_each_piece(source, bytes, path, [&](uint64_t at, ByteSpan piece) {
    sum = crc32c(piece, sum);
    return copy->write_at(at, piece);
  });
  VARVE_TRY(written);
  VARVE_TRY(copy->sync());
  VARVE_ASSIGN(const uint32_t there, checksum(*copy, bytes, part));
  if (sum == there) return {};
  return Status::corrupt("what was written is not what is read back; the arena stays where it was", part,
                         "check that place's disk");
}

/// corrupt: what lies at two places is not the same.
Status ArenaMover::check_same(const ArenaId& id, uint32_t place, uint32_t other) const {
  uint32_t sums[2] = {};
  uint64_t bytes[2] = {};
  const uint32_t at[2] = {place, other};
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = path_at(id, at[i]);
    VARVE_ASSIGN(const std::unique_ptr<File> file, places_[at[i]].fs->open_read(path));
    VARVE_ASSIGN(bytes[i], file->size());
    VARVE_ASSIGN(sums[i], checksum(*file, bytes[i], path));
  }
  if (sums[0] == sums[1] && bytes[0] == bytes[1]) return {};
  return Status::corrupt("an arena lies at two places, and is not the same there; both stay",
                         path_at(id, place) + " and " + path_at(id, other),
                         "`varve verify --deep` tells what is damaged");
}

/// Of an arena that is durable at another place.
Status ArenaMover::remove_at(const ArenaId& id, uint32_t place) const {
  if (lease_->lost())
    return Status::busy("this process was taken for dead while it moved arenas", store_.path(), "run it again");
  FileSystem& fs = *places_[place].fs;
  const Status removed = fs.remove(path_at(id, place));
  if (removed.code() != StatusCode::not_found) VARVE_TRY(removed);
  return fs.sync_directory(arenas_of(place));
}

std::string ArenaMover::path_at(const ArenaId& id, uint32_t place) const {
  return join_path(arenas_of(place), arena_file_name(id));
}

}  // namespace varve
