#include "snapshot/node_note.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "core/process.h"
#include "hash/score.h"

namespace varve {

namespace {
constexpr std::string_view kNoteName = "note";
constexpr std::string_view kDraftName = "note-draft";  ///< of one that is being written
constexpr uint32_t kNoteMagic = 0x314e4e56;            // "VNN1"
/// Of a segment: more than any note takes, so that a file of another's making is not mapped for nothing.
constexpr uint64_t kNoteSegmentBytesMax = 64_MiB;

Status get_text(ByteReader& in, std::string& into) {
  VARVE_ASSIGN(const std::string_view text, in.text());
  into = text;
  return {};
}

Status get_number(ByteReader& in, uint32_t& into) {
  VARVE_ASSIGN(const uint64_t number, in.varint());
  if (number > UINT32_MAX) return Status::corrupt("a number in a run's note is too large");
  into = static_cast<uint32_t>(number);
  return {};
}

Result<NodeNote::Group> get_group(ByteReader& in) {
  NodeNote::Group group;
  VARVE_TRY(get_number(in, group.ordinal));
  VARVE_TRY(get_number(in, group.count));
  VARVE_ASSIGN(const uint8_t crosses, in.u8());
  group.crosses_nodes = crosses != 0;
  VARVE_ASSIGN(const uint64_t count, in.count());
  for (uint64_t i = 0; i < count; ++i) VARVE_TRY(get_number(in, group.members.emplace_back()));
  if (group.ordinal >= group.count || group.members.empty() ||
      !std::is_sorted(group.members.begin(), group.members.end()))
    return Status::corrupt("a group in a run's note makes no sense");
  return group;
}
}  // namespace

// magic u32 | crc32c u32 of the body | its length u32 | body: run 16 bytes, varints and texts in the order of the
// struct
ByteVector encode_node_note(const NodeNote& note) {
  ByteVector body;
  ByteWriter out(body);
  out.bytes(note.run.bytes);
  out.varint(note.rank_count);
  for (const std::string* text : {&note.job, &note.levels, &note.node}) out.text(*text);
  out.varint(note.node_ordinal);
  out.varint(note.node_count);
  for (const std::string* text : {&note.key_file, &note.s3_endpoint, &note.scheme, &note.codec}) out.text(*text);
  out.varint(note.groups.size());
  for (const NodeNote::Group& group : note.groups) {
    out.varint(group.ordinal);
    out.varint(group.count);
    out.u8(group.crosses_nodes ? 1 : 0);
    out.varint(group.members.size());
    for (const uint32_t rank : group.members) out.varint(rank);
  }
  out.varint(note.spill_folders.size());
  for (const std::string& folder : note.spill_folders) out.text(folder);
  out.varint(note.earlier.size());
  for (const NodeNote::Earlier& one : note.earlier) {
    out.bytes(one.run.bytes);
    out.varint(one.last_step);
    out.varint(one.last_number);
  }
  out.varint(note.first_number);
  out.u8(note.copies ? 1 : 0);
  if (note.copies) {
    out.bytes(note.copies->run.bytes);
    out.varint(note.copies->step);
    out.varint(note.copies->number);
  }

  ByteVector encoded;
  ByteWriter whole(encoded);
  whole.le32(kNoteMagic);
  whole.le32(crc32c(body));
  whole.le32(static_cast<uint32_t>(body.size()));
  whole.bytes(body);
  return encoded;
}

Result<NodeNote> decode_node_note(ByteSpan raw) {
  ByteReader whole(raw);
  VARVE_ASSIGN(const uint32_t magic, whole.le32());
  VARVE_ASSIGN(const uint32_t crc, whole.le32());
  VARVE_ASSIGN(const uint32_t bytes, whole.le32());
  if (magic != kNoteMagic) return Status::corrupt("it is no note of a run, or of another version");
  VARVE_ASSIGN(const ByteSpan body, whole.bytes(bytes));
  if (crc32c(body) != crc) return Status::corrupt("a run's note does not have its checksum");
  ByteReader in(body);
  NodeNote note;
  VARVE_ASSIGN(note.run, UniqueId::read(in));
  VARVE_TRY(get_number(in, note.rank_count));
  for (std::string* text : {&note.job, &note.levels, &note.node}) VARVE_TRY(get_text(in, *text));
  VARVE_TRY(get_number(in, note.node_ordinal));
  VARVE_TRY(get_number(in, note.node_count));
  for (std::string* text : {&note.key_file, &note.s3_endpoint, &note.scheme, &note.codec})
    VARVE_TRY(get_text(in, *text));
  VARVE_ASSIGN(const uint64_t group_count, in.count(4));
  for (uint64_t i = 0; i < group_count; ++i) {
    VARVE_ASSIGN(NodeNote::Group group, get_group(in));
    note.groups.push_back(std::move(group));
  }
  VARVE_ASSIGN(const uint64_t folder_count, in.count());
  for (uint64_t i = 0; i < folder_count; ++i) VARVE_TRY(get_text(in, note.spill_folders.emplace_back()));
  // Notes of earlier versions end here.
  uint64_t earlier_count = 0;
  if (!in.at_end()) {
    VARVE_ASSIGN(earlier_count, in.count(sizeof(UniqueId) + 2));
  }
  for (uint64_t i = 0; i < earlier_count; ++i) {
    NodeNote::Earlier& one = note.earlier.emplace_back();
    VARVE_ASSIGN(one.run, UniqueId::read(in));
    VARVE_ASSIGN(one.last_step, in.varint());
    VARVE_ASSIGN(one.last_number, in.varint());
  }
  if (!in.at_end()) {
    VARVE_ASSIGN(note.first_number, in.varint());
  }
  uint8_t has_copies = 0;
  if (!in.at_end()) {
    VARVE_ASSIGN(has_copies, in.u8());
  }
  if (has_copies != 0) {
    CheckpointId& copies = note.copies.emplace();
    VARVE_ASSIGN(copies.run, UniqueId::read(in));
    VARVE_ASSIGN(copies.step, in.varint());
    VARVE_ASSIGN(copies.number, in.varint());
  }
  if (!in.at_end() || note.rank_count == 0 || note.node_ordinal >= note.node_count)
    return Status::corrupt("a run's note contradicts itself");
  return note;
}

namespace {
Status remove_if_there(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Status::from_errno(errno, "remove", path);
}
/// Where there is no memory for another one: what the note takes is there already.
Status write_over(const std::string& path, ByteSpan encoded) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  const ssize_t written = ::pwrite(file.get(), encoded.data(), encoded.size(), 0);
  if (written == static_cast<ssize_t>(encoded.size())) return {};
  return Status::from_errno(written < 0 ? errno : ENOSPC, "write", path);
}
}  // namespace

