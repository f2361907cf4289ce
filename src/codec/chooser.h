#pragma once

#include "codec/candidates.h"
#include "codec/codec.h"

namespace varve {

/// How a save encodes its packs: one chain for all, the paper's choice by type, or what trials find best.
struct CodecPolicy {
  enum class Kind : uint8_t { automatic, chain, paper } kind = Kind::automatic;
  Effort effort = Effort::balanced;  ///< for automatic
  CodecChain chain;                  ///< for chain
  /// For automatic, but not with effort fast: what programs compressed is stored as what it holds, if it can be made
  /// again (opened.h). For what is deflated, that takes about as long as to deflate it.
  bool opens_compressed = true;

  /// "fast", "balanced" or "best": trials, as much as the effort allows.
  static Result<CodecPolicy> of_effort(std::string_view text);
  /// An effort, "paper" or a chain's name.
  static Result<CodecPolicy> parse(std::string_view text);
  /// Whether packs are stored as they are.
  bool stores() const { return kind == Kind::chain && chain.stages().empty(); }
  /// Whether what variables say of each other is made use of, so that it is worth while to lay them together.
  bool predicts_across() const;
  /// The reverse of parse().
  std::string name() const;
};

/// Encodes packs by a policy. One object serves one similarity class, so that what a trial on one pack found helps the
/// next; may be used by several threads.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) = 0;
  /// What comes next is of a later set, which may be somewhat different.
  virtual void begin_set() {}
  /// Writes down what packs have taught it, for one of the same policy and contents that has had none yet, and does not
  /// trust it (learned.h). After a failure, that one is as if it had read nothing, or a part.
  virtual void write_learned(ByteWriter&) const {}
  virtual Status read_learned(ByteReader&) { return {}; }
};
/// What the packs of a class hold: variables, or what lies between them in files (and small variables).
enum class PackContents : uint8_t { variables, skeletons };
class FoundNumbers;
/// `found`: shared by the encoders of classes that are saved together; none: its own.
std::unique_ptr<Encoder> make_encoder(const CodecPolicy& policy, PackContents contents = PackContents::variables,
                                      std::shared_ptr<FoundNumbers> found = nullptr);

}  // namespace varve
