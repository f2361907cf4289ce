#include "store/lost_headers.h"

#include <algorithm>

#include "format/store_header.h"
#include "store/store.h"

namespace varve {

namespace {
constexpr uint64_t kReadBytesMax = 4096;

/// What a header was, as its witnesses say.
class Testimony {
 public:
  void add(const StoreHeader& header) {
    for (Said& one : said_) {
      if (one.header == header) return void(++one.count);
    }
    said_.push_back({header, 1});
  }
  bool empty() const { return said_.empty(); }
  /// What more than half of them say.
  std::optional<StoreHeader> agreed() const {
    size_t sum = 0;
    for (const Said& one : said_) sum += one.count;
    for (const Said& one : said_) {
      if (2 * one.count > sum) return one.header;
    }
    return std::nullopt;
  }

 private:
  struct Said {
    StoreHeader header;
    size_t count = 0;
  };
  std::vector<Said> said_;
};

/// The header of a place; nothing if it is missing or damaged.
Result<std::optional<StoreHeader>> header_of(Backend& place) {
  const Result<ByteVector> raw = place.read_record(store_header_path(place.root()), kReadBytesMax);
  const StatusCode code = raw.status().code();
  if (code == StatusCode::not_found || code == StatusCode::corrupt || code == StatusCode::resource_limit)
    return std::optional<StoreHeader>();
  VARVE_TRY(raw.status());
  const Result<StoreHeader> header = decode_store_header(*raw, store_header_path(place.root()));
  if (header.status().code() == StatusCode::corrupt) return std::optional<StoreHeader>();
  VARVE_TRY(header.status());
  return std::optional(*header);
}

/// Has the arenas of a place say what they know; what cannot be read says nothing.
Status ask_arenas(Backend& place, Testimony& testimony) {
  const std::string folder = join_path(place.root(), "arenas");
  const Result<std::vector<DirectoryEntry>> entries = place.list(folder);
  if (entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    const std::optional<ArenaId> id = parse_arena_file_name(entry.name);
    if (entry.is_directory || !id) continue;
    const Result<std::unique_ptr<RangeReader>> file = place.open(join_path(folder, entry.name));
    ByteVector raw(kArenaHeaderBytes);
    if (!file.ok() || !read_exactly(**file, 0, raw, entry.name).ok()) continue;
    const Result<ArenaHeader> header = decode_arena_header(raw);
    if (!header.ok() || header->arena != *id) continue;
    if (!ScoreFunction::create(header->algorithm, header->score_bytes).ok()) continue;
    testimony.add({header->store, header->algorithm, header->score_bytes});
  }
  return {};
}

Status no_witness(const std::string& path, const char* why) {
  return Status::corrupt(
      why, store_header_path(path),
      "put the file back from another copy of this store; or make a new store, and pull into it what "
      "was pushed to others");
}

/// What the header of a place without one was.
Result<StoreHeader> lost_header(const std::vector<Backend*>& places, const Backend& place) {
  Testimony testimony;
  for (Backend* const one : places) {
    VARVE_ASSIGN(const std::optional<StoreHeader> header, header_of(*one));
    if (header) testimony.add(*header);
  }
  if (testimony.empty()) {
    for (Backend* const one : places) VARVE_TRY(ask_arenas(*one, testimony));
  }
  if (testimony.empty()) return no_witness(place.root(), "the store's header is lost, and no arena says what it was");
  const std::optional<StoreHeader> agreed = testimony.agreed();
  if (!agreed) return no_witness(place.root(), "the store's header is lost, and what is here is of different stores");
  return *agreed;
}
}  // namespace

Result<std::vector<std::string>> restore_store_headers(const std::vector<Backend*>& places) {
  std::vector<std::string> made;
  for (Backend* const place : places) {
    VARVE_ASSIGN(const std::optional<StoreHeader> there, header_of(*place));
    if (there) continue;
    const std::string path = store_header_path(place->root());
    const bool is_damaged = place->status(path).ok();
    if (const Status missing = missing_store(*place);
        !is_damaged && places.size() == 1 && missing.code() == StatusCode::not_found)
      return missing;
    VARVE_ASSIGN(const StoreHeader header, lost_header(places, *place));
    const ByteVector raw = encode_store_header(header);
    // A damaged one is replaced; where there is none, somebody else may be making one now.
    VARVE_TRY(is_damaged ? place->records().replace(path, raw) : place->records().publish(path, raw));
    made.push_back(place->shown_path(path));
  }
  return made;
}

}  // namespace varve
