#include "engine/group_saver.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "codec/found_numbers.h"
#include "core/work_meter.h"
#include "engine/bundle.h"
#include "engine/effort_pace.h"
#include "engine/group_streams.h"
#include "engine/inspect.h"
#include "engine/moved_bytes.h"
#include "engine/pack_builder.h"
#include "engine/wide_packs.h"
#include "format/tree.h"
#include "store/spread_writer.h"

namespace varve {

namespace {
/// A leaf is closed when its encoded form passes about this much; small sets have one leaf a group.
constexpr uint64_t kLeafBytes = 1_MiB;
/// Batches whose chunks are asked for at once where the index is elsewhere: a question costs as much as hundreds of
/// look-ups, and wakes up another process. Meanwhile as many others are placed.
constexpr size_t kBatchesAsked = 6;

/// How much a file adds to its leaf, about.
uint64_t leaf_bytes_of(const TreeFile& file, const std::vector<Stream>& streams, size_t first_stream) {
  uint64_t bytes = 64 + file.path.size();
  for (const std::vector<Variable>* variables : {&file.layout.variables, &file.small_variables})
    for (const Variable& variable : *variables) bytes += described_bytes(variable);
  for (size_t i = 0; i < file.streams.size(); ++i) bytes += 2 + 8 * streams[first_stream + i].references.size();
  return bytes;
}

/// Whether `next` is what follows the last of `references`, so that one does for both.
bool continues(const std::vector<Reference>& references, const Reference& next) {
  if (references.empty()) return false;
  const Reference& last = references.back();
  return last.pack == next.pack && (next.pack == Reference::kPattern ? last.offset == next.offset && last.bytes % 8 == 0
                                                                     : last.offset + last.bytes == next.offset);
}

/// The packs that a group refers to, new and known ones, by their ordinals there.
class GroupPacks {
 public:
  /// A new one; name() says later which it is.
  uint32_t add() {
    links_.emplace_back();
    return static_cast<uint32_t>(links_.size() - 1);
  }
  void name(uint32_t ordinal, const PackLink& link) { links_[ordinal] = link; }
  /// Of one that the store has.
  uint32_t ordinal_of(const PackLink& link) {
    auto [found, added] = known_.emplace(std::pair(link.score, link.hint), static_cast<uint32_t>(links_.size()));
    if (added) links_.push_back(link);
    return found->second;
  }
  const PackLink& at(uint32_t ordinal) const { return links_[ordinal]; }

 private:
  std::vector<PackLink> links_;
  /// By arena too: two thinned copies of one pack may each hold what the other lacks.
  std::map<std::pair<Score, ArenaId>, uint32_t> known_;
};

struct ScoringBatch {
  std::shared_ptr<ChunkBatch> batch;
  Task<Status> task;  ///< not valid once it was waited for
  Status wait() { return task.valid() ? task.wait() : Status(); }
};

/// Where chunks are already: in what this save has laid down, or in the store. Where the index of known chunks is
/// elsewhere, it is asked for those of many batches at once, beside what goes on here.
class KnownChunks {
 public:
  KnownChunks(const ChunkIndex& index, FreshChunks fresh) : cursor_(index), fresh_(std::move(fresh)) {
    if (asks_ahead()) asker_ = std::make_unique<ThreadPool>(1);
  }

  /// Whether find() knows of the store only what was asked for before.
  bool asks_ahead() const { return cursor_.asks_ahead(); }
  bool is_asking() const { return asking_.has_value(); }

  /// Has the chunks of the batches after the first `skipped` asked for.
  Status ask(std::deque<ScoringBatch>& batches, size_t skipped) {
    const size_t end = std::min(batches.size(), skipped + kBatchesAsked);
    if (end == skipped) return {};
    std::vector<uint64_t> prefixes;
    for (size_t i = skipped; i < end; ++i) {
      VARVE_TRY(batches[i].wait());
      for (const BatchChunk& chunk : batches[i].batch->chunks) {
        if (!chunk.pattern && !fresh_.find(chunk.score, chunk.bytes)) prefixes.push_back(chunk.score.prefix());
      }
    }
    auto question = std::make_shared<ChunkIndex::Cursor::Question>(cursor_.question(prefixes));
    Task<Status> answer =
        asker_->submit([&lookup = cursor_.lookup(), question] { return ChunkIndex::Cursor::ask(lookup, *question); });
    asking_ = Asking{end - skipped, std::move(question), std::move(answer)};
    return {};
  }

