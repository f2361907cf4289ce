#include "redundancy/node_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/file_system.h"
#include "format/store_header.h"
#include "redundancy/parity_group.h"
#include "store/catalog.h"
#include "store/evacuation.h"
#include "store/needs.h"
#include "store/prune.h"

namespace varve {

namespace {
/// A number in its shortest form.
template <class Number>
std::optional<Number> parse_shortest(std::string_view digits) {
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return std::to_string(number) == digits ? std::optional(number) : std::nullopt;
}
}  // namespace

std::optional<SetName> parse_set_name(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> step = parse_shortest<uint64_t>(text.substr(at + 1));
  if (!step || !check_job_name(text.substr(0, at)).ok()) return std::nullopt;
  return SetName{std::string(text.substr(0, at)), *step};
}

std::string NodeLabel::text() const { return fmt::format("{}.{}-of-{}", set.key(), group + 1, group_count); }

std::optional<NodeLabel> NodeLabel::parse(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view groups = text.substr(dot + 1);
  const size_t of = groups.find("-of-");
  if (of == std::string_view::npos) return std::nullopt;
  std::optional<SetName> set = parse_set_name(text.substr(0, dot));
  const std::optional<uint32_t> number = parse_shortest<uint32_t>(groups.substr(0, of));
  const std::optional<uint32_t> count = parse_shortest<uint32_t>(groups.substr(of + 4));
  if (!set || !number || !count || *number == 0 || *number > *count) return std::nullopt;
  return NodeLabel{std::move(*set), *number - 1, *count};
}

namespace {
Status not_in_folder(std::string_view name) {
  return Status::invalid_argument("redundancy knows no such file of a store", std::string(name));
}

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

Status create_with_parents(FileSystem& fs, const std::string& path) {
  const Status created = fs.create_directory(path);
  const std::string parent = parent_path(path);
  if (created.code() != StatusCode::not_found || parent == path) return created;
  VARVE_TRY(create_with_parents(fs, parent));
  VARVE_TRY(settle_root(fs, parent));
  return fs.create_directory(path);
}

/// What a rebuild cannot read it takes for lost, which may be one loss too many.
class PatientFile final : public ForwardingFile {
 public:
  PatientFile(std::unique_ptr<File> inner, std::shared_ptr<Patience> patience)
      : ForwardingFile(std::move(inner)), patience_(std::move(patience)) {}
  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    return (*patience_)([&] { return ForwardingFile::read_at(offset, into); }, [] {});
  }

 private:
  const std::shared_ptr<Patience> patience_;
};
}  // namespace

NodeFolder::NodeFolder(FileSystem& fs, const std::string& store_path, SetName set)
    : fs_(fs), store_path_(without_trailing_slashes(store_path)), set_(std::move(set)) {}

std::optional<NodeFolder::Kind> NodeFolder::kind_of(std::string_view name) {
  if (name == kHeaderName) return Kind::header;
  if (name == kRecordName) return Kind::record;
  if (name == kParityFileName) return Kind::parity;
  if (parse_arena_file_name(name)) return Kind::arena;
  return std::nullopt;
}

bool NodeFolder::is_protected_name(std::string_view name) {
  const std::optional<Kind> kind = kind_of(name);
  return kind && *kind != Kind::parity;
}

Result<std::string> NodeFolder::place_of(std::string_view name) const {
  if (name.ends_with(kUnfinishedSuffix)) {
    if (!kind_of(name.substr(0, name.size() - kUnfinishedSuffix.size()))) return not_in_folder(name);
    return join_path(set_path(store_path_, set_), name);
  }
  const std::optional<Kind> kind = kind_of(name);
  if (!kind) return not_in_folder(name);
  switch (*kind) {
    case Kind::header: return join_path(store_path_, "varve.store");
    case Kind::arena: return join_path(join_path(store_path_, "arenas"), name);
    case Kind::record:
      return join_path(join_path(join_path(store_path_, "sets"), set_.job), std::to_string(set_.step) + ".set");
    case Kind::parity: return join_path(set_path(store_path_, set_), name);
  }
  return not_in_folder(name);
}

Result<std::string> NodeFolder::place_of_path(const std::string& path) const {
  if (parent_path(path) != store_path_) return not_in_folder(path);
  return place_of(base_name(path));
}

