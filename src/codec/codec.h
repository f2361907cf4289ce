#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "varve/element_type.h"

namespace varve {

/// Consecutive elements of one variable inside a pack.
struct Run {
  uint64_t elements = 0;
  /// Extents of the variable's array, fastest dimension first, without dimensions of extent 1: {nx, ny, nz}. Empty if
  /// unknown or 1-D. A run may begin and end anywhere in the array.
  std::vector<uint64_t> dims;
  /// The run is the whole array: elements == product of dims.
  bool whole = false;
  bool operator==(const Run&) const = default;
};

/// Longer elements (records of many fields) are bytes to an encoder.
inline constexpr uint32_t kTypedElementBytesMax = 64;

/// Consecutive runs of one variable, in a pack that has several.
struct PackPart {
  uint64_t elements = 0;
  /// The part before it, by its number, whose elements predict these one by one; none, or as many as here.
  std::optional<uint32_t> reference;
  bool operator==(const PackPart&) const = default;
};

/// What is known of a pack's raw bytes: one type of element, in runs laid one after another. The runs cover the raw
/// bytes exactly (elements * type.bytes); a pack of which nothing is known has the type BYTES and one run.
struct PackShape {
  ElementType type;
  std::vector<Run> runs;
  /// Covers the runs, too, and none lies in two parts; empty unless variables were laid together that predict each
  /// other.
  std::vector<PackPart> parts{};
};

/// The number of a codec on disk (FORMAT.md, "Codecs"). Numbers are never reused; the gaps are for codecs to come.
enum class CodecNumber : uint32_t {
  // Entropy coders: they shrink any bytes.
  zstd = 1,
  lz4 = 2,
  gzip = 3,
  lzma = 4,
  constant = 16,
  // Filters: they make the bytes easier for an entropy coder, and keep their number, but for `columns`, `inflate` and
  // `blosc`.
  shuffle = 32,
  bitshuffle = 33,
  delta = 34,
  lorenzo = 35,
  columns = 36,
  across = 37,
  rotate = 38,
  inflate = 39,
  signlast = 40,
  blosc = 41,
  // Predictors with an entropy coder of their own.
  fpc = 64,
  fpzip = 65,
  // Coders for what the filters give.
  planes = 96,
  magnitudes = 98,
  // Several chains, one behind the other.
  sections = 97,
};

/// One step of a codec chain: a lossless, invertible map of bytes. Codecs are stateless, immutable and thread-safe.
/// They are there until the process is gone: threads may still be at work when a program ends by exit(), so there is
/// nothing to destroy in one.
class Codec {
 public:
  virtual CodecNumber number() const = 0;
  virtual std::string_view name() const = 0;  ///< as in chain names: "zstd", "lorenzo", "bitshuffle"
  /// Whether encode() can take bytes of this shape (FPC wants 8-byte floats, for example).
  virtual bool applies_to(const PackShape& shape) const = 0;
  /// Appends to `out` the encoded form of `in`, and to `params` all that decode() needs beside it. `level` is the
  /// codec's own (0: its default).
  virtual Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const = 0;
  /// Fills `out`, whose size is the declared one, from untrusted `in` and `params`. `corrupt` if they do not decode to
  /// exactly that many bytes. Never reads or writes outside the spans, and allocates no more than a small multiple of
  /// out.size() + in.size().
  virtual Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const = 0;

 protected:
  ~Codec() = default;
};

/// The registered codec, or unsupported with a message that names the number (written by a newer Varve, or left out of
/// this build).
Result<const Codec*> find_codec(CodecNumber number);
Result<const Codec*> find_codec(std::string_view name);
/// All registered codecs, by number.
std::vector<const Codec*> all_codecs();

/// An ordered list of codecs with their levels, e.g. "lorenzo+shuffle+zstd:1". An empty chain stores the bytes as they
/// are.
class CodecChain {
 public:
  struct Stage {
    const Codec* codec;
    int level;
  };
  CodecChain() = default;
  explicit CodecChain(std::vector<Stage> stages) : stages_(std::move(stages)) {}
  /// "store", or codec names joined by '+', each with an optional ":level".
  static Result<CodecChain> parse(std::string_view text);
  std::string name() const;
  const std::vector<Stage>& stages() const { return stages_; }
  bool applies_to(const PackShape& shape) const;

 private:
  std::vector<Stage> stages_;
};

/// A pack's bytes after a chain. `recipe` is what decoding needs: count of stages, then of each its number, the bytes
/// it took in, its parameters (FORMAT.md, "Codec recipe"). The recipe of stored bytes is the single byte 0.
struct EncodedBytes {
  ByteVector recipe;
  ByteVector body;
};

/// Runs `raw` through `chain`. Stages that do not apply to `shape` are left out; if the result is not smaller than
/// `raw`, it is stored instead.
Result<EncodedBytes> encode_chain(const CodecChain& chain, ByteSpan raw, const PackShape& shape);

/// Bytes that lie one behind the other, each encoded by itself, as one.
struct EncodedSection {
  uint64_t bytes = 0;  ///< before it was encoded; at least kSectionBytesMin but for the last one
  EncodedBytes encoded;
};
EncodedBytes joined(const std::vector<EncodedSection>& sections);
inline constexpr uint64_t kSectionBytesMin = 64_KiB;

/// What `encoded` is of, as what a stage before its chain gave: its `params`, of the `in_bytes` that it took in. Such a
/// recipe has one stage more, which must be a stage's place left.
EncodedBytes behind_stage(CodecNumber number, uint64_t in_bytes, ByteSpan params, EncodedBytes encoded);

/// Undoes encode_chain() from untrusted bytes; `raw.size()` is the declared size and at most kPackBytesMax.
Status decode_chain(ByteSpan recipe, ByteSpan body, MutableByteSpan raw);

/// The chain's name as written in a recipe ("lorenzo+shuffle+zstd"), for show and stat. Unknown numbers appear as
/// "codec-37".
Result<std::string> recipe_name(ByteSpan recipe);
/// Whether the body is the raw bytes themselves.
bool recipe_is_store(ByteSpan recipe);

inline constexpr uint64_t kPackBytesMax = 64_MiB;
inline constexpr size_t kChainStagesMax = 8;

}  // namespace varve
