#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/progress.h"
#include "core/sync.h"
#include "engine/source.h"
#include "serve/offer.h"
#include "service/location.h"
#include "service/node_files.h"
#include "service/protocol.h"

namespace varve {

/// A group's files that lie on several nodes. Small reads are made of windows, which are kept: the schemes go through
/// all files again and again, a variable at a time, and a question costs a round trip.
class NodeSource final : public Source {
 public:
  struct Place {
    std::shared_ptr<NodeFiles> node;
    uint64_t file = 0;  ///< ordinal in the node's offer
  };
  /// `window_memory_bytes`: for windows, about.
  NodeSource(std::vector<SourceFile> files, std::vector<Layout> layouts, std::vector<Place> places,
             uint64_t window_memory_bytes);

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink&) override { return layouts_; }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override;
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  Status check_unchanged() override;

 private:
  using Key = std::pair<uint32_t, uint64_t>;  ///< file, ordinal of the window in it
  struct Window {
    ByteVector bytes;
    std::list<Key>::iterator used;
  };
  Result<const ByteVector*> window(const Key& key);

  const std::vector<SourceFile> files_;
  const std::vector<Layout> layouts_;
  const std::vector<Place> places_;
  const size_t windows_max_;
  std::map<Key, Window> windows_;
  std::list<Key> recently_used_;
};

class ServerLink;

/// Copies sets between a server's store and that of its next level, for clients who ask for it. One at a time, by a
/// thread of this, so that those who serve clients have others to serve, however long it takes. Thread-safe.
class NextLevel {
 public:
  using Done = std::function<void(const Result<TransferNumbers>&)>;

  /// `store` has the server's store, and outlives it.
  NextLevel(Backend& store, std::string location, ReachOptions reach)
      : backend_(store), location_(std::move(location)), reach_(std::move(reach)) {}
  ~NextLevel();  ///< stop(), wait()
  NextLevel(const NextLevel&) = delete;
  NextLevel& operator=(const NextLevel&) = delete;

  /// Begins a push or pull, and calls `done` with its outcome, from another thread: it must not wait, nor call anything
  /// here. busy: another one is at work.
  Status begin(TransferDirection direction, const SetTransfer& what, Done done);
  /// Ends a transfer at the next convenient point, and lets no other begin.
  void stop() { stopping_ = true; }
  /// Returns when none is at work any more. After stop().
  void wait();

 private:
  void run(TransferDirection direction, const SetTransfer& what, const Done& done) noexcept;
  Result<TransferNumbers> copy(TransferDirection direction, const SetTransfer& what);

  Backend& backend_;
  const std::string location_;
  const ReachOptions reach_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;  ///< not held while a set is copied
  bool at_work_ VARVE_GUARDED_BY(mutex_) = false;
  Thread thread_ VARVE_GUARDED_BY(mutex_);  ///< of the last transfer
};

/// Has a server copy a set to its next level, or from there. Fails as copy_set() does; unsupported: the server has no
/// next level.
Result<TransferNumbers> transfer_on_server(ServerLink& link, TransferDirection direction, const SetTransfer& what);

/// Only tells an operation when to end.
class StoppableProgress final : public ProgressSink {
 public:
  explicit StoppableProgress(const std::atomic<bool>& stopping) : stopping_(stopping) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return stopping_; }

 private:
  const std::atomic<bool>& stopping_;
};

struct GatherLimits {
  uint64_t memory_bytes = 512_MiB;    ///< of the engine, about
  uint64_t offers_bytes_max = 1_GiB;  ///< of memory for all offers that are at hand, about
  double wait_seconds = 600;          ///< how long a node waits for the others
  double offer_seconds = 300;         ///< how long an offer may take to come, if others need its room
  double rest_seconds_max = 600;      ///< how long nothing must have changed before the offers of all nodes are taken
};

class GatherService;
class UnfinishedOffer;

