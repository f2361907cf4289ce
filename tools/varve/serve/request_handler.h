#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "core/sync.h"
#include "serve/gather_service.h"
#include "serve/key_share.h"
#include "serve/request_counters.h"
#include "serve/rights.h"
#include "serve/served_folder.h"
#include "service/protocol.h"
#include "store/chunk_index.h"
#include "varve/status.h"

namespace varve {

/// The outcomes of requests that must not be carried out twice, for clients that lost the connection before the answer
/// (PROTOCOL.md, "What is repeated"). Lives as long as the server's process. Thread-safe.
class RequestLog {
 public:
  /// To any request with a token.
  using AnyReply = std::variant<Reply<NoFields>, Reply<OpenedFile>, Reply<TransferNumbers>>;
  /// Gives the outcome of the request with this token: waits for it if it is being carried out, remembers it if it was,
  /// and otherwise carries it out with `act`. If that throws, nothing is remembered, as after a restart.
  AnyReply once(const UniqueId& token, const std::function<AnyReply()>& act);

  /// The same of what takes so long that no thread of a client may wait for it, once somebody watches it. `begin` has
  /// another thread carry the request out, which calls finish() then; if it fails, that is the outcome.
  void begin(const UniqueId& token, const std::function<Status()>& begin);
  void finish(const UniqueId& token, const Result<TransferNumbers>& outcome);
  /// Who waits for the outcome of a request.
  class Watch {
   public:
    /// `news`: that outcome() may be there. Called with a lock by the thread that ends the request, and not any more
    /// once this is gone: it must not wait, nor call anything here.
    Watch(RequestLog& log, const UniqueId& token, std::function<void()> news);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    /// Nothing: it is at work.
    std::optional<AnyReply> outcome() const;

   private:
    RequestLog& log_;
    const std::multimap<UniqueId, std::function<void()>>::iterator place_;
  };

 private:
  struct Entry {
    bool done = false;
    bool is_watched = false;  ///< by those who want it, and nobody waits for it with a thread
    AnyReply reply;
  };
  struct Ended {
    UniqueId token;
    Moment at;
  };
  /// Nothing: it is at work.
  std::optional<AnyReply> find(const UniqueId& token) const VARVE_REQUIRES(mutex_);
  void note(const UniqueId& token, const AnyReply& reply);
  void forget(const UniqueId& token);
  void tell(const UniqueId& token) VARVE_REQUIRES(mutex_);
  std::multimap<UniqueId, std::function<void()>>::iterator add_watch(const UniqueId& token, std::function<void()> news);

  mutable Mutex mutex_;  ///< not held while a request is carried out
  ConditionVariable changed_;
  std::unordered_map<UniqueId, Entry, UniqueIdHash> entries_ VARVE_GUARDED_BY(mutex_);
  std::deque<Ended> oldest_ VARVE_GUARDED_BY(mutex_);                                ///< first
  std::multimap<UniqueId, std::function<void()>> watches_ VARVE_GUARDED_BY(mutex_);  ///< by token: who wants news
};

/// Which syncs of folders have failed: who repeats the request, since he did not get the answer, must not be told of
/// the success of a second sync, which proves nothing, whoever asked for it. Thread-safe.
class FolderSyncs {
 public:
  void note_failure(const std::string& path, const Status& failure) {
    const MutexLock lock(mutex_);
    failed_.insert_or_assign(path, Failure{failure, MonotonicClock::now()});
  }
  /// Why a sync of the folder has failed, if one has within the time for which clients repeat a request.
  Status last_failure(const std::string& path) {
    constexpr std::chrono::minutes kept(10);
    const MutexLock lock(mutex_);
    const auto failed = failed_.find(path);
    if (failed == failed_.end()) return {};
    if (MonotonicClock::now() - failed->second.when <= kept) return failed->second.status;
    failed_.erase(failed);
    return {};
  }

 private:
  struct Failure {
    Status status;
    MonotonicClock::time_point when;
  };
  Mutex mutex_;
  std::map<std::string, Failure> failed_ VARVE_GUARDED_BY(mutex_);  ///< folders of a store, of which few fail
};

/// What all connections of a server work on.
struct ServedStore {
  ServedStore(ServedFiles& served, const UniqueId& run) : folder(served), files(run), server(run) {}

  ServedFiles& folder;
  OpenFiles files;
  OwnNames own;
  FolderSyncs syncs;
  RequestCounters counters;
  RequestLog log;
  ChunkLookup* chunks = nullptr;  ///< null: nothing is known
  /// Is told that a set, or a part of one, was committed, or that an index run came.
  std::function<void()> committed = [] {};
  /// Begins a push or pull, as NextLevel::begin(). Null: there is no next level.
  std::function<Status(TransferDirection, const SetTransfer&, NextLevel::Done)> transfer;
  GatherService* gather = nullptr;  ///< null: sets are not gathered
  const UniqueId server;            ///< this run of it
  UniqueId boot;
  uint64_t connections_max = 0;
};

/// Memory for the data of one message, of whoever carries requests out; there from the first such message on.
class DataBuffer {
 public:
  /// `bytes` bytes of it; null if there is no memory.
  std::byte* get(size_t bytes);

 private:
  AlignedBlock block_;
};

/// Carries out the requests of one connection, one at a time.
class RequestHandler {
 public:
  /// `admit` says whether a client that says hello may stay. `news`: that go_on() may have the answer that it had not;
  /// called by other threads, also while a request is carried out.
  RequestHandler(ServedStore& store, KeyShare& share, std::function<Status()> admit, std::function<void()> news)
      : store_(store), share_(share), rights_(share.rights()), admit_(std::move(admit)), news_(std::move(news)) {}
  ~RequestHandler();
  RequestHandler(const RequestHandler&) = delete;
  RequestHandler& operator=(const RequestHandler&) = delete;

