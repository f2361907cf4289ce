#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/sync.h"
#include "service/node_files.h"
#include "service/offered_files.h"

namespace varve {

struct GatherLimits {
  uint64_t memory_bytes = 512_MiB;    ///< of the engine, about
  uint64_t offers_bytes_max = 1_GiB;  ///< of memory for all offers that are at hand, about
  double wait_seconds = 600;          ///< how long a node waits for the others
  double offer_seconds = 300;         ///< how long an offer may take to come, if others need its room
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
/// Thread-safe.
class GatherService {
 public:
  GatherService(std::string store_path, const GatherLimits& limits, std::function<void(const std::string&)> log,
                const Clock& clock = steady_clock())
      : store_path_(std::move(store_path)), limits_(limits), log_(std::move(log)), clock_(clock) {}
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
  Status save(const SetName& name, Gathering& gathering);
  void reap();

  const std::string store_path_;
  const GatherLimits limits_;
  const std::function<void(const std::string&)> log_;
  const Status no_memory_ = Status::resource_limit("the server is out of memory");  ///< there is none to say so then
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> offers_bytes_{0};
  Mutex coming_mutex_;  ///< guards coming_
  std::vector<std::weak_ptr<UnfinishedOffer>> coming_;
  Mutex saving_;  ///< one set at a time, so that memory is bounded
  Mutex mutex_;   ///< guards what follows; never held while saving_ is waited for
  ConditionVariable changed_;
  std::map<SetName, std::unique_ptr<Gathering>> gatherings_;
};

}  // namespace varve
