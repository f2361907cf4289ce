#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "engine/pack_builder.h"
#include "engine/save.h"
#include "engine/source.h"
#include "format/tree.h"
#include "store/chunk_index.h"
#include "store/spread_writer.h"

namespace varve {

/// A group's files as a save takes them apart: every variable, and the skeleton of every file, is a stream of a
/// similarity class. Small variables are in the skeleton.
struct GroupStreams {
  std::vector<TreeFile> files;          ///< as the source has them; without references
  std::vector<std::string> class_keys;  ///< in alphabetical order
  std::vector<Stream> streams;          ///< by file, then position
  uint64_t raw_bytes = 0;               ///< of the regular files
  uint64_t variable_count = 0;          ///< small ones too
};

/// Finds the variables of the source's files, and makes streams of them by the options' scheme and rule. Warnings go to
/// `progress`.
Result<GroupStreams> describe_streams(Source& source, const SaveOptions& options, ProgressSink& progress);

/// Whether nothing is known of the file but its bytes (opaque_layout).
bool is_opaque(const Layout& layout);

/// The unit of the block schemes: the options' blocks, rounded up to whole chunks.
uint64_t whole_block_bytes(const SaveOptions& options);

/// What the groups of one save share.
struct SaveContext {
  const Store& store;
  WriterLease& lease;
  const ChunkIndex& index;
  const SaveOptions& options;
  const Chunker& chunker;
  ThreadPool& pool;
  ProgressSink& progress;
  uint64_t group_memory_bytes;
  uint64_t tasks_max;  ///< that one group has in the pool
};

/// What became of one group.
struct GroupOutcome {
  GroupRecord record;
  std::vector<ArenaId> arenas;           ///< the new ones: one, unless the store is spread
  std::vector<ChunkIndexEntry> entries;  ///< of the new arenas, for the index; empty if there were too many to hold
  uint64_t raw_bytes = 0, new_bytes = 0, known_bytes = 0, pattern_bytes = 0, variable_count = 0;
};

/// Saves the source of one group of ranks into arenas of its own: layouts → streams → chunks in the order of the scheme
/// → packs → tree → sealed arenas. One thread drives it; scoring and encoding run in the pool, and results are taken in
/// order, so that the arenas do not depend on timing.
class GroupSaver {
 public:
  GroupSaver(const SaveContext& context, Source& source, uint32_t ordinal);
  Result<GroupOutcome> run();

 private:
  struct EncodingPack {
    std::shared_ptr<PendingPack> pack;
    Task<Result<EncodedBytes>> task;
  };
  struct ScoringBatch {
    std::shared_ptr<ChunkBatch> batch;
    Task<Status> task;  ///< not valid once it was waited for
    Status wait() { return task.valid() ? task.wait() : Status(); }
  };

  Status take_streams();

  Status store_chunks();
  /// Where the index of known chunks is elsewhere: has the chunks of the batches after the first `skipped` asked for,
  /// beside what goes on here.
  Status ask_ahead(std::deque<ScoringBatch>& batches, size_t skipped);
  /// Waits for the answer, and returns for how many batches it is.
  Result<size_t> take_answer();
  Status place_batch(const ChunkBatch& batch);
  Status place_new(Stream& stream, const ChunkBatch& batch, const BatchChunk& chunk);
  /// Where the chunk is already, in the store or in what this save has laid down.
  std::optional<Reference> find_known(const BatchChunk& chunk);
  bool may_refer(const Stream& stream, const Reference& next);
  Status refer(Stream& stream, const Reference& next);
  uint32_t pack_ordinal(const PackLink& link);
  Status finish_pack();
  Status append_oldest_pack();

  Status write_tree();
  Result<LeafLink> write_leaf(size_t first_file, size_t last_file);
  Result<NodeLink> append_node(ByteSpan content);
  Result<NodeLink> append_leaf(ByteSpan content);

  const SaveContext& context_;
  Source& source_;
  const std::vector<SourceFile>& files_;
  const ScoreFunction& score_;
  GroupOutcome outcome_;
  const uint32_t ordinal_;
  std::unique_ptr<SpreadWriter> arenas_;

  std::vector<TreeFile> tree_files_;
  std::vector<std::string> class_keys_;
  std::vector<std::shared_ptr<Encoder>> encoders_;  ///< of each class
  std::vector<uint64_t> class_bytes_left_;          ///< what each class has yet to place
  std::vector<Stream> streams_;
  std::vector<uint64_t> reference_counts_;  ///< of each file
  std::set<uint32_t> stored_anew_;          ///< files of which a known chunk was not referred to

  std::vector<PackLink> packs_;  ///< new and known ones that this group refers to
  /// By arena too: two thinned copies of one pack may each hold what the other lacks.
  std::map<std::pair<Score, ArenaId>, uint32_t> known_packs_;
  ChunkIndex::Cursor cursor_;
  /// The question that is under way.
  struct Asking {
    size_t batches = 0;
    std::shared_ptr<ChunkIndex::Cursor::Question> question;
    Task<Status> answer;
  };
  std::optional<Asking> asking_;
  std::unique_ptr<ThreadPool> asker_;  ///< of one thread, which waits for answers
  FreshChunks fresh_;
  PackBuilder builder_;
  uint32_t building_ = 0;        ///< ordinal in packs_ of the pack being built
  uint32_t encoding_class_ = 0;  ///< its class
  std::deque<EncodingPack> encoding_;
  size_t encoding_max_ = 1;
  size_t entries_max_ = 0;
  bool entries_dropped_ = false;
};

}  // namespace varve