Status write_node_note(const SegmentOwner& speaker, const NodeNote& note) {
  const ByteVector encoded = encode_node_note(note);
  const std::string path = path_on_machine(speaker.path(kNoteName));
  const std::string draft = path_on_machine(speaker.path(kDraftName));
  Status written = remove_if_there(draft);
  if (written.ok()) {
    written = SharedSegment::create(speaker.path(kDraftName), encoded.size(), [&](MutableByteSpan into) {
                std::copy(encoded.begin(), encoded.end(), into.begin());
              }).status();
  }
  if (written.ok() && ::rename(draft.c_str(), path.c_str()) != 0) written = Status::from_errno(errno, "name", path);
  if (written.ok() || write_over(path, encoded).ok()) return {};
  remove_if_there(path).ignore("what is told is that there is no new one");
  return written;
}

Status remove_node_note(const SegmentOwner& speaker) {
  return remove_if_there(path_on_machine(speaker.path(kNoteName)));
}

// Finding them

namespace {
struct FolderEnd {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

/// The family of a file "varve-USER-KEY-...", of this user.
std::optional<SegmentFamily> family_of(const std::string& folder, std::string_view file_name) {
  const std::string prefix = "varve-" + std::to_string(::getuid()) + "-";
  constexpr size_t kKeyDigits = 16;
  if (!file_name.starts_with(prefix) || file_name.size() < prefix.size() + kKeyDigits + 1) return std::nullopt;
  if (file_name[prefix.size() + kKeyDigits] != '-') return std::nullopt;
  return SegmentFamily{folder, static_cast<uint32_t>(::getuid()),
                       std::string(file_name.substr(prefix.size(), kKeyDigits))};
}

Result<NodeNote> read_note(const SegmentOwner& speaker, int64_t& written_ns) {
  const std::string path = speaker.path(kNoteName);
  struct stat status {};
  if (::stat(path_on_machine(path).c_str(), &status) != 0) return Status::from_errno(errno, "look at", path);
  if (static_cast<uint64_t>(status.st_size) > kNoteSegmentBytesMax)
    return Status::corrupt("a run's note is too long", path);
  written_ns = static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  VARVE_ASSIGN(const SharedSegment segment, SharedSegment::open(path, SharedSegment::Access::read));
  Result<NodeNote> note = decode_node_note(segment.bytes());
  return note.ok() ? note : note.status().with_context(path);
}
}  // namespace

Result<std::vector<FoundNote>> find_node_notes(const std::string& folder, std::vector<Status>& damaged) {
  const std::unique_ptr<DIR, FolderEnd> open(::opendir(path_on_machine(folder).c_str()));
  if (!open) return Status::from_errno(errno, "list", folder);
  std::vector<FoundNote> found;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());  // NOLINT(concurrency-mt-unsafe): one thread has the folder
    if (entry == nullptr) break;
    const std::optional<SegmentFamily> family = family_of(folder, entry->d_name);
    const std::optional<SegmentName> name = family ? parse_segment_name(*family, entry->d_name) : std::nullopt;
    if (!name || name->what != kNoteName) continue;
    FoundNote one{{*family, name->run, name->rank}, {}, 0};
    Result<NodeNote> note = read_note(one.speaker, one.written_ns);
    // One that is gone by now, or another user's, is none of ours.
    if (note.status().code() == StatusCode::not_found || note.status().code() == StatusCode::permission_denied)
      continue;
    if (!note.ok()) {
      damaged.push_back(note.status());
      continue;
    }
    one.note = std::move(*note);
    one.speaker.family.spill_folders = one.note.spill_folders;
    found.push_back(std::move(one));
  }
  if (errno != 0) return Status::from_errno(errno, "list", folder);
  return found;
}

