#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "codec/chooser.h"
#include "codec/found_numbers.h"
#include "core/sync.h"

namespace varve {

/// The encoders of one who saves again and again, with one policy for each kind of pack: a class has the same one in
/// each save, so that what trials found for one set serves the next, too; and how large packs of a class are made for
/// what comes again. Small sets have one pack of a class, and a trial takes as long as encoding that. Thread-safe.
class KeptEncoders {
 public:
  /// A set begins. What the last two had none of is forgotten.
  void begin_set();
  /// The encoder of a class's packs. Policies of one name, and `contents`: the same each time.
  std::shared_ptr<Encoder> of(const CodecPolicy& policy, const std::string& class_key, PackContents contents);

  /// How large packs of the class were made for one of the last sets; none: it is time to look again.
  std::optional<uint64_t> wide_pack_bytes(const CodecPolicy& policy, const std::string& class_key);
  void note_wide_pack_bytes(const CodecPolicy& policy, const std::string& class_key, uint64_t bytes);

  /// What the last set had of all this, for who saves the next one in another process. Empty: it is more than
  /// kLearnedBytesMax.
  ByteVector learned() const;
  /// Takes that over, before the first set begins. It is not trusted, and of what is no such thing nothing is taken.
  Status learn(ByteSpan learned);
  static constexpr uint64_t kLearnedBytesMax = 1_MiB;

 private:
  struct Kept {
    std::shared_ptr<Encoder> encoder{};
    uint64_t set = 0;         ///< the last one that had it
    ByteVector learned{};     ///< by an earlier process, until there is an encoder
    uint64_t pack_bytes = 0;  ///< of wide packs
    unsigned sets_left = 0;   ///< that need not look for that
  };
  const std::shared_ptr<FoundNumbers> found_ = std::make_shared<FoundNumbers>();
  mutable Mutex mutex_;
  std::map<std::string, Kept> encoders_ VARVE_GUARDED_BY(mutex_);
  uint64_t set_ VARVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace varve
