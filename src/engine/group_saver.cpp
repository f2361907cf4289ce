#include "engine/group_saver.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "core/file_system.h"
#include "format/tree.h"

namespace varve {

namespace {
constexpr uint64_t kSmallFileBytes = 64_KiB;
/// What the descriptions of a file's small variables take in its leaf, about; any further ones are only counted. In
/// memory they take a few times as much while their group is saved.
constexpr uint64_t kSmallVariableBytesMax = 8_MiB;
/// What the descriptions of a file's variables take in its leaf at most, about, and how many similarity classes they
/// are of: so that the leaf can hold them, and all references.
constexpr uint64_t kLayoutBytesMax = 64_MiB;
constexpr uint64_t kClassesPerFileMax = kClassesPerLeafMax / 2;

class Describer {
 public:
  Describer(Source& source, const SaveOptions& options)
      : source_(source),
        options_(options),
        aware_(options.scheme == Scheme::aware || options.scheme == Scheme::aware_block) {}

  Result<GroupStreams> run(ProgressSink& progress) {
    VARVE_ASSIGN(std::vector<Layout> layouts, read_layouts(progress));
    const std::vector<SourceFile>& files = source_.files();
    group_.files.resize(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      if (!fits_into_leaf(layouts[i], files[i].bytes)) {
        progress.warning(Status::resource_limit("it has more variables than a set can describe, and is saved as bytes",
                                                files[i].path));
        layouts[i] = opaque_layout(files[i].bytes, "/" + base_name(files[i].path));
      }
      describe(group_.files[i], files[i], std::move(layouts[i]));
    }
    make_streams();
    sort_classes();
    return std::move(group_);
  }

 private:
  Result<std::vector<Layout>> read_layouts(ProgressSink& progress) {
    if (aware_) return source_.layouts(progress);
    const std::vector<SourceFile>& files = source_.files();
    std::vector<Layout> layouts(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].type == FileType::regular) {
        layouts[i] = opaque_layout(files[i].bytes, "/" + base_name(files[i].path));
      }
    }
    return layouts;
  }

  /// One that goes with the skeleton.
  bool is_small(const Variable& variable, uint64_t file_bytes) const {
    const uint64_t bytes = variable.stored_bytes();
    return bytes < options_.small_bytes && bytes < file_bytes;
  }

  bool fits_into_leaf(const Layout& layout, uint64_t file_bytes) const {
    uint64_t described = 0;
    std::unordered_set<std::string> classes;
    const bool many = layout.variables.size() > kClassesPerFileMax;
    for (const Variable& variable : layout.variables) {
      if (is_small(variable, file_bytes)) continue;
      described += described_bytes(variable);
      if (many) classes.insert(options_.match.class_key(variable, false));
    }
    return described <= kLayoutBytesMax && classes.size() <= kClassesPerFileMax;
  }

  void describe(TreeFile& file, const SourceFile& source, Layout layout) {
    file.path = source.path;
    file.type = source.type;
    file.mode = source.mode;
    file.modified_s = source.modified_s;
    file.modified_ns = source.modified_ns;
    file.rank = source.rank;
    file.link_target = source.link_target;
    if (source.type != FileType::regular) return;
    file.bytes = source.bytes;
    group_.raw_bytes += file.bytes;
    group_.variable_count += layout.variables.size();
    set_small_variables_apart(file, layout.variables);
    file.layout = std::move(layout);
    file.streams.resize(file.layout.variables.size() + 1);
  }

  void set_small_variables_apart(TreeFile& file, std::vector<Variable>& variables) const {
    uint64_t left = kSmallVariableBytesMax;
    std::vector<Variable> large;
    for (Variable& variable : variables) {
      const uint64_t described = described_bytes(variable);
      if (!is_small(variable, file.bytes)) {
        large.push_back(std::move(variable));
      } else if (described <= left) {
        left -= described;
        file.small_variables.push_back(std::move(variable));
      } else {
        ++file.unnamed_variable_count;
      }
    }
    variables = std::move(large);
  }

