#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "codec/codec.h"
#include "codec/opened.h"

namespace varve {
namespace {

/// What stages may take in, one after the other: some codecs grow what they cannot shrink, and what was compressed is
/// larger by nature. Bounds what a hostile recipe makes decode_chain() allocate. FORMAT.md, "Codec recipe".
class StageLimits {
 public:
  explicit StageLimits(uint64_t raw_bytes) : base_bytes_(raw_bytes) {}
  /// Of the next stage, in the order of encoding.
  bool allow(CodecNumber number, uint64_t in_bytes) {
    if (in_bytes > (after_opened_ ? opened_bytes_max(last_bytes_) : 2 * base_bytes_ + 64_KiB)) return false;
    if (after_opened_) base_bytes_ = std::max(base_bytes_, in_bytes);
    after_opened_ = opens(number) && !had_opened_;
    had_opened_ = had_opened_ || after_opened_;
    last_bytes_ = in_bytes;
    return true;
  }

 private:
  uint64_t base_bytes_, last_bytes_ = 0;
  bool after_opened_ = false, had_opened_ = false;  ///< only the first one in a chain counts
};

/// The buffer between two stages, kept between calls: first touch of fresh memory costs more than a filter.
class StageBuffer {
 public:
  ByteVector& cleared() {
    bytes_.clear();
    return bytes_;
  }
  MutableByteSpan sized(size_t bytes) {
    if (bytes_.size() < bytes) bytes_.resize(bytes);
    return MutableByteSpan(bytes_).first(bytes);
  }
  void shrink() {
    if (bytes_.capacity() > 8_MiB) bytes_ = {};
  }

 private:
  ByteVector bytes_;
};

struct StageBuffers {
  StageBuffer even, odd;
  StageBuffer& of(size_t stage) { return stage % 2 == 0 ? even : odd; }
  void shrink() {
    even.shrink();
    odd.shrink();
  }
};

/// A chain that is being decoded may have sections, which are decoded by chains of their own; these have none.
constexpr size_t kChainDepthMax = 2;

/// How many chains the thread is within, with this one.
class ChainDepth {
 public:
  ChainDepth() { ++depth(); }
  ~ChainDepth() { --depth(); }
  ChainDepth(const ChainDepth&) = delete;
  ChainDepth& operator=(const ChainDepth&) = delete;
  static size_t& depth() {
    thread_local size_t chains = 0;
    return chains;
  }
};

/// Of the chain that the thread is at.
StageBuffers& stage_buffers() {
  thread_local std::array<StageBuffers, kChainDepthMax> buffers;
  return buffers[std::max<size_t>(ChainDepth::depth(), 1) - 1];
}

/// Refuses a level that the codec does not have, by encoding nothing with it.
Status check_level(const Codec& codec, int level) {
  ByteVector params, out;
  return codec.encode({}, {.type = {ElementKind::floating, ByteOrder::little, 8}, .runs = {}}, level, params, out);
}

struct RecipeStage {
  CodecNumber number;
  uint64_t in_bytes;
  ByteSpan params;
};

/// FORMAT.md, "Codec recipe": count u8, then of each stage number varint | in_bytes varint | params length varint |
/// params.
Result<std::vector<RecipeStage>> parse_recipe(ByteSpan recipe) {
  ByteReader reader(recipe);
  VARVE_ASSIGN(const uint8_t count, reader.u8());
  if (count > kChainStagesMax) return Status::corrupt("a codec chain has too many stages");
  std::vector<RecipeStage> stages;
  for (uint8_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(const uint64_t number, reader.varint());
    VARVE_ASSIGN(const uint64_t in_bytes, reader.varint());
    VARVE_ASSIGN(const uint64_t params_bytes, reader.varint());
    VARVE_ASSIGN(const ByteSpan params, reader.bytes(params_bytes));
    if (number > UINT32_MAX) return Status::corrupt("a codec number has more than 32 bits");
    stages.push_back({static_cast<CodecNumber>(number), in_bytes, params});
  }
  if (!reader.at_end()) return Status::corrupt("bytes are left after a codec recipe");
  return stages;
}

EncodedBytes stored(ByteSpan raw) { return {.recipe = {std::byte{0}}, .body = ByteVector(raw.begin(), raw.end())}; }

Status decode_stages(const std::vector<RecipeStage>& stages, ByteSpan body, MutableByteSpan raw) {
  ByteSpan in = body;
  for (size_t left = stages.size(); left > 0; --left) {
    const RecipeStage& stage = stages[left - 1];
    VARVE_ASSIGN(const Codec* codec, find_codec(stage.number));
    MutableByteSpan out = left == 1 ? raw : stage_buffers().of(left).sized(stage.in_bytes);
    VARVE_TRY(codec->decode(in, stage.params, out).with_context(codec->name()));
    in = out;
  }
  return {};
}

}  // namespace

Result<CodecChain> CodecChain::parse(std::string_view text) {
  if (text == "store") return CodecChain();
  std::vector<Stage> stages;
  while (true) {
    const size_t plus = std::min(text.find('+'), text.size());
    const std::string_view stage = text.substr(0, plus);
    const size_t colon = std::min(stage.find(':'), stage.size());
    VARVE_ASSIGN(const Codec* codec, find_codec(stage.substr(0, colon)));
    int level = 0;
    if (colon < stage.size()) {
      const std::string_view digits = stage.substr(colon + 1);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), level);
      if (error != std::errc() || end != digits.data() + digits.size()) {
        return Status::invalid_argument("a codec's level is not a number", std::string(stage),
                                        "write zstd:3, for example");
      }
    }
    VARVE_TRY(check_level(*codec, level).with_context(std::string(stage)));
    stages.push_back({codec, level});
    if (plus == text.size()) break;
    text.remove_prefix(plus + 1);
  }
  if (stages.size() > kChainStagesMax) {
    return Status::invalid_argument(fmt::format("a codec chain has more than {} stages", kChainStagesMax));
  }
  return CodecChain(std::move(stages));
}