  /// Waits for the answer, and returns for how many batches it is.
  Result<size_t> take_answer() {
    const Status answered = asking_->answer.wait();
    const size_t batches = asking_->batches;
    if (answered.ok()) cursor_.take(*asking_->question);
    asking_.reset();
    VARVE_TRY(answered);
    return batches;
  }

  std::optional<Reference> find(const BatchChunk& chunk, GroupPacks& packs) {
    if (const std::optional<FreshChunks::Place> place = fresh_.find(chunk.score, chunk.bytes))
      return Reference{place->pack, place->offset, chunk.bytes};
    if (const std::optional<KnownChunk> known = cursor_.find(chunk.score, chunk.bytes))
      return Reference{packs.ordinal_of(known->pack), known->offset, chunk.bytes};
    return std::nullopt;
  }
  const FreshChunks& fresh() const { return fresh_; }
  /// This save has laid the chunk down.
  void note_fresh(const BatchChunk& chunk, const Reference& at) {
    fresh_.insert(chunk.score, chunk.bytes, {at.pack, static_cast<uint32_t>(at.offset)});
  }

 private:
  /// The question that is under way.
  struct Asking {
    size_t batches = 0;
    std::shared_ptr<ChunkIndex::Cursor::Question> question;
    Task<Status> answer;
  };

  ChunkIndex::Cursor cursor_;
  FreshChunks fresh_;
  std::optional<Asking> asking_;
  std::unique_ptr<ThreadPool> asker_;  ///< of one thread, which waits for answers
};

/// How many chunks a group has, about.
uint64_t chunks_expected(const SaveOptions& options, const GroupStreams& group) {
  return group.raw_bytes / options.chunker.bytes_average + group.streams.size();
}

/// Beside a running program, what was laid down last is found again, in some hundred MiB: what several ranks have alike
/// lies together.
constexpr uint64_t kFoundBytesBesideProgram = 6_MiB;

FreshChunks fresh_chunks(const SaveContext& context, const GroupStreams& group) {
  return FreshChunks(context.group_memory_bytes / 8 * 3, chunks_expected(context.options, group),
                     context.options.pace != nullptr ? kFoundBytesBesideProgram : UINT64_MAX);
}

uint64_t largest_pack_bytes(const SaveOptions& options, const GroupStreams& group) {
  uint64_t bytes = options.pack_bytes + options.pack_bytes / kPacksOfMuchOfARank;
  if (!group.bundle_keys.empty()) bytes = options.pack_bytes * kBundlePackFactor;
  for (const Stream& stream : group.streams) bytes = std::max(bytes, stream.pack_bytes);
  return bytes;
}

/// Lays new chunks into packs, has these encoded in the pool, and appends them to the arenas in the order in which they
/// were begun.
class PackWriter {
 public:
  PackWriter(const SaveContext& context, Source& source, const GroupStreams& group, GroupPacks& packs,
             SpreadWriter& arenas)
      : context_(context),
        source_(source),
        group_(group),
        packs_(packs),
        arenas_(arenas),
        builder_(context.options.pack_bytes, context.options.scheme),
        encoding_max_(std::clamp<uint64_t>(
            context.group_memory_bytes / 4 / (kEncodingPackFactor * largest_pack_bytes(context.options, group)), 1,
            context.tasks_max)) {
    for (const std::vector<std::string>* keys : {&group.class_keys, &group.bundle_keys}) {
      for (const std::string& key : *keys) add_encoders(key);
    }
  }