// The lock

namespace {
std::string lock_path(const SegmentFamily& family) {
  return path_on_machine(family.folder + "/" + family.file_prefix() + "drain");
}

/// Whether the file that is open is still the one of this name: who had it before may have removed it.
/// Somebody else's keeps nobody from anything.
bool is_of_this_user(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
}

bool is_file_of_name(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}
}  // namespace

Result<std::optional<NodeDrainLock>> NodeDrainLock::try_take(const SegmentFamily& family) {
  const std::string path = lock_path(family);
  for (;;) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) return Status::from_errno(errno, "open", path);
    if (!is_of_this_user(file.get()))
      return Status(StatusCode::permission_denied, "somebody else has put a file in the place of this user's", path,
                    "have it removed");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<NodeDrainLock>();
      if (errno == EINTR) continue;
      return Status::from_errno(errno, "lock", path);
    }
    if (is_file_of_name(file.get(), path)) return std::optional(NodeDrainLock(path, std::move(file)));
  }
}

NodeDrainLock::~NodeDrainLock() {
  // While it is still locked, so that nobody else's file is removed.
  if (file_.valid()) ::unlink(path_.c_str());
}

bool NodeDrainLock::is_taken(const SegmentFamily& family) {
  const UniqueFd file(::open(lock_path(family).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return file.valid() && is_of_this_user(file.get()) && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK;
}

}  // namespace varve
