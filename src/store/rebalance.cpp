#include "store/rebalance.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/sync.h"
#include "store/arena_writer.h"
#include "store/condemn.h"
#include "store/needs.h"
#include "store/prune.h"

namespace varve {

namespace {
/// The loads of one place, by their bytes; with their ordinals.
using BySize = std::set<std::pair<uint64_t, size_t>>;

/// What to move from a place that has `gap` more bytes than another one: the largest that leaves it the fuller of the
/// two; else the smallest that makes the other one fuller, but by less than the gap.
std::optional<BySize::iterator> choose(BySize& loads, uint64_t gap) {
  auto above = loads.upper_bound({gap / 2, SIZE_MAX});
  if (above != loads.begin() && std::prev(above)->first > 0) return std::prev(above);
  if (above != loads.end() && above->first < gap) return above;
  return std::nullopt;
}
}  // namespace

std::vector<uint32_t> balanced_places(std::span<const Load> loads, uint32_t places) {
  std::vector<uint32_t> place_of(loads.size());
  std::vector<uint64_t> bytes_of(places);
  std::vector<BySize> loads_of(places);
  for (size_t i = 0; i < loads.size(); ++i) {
    place_of[i] = loads[i].place;
    bytes_of[loads[i].place] += loads[i].bytes;
    loads_of[loads[i].place].emplace(loads[i].bytes, i);
  }
  std::vector<uint32_t> fullest_first(places);
  std::iota(fullest_first.begin(), fullest_first.end(), 0u);
  // Each move makes the sum of the squares smaller, so that it ends.
  for (bool moved = true; moved;) {
    moved = false;
    std::sort(fullest_first.begin(), fullest_first.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(bytes_of[b], a) < std::pair(bytes_of[a], b); });
    const uint32_t to = fullest_first.back();
    for (const uint32_t from : fullest_first) {
      const auto chosen = choose(loads_of[from], bytes_of[from] - bytes_of[to]);
      if (!chosen) continue;
      const auto [bytes, load] = **chosen;
      loads_of[from].erase(*chosen);
      loads_of[to].emplace(bytes, load);
      bytes_of[from] -= bytes;
      bytes_of[to] += bytes;
      place_of[load] = to;
      moved = true;
      break;
    }
  }
  return place_of;
}

namespace {
/// What the id of a mover's lease ends with (FORMAT.md, "Several places").
constexpr std::string_view kMoverTag = "arena mover.";
constexpr std::chrono::milliseconds kLookAgain(200);

Result<UniqueId> mover_id() {
  VARVE_ASSIGN(UniqueId id, UniqueId::random());
  const ByteSpan tag = as_bytes(kMoverTag);
  std::copy(tag.begin(), tag.end(), id.bytes.end() - static_cast<ptrdiff_t>(tag.size()));
  return id;
}
}  // namespace

Result<RebalanceReport> ArenaMover::run() {
  if (places_.size() > 1) VARVE_TRY(become_sole_mover());
  RebalanceReport report;
  VARVE_ASSIGN(const Listed listed, list());
  VARVE_TRY(move_all(listed, report));
  copies_lease_.reset();
  lease_.reset();
  if (listed.any_marked || !listed.twins.empty() || report.moved_arenas > 0) VARVE_TRY(remove_marked(report));
  VARVE_ASSIGN(const Listed left, list());
  report.bytes_of_places.resize(places_.size());
  for (const Arena& arena : left.arenas) {
    ++report.arenas;
    report.bytes += arena.bytes;
    report.bytes_of_places[arena.place] += arena.bytes;
  }
  return report;
}

Status ArenaMover::move_all(const Listed& listed, RebalanceReport& report) {
  // Versions before this one moved under the same name. What is needed of it is brought into arenas of other names.
  VARVE_TRY(condemn_arenas(store_, listed.twins));
  std::vector<Load> loads;
  loads.reserve(listed.arenas.size());
  for (const Arena& arena : listed.arenas) loads.push_back({arena.bytes, arena.place});
  const std::vector<uint32_t> goals = balanced_places(loads, static_cast<uint32_t>(places_.size()));
  uint64_t bytes_to_move = 0;
  for (size_t i = 0; i < goals.size(); ++i) bytes_to_move += goals[i] == loads[i].place ? 0 : loads[i].bytes;
  if (bytes_to_move == 0) return {};
  // If a set cannot be read, nothing can be removed in the end: so nothing is begun.
  VARVE_TRY(needs_of_sets(store_).status());
  VARVE_ASSIGN(copies_lease_, WriterLease::acquire(store_));
  progress_.phase("moving");
  progress_.total(bytes_to_move);
  for (size_t i = 0; i < goals.size(); ++i) {
    const Arena& arena = listed.arenas[i];
    if (goals[i] == arena.place) continue;
    if (progress_.cancelled()) return Status::cancelled();
    VARVE_ASSIGN(const bool moved, move(arena, goals[i]));
    progress_.advance(arena.bytes);
    if (!moved) continue;
    ++report.moved_arenas;
    report.moved_bytes += arena.bytes;
  }
  return {};
}