  /// Says where the chunk lies then; `class_bytes_left`: what its class has yet to place, with it.
  Result<Reference> add(const Stream& stream, const ChunkBatch& batch, const BatchChunk& chunk,
                        uint64_t class_bytes_left) {
    if (!builder_.accepts(stream, chunk.bytes)) VARVE_TRY(finish_pack());
    if (builder_.empty()) {
      building_ = packs_.add();
      builder_.expect(stream, class_bytes_left);
    }
    const uint64_t offset = builder_.add(group_.streams, batch, chunk);
    key_ = stream.bundle.number == 0 ? stream.laid_class() : group_.class_keys.size() + stream.bundle.number - 1;
    return Reference{building_, offset, chunk.bytes};
  }

  /// Appends what is left.
  Status finish() {
    VARVE_TRY(finish_pack());
    while (!encoding_.empty()) VARVE_TRY(append_oldest());
    return {};
  }
  /// Of what was appended, for the index; none if so much was laid down that some of it is not known any more.
  ChunkIndexEntries entries(const FreshChunks& fresh) const {
    ChunkIndexEntries entries;
    uint64_t chunks = 0;
    for (const LaidDownPack& pack : laid_down_) chunks += pack.chunk_count;
    entries.reserve(chunks);
    auto pack = laid_down_.begin();
    uint32_t chunk = 0;
    const bool all = fresh.each_prefix([&](uint64_t prefix) {
      entries.push_back({prefix, pack->place.arena, pack->place.ordinal, chunk++});
      if (chunk < pack->chunk_count) return;
      ++pack;
      chunk = 0;
    });
    return all ? std::move(entries) : ChunkIndexEntries();
  }

 private:
  /// By PackEffort: as was asked for, fast.
  using ClassEncoders = std::array<std::shared_ptr<Encoder>, 2>;
  struct EncodingPack {
    std::shared_ptr<PendingPack> pack;
    std::optional<Task<Result<EncodedBytes>>> task;  ///< none: it is stored as it is
  };

  static bool is_encoded(const EncodingPack& pack) { return !pack.task || pack.task->ready(); }

  /// What the index is to know of its chunks, beside their scores.
  struct LaidDownPack {
    SpreadWriter::Place place;
    uint32_t chunk_count = 0;
  };

  PackEffort effort_for(const PendingPack& pack) const {
    if (context_.options.codec.stores()) return PackEffort::none;
    EffortPace* const pace = context_.options.pace;
    return pace == nullptr ? PackEffort::asked : pace->choose(pack.meta.class_key, pack.bytes().size());
  }

  static Result<EncodedBytes> encode(const PendingPack& pack, PackEffort effort, Encoder& encoder, EffortPace* pace) {
    const WorkMeter::Timer timer(WorkKind::encode, pack.bytes().size());
    const int64_t begin = pace == nullptr ? 0 : thread_processor_nanoseconds();
    VARVE_ASSIGN(EncodedBytes encoded, encoder.encode(pack.bytes(), pack.shape));
    if (pace != nullptr) {
      pace->note_encoded(pack.meta.class_key, effort, pack.bytes().size(), encoded.recipe.size() + encoded.body.size(),
                         static_cast<double>(thread_processor_nanoseconds() - begin) * 1e-9);
    }
    return encoded;
  }

  void add_encoders(const std::string& key) {
    const PackContents contents = contents_of_class(key);
    KeptEncoders* const kept = context_.options.encoders;
    const auto encoder = [&](const CodecPolicy& policy) -> std::shared_ptr<Encoder> {
      if (kept == nullptr) return make_encoder(policy, contents, found_);
      return kept->of(policy, key, contents);
    };
    ClassEncoders& encoders = encoders_.emplace_back();
    CodecPolicy codec = context_.options.codec;
    codec.opens_compressed = codec.opens_compressed && context_.options.pace == nullptr;
    encoders[0] = encoder(codec);
    if (context_.options.pace != nullptr) encoders[1] = encoder({.effort = Effort::fast, .chain = {}});
  }
  const std::string& key_of_pack() const {
    const size_t classes = group_.class_keys.size();
    return key_ < classes ? group_.class_keys[key_] : group_.bundle_keys[key_ - classes];
  }