Result<bool> NodeFolder::has_nothing(FileSystem& fs, const std::string& store_path) {
  for (const char* folder : {"sets", "arenas", "parts"}) {
    const Result<std::vector<DirectoryEntry>> entries = fs.list(join_path(store_path, folder));
    if (entries.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(entries.status());
    if (!entries->empty()) return false;
  }
  return true;
}

void NodeFolder::note_header() {
  Result<ByteVector> header = read_file(fs_, join_path(store_path_, "varve.store"), kHeaderBytesMax);
  header_before_ = header.ok() ? std::move(*header) : ByteVector();
}

Status NodeFolder::make_folders() {
  VARVE_TRY(create_with_parents(fs_, store_path_));
  for (const std::string_view folder : kStoreFolders) {
    VARVE_TRY(fs_.create_directory(join_path(store_path_, folder)));
  }
  VARVE_TRY(fs_.create_directory(redundancy_path(store_path_)));
  VARVE_TRY(fs_.create_directory(set_path(store_path_, set_)));
  VARVE_TRY(fs_.sync_directory(redundancy_path(store_path_)));
  VARVE_TRY(fs_.sync_directory(store_path_));
  return settle_root(fs_, store_path_);
}

/// `act`, and again with new folders if one has gone.
Status NodeFolder::with_folders(const std::function<Status()>& act) {
  constexpr int kTriesMax = 4;
  Status done = act();
  for (int tries = 1; tries < kTriesMax && done.code() == StatusCode::not_found; ++tries) {
    done = make_folders();
    if (done.ok()) done = act();
  }
  return done;
}

Status NodeFolder::prepare() {
  return with_folders([this] { return make_folders(); });
}

Result<std::unique_ptr<File>> NodeFolder::open_read(const std::string& path) {
  VARVE_ASSIGN(const std::string place, place_of_path(path));
  VARVE_ASSIGN(std::unique_ptr<File> file, fs_.open_read(place));
  return std::unique_ptr<File>(std::make_unique<PatientFile>(std::move(file), patience_));
}

Result<std::unique_ptr<File>> NodeFolder::create(const std::string& path, CreateOptions options) {
  VARVE_ASSIGN(const std::string place, place_of_path(path));
  if (!path.ends_with(kUnfinishedSuffix)) return Status::internal("a file of a store is made under its own name", path);
  std::unique_ptr<File> file;
  VARVE_TRY(with_folders([&]() -> Status {
    VARVE_ASSIGN(file, fs_.create(place, options));
    return {};
  }));
  return file;
}

Status NodeFolder::rename(const std::string& from, const std::string& to) {
  VARVE_ASSIGN(std::string from_place, place_of_path(from));
  VARVE_ASSIGN(std::string to_place, place_of_path(to));
  const std::optional<Kind> kind = kind_of(base_name(to));
  if (!kind || from != to + std::string(kUnfinishedSuffix)) {
    return Status::internal("only unfinished files are renamed, to their own names", from);
  }
  // An attempt that came to nothing may have left one of the same file.
  std::erase_if(waiting_, [&](const Rename& earlier) { return earlier.to == to_place; });
  waiting_.push_back({*kind, std::move(from_place), std::move(to_place)});
  return {};
}

Status NodeFolder::remove(const std::string& path) {
  VARVE_ASSIGN(const std::string place, place_of_path(path));
  if (!path.ends_with(kUnfinishedSuffix)) return Status::internal("a file of a store is removed", path);
  return fs_.remove(place);
}

/// After the renames of one kind.
Status NodeFolder::make_parents_durable(Kind kind) {
  switch (kind) {
    case Kind::header: return fs_.sync_directory(store_path_);
    case Kind::arena: return fs_.sync_directory(join_path(store_path_, "arenas"));
    case Kind::record:  // the commit has done so for the set: what is left is what it was made of
    case Kind::parity: return fs_.sync_directory(set_path(store_path_, set_));
  }
  return {};
}

/// Another job may have made a store here meanwhile, or begun to use the one that was there.
Status NodeFolder::give_header(const Rename& header) {
  const Status given = fs_.rename_no_replace(header.from, header.to);
  if (given.code() != StatusCode::already_exists) return given;
  VARVE_ASSIGN(const bool may_go, may_be_replaced(header));
  if (may_go) return fs_.rename(header.from, header.to);
  return Status::already_exists("another store was made here while this one was rebuilt", store_path_,
                                "give each job a folder of its own on the node, or start this one again");
}

/// Whether the header that is there is damaged, or the same, or that of a store that had nothing and has nothing still.
Result<bool> NodeFolder::may_be_replaced(const Rename& header) const {
  const Result<ByteVector> there = read_file(fs_, header.to, kHeaderBytesMax);
  if (there.status().code() == StatusCode::resource_limit) return true;  // longer than any
  VARVE_TRY(there.status());
  if (decode_store_header(*there, header.to).status().code() == StatusCode::corrupt) return true;
  VARVE_ASSIGN(const ByteVector ours, read_file(fs_, header.from, kHeaderBytesMax));
  if (*there == ours) return true;
  return *there == header_before_ ? has_nothing(fs_, store_path_) : Result<bool>(false);
}

/// What is in the lease is seen by prunes until the set is there. As long as not all arenas have their names it says
/// what they cannot find, and so they remove nothing.
Result<NodeFolder::Commit> NodeFolder::begin_commit(const Rename& record) {
  Commit commit;
  VARVE_ASSIGN(commit.store, Store::open(fs_, store_path_));
  VARVE_ASSIGN(const ByteVector raw, read_file(fs_, record.from, kSetRecordBytesMax));
  VARVE_ASSIGN(const SetRecord set, decode_set_record(raw, commit.store->score()));
  VARVE_ASSIGN(commit.lease, WriterLease::acquire(*commit.store));
  VARVE_TRY(commit.lease->prepare_of_settled(set, raw));
  return commit;
}

Status NodeFolder::give_place(const Rename& rename, Commit& commit) {
  switch (rename.kind) {
    case Kind::header:
      VARVE_TRY(give_header(rename));
      // A job that still saw no header may have removed some meanwhile.
      return make_folders();
    case Kind::record:
      VARVE_TRY(commit.lease->commit_rebuilt(set_));
      fs_.remove(rename.from).ignore("it is tidied away with what other rebuilds have left");
      return {};
    case Kind::arena:
    case Kind::parity: return with_folders([&] { return fs_.rename(rename.from, rename.to); });
  }
  return {};
}

Status NodeFolder::sync_directory(const std::string& path) {
  if (path != store_path_) return not_in_folder(path);
  std::vector<Rename> renames;
  renames.swap(waiting_);
  std::stable_sort(renames.begin(), renames.end(), [](const Rename& a, const Rename& b) { return a.kind < b.kind; });
  const auto record =
      std::find_if(renames.begin(), renames.end(), [](const Rename& each) { return each.kind == Kind::record; });
  Commit commit;
  for (size_t i = 0; i < renames.size(); ++i) {
    const bool needs_commit = renames[i].kind == Kind::arena || renames[i].kind == Kind::record;
    if (needs_commit && commit.lease == nullptr && record != renames.end()) {
      VARVE_TRY(with_folders([&]() -> Status {
        VARVE_ASSIGN(commit, begin_commit(*record));
        return {};
      }));
    }
    VARVE_TRY(give_place(renames[i], commit));
    const bool last_of_kind = i + 1 == renames.size() || renames[i + 1].kind != renames[i].kind;
    if (last_of_kind) VARVE_TRY(make_parents_durable(renames[i].kind));
  }
  return {};
}

Result<FileStatus> NodeFolder::stat(const std::string& path) {
  VARVE_ASSIGN(const std::string place, place_of_path(path));
  return fs_.stat(place);
}

Result<std::vector<DirectoryEntry>> NodeFolder::list(const std::string& path) {
  if (path != store_path_) return not_in_folder(path);
  std::vector<DirectoryEntry> entries;
  for (const std::string_view name : {kHeaderName, kRecordName}) {
    VARVE_ASSIGN(const std::string place, place_of(name));
    const Result<FileStatus> status = fs_.stat(place);
    if (status.ok()) entries.push_back({std::string(name), false});
    if (!status.ok() && status.status().code() != StatusCode::not_found) return status.status();
  }
  for (const std::string& folder : {join_path(store_path_, "arenas"), set_path(store_path_, set_)}) {
    const Result<std::vector<DirectoryEntry>> listed = fs_.list(folder);
    if (!listed.ok() && listed.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(listed.status());
    for (const DirectoryEntry& entry : *listed) {
      const Result<std::string> place = place_of(entry.name);
      if (!entry.is_directory && place.ok() && *place == join_path(folder, entry.name)) entries.push_back(entry);
    }
  }
  return entries;
}

// What redundancy never does to the folder of a member.

Status NodeFolder::create_directory(const std::string& path) { return not_in_folder(path); }
Status NodeFolder::rename_no_replace(const std::string& from, const std::string& /*to*/) { return not_in_folder(from); }
Status NodeFolder::remove_directory(const std::string& path) { return not_in_folder(path); }
Status NodeFolder::touch(const std::string& path) { return not_in_folder(path); }

namespace {
/// Collects the arenas that hold what a set needs.
class NeededArenas {
 public:
  NeededArenas(const Store& store, const std::set<ArenaId>& leaving) : store_(store), leaving_(leaving) {}

  /// Where the hint says, if all of it is there; else wherever there is any of it, so that thinned copies are all
  /// taken.
  void add(const Score& score, const ArenaId& hint, bool is_pack) {
    if (find_in(hint, score, is_pack) == Found::whole) {
      arenas_.insert(hint);
    } else {
      elsewhere_.push_back({score, is_pack});
    }
  }
  Result<std::set<ArenaId>> finish() {
    if (elsewhere_.empty()) return std::move(arenas_);
    std::vector<Score> scores;
    for (const Need& need : elsewhere_) scores.push_back(need.score);
    VARVE_ASSIGN(const std::vector<ArenaId> places, store_.directory().listing(store_, scores));
    for (const Need& need : elsewhere_) {
      bool found = false;
      for (const ArenaId& place : places) {
        if (find_in(place, need.score, need.is_pack) == Found::nothing) continue;
        arenas_.insert(place);
        found = true;
      }
      if (found) continue;
      return Status::not_found("no arena holds what a set needs", store_.path(), Remedy::verify);
    }
    return std::move(arenas_);
  }

 private:
  enum class Found : uint8_t { nothing, part, whole };
  struct Need {
    Score score;
    bool is_pack = false;
  };
  Found find_in(const ArenaId& id, const Score& score, bool is_pack) const {
    if (leaving_.contains(id)) return Found::nothing;
    const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    if (!arena.ok()) return Found::nothing;
    const std::optional<size_t> ordinal = is_pack ? (*arena)->find_pack(score) : (*arena)->find_node(score);
    if (!ordinal) return Found::nothing;
    return is_pack && (*arena)->index().packs[*ordinal].missing_bytes > 0 ? Found::part : Found::whole;
  }

  const Store& store_;
  const std::set<ArenaId>& leaving_;
  std::set<ArenaId> arenas_;
  std::vector<Need> elsewhere_;
};

/// Copies what the set needs of arenas that leave, unless it is whole in one that stays. What is damaged stays there.
Status bring_away(const Store& store, const SetNeeds& set, const std::set<ArenaId>& leaving) {
  if (leaving.empty()) return {};
  Needs needs;
  for (const auto& [score, need] : set.packs) needs.packs.emplace(score, need.ranges);
  for (const auto& [score, hint] : set.nodes) needs.nodes.insert(score);
  std::vector<ArenaId> holding;
  for (const ArenaId& id : leaving) {
    const Result<std::shared_ptr<ArenaReader>> arena = store.arena(id);
    if (arena.ok() && needed_bytes(**arena, needs) > 0) holding.push_back(id);
  }
  if (holding.empty()) return {};
  Evacuation evacuation(store, needs, null_progress());
  VARVE_TRY(evacuation.find_homes());
  return evacuation.empty(holding);
}
}  // namespace

Result<std::vector<std::string>> protected_files_of(const Store& store, const SetName& set,
                                                    const std::set<ArenaId>& leaving) {
  VARVE_ASSIGN(const SetRecord record, Catalog(store).read(set));
  VARVE_ASSIGN(const SetNeeds needs, needs_of_set(store, record, null_progress()));
  VARVE_TRY(bring_away(store, needs, leaving));
  NeededArenas arenas(store, leaving);
  for (const auto& [score, need] : needs.packs) arenas.add(score, need.hint, true);
  for (const auto& [score, hint] : needs.nodes) arenas.add(score, hint, false);
  VARVE_ASSIGN(const std::set<ArenaId> needed, arenas.finish());
  std::vector<std::string> names = {std::string(NodeFolder::kHeaderName), std::string(NodeFolder::kRecordName)};
  for (const ArenaId& arena : needed) names.push_back(arena_file_name(arena));
  return names;
}

}  // namespace varve
