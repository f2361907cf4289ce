#include "mount/stored_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "engine/stored_files.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
/// The kernel's own reading ahead has several requests on their way, which come in any order.
constexpr uint64_t kDisorderBytes = 4_MiB;
/// How far ahead packs are read, and how many.
constexpr uint64_t kAheadBytes = 32_MiB;
constexpr size_t kAheadPacks = 16;
constexpr uint64_t kHoleBytesMin = 4096;
}  // namespace

MountResult<size_t> StoredFile::read(uint64_t offset, MutableByteSpan into) {
  if (offset >= map_->bytes) return size_t{0};
  into = into.first(std::min<uint64_t>(into.size(), map_->bytes - offset));
  read_ahead(offset, offset + into.size());
  size_t done = 0;
  for (size_t i = map_->piece_at(offset); done < into.size(); ++i) {
    const FileMap::Piece& piece = map_->pieces[i];
    const uint64_t skip = offset + done - piece.file_offset;
    const MutableByteSpan part = into.subspan(done, std::min<uint64_t>(into.size() - done, piece.bytes - skip));
    if (piece.pack == FileMap::kPattern) {
      fill_pattern(piece.at, piece.skipped + skip, part);
    } else if (const Status got = packs_.read(map_->packs[piece.pack], piece.at + skip, part); !got.ok()) {
      log_("cannot read " + name_ + ": " + got.to_string());
      return Errno{EIO};
    }
    done += part.size();
  }
  return done;
}

void StoredFile::read_ahead(uint64_t offset, uint64_t end) {
  const MutexLock lock(mutex_);
  const bool in_sequence = offset <= sequence_end_ + kDisorderBytes && offset + kDisorderBytes >= sequence_end_;
  if (!in_sequence) next_ahead_ = 0;
  sequence_end_ = in_sequence ? std::max(sequence_end_, end) : end;
  if (!in_sequence || end >= map_->bytes) return;
  const size_t current = map_->piece_at(end - 1);
  next_ahead_ = std::max(next_ahead_, current + 1);
  const uint32_t own = map_->pieces[current].pack;
  std::map<uint32_t, std::vector<Extent>> wanted;
  for (; next_ahead_ < map_->pieces.size(); ++next_ahead_) {
    const FileMap::Piece& piece = map_->pieces[next_ahead_];
    if (piece.file_offset > end + kAheadBytes) break;
    if (piece.pack == FileMap::kPattern || piece.pack == own) continue;
    if (wanted.size() == kAheadPacks && wanted.count(piece.pack) == 0) break;
    wanted[piece.pack].push_back({piece.at, piece.bytes});
  }
  for (auto& [pack, ranges] : wanted) packs_.read_ahead(map_->packs[pack], std::move(ranges));
}

MountResult<uint64_t> StoredFile::seek(uint64_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return Errno{EINVAL};
  if (offset >= map_->bytes) return Errno{ENXIO};
  for (size_t i = map_->piece_at(offset); i < map_->pieces.size(); ++i) {
    const FileMap::Piece& piece = map_->pieces[i];
    const bool is_hole = piece.pack == FileMap::kPattern && piece.at == 0 && piece.bytes >= kHoleBytesMin;
    if (is_hole == (whence == SEEK_HOLE)) return std::max(offset, piece.file_offset);
  }
  return whence == SEEK_HOLE ? MountResult<uint64_t>(map_->bytes) : MountResult<uint64_t>(Errno{ENXIO});
}

namespace {
constexpr uint32_t kWriteBits = 0222;

uint32_t type_bits(FileType type) {
  switch (type) {
    case FileType::regular: return S_IFREG;
    case FileType::directory: return S_IFDIR;
    case FileType::symlink: return S_IFLNK;
  }
  return S_IFREG;
}

/// Of a file, for the log.
std::string log_name(const SetRecord& record, const SetListing& listing, uint32_t ordinal) {
  return record.name.to_string() + ":" + listing.path(ordinal);
}

/// What a decoded leaf takes, about.
uint64_t memory_bytes_of(const Leaf& leaf) {
  uint64_t sum = leaf.packs.size() * sizeof(PackLink);
  for (const TreeFile& file : leaf.files) {
    sum += sizeof file + file.path.size();
    for (const Variable& variable : file.layout.variables)
      sum += sizeof variable + variable.name.size() + variable.extents.size() * sizeof(Extent);
    for (const auto& references : file.streams)
      sum += sizeof(std::vector<Reference>) + references.size() * sizeof(Reference);
  }
  return sum;
}
}  // namespace

StoredData::StoredData(const Store& the_store, const MountLog& the_log, uint64_t memory_bytes,
                       size_t read_ahead_threads)
    : store(the_store),
      log(the_log),
      leaves(memory_bytes / 8),
      listings(memory_bytes / 16),
      maps(memory_bytes / 16),
      packs([this](const PackLink& link, std::span<const Extent> ranges) { return read_pack(store, link, ranges); },
            memory_bytes / 4 * 3, read_ahead_threads) {}