  Status finish_pack() {
    if (builder_.empty()) return {};
    // What it views is left when nobody needs it any more: at the latest when it is written.
    const std::shared_ptr<PendingPack> pack(new PendingPack(builder_.take(key_of_pack(), context_.store.score())),
                                            [&source = source_](PendingPack* taken) {
                                              source.leave(taken->viewed);
                                              delete taken;
                                            });
    packs_.name(building_, {pack->meta.score, arenas_.home(pack->meta.score)});
    while (encoding_.size() >= encoding_max_) VARVE_TRY(append_oldest());
    const PackEffort effort = effort_for(*pack);
    std::optional<Task<Result<EncodedBytes>>> task;
    if (effort != PackEffort::none) {
      task = context_.pool.submit([pack, effort, encoder = encoders_[key_][static_cast<size_t>(effort)],
                                   pace = context_.options.pace, &source = source_] {
        Result<EncodedBytes> encoded = encode(*pack, effort, *encoder, pace);
        source.leave(pack->viewed);
        return encoded;
      });
    }
    encoding_.push_back({pack, std::move(task)});
    while (!encoding_.empty() && is_encoded(encoding_.front())) VARVE_TRY(append_oldest());
    return {};
  }

  Status append_oldest() {
    EncodingPack oldest = std::move(encoding_.front());
    encoding_.pop_front();
    PackMeta& meta = oldest.pack->meta;
    meta.recipe = {std::byte{0}};  // of what is stored
    ByteSpan body = oldest.pack->bytes();
    std::shared_ptr<const void> keeper = oldest.pack;
    EncodedBytes encoded;
    if (oldest.task) {
      // To encode it took far longer than to copy it now does, and what waits is the program's memory.
      VARVE_ASSIGN(encoded, oldest.task->wait());
      meta.recipe = std::move(encoded.recipe);
      body = encoded.body;
      keeper.reset();
    }
    VARVE_ASSIGN(const SpreadWriter::Place place, arenas_.append_pack(meta, body, std::move(keeper)));
    laid_down_.push_back({place, static_cast<uint32_t>(meta.chunks.size())});
    return {};
  }

  const SaveContext& context_;
  Source& source_;
  const GroupStreams& group_;
  GroupPacks& packs_;
  SpreadWriter& arenas_;
  const std::shared_ptr<FoundNumbers> found_ = std::make_shared<FoundNumbers>();
  std::vector<ClassEncoders> encoders_;  ///< of each class, then of each bundle
  PackBuilder builder_;
  uint32_t building_ = 0;  ///< ordinal in packs_ of the pack being built
  size_t key_ = 0;         ///< its class, or bundle, in encoders_
  std::deque<EncodingPack> encoding_;
  const size_t encoding_max_;
  std::vector<LaidDownPack> laid_down_;
};

/// Stores the chunks of a group's streams, which know then where theirs are. One thread.
class GroupSaver {
 public:
  /// All outlive it.
  GroupSaver(const SaveContext& context, Source& source, GroupStreams& group, GroupPacks& packs, SpreadWriter& arenas)
      : context_(context),
        source_(source),
        group_(group),
        packs_(packs),
        class_bytes_left_(group.class_keys.size()),
        reference_counts_(group.files.size()),
        known_(std::in_place, context.index, fresh_chunks(context, group)),
        writer_(context, source, group, packs, arenas) {
    for (const Stream& stream : group.streams) class_bytes_left_[stream.laid_class()] += stream.bytes;
    outcome_.raw_bytes = group.raw_bytes;
    outcome_.variable_count = group.variable_count;
  }

  Status store_chunks();
  /// What has become of them, after that: all but the tree and the arenas.
  GroupOutcome take_outcome() {
    outcome_.entries = writer_.entries(known_->fresh());
    known_.reset();
    return std::move(outcome_);
  }

 private:
  Status place_batch(const ChunkBatch& batch);
  void leave(const ChunkBatch& batch);
  Result<Reference> place_new(const Stream& stream, const ChunkBatch& batch, const BatchChunk& chunk);
  /// The streams of the chunk have it there.
  Status refer_all(const ChunkBatch& batch, const BatchChunk& chunk, const Reference& at);
  bool may_refer(const Stream& stream, const Reference& next);
  Status refer(Stream& stream, const Reference& next);

