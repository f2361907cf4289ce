#include "store/stored_copies.h"

#include <set>

#include "store/condemn.h"

namespace varve {

namespace {
/// `find_in` looks into one arena.
template <class Find>
Result<std::vector<StoredCopy>> find_copies(const Store& store, const Score& score, const ArenaId& hint, bool all,
                                            const Find& find_in) {
  ArenaDirectory& directory = store.directory();
  std::vector<StoredCopy> places;
  std::set<ArenaId> looked;
  Status first_failure;
  auto look_in = [&](const ArenaId& id) {
    if (!looked.insert(id).second) return;
    Result<std::shared_ptr<ArenaReader>> reader = store.arena(id);
    if (!reader.ok()) {
      // One that is not there holds nothing.
      if (first_failure.ok() && reader.status().code() != StatusCode::not_found) first_failure = reader.status();
      return;
    }
    if (std::optional<size_t> ordinal = find_in(**reader)) {
      places.push_back({*reader, *ordinal});
    } else if (first_failure.ok()) {
      first_failure = (*reader)->unread_status();
    }
  };
  auto look_where_it_was_seen = [&] {
    for (const ArenaId& id : directory.candidates(score)) look_in(id);
  };
  look_in(hint);
  if (places.empty() && !all) look_where_it_was_seen();
  if (places.empty() || all) {
    const Status refreshed = directory.refresh(store, directory.rounds());
    if (!refreshed.ok() && refreshed.code() != StatusCode::not_found) return refreshed;
    look_where_it_was_seen();
  }
  if (places.empty() && !first_failure.ok()) return first_failure;
  return places;
}

/// What no arena has, so that the arena `where` it was is damaged or gone; or io_error: it may have been moved to a
/// place that the store has got since it was opened here.
Status lacking(const Store& store, const char* what, const std::string& where) {
  const Status known = store.check_spread();
  if (known.code() == StatusCode::invalid_argument) return known.with_code(StatusCode::io_error).with_context(where);
  VARVE_TRY(known);
  return Status::corrupt(what, where, Remedy::verify_and_replace_arena);
}

constexpr const char* kPackLacking = "no arena holds a pack that a set needs";

/// Tries `read` at the first place, and after a failure at all others. `places(all)` finds them. A copy that could not
/// be read may be whole: it is damaged only if all copies are. `note(found)` tells who watches of a damaged one.
template <class T, class Places, class Read, class Note>
Result<T> read_first_whole(const Store& store, const Places& places, const Read& read, const Note& note,
                           const char* what, const std::string& where) {
  Status failure;
  const auto note_if_damaged = [&](const Status& status) {
    if (status.code() == StatusCode::corrupt && store.found_damage() != nullptr) note(*store.found_damage());
  };
  for (bool all : {false, true}) {
    auto found = places(all);
    if (!found.ok()) {
      note_if_damaged(found.status());
      return found.status();
    }
    for (const StoredCopy& place : *found) {
      Result<T> result = read(place);
      if (result.ok()) return result;
      note_if_damaged(result.status());
      if (failure.ok() || failure.code() == StatusCode::corrupt) failure = result.status();
    }
  }
  return failure.ok() ? lacking(store, what, where) : failure;
}

/// What a tree node says is wrong; `where` it should have been right.
Status located(const Status& wrong, const std::string& where) {
  const std::string subject = wrong.subject().empty() ? where : where + ", " + std::string(wrong.subject());
  return wrong.with_subject(subject);
}
}  // namespace

Result<std::vector<StoredCopy>> find_pack_copies(const Store& store, const Score& score, const ArenaId& hint,
                                                 bool all) {
  return find_copies(store, score, hint, all, [&](const ArenaReader& reader) { return reader.find_pack(score); });
}

Result<Pack> read_pack(const Store& store, const PackLink& link, std::span<const Extent> ranges, MutableByteSpan room) {
  std::optional<Pack> united;  // of all copies so far, none of which had everything
  auto read = [&](const StoredCopy& place) -> Result<Pack> {
    // What was found so far may lie in the room.
    VARVE_ASSIGN(Pack pack, place.arena->read_pack(place.ordinal, united ? MutableByteSpan() : room));
    Status verified = pack.verify(ranges);
    if (verified.ok()) return pack;
    united = united ? Pack::united(*united, pack) : std::move(pack);
    if (united->verify(ranges).ok()) return std::move(*united);
    return Status(verified.code(), std::string(verified.message()), place.arena->path());
  };
  return read_first_whole<Pack>(
      store, [&](bool all) { return find_pack_copies(store, link.score, link.hint, all); }, read,
      [&](FoundDamage& found) { found.note_pack(link); }, kPackLacking, arena_name(store, link.hint));
}

Status check_pack_is_there(const Store& store, const PackLink& link) {
  VARVE_ASSIGN(const std::vector<StoredCopy> places, find_pack_copies(store, link.score, link.hint));
  return places.empty() ? lacking(store, kPackLacking, arena_name(store, link.hint)) : Status();
}

Result<ByteVector> read_node(const Store& store, const Score& score, const ArenaId& hint) {
  return read_first_whole<ByteVector>(
      store,
      [&](bool all) {
        return find_copies(store, score, hint, all, [&](const ArenaReader& reader) { return reader.find_node(score); });
      },
      [](const StoredCopy& place) { return place.arena->read_node(place.ordinal); },
      [&](FoundDamage& found) { found.note_node(score, hint); }, "no arena holds a tree node that a set needs",
      arena_name(store, hint));
}

Result<Root> read_root(const Store& store, const Score& score, const ArenaId& hint) {
  VARVE_ASSIGN(ByteVector raw, read_node(store, score, hint));
  Result<Root> root = decode_root(raw, store.score().score_bytes());
  if (!root.ok()) return located(root.status(), arena_name(store, hint));
  return root;
}

Result<Leaf> read_leaf(const Store& store, const LeafLink& link) {
  VARVE_ASSIGN(ByteVector node, read_node(store, link.score, link.hint));
  Status unreadable;  // which says itself where
  Result<std::optional<Leaf>> leaf =
      decode_leaf_of(std::move(node), store.score().score_bytes(),
                     [&](const Score& score, const ArenaId& hint) -> Result<std::optional<ByteVector>> {
                       Result<ByteVector> piece = read_node(store, score, hint);
                       unreadable = piece.status();
                       VARVE_TRY(unreadable);
                       return std::optional(std::move(*piece));
                     });
  VARVE_TRY(unreadable);
  if (!leaf.ok()) return located(leaf.status(), arena_name(store, link.hint));
  return std::move(**leaf);
}

}  // namespace varve
