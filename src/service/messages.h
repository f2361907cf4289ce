#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/unique_id.h"
#include "service/fields.h"
#include "service/node_files.h"
#include "service/replies.h"

// What can be asked of a server, a type for each message (PROTOCOL.md, "Messages"). Each lists its fields in `visit`,
// in the order in which they are sent.

namespace varve {

struct ReadRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  void visit(auto& fields) { fields(offset, bytes); }
};

/// Between a server's store and that of its next level.
enum class TransferDirection : uint8_t { push, pull };

/// What is pushed or pulled, and how; PROTOCOL.md, "push and pull".
struct SetTransfer {
  std::string set;              ///< JOB@STEP
  std::string recode;           ///< a codec policy; empty: packs stay as they are
  bool check_held = false;      ///< TransferOptions
  double bytes_per_second = 0;  ///< 0: no limit
  void visit(auto& fields) {
    constexpr size_t recode_bytes_max = 200;
    fields(set);
    fields.text(recode, recode_bytes_max);
    fields(check_held, bytes_per_second);
  }
};

/// What there is to know of a message beside its fields. A request that has a `token` must not be carried out twice.
struct MessageFacts {
  uint8_t number = 0;           ///< never reused
  bool looks_only = false;      ///< who may only read may ask it
  bool changes_names = false;   ///< those of `path`, and of `to`, if there is one
  bool takes_data = false;      ///< the request has data
  bool takes_long = false;      ///< the server gives signs of life while it is at work
  bool waits_for_disk = false;  ///< and so may take longer than others
};

struct HelloRequest {
  static constexpr MessageFacts kMessage{.number = 1, .looks_only = true};
  using ReplyFields = ServerFacts;
  UniqueId client;  ///< whose open files are shared by all its connections
  void visit(auto& fields) { fields(client); }
};

struct PingRequest {
  static constexpr MessageFacts kMessage{.number = 2, .looks_only = true};
  using ReplyFields = NoFields;
  void visit(auto&) {}
};

struct GoodbyeRequest {
  static constexpr MessageFacts kMessage{.number = 3, .looks_only = true};
  using ReplyFields = NoFields;
  void visit(auto&) {}
};