  const SaveContext& context_;
  Source& source_;
  GroupStreams& group_;
  GroupPacks& packs_;
  std::vector<uint64_t> class_bytes_left_;  ///< what each class has yet to place
  std::vector<uint64_t> reference_counts_;  ///< of each file
  std::set<uint32_t> stored_anew_;          ///< files of which a known chunk was not referred to
  std::optional<KnownChunks> known_;        ///< until all is stored
  PackWriter writer_;
  GroupOutcome outcome_;
};

Status GroupSaver::store_chunks() {
  const SaveOptions& options = context_.options;
  const uint64_t chunk_bytes = options.chunker.bytes_average;
  // Small enough to stay in the cache between reading, scoring and laying down; large enough that waking the pool, and
  // the look-ahead of the chunker, which is read twice, are a small share.
  const bool cells = cuts_cells(options.chunker);
  const bool moves = std::any_of(group_.streams.begin(), group_.streams.end(), [](const Stream& s) { return s.moves; });
  std::unique_ptr<Chunker> by_content;
  if (moves) {
    VARVE_ASSIGN(by_content, make_chunker_by_content(options.chunker));
  }
  const size_t batch_bytes =
      std::max<size_t>(512_KiB, 8 * BatchReader::bytes_ahead(context_.chunker, cells, by_content.get()));
  const bool asks = known_->asks_ahead();
  const size_t scoring_max = std::clamp<uint64_t>(context_.group_memory_bytes / 4 / batch_bytes, 1,
                                                  context_.tasks_max + (asks ? 2 * kBatchesAsked : 0));

  BatchReader reader(
      group_.streams, source_,
      WorkOrder(group_.streams, options.scheme, whole_block_bytes(options), options.pack_bytes, chunk_bytes),
      context_.chunker, chunk_bytes, cells, by_content.get());
  std::deque<ScoringBatch> scoring;
  std::vector<std::shared_ptr<ChunkBatch>> idle;
  size_t answered = 0;  // for how many of the batches that come next it is known what the store has
  bool ended = false;
  while (!ended || !scoring.empty()) {
    if (context_.progress.cancelled()) return Status::cancelled();
    // What is scored is placed first: its buffer, still in the cache, serves the next batch. But if it has to be asked
    // for, many are kept at hand.
    const bool scored = !asks && !scoring.empty() && scoring.front().task.ready();
    if (!ended && !scored && scoring.size() < scoring_max) {
      if (idle.empty()) idle.push_back(std::make_shared<ChunkBatch>(batch_bytes));
      std::shared_ptr<ChunkBatch> batch = std::move(idle.back());
      idle.pop_back();
      VARVE_TRY(reader.fill(*batch));
      ended = batch->chunks.empty();
      if (ended) continue;
      Task<Status> task = context_.pool.submit([batch, score = context_.store.score()] { score_batch(*batch, score); });
      scoring.push_back({std::move(batch), std::move(task)});
      continue;
    }
    if (asks && answered == 0) {
      if (!known_->is_asking()) VARVE_TRY(known_->ask(scoring, 0));
      VARVE_ASSIGN(answered, known_->take_answer());
    }
    if (asks && !known_->is_asking()) VARVE_TRY(known_->ask(scoring, answered));
    VARVE_TRY(scoring.front().wait());
    VARVE_TRY(place_batch(*scoring.front().batch));
    if (asks) --answered;
    idle.push_back(std::move(scoring.front().batch));
    scoring.pop_front();
  }
  return writer_.finish();
}

Status GroupSaver::place_batch(const ChunkBatch& batch) {
  uint64_t raw_bytes = 0;
  for (const BatchChunk& chunk : batch.chunks) {
    const Stream& stream = group_.streams[chunk.stream];
    raw_bytes += chunk.bytes;
    Reference at;
    if (chunk.pattern) {
      outcome_.pattern_bytes += chunk.bytes;
      at = {Reference::kPattern, *chunk.pattern, chunk.bytes};
    } else if (const std::optional<Reference> known = known_->find(chunk, packs_); known && may_refer(stream, *known)) {
      outcome_.known_bytes += chunk.bytes;
      at = *known;
    } else {
      VARVE_ASSIGN(at, place_new(stream, batch, chunk));
    }
    VARVE_TRY(refer_all(batch, chunk, at));
    class_bytes_left_[stream.laid_class()] -= chunk.bytes;
  }
  leave(batch);
  if (context_.options.pace != nullptr) context_.options.pace->note_placed(raw_bytes);
  context_.progress.advance(raw_bytes);
  return {};
}

/// What is encoded from where it lies is looked at again then, pack by pack.
void GroupSaver::leave(const ChunkBatch& batch) {
  ByteSpan together;
  for (const BatchChunk& chunk : batch.chunks) {
    if (chunk.viewed.empty()) continue;
    if (!together.empty() && together.data() + together.size() == chunk.viewed.data()) {
      together = {together.data(), together.size() + chunk.viewed.size()};
      continue;
    }
    if (!together.empty()) source_.leave(together);
    together = chunk.viewed;
  }
  if (!together.empty()) source_.leave(together);
}

/// All references of a file are in one leaf, which is bounded.
bool GroupSaver::may_refer(const Stream& stream, const Reference& next) {
  if (reference_counts_[stream.file] < context_.options.tree.references_max || continues(stream.references, next))
    return true;
  if (stored_anew_.insert(stream.file).second) {
    context_.progress.warning(
        Status::resource_limit("so much of it is in the store in pieces that the rest is stored anew",
                               group_.files[stream.file].path, Remedy::make_chunks_larger));
  }
  return false;
}

Status GroupSaver::refer(Stream& stream, const Reference& next) {
  if (continues(stream.references, next)) {
    stream.references.back().bytes += next.bytes;
    return {};
  }
  stream.references.push_back(next);
  // Its leaf is written last. What that could not hold is refused before more is saved for nothing.
  const uint64_t references_max = context_.options.tree.references_max;
  if (++reference_counts_[stream.file] <= references_max + references_max / 2) return {};
  return Status::resource_limit("a file is in more pieces than a set can hold; nothing was committed",
                                group_.files[stream.file].path, Remedy::make_chunks_larger);
}

Status GroupSaver::refer_all(const ChunkBatch& batch, const BatchChunk& chunk, const Reference& at) {
  if (chunk.joined == 0) return refer(group_.streams[chunk.stream], at);
  uint64_t skip = 0;
  for (const uint32_t number : batch.streams_of(chunk)) {
    Stream& stream = group_.streams[number];
    VARVE_TRY(refer(stream, part_of(at, skip, stream.bytes)));
    skip += stream.bytes;
  }
  return {};
}

Result<Reference> GroupSaver::place_new(const Stream& stream, const ChunkBatch& batch, const BatchChunk& chunk) {
  VARVE_ASSIGN(const Reference at, writer_.add(stream, batch, chunk, class_bytes_left_[stream.laid_class()]));
  known_->note_fresh(chunk, at);
  outcome_.new_bytes += chunk.bytes;
  return at;
}

/// Writes the tree of a group whose chunks are stored. What its files refer to is moved into its leaves.
class TreeWriter {
 public:
  /// All outlive it. `node_bytes_max`: a longer leaf is cut into pieces.
  TreeWriter(GroupStreams& group, const GroupPacks& packs, const ScoreFunction& score, SpreadWriter& arenas,
             uint64_t node_bytes_max)
      : group_(group), packs_(packs), score_(score), arenas_(arenas), node_bytes_max_(node_bytes_max) {}

