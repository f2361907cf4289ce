#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/store_folder.h"
#include "store/index_run.h"

namespace varve {

/// Who can be asked where chunks may be: the index in a folder (chunk_index.h), a server that has one, or several of
/// these. Like every index it is only a hint: each candidate is checked against its pack's table. Thread-safe.
class ChunkLookup {
 public:
  virtual ~ChunkLookup() = default;
  /// Appends to `candidates` the chunks with these score prefixes (Score::prefix()), in the order of the prefixes;
  /// counts[i] says how many belong to prefixes[i]. A few that are missed cost space, and nothing else.
  virtual Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                      std::vector<ChunkCandidate>& candidates) = 0;
  /// Brings near what find() reads first of this prefix: worth it some calls ahead.
  virtual void prefetch(uint64_t) const {}
  /// Whether each question is a journey: much should be asked at once, and before the answer is needed.
  virtual bool is_far() const = 0;
  /// Whether it brings its index up to date by itself, so that nobody else has to.
  virtual bool keeps_index() const = 0;
};

class ThreadPool;

/// Asks the indexes of a store's places, for each chunk that of the place whose range its score is in (ArenaSpread);
/// all at the same time. Thread-safe.
class SpreadChunkLookup final : public ChunkLookup {
 public:
  /// By place; they outlive it.
  explicit SpreadChunkLookup(std::vector<ChunkLookup*> places);
  ~SpreadChunkLookup() override;
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;
  void prefetch(uint64_t prefix) const override { at(prefix).prefetch(prefix); }
  bool is_far() const override { return is_far_; }
  /// Not of arenas that lie at other places.
  bool keeps_index() const override { return false; }

 private:
  struct Question;
  ChunkLookup& at(uint64_t prefix) const { return *places_[spread_.place_of_prefix(prefix)]; }
  Status ask(std::vector<Question>& questions) const;

  const std::vector<ChunkLookup*> places_;
  const ArenaSpread spread_;
  const bool is_far_;
  const std::unique_ptr<ThreadPool> pool_;  ///< null: none is far
};

}  // namespace varve