/// Memory that an offer may take, given back when this goes. One thread at a time.
class OfferRoom {
 public:
  OfferRoom() = default;  ///< of nobody: none may be taken
  explicit OfferRoom(GatherService& service) : service_(&service) {}
  OfferRoom(OfferRoom&& other) noexcept { *this = std::move(other); }
  OfferRoom& operator=(OfferRoom&& other) noexcept {
    std::swap(service_, other.service_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  OfferRoom(const OfferRoom&) = delete;
  OfferRoom& operator=(const OfferRoom&) = delete;
  ~OfferRoom() { give_back(); }

  /// Takes so many bytes more. busy: there is no room now; resource_limit: there never is as much for one offer.
  Status take(uint64_t bytes);
  void give_back();

 private:
  GatherService* service_ = nullptr;
  uint64_t bytes_ = 0;
};

/// A node's offer, as it came.
struct NodeOffer {
  SetName set;
  std::string node;
  uint64_t node_count = 0;  ///< of the set
  OfferedFiles files;
  OfferRoom room;  ///< that `files` take
};

/// Makes sets of what several nodes offer: mcrEngine's aggregator (section IV-A). When all nodes of a set are there, it
/// is saved to the server's own store by the engine that saves folders; groups may hold ranks of several nodes.
///
/// Files that a run left on one node when it was killed, and those of the run that goes over the same step again on
/// another, are not to be a set. So the offers lie until nothing has changed for as long as the nodes were done apart,
/// by their clocks and that of the server, which agree; and when they have been read, each is still as it was made, or
/// nothing is committed. Thread-safe.
class GatherService {
 public:
  /// `store` has the server's store, and outlives it.
  GatherService(Backend& store, const GatherLimits& limits, std::function<void(const std::string&)> log,
                const Clock& clock = steady_clock())
      : backend_(store), limits_(limits), log_(std::move(log)), clock_(clock) {}
  ~GatherService();  ///< stop()
  GatherService(const GatherService&) = delete;
  GatherService& operator=(const GatherService&) = delete;

  /// Room for an offer of so many bytes that is going to come. Fails as OfferRoom::take().
  Result<std::shared_ptr<UnfinishedOffer>> begin_offer(uint64_t bytes);
  /// Takes an offer up, and returns the node's place in the set; once all nodes have come, the set is saved by a thread
  /// of this. invalid_argument: other nodes see the set otherwise. busy: this node is there already, or comes too
  /// late.
  Result<std::shared_ptr<NodeFiles>> join(NodeOffer offer);
  /// That a node's connection has ended. Ends its set's saving, if that had begun.
  void leave(const std::shared_ptr<NodeFiles>& files);
  /// Ends what is being saved at the next convenient point, and what waits at once; nothing begins any more.
  void stop();

 private:
  friend class OfferRoom;
  struct Member {
    NodeOffer offer;
    std::shared_ptr<NodeFiles> files;
  };
  struct Gathering {
    std::vector<Member> members;
    Thread thread;  ///< waits for all nodes, then saves
    bool saving = false;
    bool ended = false;
  };

  /// Has offers give their room back that should be whole by now.
  void give_up_late_offers();
  static Status check_fits(const Gathering& gathering, const NodeOffer& offer);
  void run(const SetName& name, Gathering& gathering) noexcept;
  Status gather(const SetName& name, Gathering& gathering);
  Status wait_for_all(const SetName& name, Gathering& gathering);
  /// How long the offers of all nodes are to lie yet. Says so, if it is noticed.
  double rest_seconds(const SetName& name, const Gathering& gathering) const;
  Status save(const SetName& name, Gathering& gathering) VARVE_REQUIRES(saving_);
  /// Whether all nodes of the job wait, each for others, and no set is offered before this one: some of them lack it,
  /// and those that have it may have a later one, too.
  bool gives_way(const SetName& name, uint64_t node_count) const VARVE_REQUIRES(mutex_);
  void note_node(const NodeOffer& offer) VARVE_REQUIRES(mutex_);
  void reap() VARVE_REQUIRES(mutex_);

  Backend& backend_;
  const GatherLimits limits_;
  const std::function<void(const std::string&)> log_;
  const Status no_memory_ = Status::resource_limit("the server is out of memory");  ///< there is none to say so then
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> offers_bytes_{0};
  Mutex coming_mutex_;
  std::vector<std::weak_ptr<UnfinishedOffer>> coming_ VARVE_GUARDED_BY(coming_mutex_);
  Mutex saving_ VARVE_ACQUIRED_BEFORE(mutex_);  ///< one set at a time, so that memory is bounded
  Mutex mutex_;                                 ///< never held while saving_ is waited for
  ConditionVariable changed_;
  std::map<SetName, std::unique_ptr<Gathering>> gatherings_ VARVE_GUARDED_BY(mutex_);
  /// Those that have ever offered a set of a job, by its name.
  std::map<std::string, std::set<std::string>> nodes_of_jobs_ VARVE_GUARDED_BY(mutex_);
};

/// An offer that is still coming, piece by piece, in room that it has taken; after a while the room may be given to
/// others (GatherService::give_up_late_offers()). Thread-safe.
class UnfinishedOffer {
 public:
  /// `give_up_at`: of the service's clock.
  UnfinishedOffer(OfferRoom room, uint64_t bytes, double give_up_at)
      : bytes_(bytes), give_up_at_(give_up_at), room_(std::move(room)) {
    raw_.reserve(bytes);
  }

  uint64_t bytes() const { return bytes_; }
  /// How many have come.
  uint64_t size() const;
  /// The next bytes, no more than are lacking. busy: the offer was given up.
  Status append(ByteSpan piece);
  /// All that has come, with its room: nothing is left here.
  struct Whole {
    ByteVector raw;
    OfferRoom room;
  };
  Whole take();

  bool given_up() const;
  static Status too_late();
  /// Gives the room back if the time has come.
  void give_up_if_late(double now);

 private:
  const uint64_t bytes_;
  const double give_up_at_;
  mutable Mutex mutex_;
  ByteVector raw_ VARVE_GUARDED_BY(mutex_);
  OfferRoom room_ VARVE_GUARDED_BY(mutex_);
  bool given_up_ VARVE_GUARDED_BY(mutex_) = false;
};

/// One connection's part in a set that is gathered: takes the offer as it comes, piece by piece, and then passes
/// questions and answers on. One thread at a time.
class OfferIntake {
 public:
  /// `news`: that there may be a question; as that of NodeFiles::watch(), not called any more once this is gone.
  explicit OfferIntake(GatherService& gather, std::function<void()> news = {})
      : gather_(gather), news_(std::move(news)) {}
  ~OfferIntake();
  OfferIntake(const OfferIntake&) = delete;
  OfferIntake& operator=(const OfferIntake&) = delete;

  Status offer(const OfferRequest& request, ByteSpan data);
  Status answer(const AnswerRequest& request, ByteSpan data);
  /// After answer(): the next question; nothing: there is none yet.
  std::optional<Result<FileQuestion>> question() { return files_->question(); }

 private:
  GatherService& gather_;
  const std::function<void()> news_;
  std::shared_ptr<UnfinishedOffer> coming_;  ///< from its first piece on
  std::shared_ptr<NodeFiles> files_;
};

}  // namespace varve