  struct Answer {
    ByteVector fields;
    bool waits = false;                   ///< there is none yet, and no request may come before there is: see go_on()
    ByteSpan data;                        ///< in the buffer, or in `stored`
    std::vector<DirectoryEntry> entries;  ///< list: to be sent as data
    ByteVector stored;
    /// The file that was opened, whose descriptor may go with the reply. Null: there is none; or the client has not all
    /// rights, and so may do with files only what passes here.
    std::shared_ptr<OpenFiles::OpenFile> file;
  };
  /// `data` are those of the request, maybe in `buffer`, where the answer's may be, too. Waits for nothing that only
  /// another request can bring.
  Answer handle(const Request& request, ByteSpan data, DataBuffer& buffer);
  /// The answer to a request that had none yet, or still none.
  Answer go_on();
  bool greeted() const { return greeted_; }

 private:
  /// What belongs to a request beside its fields, and to its answer.
  struct Exchange {
    const bool again;
    const ByteSpan data;
    DataBuffer& buffer;
    Answer& answer;
  };
  template <class Message>
  ReplyTo<Message> carry_out(const Message& message, Exchange& exchange);

  Reply<ServerFacts> act(const HelloRequest& request, Exchange& exchange);
  Reply<NoFields> act(const PingRequest&, Exchange&) { return {}; }
  Reply<NoFields> act(const GoodbyeRequest&, Exchange&) { return {}; }
  Reply<OpenedFile> act(const OpenRequest& request, Exchange& exchange);
  Reply<OpenedFile> act(const CreateRequest& request, Exchange& exchange);
  Reply<OpenedFile> act(const ResumeRequest& request, Exchange& exchange);
  ReplyTo<ReadRequest> act(const ReadRequest& request, Exchange& exchange);
  Reply<NoFields> act(const WriteRequest& request, Exchange& exchange);
  Reply<NoFields> act(const TruncateRequest& request, Exchange& exchange);
  Reply<NoFields> act(const SyncRequest& request, Exchange& exchange);
  Reply<ByteCount> act(const SizeRequest& request, Exchange& exchange);
  Reply<NoFields> act(const CloseRequest& request, Exchange& exchange);
  Reply<FoundFile> act(const StatRequest& request, Exchange& exchange);
  Reply<FolderEntries> act(const ListRequest& request, Exchange& exchange);
  Reply<NoFields> act(const CreateDirectoryRequest& request, Exchange& exchange);
  Reply<NoFields> act(const RemoveRequest& request, Exchange& exchange);
  Reply<NoFields> act(const RemoveDirectoryRequest& request, Exchange& exchange);
  Reply<NoFields> act(const RenameRequest& request, Exchange& exchange);
  Reply<NoFields> act(const TouchRequest& request, Exchange& exchange);
  Reply<NoFields> act(const SyncDirectoryRequest& request, Exchange& exchange);
  ReplyTo<FindRequest> act(const FindRequest& request, Exchange& exchange);
  Reply<TransferNumbers> act(const PushRequest& request, Exchange& exchange);
  Reply<TransferNumbers> act(const PullRequest& request, Exchange& exchange);
  Reply<NoFields> act(const OfferRequest& request, Exchange& exchange);
  Reply<FileQuestion> act(const AnswerRequest& request, Exchange& exchange);
  Reply<ByteCount> act(const RoomRequest& request, Exchange& exchange);

  /// `writer`: of a file that is being written.
  Reply<OpenedFile> open(Result<ServedFile> file, const UniqueId* writer);
  /// The file that an earlier try of a `create` has made; `taken` if it may be another's.
  Result<ServedFile> adopt(const CreateRequest& request, const Status& taken);
  Reply<NoFields> remove(const std::string& path, bool again, Status (ServedFiles::*from_folder)(const std::string&));
  /// A rename that gives the store its header, or says which place of a store this is: only what fits may get that
  /// name.
  Status check_new_header(const RenameRequest& request) const;
  /// What may not become what it is to be named.
  Status check_new_name(const RenameRequest& request) const;
  /// Of a rename that failed with `failure`, and was sent before, to a server that is gone.
  Reply<NoFields> was_renamed(const RenameRequest& request, const Status& failure) const;
  Reply<TransferNumbers> transfer(TransferDirection direction, const UniqueId& token, const SetTransfer& what,
                                  Exchange& exchange);
  /// permission_denied unless this client has made the file, and it is not complete yet.
  Status check_own(const std::string& path) const;
  Result<ByteVector> read_small(const std::string& path, uint64_t bytes_max = 4096) const;
  template <class Act>
  auto with_file(uint64_t handle, const Act& act) -> decltype(act(std::declval<File&>()));
  /// The connection's part in a set that is gathered. unsupported: sets are not gathered.
  Result<OfferIntake*> intake();

  ServedStore& store_;
  KeyShare& share_;
  const Rights rights_;
  const std::function<Status()> admit_;
  const std::function<void()> news_;
  UniqueId client_;
  /// A push or pull of this client that is at work.
  struct Transfer {
    Transfer(RequestLog& log, const UniqueId& token, const std::function<void()>& news) : watch(log, token, news) {}
    RequestLog::Watch watch;
    size_t kind = 0;  ///< in AnyRequest
    Moment begun{};
  };
  std::optional<Transfer> transfer_;
  std::unique_ptr<OfferIntake> intake_;  ///< once something is offered
  bool greeted_ = false;
};

}  // namespace varve