struct OpenRequest {
  static constexpr MessageFacts kMessage{.number = 4, .looks_only = true};
  using ReplyFields = OpenedFile;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct CreateRequest {
  static constexpr MessageFacts kMessage{.number = 5, .changes_names = true};
  using ReplyFields = OpenedFile;
  UniqueId token = {};
  std::string path;
  bool direct = false;
  void visit(auto& fields) { fields(token, path, direct); }
};

struct ResumeRequest {
  static constexpr MessageFacts kMessage{.number = 6};
  using ReplyFields = OpenedFile;
  UniqueId writer = {};  ///< the token of its `create`
  std::string path;
  bool direct = false;
  FileIdentity identity = {};
  void visit(auto& fields) { fields(writer, path, direct, identity); }
};

struct ReadRequest {
  static constexpr MessageFacts kMessage{.number = 7, .looks_only = true};
  using ReplyFields = Counts<kReadRangesMax>;
  uint64_t handle = 0;
  std::vector<ReadRange> ranges;
  void visit(auto& fields) {
    fields(handle);
    fields.list(ranges, kReadRangesMax);
  }
};

struct WriteRequest {
  static constexpr MessageFacts kMessage{.number = 8, .takes_data = true, .waits_for_disk = true};
  using ReplyFields = NoFields;
  uint64_t handle = 0;
  uint64_t offset = 0;
  void visit(auto& fields) { fields(handle, offset); }
};

struct TruncateRequest {
  static constexpr MessageFacts kMessage{.number = 9, .waits_for_disk = true};
  using ReplyFields = NoFields;
  uint64_t handle = 0;
  uint64_t bytes = 0;
  void visit(auto& fields) { fields(handle, bytes); }
};

struct SyncRequest {
  static constexpr MessageFacts kMessage{.number = 10, .waits_for_disk = true};
  using ReplyFields = NoFields;
  uint64_t handle = 0;
  void visit(auto& fields) { fields(handle); }
};

struct SizeRequest {
  static constexpr MessageFacts kMessage{.number = 11, .looks_only = true};
  using ReplyFields = ByteCount;
  uint64_t handle = 0;
  void visit(auto& fields) { fields(handle); }
};

struct CloseRequest {
  static constexpr MessageFacts kMessage{.number = 12, .looks_only = true};
  using ReplyFields = NoFields;
  uint64_t handle = 0;
  void visit(auto& fields) { fields(handle); }
};

struct StatRequest {
  static constexpr MessageFacts kMessage{.number = 13, .looks_only = true};
  using ReplyFields = FoundFile;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct ListRequest {
  static constexpr MessageFacts kMessage{.number = 14, .looks_only = true};
  using ReplyFields = FolderEntries;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct CreateDirectoryRequest {
  static constexpr MessageFacts kMessage{.number = 15, .changes_names = true};
  using ReplyFields = NoFields;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct RemoveRequest {
  static constexpr MessageFacts kMessage{.number = 16, .changes_names = true};
  using ReplyFields = NoFields;
  UniqueId token = {};
  std::string path;
  void visit(auto& fields) { fields(token, path); }
};

struct RemoveDirectoryRequest {
  static constexpr MessageFacts kMessage{.number = 17, .changes_names = true};
  using ReplyFields = NoFields;
  UniqueId token = {};
  std::string path;
  void visit(auto& fields) { fields(token, path); }
};

struct RenameRequest {
  static constexpr MessageFacts kMessage{.number = 18, .changes_names = true};
  using ReplyFields = NoFields;
  UniqueId token = {};
  std::string path, to;
  bool replace = false;
  FileIdentity identity = {};
  void visit(auto& fields) { fields(token, path, to, replace, identity); }
};

struct TouchRequest {
  static constexpr MessageFacts kMessage{.number = 19};
  using ReplyFields = NoFields;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct SyncDirectoryRequest {
  static constexpr MessageFacts kMessage{.number = 20, .waits_for_disk = true};
  using ReplyFields = NoFields;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

struct FindRequest {
  static constexpr MessageFacts kMessage{.number = 21, .looks_only = true, .takes_data = true};
  using ReplyFields = Counts<kFindPrefixesMax>;
  uint64_t prefix_count = 0;  ///< the data are so many u64
  void visit(auto& fields) { fields(prefix_count); }
};

struct PushRequest {
  static constexpr MessageFacts kMessage{.number = 22, .takes_long = true};
  using ReplyFields = TransferNumbers;
  UniqueId token = {};
  SetTransfer what = {};
  void visit(auto& fields) { fields(token, what); }
};

struct PullRequest {
  static constexpr MessageFacts kMessage{.number = 23, .takes_long = true};
  using ReplyFields = TransferNumbers;
  UniqueId token = {};
  SetTransfer what = {};
  void visit(auto& fields) { fields(token, what); }
};

struct OfferRequest {
  static constexpr MessageFacts kMessage{.number = 24, .takes_data = true};
  using ReplyFields = NoFields;
  std::string set, node;
  uint64_t node_count = 0;  ///< of the set
  uint64_t offset = 0;      ///< of this piece
  uint64_t bytes = 0;       ///< of the whole offer
  void visit(auto& fields) { fields(set, node, node_count, offset, bytes); }
};

struct AnswerRequest {
  static constexpr MessageFacts kMessage{.number = 25, .takes_data = true, .takes_long = true};
  using ReplyFields = FileQuestion;
  Status failure = {};  ///< why the question has no answer; OK: it has
  uint64_t hole_bytes = 0;
  void visit(auto& fields) { fields(failure, hole_bytes); }
};

struct RoomRequest {
  static constexpr MessageFacts kMessage{.number = 26, .looks_only = true};
  using ReplyFields = ByteCount;
  std::string path;
  void visit(auto& fields) { fields(path); }
};

using AnyRequest =
    std::variant<HelloRequest, PingRequest, GoodbyeRequest, OpenRequest, CreateRequest, ResumeRequest, ReadRequest,
                 WriteRequest, TruncateRequest, SyncRequest, SizeRequest, CloseRequest, StatRequest, ListRequest,
                 CreateDirectoryRequest, RemoveRequest, RemoveDirectoryRequest, RenameRequest, TouchRequest,
                 SyncDirectoryRequest, FindRequest, PushRequest, PullRequest, OfferRequest, AnswerRequest, RoomRequest>;

template <class Message>
using ReplyTo = Reply<typename Message::ReplyFields>;

/// Calls `act` with an empty request of each message.
template <class Act>
void for_each_message(const Act& act) {
  auto call_each = [&act]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (act(std::variant_alternative_t<kIndex, AnyRequest>()), ...);
  };
  call_each(std::make_index_sequence<std::variant_size_v<AnyRequest>>());
}

/// Whether a request must not be carried out twice.
template <class Message>
inline constexpr bool kHasToken = requires(Message message) {
  message.token;
};

}  // namespace varve