  void make_streams() {
    for (size_t i = 0; i < group_.files.size(); ++i) {
      TreeFile& file = group_.files[i];
      const bool opaque_file = is_opaque(file.layout);
      for (size_t position = 0; position < file.streams.size(); ++position) {
        Stream stream;
        stream.file = static_cast<uint32_t>(i);
        stream.position = static_cast<uint32_t>(position);
        stream.rank = file.rank;
        stream.extents = stream_extents(file, position);
        for (const Extent& extent : stream.extents) stream.bytes += extent.bytes;
        if (position == 0) {
          stream.class_id = class_id(skeleton_class(file.layout.format));
        } else {
          describe_variable(stream, file, file.layout.variables[position - 1], opaque_file);
        }
        group_.streams.push_back(std::move(stream));
      }
    }
  }

  void describe_variable(Stream& stream, TreeFile& file, const Variable& variable, bool opaque_file) {
    const bool small_file = opaque_file && file.bytes < kSmallFileBytes;
    stream.class_id = class_id(!aware_      ? "file_BYTES"
                               : small_file ? "small-files_BYTES"
                                            : options_.match.class_key(variable, opaque_file));
    file.class_of.push_back(stream.class_id);
    const ElementType type = storage_type(variable);
    if (type.bytes <= kTypedElementBytesMax && stream.bytes % type.bytes == 0) stream.type = type;
    const std::vector<uint64_t>& shape = variable.run_shape.empty() ? variable.shape : variable.run_shape;
    if (!variable.encoded) stream.dims.assign(shape.rbegin(), shape.rend());
    std::erase(stream.dims, uint64_t{1});
  }

  uint32_t class_id(const std::string& key) {
    auto [found, added] = class_ids_.emplace(key, static_cast<uint32_t>(group_.class_keys.size()));
    if (added) group_.class_keys.push_back(key);
    return found->second;
  }

  void sort_classes() {
    // By name, so that the order of classes does not depend on which file came first.
    std::vector<std::string>& keys = group_.class_keys;
    std::vector<uint32_t> order(keys.size()), rank_of(keys.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    std::vector<std::string> sorted;
    for (uint32_t i = 0; i < order.size(); ++i) {
      rank_of[order[i]] = i;
      sorted.push_back(keys[order[i]]);
    }
    keys = std::move(sorted);
    for (Stream& stream : group_.streams) stream.class_id = rank_of[stream.class_id];
    for (TreeFile& file : group_.files) {
      for (uint32_t& id : file.class_of) id = rank_of[id];
    }
  }

  Source& source_;
  const SaveOptions& options_;
  const bool aware_;
  GroupStreams group_;
  std::unordered_map<std::string, uint32_t> class_ids_;
};
}  // namespace

Result<GroupStreams> describe_streams(Source& source, const SaveOptions& options, ProgressSink& progress) {
  return Describer(source, options).run(progress);
}

bool is_opaque(const Layout& layout) {
  return layout.format == "raw" && layout.variables.size() == 1 && layout.variables[0].type == ElementType{};
}