  /// The root.
  Result<NodeLink> write() {
    const std::vector<TreeFile>& files = group_.files;
    Root root;
    size_t first_file = 0, stream = 0;
    uint64_t leaf_bytes = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      leaf_bytes += leaf_bytes_of(files[i], group_.streams, stream);
      stream += files[i].streams.size();
      if (leaf_bytes < kLeafBytes && i + 1 < files.size()) continue;
      VARVE_ASSIGN(LeafLink link, write_leaf(first_file, i + 1));
      root.leaves.push_back(link);
      first_file = i + 1;
      leaf_bytes = 0;
    }
    return append_node(encode_root(root, score_.score_bytes()));
  }

 private:
  Result<LeafLink> write_leaf(size_t first_file, size_t last_file) {
    Leaf leaf;
    LeafLink link;
    std::unordered_map<uint32_t, uint32_t> pack_of, class_of;
    auto ordinal_in = [](std::unordered_map<uint32_t, uint32_t>& map, uint32_t key, auto& table, const auto& value) {
      auto [found, added] = map.emplace(key, static_cast<uint32_t>(table.size()));
      if (added) table.push_back(value);
      return found->second;
    };
    for (Stream& stream : group_.streams) {
      if (stream.file < first_file || stream.file >= last_file) continue;
      for (Reference& reference : stream.references) {
        if (reference.pack != Reference::kPattern)
          reference.pack = ordinal_in(pack_of, reference.pack, leaf.packs, packs_.at(reference.pack));
      }
      group_.files[stream.file].streams[stream.position] = std::move(stream.references);
    }
    for (size_t i = first_file; i < last_file; ++i) {
      TreeFile& file = group_.files[i];
      for (uint32_t& id : file.class_of) id = ordinal_in(class_of, id, leaf.class_keys, group_.class_keys[id]);
      link.bytes += file.bytes;
      leaf.files.push_back(std::move(file));
    }
    link.file_count = leaf.files.size();
    const ByteVector content = encode_leaf(leaf, score_.score_bytes());
    // describe_streams() and GroupSaver::refer() see to it.
    if (content.size() > kLeafBytesMax || leaf.class_keys.size() > kClassesPerLeafMax)
      return Status::internal("what is to be said of a file is more than a set can hold: " + leaf.files.back().path);
    VARVE_ASSIGN(const NodeLink written, append_leaf(content));
    link.score = written.score;
    link.hint = written.hint;
    return link;
  }

