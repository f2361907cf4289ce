#include "study/pack_trial.h"

#include <algorithm>
#include <map>

#include "aggregate/chunk_batch.h"
#include "aggregate/group_streams.h"
#include "core/clock.h"
#include "core/parallel.h"
#include "study/metered.h"

namespace varve {

namespace {
/// What a pack takes beside its body and recipe: its header, and one entry of its table.
constexpr uint64_t kPackOverheadBytes = 64;

/// Runs a chain of codecs that depends on the type of the elements.
class ByTypeEncoder final : public Encoder {
 public:
  explicit ByTypeEncoder(std::string second) : second_(std::move(second)) {}
  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    std::string name = find_codec(CodecNumber::lz4).ok() ? "lz4" : "zstd:1";
    const bool floating = shape.type.kind == ElementKind::floating;
    if (floating && shape.type.bytes == 8) name = "fpc";
    if (floating && shape.type.bytes == 4) name = "fpzip";
    VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(name + second_));
    return encode_chain(chain, raw, shape);
  }

 private:
  const std::string second_;
};

Status lay_out_packs(Source& source, const SaveOptions& options, ProgressSink& progress, LaidOutGroup& laid_out) {
  VARVE_ASSIGN(const GroupStreams group, describe_streams(source, options, progress));
  laid_out.raw_bytes = group.raw_bytes;
  VARVE_ASSIGN(const std::unique_ptr<Chunker> chunker, make_chunker(options.chunker));
  // Holes are read, as a run of zeros is no different.
  BatchReader reader(group.streams, source, WorkOrder(group.streams, options.scheme, whole_block_bytes(options)),
                     *chunker, UINT64_MAX);
  PackBuilder builder(options.pack_bytes);
  ChunkBatch batch(std::max<size_t>(512_KiB, 8 * chunker->bytes_ahead()));
  const ScoreFunction score = ScoreFunction::preferred();
  uint32_t class_id = 0;
  while (true) {
    if (progress.cancelled()) return Status::cancelled();
    const double begin = steady_clock().seconds();
    VARVE_TRY(reader.fill(batch));
    laid_out.read_seconds += steady_clock().seconds() - begin;
    if (batch.chunks.empty()) break;
    for (const BatchChunk& chunk : batch.chunks) {
      const Stream& stream = group.streams[chunk.stream];
      if (!builder.accepts(stream, chunk.bytes))
        laid_out.packs.push_back(builder.take(group.class_keys[class_id], score));
      if (builder.empty()) builder.expect(options.pack_bytes);
      builder.add(stream, chunk.stream_offset, batch.bytes_of(chunk), Score{});
      class_id = stream.class_id;
    }
  }
  if (!builder.empty()) laid_out.packs.push_back(builder.take(group.class_keys[class_id], score));
  return {};
}
}  // namespace

Result<LaidOutGroup> lay_out(Source& source, const SaveOptions& options, ProgressSink& progress) {
  LaidOutGroup laid_out;
  double processor_seconds = 0;
  const Status done = metered(processor_seconds, [&] { return lay_out_packs(source, options, progress, laid_out); });
  VARVE_TRY(done);
  laid_out.order_seconds = std::max(0.0, processor_seconds - laid_out.read_seconds);
  return laid_out;
}

Result<Method> find_method(const std::string& name) {
  constexpr std::string_view by_type = "by-type";
  if (name.starts_with(by_type)) {
    return Method{name, [second = name.substr(by_type.size())] { return std::make_unique<ByTypeEncoder>(second); }};
  }
  VARVE_ASSIGN(const CodecPolicy policy, CodecPolicy::parse(name));
  return Method{name, [policy] { return make_encoder(policy); }};
}

Result<std::vector<PackOutcome>> try_method(const std::vector<PendingPack>& packs, const Method& method,
                                            size_t thread_count) {
  std::map<std::string, std::unique_ptr<Encoder>> encoders;
  for (const PendingPack& pack : packs) {
    std::unique_ptr<Encoder>& encoder = encoders[pack.meta.class_key];
    if (encoder == nullptr) encoder = method.make_encoder();
  }
  std::vector<PackOutcome> outcomes(packs.size());
  Status tried = parallel_for(packs.size(), std::max<size_t>(thread_count, 1), [&](size_t i) -> Status {
    const PendingPack& pack = packs[i];
    PackOutcome& outcome = outcomes[i];
    Encoder& encoder = *encoders.at(pack.meta.class_key);
    const Result<EncodedBytes> encoded =
        metered(outcome.encode_seconds, [&] { return encoder.encode(pack.raw, pack.shape); });
    VARVE_TRY(encoded.status());
    ByteVector decoded(pack.raw.size());
    const Status done =
        metered(outcome.decode_seconds, [&] { return decode_chain(encoded->recipe, encoded->body, decoded); });
    VARVE_TRY(done);
    if (decoded != pack.raw) return Status::internal("a codec does not give back what it was given", method.name);
    outcome.class_key = pack.meta.class_key;
    outcome.raw_bytes = pack.raw.size();
    outcome.stored_bytes = encoded->body.size() + encoded->recipe.size() + kPackOverheadBytes;
    return {};
  });
  VARVE_TRY(tried);
  return outcomes;
}

}  // namespace varve
