#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/file_system.h"
#include "core/process.h"
#include "core/unique_id.h"
#include "service/node_files.h"
#include "service/wire.h"

namespace varve {

/// What can be asked of a server (PROTOCOL.md, "Messages"). Numbers are never reused.
enum class Message : uint8_t {
  hello = 1,
  ping = 2,
  goodbye = 3,
  open = 4,
  create = 5,
  resume = 6,
  read = 7,
  write = 8,
  truncate = 9,
  sync = 10,
  size = 11,
  close = 12,
  stat = 13,
  list = 14,
  create_directory = 15,
  remove = 16,
  remove_directory = 17,
  rename = 18,
  touch = 19,
  sync_directory = 20,
  find = 21,
  push = 22,
  pull = 23,
  offer = 24,
  answer = 25,
  room = 26,
};
/// Nothing for a number that this version does not know.
std::optional<Message> message_of(uint8_t number);

inline constexpr size_t kServedPathBytesMax = 1024;
inline constexpr size_t kReadRangesMax = 1024;
inline constexpr size_t kFindPrefixesMax = 8192;
inline constexpr size_t kFindCandidatesMax = 4;  ///< of one prefix
inline constexpr size_t kCandidateBytes = 24;    ///< id | ordinal of the pack u32 | ordinal of the chunk u32

/// Which file it is, whatever its name: so that one is known again after a connection was lost.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t born_ns = 0;  ///< 0: the file system does not say, and so two files cannot be told apart for certain
  bool operator==(const FileIdentity&) const = default;
  bool certain() const { return born_ns != 0; }
};

struct ReadRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// A request: only the fields of its message are sent (PROTOCOL.md).
struct Request {
  Message message = Message::ping;
  bool again = false;  ///< may have reached the server before
  uint64_t number = 0;

  UniqueId client;  ///< hello: whose open files are shared by all its connections
  UniqueId token;   ///< of what must not happen twice; create, resume: names the file's writer
  std::string path, to;
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::vector<ReadRange> ranges;
  FileIdentity identity;
  bool direct = false;
  bool replace = false;
  bool check_held = false;      ///< push, pull: TransferOptions
  std::string recode;           ///< push, pull: a codec policy; empty: none
  double bytes_per_second = 0;  ///< push, pull; 0: no limit
  uint64_t prefix_count = 0;    ///< find: the data are so many u64
  std::string node;             ///< offer
  uint64_t node_count = 0;      ///< offer: of the set
  Status failure;               ///< answer: why the question has none; OK: it has
};

/// Whether a request changes something in a way that must not happen twice, so that it carries a token.
bool needs_token(Message message);

ByteVector encode_request_fields(const Request& request);
/// `header` has no flag of a reply. corrupt: a message that is unknown, or fields that are not its own.
Result<Request> decode_request(const WireHeader& header, ByteSpan fields);

enum class Outcome : uint8_t {
  done = 0,
  failed = 1,          ///< `status` says why
  unknown_handle = 2,  ///< the server was restarted, or has closed the file: open it anew
  cannot_tell = 3,     ///< what was sent before may have been done or not, and there is no telling
};

/// What a push or pull came to; PROTOCOL.md, "push and pull".
struct TransferNumbers {
  uint64_t was_there = 0, sent_packs = 0, sent_nodes = 0, sent_bytes = 0, held_packs = 0, held_bytes = 0;
  uint64_t recoded_packs = 0, recoded_from_bytes = 0, recoded_to_bytes = 0, unchecked_packs = 0;
  bool operator==(const TransferNumbers&) const = default;
};

/// A reply; again only the fields of its message are sent.
struct Reply {
  Outcome outcome = Outcome::done;
  Status status;  ///< of a failure; without a subject, which the client knows better

  UniqueId server;           ///< hello: this run of the server
  UniqueId boot;             ///< hello: this run of its machine
  uint64_t connections = 0;  ///< hello: that it takes at most
  uint64_t handle = 0;
  FileIdentity identity;
  FileStatus file;               ///< stat; open, create, resume: its size only
  std::vector<uint64_t> counts;  ///< read: bytes of each range; find: candidates of each prefix
  TransferNumbers transfer;
  uint64_t free_bytes = 0;  ///< room
  FileQuestion question;    ///< answer: the next one
  /// open, create, resume: the file itself, over a Unix socket; not a field, but beside the frame. Null: none came.
  std::shared_ptr<UniqueFd> descriptor;
};

ByteVector encode_reply_fields(Message message, const Reply& reply);
Result<Reply> decode_reply(Message message, ByteSpan fields);

/// Entries of a folder, as the data of a reply to `list`: u8 whether it is a directory | text, one after another.
void append_entry(ByteVector& out, const DirectoryEntry& entry);
Status decode_entries(ByteSpan data, std::vector<DirectoryEntry>& entries);

}  // namespace varve