uint64_t whole_block_bytes(const SaveOptions& options) {
  const uint64_t chunk_bytes = options.chunker.bytes_average;
  return (std::max(options.block_bytes, chunk_bytes) + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

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
}  // namespace

GroupSaver::GroupSaver(const SaveContext& context, Source& source, uint32_t ordinal)
    : context_(context),
      source_(source),
      files_(source.files()),
      score_(context.store.score()),
      ordinal_(ordinal),
      cursor_(context.index),
      fresh_(context.group_memory_bytes / 4),
      builder_(context.options.pack_bytes) {
  entries_max_ = context.group_memory_bytes / 8 / sizeof(ChunkIndexEntry);
}

Result<GroupOutcome> GroupSaver::run() {
  VARVE_TRY(take_streams());
  arenas_ =
      std::make_unique<SpreadWriter>(context_.store, context_.lease, ordinal_,
                                     ArenaWriterOptions{.direct = context_.options.direct_io, .buffer_bytes = 1_MiB});
  VARVE_TRY(store_chunks());
  VARVE_TRY(source_.check_unchanged());
  VARVE_TRY(write_tree());
  VARVE_TRY(arenas_->seal());
  outcome_.arenas = arenas_->arenas();
  outcome_.record.arena_bytes = arenas_->bytes();
  return std::move(outcome_);
}

Status GroupSaver::take_streams() {
  VARVE_ASSIGN(GroupStreams described, describe_streams(source_, context_.options, context_.progress));
  tree_files_ = std::move(described.files);
  reference_counts_.resize(tree_files_.size());
  class_keys_ = std::move(described.class_keys);
  streams_ = std::move(described.streams);
  outcome_.raw_bytes = described.raw_bytes;
  outcome_.variable_count = described.variable_count;
  for (const std::string& key : class_keys_)
    encoders_.push_back(make_encoder(context_.options.codec, contents_of_class(key)));
  class_bytes_left_.resize(class_keys_.size());
  for (const Stream& stream : streams_) class_bytes_left_[stream.class_id] += stream.bytes;
  return {};
}

Status GroupSaver::store_chunks() {
  const SaveOptions& options = context_.options;
  const uint64_t chunk_bytes = options.chunker.bytes_average;
  // Small enough to stay in the cache between reading, scoring and laying down; large enough that waking the pool, and
  // the look-ahead of the chunker, which is read twice, are a small share.
  const size_t batch_bytes = std::max<size_t>(512_KiB, 8 * context_.chunker.bytes_ahead());
  const bool asks = cursor_.asks_ahead();
  const size_t scoring_max = std::clamp<uint64_t>(context_.group_memory_bytes / 4 / batch_bytes, 1,
                                                  context_.tasks_max + (asks ? 2 * kBatchesAsked : 0));
  encoding_max_ =
      std::clamp<uint64_t>(context_.group_memory_bytes / 4 / (3 * options.pack_bytes), 1, context_.tasks_max);

  BatchReader reader(streams_, source_, WorkOrder(streams_, options.scheme, whole_block_bytes(options)),
                     context_.chunker, chunk_bytes);
  std::deque<ScoringBatch> scoring;
  std::vector<std::shared_ptr<ChunkBatch>> idle;
  size_t answered = 0;  // for how many of the batches that come next it is known what the store has
  if (asks) asker_ = std::make_unique<ThreadPool>(1);
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
      Task<Status> task = context_.pool.submit([batch, score = score_] { score_batch(*batch, score); });
      scoring.push_back({std::move(batch), std::move(task)});
      continue;
    }
    if (asks && answered == 0) {
      if (!asking_) VARVE_TRY(ask_ahead(scoring, 0));
      VARVE_ASSIGN(answered, take_answer());
    }
    if (asks && !asking_) VARVE_TRY(ask_ahead(scoring, answered));
    VARVE_TRY(scoring.front().wait());
    VARVE_TRY(place_batch(*scoring.front().batch));
    if (asks) --answered;
    idle.push_back(std::move(scoring.front().batch));
    scoring.pop_front();
  }
  VARVE_TRY(finish_pack());
  while (!encoding_.empty()) VARVE_TRY(append_oldest_pack());
  return {};
}

Status GroupSaver::ask_ahead(std::deque<ScoringBatch>& batches, size_t skipped) {
  const size_t end = std::min(batches.size(), skipped + kBatchesAsked);
  if (end == skipped) return {};
  std::vector<uint64_t> prefixes;
  for (size_t i = skipped; i < end; ++i) {
    VARVE_TRY(batches[i].wait());
    for (const BatchChunk& chunk : batches[i].batch->chunks) {
      if (!chunk.pattern && fresh_.find(chunk.score, chunk.bytes) == nullptr) prefixes.push_back(chunk.score.prefix());
    }
  }
  auto question = std::make_shared<ChunkIndex::Cursor::Question>(cursor_.question(prefixes));
  Task<Status> answer =
      asker_->submit([&lookup = cursor_.lookup(), question] { return ChunkIndex::Cursor::ask(lookup, *question); });
  asking_ = Asking{end - skipped, std::move(question), std::move(answer)};
  return {};
}

Result<size_t> GroupSaver::take_answer() {
  const Status answered = asking_->answer.wait();
  const size_t batches = asking_->batches;
  if (answered.ok()) cursor_.take(*asking_->question);
  asking_.reset();
  VARVE_TRY(answered);
  return batches;
}

