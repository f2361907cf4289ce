#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/file_system.h"
#include "core/process.h"
#include "core/unique_id.h"
#include "service/fields.h"

namespace varve {

enum class Outcome : uint8_t {
  done = 0,
  failed = 1,          ///< `status` says why
  unknown_handle = 2,  ///< the server was restarted, or has closed the file: open it anew
  cannot_tell = 3,     ///< what was sent before may have been done or not, and there is no telling
};

/// How a request came out.
struct ReplyHead {
  Outcome outcome = Outcome::done;
  Status status = {};  ///< of a failure; without a subject, which the client knows better
};

/// What a server says to a request; `fields` only if it is done.
template <class Fields>
struct Reply : ReplyHead {
  Reply() = default;
  explicit Reply(ReplyHead head) : ReplyHead(std::move(head)) {}
  Reply(Outcome how) : ReplyHead{how} {}
  Reply(Status how) : ReplyHead{how.ok() ? Outcome::done : Outcome::failed, how} {}
  Reply(Fields what) : fields(std::move(what)) {}
  Reply(Result<Fields> what) : Reply(what.status()) {
    if (what.ok()) fields = *std::move(what);
  }

  void visit(auto& list) {
    list.choice(outcome, Outcome::cannot_tell);
    if (outcome == Outcome::failed) list.failure(status);
    if (outcome == Outcome::done) list(fields);
  }

  Fields fields;
};

// What is said when it is done. Each lists its fields in `visit`, in the order in which they are sent (PROTOCOL.md,
// "Messages"). Of `answer` it is a FileQuestion.

inline constexpr size_t kReadRangesMax = 1024;
inline constexpr size_t kFindPrefixesMax = 8192;
inline constexpr size_t kFindCandidatesMax = 4;  ///< of one prefix
inline constexpr size_t kCandidateBytes = 24;    ///< id | ordinal of the pack u32 | ordinal of the chunk u32

struct NoFields {
  void visit(auto&) {}
};

/// Of `hello`: who the server is.
struct ServerFacts {
  UniqueId server = {};      ///< this run of it
  UniqueId boot = {};        ///< this run of its machine
  uint64_t connections = 0;  ///< that it takes at most
  void visit(auto& fields) { fields(server, boot, connections); }
};

/// Which file it is, whatever its name: so that one is known again after a connection was lost.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t born_ns = 0;  ///< 0: the file system does not say, and so two files cannot be told apart for certain
  bool operator==(const FileIdentity&) const = default;
  bool certain() const { return born_ns != 0; }
  void visit(auto& fields) { fields(device, inode, born_ns); }
};

struct OpenedFile {
  uint64_t handle = 0;
  uint64_t bytes = 0;
  FileIdentity identity = {};
  /// The file itself, over a Unix socket; not a field, but beside the frame. Null: none came.
  std::shared_ptr<UniqueFd> descriptor = {};
  void visit(auto& fields) { fields(handle, bytes, identity); }
};

/// Of each range that was read, its bytes; of each prefix that was looked for, its candidates.
template <size_t kCountMax>
struct Counts {
  std::vector<uint64_t> counts;
  void visit(auto& fields) { fields.list(counts, kCountMax); }
};

struct ByteCount {
  uint64_t bytes = 0;
  void visit(auto& fields) { fields(bytes); }
};

struct FoundFile {
  FileStatus status;
  FileIdentity identity;
  void visit(auto& fields) {
    fields(status.bytes, status.allocated_bytes, status.modified_ns, status.is_directory, identity);
  }
};

struct FolderEntries {
  std::vector<DirectoryEntry> entries;  ///< no field: they are the data
  void visit(auto&) {}
};

/// What a push or pull came to; PROTOCOL.md, "push and pull".
struct TransferNumbers {
  uint64_t was_there = 0, sent_packs = 0, sent_nodes = 0, sent_bytes = 0, held_packs = 0, held_bytes = 0;
  uint64_t recoded_packs = 0, recoded_from_bytes = 0, recoded_to_bytes = 0, unchecked_packs = 0;
  bool operator==(const TransferNumbers&) const = default;
  void visit(auto& fields) {
    fields(was_there, sent_packs, sent_nodes, sent_bytes, held_packs, held_bytes);
    fields(recoded_packs, recoded_from_bytes, recoded_to_bytes, unchecked_packs);
  }
};

}  // namespace varve