std::string CodecChain::name() const {
  if (stages_.empty()) return "store";
  std::string text;
  for (const Stage& stage : stages_) {
    if (!text.empty()) text += '+';
    text += stage.codec->name();
    if (stage.level != 0) text += fmt::format(":{}", stage.level);
  }
  return text;
}

bool CodecChain::applies_to(const PackShape& shape) const {
  for (const Stage& stage : stages_) {
    if (!stage.codec->applies_to(shape)) return false;
  }
  return true;
}

Result<EncodedBytes> encode_chain(const CodecChain& chain, ByteSpan raw, const PackShape& shape) {
  if (raw.size() > kPackBytesMax) return Status::invalid_argument("a pack is larger than its limit");
  EncodedBytes encoded;
  ByteWriter recipe(encoded.recipe);
  recipe.u8(0);  // the count of stages, once it is known
  std::vector<const CodecChain::Stage*> stages;
  for (const CodecChain::Stage& stage : chain.stages()) {
    if (stage.codec->applies_to(shape)) stages.push_back(&stage);
  }
  if (stages.empty()) return stored(raw);

  ByteSpan in = raw;
  StageLimits limits(raw.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!limits.allow(stages[i]->codec->number(), in.size())) return stored(raw);
    ByteVector params;
    ByteVector& out = i + 1 == stages.size() ? encoded.body : stage_buffers().of(i).cleared();
    VARVE_TRY(
        stages[i]->codec->encode(in, shape, stages[i]->level, params, out).with_context(stages[i]->codec->name()));
    recipe.varint(static_cast<uint32_t>(stages[i]->codec->number()));
    recipe.varint(in.size());
    recipe.varint(params.size());
    recipe.bytes(params);
    in = out;
  }
  encoded.recipe[0] = static_cast<std::byte>(stages.size());
  stage_buffers().shrink();
  if (encoded.recipe.size() + encoded.body.size() > raw.size()) return stored(raw);
  return encoded;
}

EncodedBytes behind_stage(CodecNumber number, uint64_t in_bytes, ByteSpan params, EncodedBytes encoded) {
  EncodedBytes result{.recipe = {}, .body = std::move(encoded.body)};
  ByteWriter recipe(result.recipe);
  recipe.u8(static_cast<uint8_t>(static_cast<unsigned>(encoded.recipe[0]) + 1));
  recipe.varint(static_cast<uint32_t>(number));
  recipe.varint(in_bytes);
  recipe.varint(params.size());
  recipe.bytes(params);
  recipe.bytes(ByteSpan(encoded.recipe).subspan(1));
  return result;
}

Status decode_chain(ByteSpan recipe, ByteSpan body, MutableByteSpan raw) {
  if (raw.size() > kPackBytesMax) return Status::invalid_argument("a pack is larger than its limit");
  const ChainDepth depth;
  if (ChainDepth::depth() > kChainDepthMax) return Status::corrupt("a section has sections");
  VARVE_ASSIGN(const std::vector<RecipeStage> stages, parse_recipe(recipe));
  if (stages.empty()) {
    if (body.size() != raw.size()) return Status::corrupt("a stored pack has another size than it says");
    std::copy(body.begin(), body.end(), raw.begin());
    return {};
  }
  if (stages.front().in_bytes != raw.size()) return Status::corrupt("a codec recipe is for another pack size");
  StageLimits limits(raw.size());
  for (const RecipeStage& stage : stages) {
    if (!limits.allow(stage.number, stage.in_bytes)) return Status::corrupt("a codec stage is too large for its pack");
  }
  Status status = decode_stages(stages, body, raw);
  stage_buffers().shrink();
  return status;
}

Result<std::string> recipe_name(ByteSpan recipe) {
  VARVE_ASSIGN(const std::vector<RecipeStage> stages, parse_recipe(recipe));
  if (stages.empty()) return std::string("store");
  std::string text;
  for (const RecipeStage& stage : stages) {
    if (!text.empty()) text += '+';
    const Result<const Codec*> codec = find_codec(stage.number);
    text += codec.ok() ? std::string((*codec)->name()) : fmt::format("codec-{}", static_cast<uint32_t>(stage.number));
  }
  return text;
}

bool recipe_is_store(ByteSpan recipe) { return recipe.size() == 1 && recipe[0] == std::byte{0}; }

}  // namespace varve