Result<SetNumbers> SetNumbers::adopt(const SetListing& listing, const Known& known) {
  SetNumbers numbers;
  numbers.adopted_ids_.assign(listing.count(), 0);
  uint32_t next = MountedFolder::kTop + 1;
  for (const auto& [path, id] : known) {
    const std::optional<uint32_t> ordinal = listing.find_path(path);
    if (!ordinal) return Status::corrupt("a set that was saved lacks a name", path);
    numbers.adopted_ids_[*ordinal] = id;
    numbers.adopted_ordinals_[id] = *ordinal;
    next = std::max(next, id + 1);
  }
  for (uint32_t ordinal = 0; ordinal < numbers.adopted_ids_.size(); ++ordinal) {
    uint32_t& id = numbers.adopted_ids_[ordinal];
    if (id != 0) continue;
    id = ordinal == SetListing::kTop ? MountedFolder::kTop : next++;
    numbers.adopted_ordinals_[id] = ordinal;
  }
  return numbers;
}

uint32_t SetNumbers::id_of(uint32_t ordinal) const {
  return adopted_ids_.empty() ? ordinal + MountedFolder::kTop : adopted_ids_[ordinal];
}

MountResult<uint32_t> SetNumbers::ordinal_of(uint32_t id) const {
  if (adopted_ids_.empty()) return id - MountedFolder::kTop;
  const auto found = adopted_ordinals_.find(id);
  if (found == adopted_ordinals_.end()) return Errno{ESTALE};
  return found->second;
}

bool HiddenNames::has(uint32_t ordinal) const {
  const MutexLock lock(mutex_);
  return ordinals_.count(ordinal) != 0;
}

bool HiddenNames::has_all(const std::vector<uint32_t>& ordinals) const {
  const MutexLock lock(mutex_);
  return std::all_of(ordinals.begin(), ordinals.end(),
                     [this](uint32_t ordinal) VARVE_REQUIRES(mutex_) { return ordinals_.count(ordinal) != 0; });
}

void HiddenNames::add(uint32_t ordinal) {
  const MutexLock lock(mutex_);
  ordinals_.insert(ordinal);
}

Status StoredSet::adopt(const SetNumbers::Known& known) {
  VARVE_ASSIGN(const std::shared_ptr<SetListing> listing, SetListing::read(data_.store, record_));
  VARVE_ASSIGN(numbers_, SetNumbers::adopt(*listing, known));
  return {};
}

MountResult<std::shared_ptr<const SetListing>> StoredSet::listing() {
  using Listings = decltype(data_.listings);
  Result<std::shared_ptr<const SetListing>> got = data_.listings.get(realm_, [this]() -> Result<Listings::Made> {
    VARVE_ASSIGN(std::shared_ptr<SetListing> read, SetListing::read(data_.store, record_));
    const uint64_t bytes = read->memory_bytes();
    return Listings::Made{std::move(read), bytes};
  });
  if (got.ok()) return *got;
  data_.log("cannot list the set " + record_.name.to_string() + ": " + got.status().to_string());
  return Errno{EIO};
}

NodeView StoredSet::top() const {
  NodeView top;
  top.status.st_ino = inode_of(realm_, kTop);
  // Of the folder itself nothing is recorded. Who may remove a set must be able to write to it.
  top.status.st_mode = S_IFDIR | (may_hide_ ? 0755 : 0555);
  top.status.st_nlink = 2;
  top.status.st_uid = owner_.user;
  top.status.st_gid = owner_.group;
  for (timespec* time : {&top.status.st_mtim, &top.status.st_ctim, &top.status.st_atim})
    time->tv_sec = record_.created_s;
  return top;
}

NodeView StoredSet::view(const SetListing& listing, uint32_t ordinal) const {
  if (ordinal == SetListing::kTop) return top();
  const SetListing::Entry& entry = listing.entry(ordinal);
  NodeView view;
  view.lasting = true;
  view.status.st_ino = inode_of(realm_, numbers_.id_of(ordinal));
  // What is copied out of a set is to be writable if it was; who tries to write to the set itself is refused. Names are
  // removed from folders, if at all.
  const uint32_t gone = entry.type == FileType::directory && !may_hide_ ? kWriteBits : 0;
  const uint32_t mode = entry.type == FileType::regular ? mode_for_anyone(entry.mode) : entry.mode;
  view.status.st_mode = type_bits(entry.type) | (entry.type == FileType::symlink ? 0777 : mode & ~gone);
  view.status.st_nlink = entry.type == FileType::directory ? 2 : 1;
  view.status.st_uid = owner_.user;
  view.status.st_gid = owner_.group;
  const uint64_t bytes = entry.type == FileType::symlink ? entry.link_target.size() : entry.bytes;
  view.status.st_size = static_cast<off_t>(bytes);
  view.status.st_blocks = static_cast<blkcnt_t>((bytes + 511) / 512);
  for (timespec* time : {&view.status.st_mtim, &view.status.st_ctim, &view.status.st_atim})
    *time = {entry.modified_s, static_cast<long>(entry.modified_ns)};
  return view;
}