  Result<NodeLink> append_node(ByteSpan content) {
    const Score score = score_(content);
    VARVE_TRY(arenas_.append_node(score, content));
    return NodeLink{score, arenas_.home(score)};
  }

  /// In pieces, if it is too long for one node.
  Result<NodeLink> append_leaf(ByteSpan content) {
    if (content.size() <= node_bytes_max_) return append_node(content);
    LeafPieces list{content.size(), {}};
    while (!content.empty()) {
      const ByteSpan part = content.first(std::min<size_t>(content.size(), node_bytes_max_ - 1));
      VARVE_ASSIGN(const NodeLink piece, append_node(encode_leaf_piece(part)));
      list.pieces.push_back(piece);
      content = content.subspan(part.size());
    }
    return append_node(encode_leaf_pieces(list, score_.score_bytes()));
  }

  GroupStreams& group_;
  const GroupPacks& packs_;
  const ScoreFunction& score_;
  SpreadWriter& arenas_;
  const uint64_t node_bytes_max_;
};
}  // namespace

Result<GroupOutcome> save_group(const SaveContext& context, Source& source, uint32_t ordinal) {
  VARVE_ASSIGN(GroupStreams group, describe_streams(source, context.options, context.progress));
  VARVE_TRY(find_bundles(source, context.options, group));
  VARVE_TRY(find_moved_bytes(source, context.options, group));
  VARVE_TRY(find_wide_packs(source, context.options, wide_pack_bytes_max(context.group_memory_bytes), group));
  SpreadWriter arenas(
      context.store, context.lease, ordinal,
      ArenaWriterOptions{.direct = context.options.direct_io, .buffer_bytes = 1_MiB, .buffer_count = 4});
  GroupPacks packs;
  GroupSaver saver(context, source, group, packs, arenas);
  VARVE_TRY(saver.store_chunks());
  VARVE_TRY(source.check_unchanged());
  GroupOutcome outcome = saver.take_outcome();
  TreeWriter tree(group, packs, context.store.score(), arenas, context.options.tree.node_bytes_max);
  VARVE_ASSIGN(const NodeLink root, tree.write());
  VARVE_TRY(arenas.seal());
  outcome.record.root = root.score;
  outcome.record.hint = root.hint;
  outcome.record.arena_bytes = arenas.bytes();
  outcome.arenas = arenas.arenas();
  return outcome;
}

}  // namespace varve