Status GroupSaver::place_batch(const ChunkBatch& batch) {
  uint64_t raw_bytes = 0;
  for (const BatchChunk& chunk : batch.chunks) {
    Stream& stream = streams_[chunk.stream];
    raw_bytes += chunk.bytes;
    if (chunk.pattern) {
      outcome_.pattern_bytes += chunk.bytes;
      VARVE_TRY(refer(stream, {Reference::kPattern, *chunk.pattern, chunk.bytes}));
    } else if (const std::optional<Reference> known = find_known(chunk); known && may_refer(stream, *known)) {
      outcome_.known_bytes += chunk.bytes;
      VARVE_TRY(refer(stream, *known));
    } else {
      VARVE_TRY(place_new(stream, batch, chunk));
    }
    class_bytes_left_[stream.class_id] -= chunk.bytes;
  }
  context_.progress.advance(raw_bytes);
  return {};
}

std::optional<Reference> GroupSaver::find_known(const BatchChunk& chunk) {
  if (const FreshChunks::Place* place = fresh_.find(chunk.score, chunk.bytes))
    return Reference{place->pack, place->offset, chunk.bytes};
  if (const std::optional<KnownChunk> known = cursor_.find(chunk.score, chunk.bytes))
    return Reference{pack_ordinal(known->pack), known->offset, chunk.bytes};
  return std::nullopt;
}

