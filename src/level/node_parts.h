#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "level/checkpoint_parts.h"
#include "level/level.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// A checkpoint of which each node has some ranks' parts, in its memory or a store of its own. A rank reads what its
/// node has itself, and asks for the rest: each part is read for other nodes by one rank of the node that has it, those
/// of a node shared out among its ranks.
///
/// They talk in rounds, in which all ranks take part for as long as any wants something: each says what it wants next,
/// who has it reads it, what several want of one part together, and it is sent (by messages where the communicator is
/// concurrent(), else by broadcasts). What a round moves is bounded for who asks and for who reads. What fails on one
/// rank is the outcome of the round for all, and there is no further one: nobody waits for a node that has failed.
class NodeParts final : public CheckpointParts {
 public:
  /// Of what the nodes have, the one checkpoint of which they have all parts; what they have of other runs is left
  /// alone. `mine`: what this rank's node has; null: nothing. `number`: of the set that is wanted; 0: not known.
  /// not_found: they do not have all parts, or all only of an older set of the same step; corrupt: they have all parts
  /// of several. The same outcome on all ranks. Collective.
  static Result<std::unique_ptr<CheckpointParts>> gather(const LevelWorld& world, std::unique_ptr<HeldParts> mine,
                                                         uint64_t number);

  uint32_t rank_count() const override { return static_cast<uint32_t>(parts_.size()); }
  ImageTable table(uint32_t rank) const override { return tables_.at(rank); }
  std::optional<bool> is_at_hand(uint32_t rank) const override { return parts_[rank].reader == ranks_.rank(); }
  Status read(std::span<const PartRead> reads) override;
  Status load(std::span<const PartLoad> loads, size_t thread_count) override;
  void serve() override;
  std::optional<SetOrigin> origin() const override { return origin_; }
  bool is_of_own_node() const override { return false; }
  void note_faults() override {
    if (mine_) mine_->note_faults();
  }

 private:
  /// What a rank of the run before has left.
  struct Part {
    uint64_t image_bytes = 0;
    bool is_here = false;  ///< on this rank's node
    uint32_t reader = 0;   ///< the rank that reads it for other nodes
  };
  /// Bytes that one rank wants of one part.
  struct Request {
    uint32_t part = 0;
    std::vector<Extent> wanted;
    ImageTarget* target = nullptr;  ///< on the rank that wants them
    uint64_t bytes = 0;
  };
  class Round;

  NodeParts(const LevelWorld& world, std::unique_ptr<HeldParts> mine) : ranks_(world.ranks), mine_(std::move(mine)) {}
  void add_requests(const PartLoad& load, std::deque<Request>& requests) const;
  Status fetch(std::deque<Request> requests);
  /// Whether any rank wants more.
  Result<bool> take_part(std::deque<Request>& requests, bool wants_more);

  Communicator& ranks_;
  const std::unique_ptr<HeldParts> mine_;
  std::optional<SetOrigin> origin_;
  std::vector<Part> parts_;  ///< by rank
  AlikeTables tables_;       ///< likewise
  bool has_messages_ = false;
  uint32_t rounds_ = 0;
  Status broken_;  ///< there are no more rounds
};

/// A rank's part of a checkpoint that the nodes have. `own`: what this rank has found for itself on its node; null: it
/// lacks something that other nodes may have. If any rank lacks something, all put together what they want of what all
/// nodes have (`open`: this one's, null: nothing; `number` as in gather()), as ReshapedImage does. A failure to find or
/// open it is that of all ranks then. Collective.
Result<std::unique_ptr<RankImage>> image_over_nodes(const LevelWorld& world, const RankWish& wish,
                                                    Result<std::unique_ptr<RankImage>> own,
                                                    const std::function<Result<std::unique_ptr<HeldParts>>()>& open,
                                                    uint64_t number, size_t thread_count);

}  // namespace varve