Status ArenaMover::become_sole_mover() {
  VARVE_ASSIGN(const UniqueId id, mover_id());
  VARVE_ASSIGN(lease_, WriterLease::acquire(store_, id));
  // After the own lease is there: of two that begin at the same time, one at least sees the other.
  VARVE_ASSIGN(const std::vector<DirectoryEntry> leases, store_.backend().list(store_.writers_path()));
  for (const DirectoryEntry& lease : leases) {
    if (lease.name == id.hex() || !WriterLease::owns(lease.name, id)) continue;
    if (!WriterLease::known_dead(store_, lease.name)) VARVE_TRY(wait_for_silence(lease.name));
    VARVE_TRY(WriterLease::give_up(store_, lease.name, options_.silence_seconds).status());
  }
  return {};
}

/// Returns when another mover can be taken for dead, or has ended.
Status ArenaMover::wait_for_silence(const std::string& lease) {
  const std::string path = join_path(store_.writers_path(), lease);
  progress_.phase("waiting");
  std::optional<int64_t> beat_ns;
  const auto begin = MonotonicClock::now();
  while (true) {
    const Result<FileStatus> status = store_.backend().status(path);
    if (status.status().code() == StatusCode::not_found) return {};
    VARVE_TRY(status.status());
    if (beat_ns && *beat_ns != status->modified_ns)
      return Status::busy("arenas of this store are being moved already", store_.path(), "wait for that to end");
    beat_ns = status->modified_ns;
    if (std::chrono::duration<double>(MonotonicClock::now() - begin).count() >= options_.silence_seconds) return {};
    if (progress_.cancelled()) return Status::cancelled();
    sleep_for(kLookAgain);
  }
}

Result<ArenaMover::Listed> ArenaMover::list() const {
  VARVE_ASSIGN(const std::vector<ArenaId> marked, list_condemned(store_));
  Listed listed{{}, {}, !marked.empty()};
  std::map<ArenaId, size_t> places_of;
  for (uint32_t place = 0; place < places_.size(); ++place) {
    VARVE_ASSIGN(const auto objects, places_[place]->list_with_status(arenas_of(place)));
    for (const auto& [name, status] : objects) {
      const std::optional<ArenaId> id = parse_arena_file_name(name);
      if (!id || std::binary_search(marked.begin(), marked.end(), *id)) continue;
      VARVE_TRY(status.status());
      if (++places_of[*id] > 1) listed.twins.insert(*id);
      listed.arenas.push_back({*id, place, status->bytes});
    }
  }
  std::erase_if(listed.arenas, [&](const Arena& arena) { return listed.twins.contains(arena.id); });
  return listed;
}

/// False: it is damaged, and stays where it is; or was pruned meanwhile.
Result<bool> ArenaMover::move(const Arena& arena, uint32_t to) {
  const Result<std::shared_ptr<ArenaReader>> reader = store_.arena(arena.id);
  // With a damaged index it may hold more than it tells.
  Status copied = reader.ok() ? (*reader)->index_status() : reader.status();
  if (copied.ok()) copied = copy(**reader, to);
  if (copied.code() == StatusCode::not_found) return false;
  if (copied.code() == StatusCode::corrupt) {
    progress_.warning(copied.with_context("a damaged arena stays where it is"));
    return false;
  }
  VARVE_TRY(copied);
  VARVE_TRY(condemn_arenas(store_, {arena.id}));
  return true;
}

/// All that the arena has, in the same order, into a new one, which is durable then.
Status ArenaMover::copy(const ArenaReader& arena, uint32_t to) {
  const ArenaId id = copies_lease_->arena_id(copy_count_++, to);
  VARVE_ASSIGN(const std::unique_ptr<ArenaWriter> writer,
               ArenaWriter::create(store_.backend(), store_.arena_path(id), arena_header(store_, id),
                                   {.background = false, .buffer_bytes = 1_MiB}));
  const std::vector<FrameEntry>&packs = arena.index().packs, &nodes = arena.index().nodes;
  for (size_t pack = 0, node = 0; pack < packs.size() || node < nodes.size();) {
    if (progress_.cancelled()) return Status::cancelled();
    const bool pack_is_next = node == nodes.size() || (pack < packs.size() && packs[pack].offset < nodes[node].offset);
    const FrameKind kind = pack_is_next ? FrameKind::pack : FrameKind::node;
    const size_t ordinal = pack_is_next ? pack++ : node++;
    VARVE_ASSIGN(const ArenaReader::RawFrame frame, arena.read_raw(kind, ordinal));
    VARVE_TRY(writer->append_copy(kind, pack_is_next ? packs[ordinal] : nodes[ordinal], frame.meta, frame.body));
  }
  VARVE_TRY(writer->seal());
  return store_.backend().settle(store_.arenas_path());
}

/// As a prune does it, which reads of the copies what is needed.
Status ArenaMover::remove_marked(RebalanceReport& report) {
  PruneOptions options;
  options.live_share_min = 0;  // what is marked alone
  options.wait_seconds = options_.wait_seconds;
  options.silence_seconds = options_.silence_seconds;
  VARVE_ASSIGN(const PruneReport pruned, prune_store(store_, options, progress_));
  report.waiting_arenas = pruned.waiting_arenas;
  return {};
}

}  // namespace varve