/// All references of a file are in one leaf, which is bounded.
bool GroupSaver::may_refer(const Stream& stream, const Reference& next) {
  if (reference_counts_[stream.file] < context_.options.references_max || continues(stream.references, next))
    return true;
  if (stored_anew_.insert(stream.file).second) {
    context_.progress.warning(
        Status::resource_limit("so much of it is in the store in pieces that the rest is stored anew",
                               tree_files_[stream.file].path, Remedy::make_chunks_larger));
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
  const uint64_t references_max = context_.options.references_max;
  if (++reference_counts_[stream.file] <= references_max + references_max / 2) return {};
  return Status::resource_limit("a file is in more pieces than a set can hold; nothing was committed",
                                tree_files_[stream.file].path, Remedy::make_chunks_larger);
}

Status GroupSaver::place_new(Stream& stream, const ChunkBatch& batch, const BatchChunk& chunk) {
  if (!builder_.accepts(stream, chunk.bytes)) VARVE_TRY(finish_pack());
  if (builder_.empty()) {
    building_ = static_cast<uint32_t>(packs_.size());
    packs_.emplace_back();  // finish_pack() says which
    builder_.expect(class_bytes_left_[stream.class_id]);
  }
  const uint64_t offset = builder_.add(stream, chunk.stream_offset, batch.bytes_of(chunk), chunk.score);
  fresh_.insert(chunk.score, chunk.bytes, {building_, offset});
  outcome_.new_bytes += chunk.bytes;
  encoding_class_ = stream.class_id;
  return refer(stream, {building_, offset, chunk.bytes});
}

uint32_t GroupSaver::pack_ordinal(const PackLink& link) {
  auto [found, added] = known_packs_.emplace(std::pair(link.score, link.hint), static_cast<uint32_t>(packs_.size()));
  if (added) packs_.push_back(link);
  return found->second;
}

Status GroupSaver::finish_pack() {
  if (builder_.empty()) return {};
  auto pack = std::make_shared<PendingPack>(builder_.take(class_keys_[encoding_class_], score_));
  packs_[building_] = {pack->meta.score, arenas_->home(pack->meta.score)};
  while (encoding_.size() >= encoding_max_) VARVE_TRY(append_oldest_pack());
  Task<Result<EncodedBytes>> task = context_.pool.submit(
      [pack, stored = context_.options.codec.stores(), encoder = encoders_[encoding_class_]]() -> Result<EncodedBytes> {
        if (stored) return EncodedBytes{{std::byte{0}}, {}};  // the raw bytes are the body: no need to copy them
        return encoder->encode(pack->raw, pack->shape);
      });
  encoding_.push_back({std::move(pack), std::move(task)});
  return {};
}

Status GroupSaver::append_oldest_pack() {
  EncodingPack oldest = std::move(encoding_.front());
  encoding_.pop_front();
  VARVE_ASSIGN(EncodedBytes encoded, oldest.task.wait());
  PackMeta& meta = oldest.pack->meta;
  meta.recipe = std::move(encoded.recipe);
  const ByteSpan body = context_.options.codec.stores() ? oldest.pack->raw : encoded.body;
  VARVE_ASSIGN(const SpreadWriter::Place place, arenas_->append_pack(meta, body));
  entries_dropped_ = entries_dropped_ || outcome_.entries.size() + meta.chunks.size() > entries_max_;
  if (entries_dropped_) {
    outcome_.entries = {};
    return {};
  }
  for (size_t i = 0; i < meta.chunks.size(); ++i) {
    outcome_.entries.push_back({meta.chunks[i].score.prefix(), place.arena, place.ordinal, static_cast<uint32_t>(i)});
  }
  return {};
}

Status GroupSaver::write_tree() {
  Root root;
  size_t first_file = 0, stream = 0;
  uint64_t leaf_bytes = 0;
  for (size_t i = 0; i < tree_files_.size(); ++i) {
    leaf_bytes += leaf_bytes_of(tree_files_[i], streams_, stream);
    stream += tree_files_[i].streams.size();
    if (leaf_bytes < kLeafBytes && i + 1 < tree_files_.size()) continue;
    VARVE_ASSIGN(LeafLink link, write_leaf(first_file, i + 1));
    root.leaves.push_back(link);
    first_file = i + 1;
    leaf_bytes = 0;
  }
  VARVE_ASSIGN(const NodeLink written, append_node(encode_root(root, score_.score_bytes())));
  outcome_.record.root = written.score;
  outcome_.record.hint = written.hint;
  return {};
}

Result<NodeLink> GroupSaver::append_node(ByteSpan content) {
  const Score score = score_(content);
  VARVE_TRY(arenas_->append_node(score, content));
  return NodeLink{score, arenas_->home(score)};
}

/// In pieces, if it is too long for one node.
Result<NodeLink> GroupSaver::append_leaf(ByteSpan content) {
  const uint64_t node_bytes_max = context_.options.node_bytes_max;
  if (content.size() <= node_bytes_max) return append_node(content);
  LeafPieces list{content.size(), {}};
  while (!content.empty()) {
    const ByteSpan part = content.first(std::min<size_t>(content.size(), node_bytes_max - 1));
    VARVE_ASSIGN(const NodeLink piece, append_node(encode_leaf_piece(part)));
    list.pieces.push_back(piece);
    content = content.subspan(part.size());
  }
  return append_node(encode_leaf_pieces(list, score_.score_bytes()));
}

Result<LeafLink> GroupSaver::write_leaf(size_t first_file, size_t last_file) {
  Leaf leaf;
  LeafLink link;
  std::unordered_map<uint32_t, uint32_t> pack_of, class_of;
  auto ordinal_in = [](std::unordered_map<uint32_t, uint32_t>& map, uint32_t key, auto& table, const auto& value) {
    auto [found, added] = map.emplace(key, static_cast<uint32_t>(table.size()));
    if (added) table.push_back(value);
    return found->second;
  };
  for (Stream& stream : streams_) {
    if (stream.file < first_file || stream.file >= last_file) continue;
    for (Reference& reference : stream.references) {
      if (reference.pack != Reference::kPattern)
        reference.pack = ordinal_in(pack_of, reference.pack, leaf.packs, packs_[reference.pack]);
    }
    tree_files_[stream.file].streams[stream.position] = std::move(stream.references);
  }
  for (size_t i = first_file; i < last_file; ++i) {
    TreeFile& file = tree_files_[i];
    for (uint32_t& id : file.class_of) id = ordinal_in(class_of, id, leaf.class_keys, class_keys_[id]);
    link.bytes += file.bytes;
    leaf.files.push_back(std::move(file));
  }
  link.file_count = leaf.files.size();
  const ByteVector content = encode_leaf(leaf, score_.score_bytes());
  // describe_streams() and refer() see to it.
  if (content.size() > kLeafBytesMax || leaf.class_keys.size() > kClassesPerLeafMax)
    return Status::internal("what is to be said of a file is more than a set can hold: " + leaf.files.back().path);
  VARVE_ASSIGN(const NodeLink written, append_leaf(content));
  link.score = written.score;
  link.hint = written.hint;
  return link;
}

}  // namespace varve