MountResult<NodeView> StoredSet::look(uint32_t id) {
  if (id == kTop) return top();
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(id));
  if (ordinal >= names->count()) return Errno{ESTALE};
  return view(*names, ordinal);
}

MountResult<NodeView> StoredSet::find(uint32_t folder, const std::string& name) {
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(folder));
  if (ordinal >= names->count()) return Errno{ESTALE};
  const std::optional<uint32_t> found = names->find(ordinal, name);
  if (!found || hidden_.has(*found)) return Errno{ENOENT};
  return view(*names, *found);
}

MountResult<std::vector<ListedName>> StoredSet::list(uint32_t folder) {
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(folder));
  if (ordinal >= names->count()) return Errno{ESTALE};
  std::vector<ListedName> listed;
  for (uint32_t child : names->entry(ordinal).children) {
    if (hidden_.has(child)) continue;
    listed.push_back(
        {names->entry(child).name, inode_of(realm_, numbers_.id_of(child)), type_bits(names->entry(child).type)});
  }
  return listed;
}

MountResult<std::string> StoredSet::read_link(uint32_t id) {
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(id));
  if (ordinal >= names->count()) return Errno{ESTALE};
  if (names->entry(ordinal).type != FileType::symlink) return Errno{EINVAL};
  return names->entry(ordinal).link_target;
}

MountResult<std::shared_ptr<const FileMap>> StoredSet::map_of(const SetListing& listing, uint32_t ordinal) {
  using Leaves = decltype(data_.leaves);
  using Maps = decltype(data_.maps);
  const SetListing::Entry& entry = listing.entry(ordinal);
  const LeafLink& link = listing.leaf(entry.leaf);
  auto read_leaf = [&]() -> Result<Leaves::Made> {
    VARVE_ASSIGN(Leaf leaf, varve::read_leaf(data_.store, link));
    const uint64_t bytes = memory_bytes_of(leaf);
    return Leaves::Made{std::make_shared<const Leaf>(std::move(leaf)), bytes};
  };
  auto make = [&]() -> Result<Maps::Made> {
    VARVE_ASSIGN(const std::shared_ptr<const Leaf> leaf, data_.leaves.get(link.score, read_leaf));
    if (entry.file >= leaf->files.size()) return Status::internal("a leaf has fewer files than before");
    VARVE_ASSIGN(FileMap map, map_file(*leaf, leaf->files[entry.file]));
    const uint64_t bytes = map.memory_bytes();
    return Maps::Made{std::make_shared<const FileMap>(std::move(map)), bytes};
  };
  Result<std::shared_ptr<const FileMap>> got = data_.maps.get(inode_of(realm_, ordinal), make);
  if (got.ok()) return *got;
  data_.log("cannot open " + log_name(record_, listing, ordinal) + ": " + got.status().to_string());
  return Errno{EIO};
}

MountResult<std::unique_ptr<OpenFile>> StoredSet::open(uint32_t id, int flags) {
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(id));
  if (ordinal >= names->count()) return Errno{ESTALE};
  const SetListing::Entry& entry = names->entry(ordinal);
  if (entry.type == FileType::directory) return Errno{EISDIR};
  if (entry.type != FileType::regular) return Errno{ELOOP};
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return Errno{EROFS};
  MOUNT_ASSIGN(std::shared_ptr<const FileMap> map, map_of(*names, ordinal));
  std::unique_ptr<OpenFile> opened =
      std::make_unique<StoredFile>(std::move(map), data_.packs, data_.log, log_name(record_, *names, ordinal));
  return opened;
}

Errno StoredSet::remove(uint32_t folder, const std::string& name, int flags) {
  if (!may_hide_) return {EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  MOUNT_ASSIGN(const uint32_t ordinal, numbers_.ordinal_of(folder));
  const std::optional<uint32_t> found = names->find(ordinal, name);
  if (!found || hidden_.has(*found)) return {ENOENT};
  const SetListing::Entry& entry = names->entry(*found);
  const bool is_folder = entry.type == FileType::directory;
  if (is_folder != (flags == AT_REMOVEDIR)) return {is_folder ? EISDIR : ENOTDIR};
  if (is_folder && !hidden_.has_all(entry.children)) return {ENOTEMPTY};
  hidden_.add(*found);
  return {};
}

MountResult<bool> StoredSet::is_cleared() {
  MOUNT_ASSIGN(const std::shared_ptr<const SetListing> names, listing());
  return hidden_.has_all(names->entry(SetListing::kTop).children);
}

}  // namespace varve
