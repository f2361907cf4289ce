#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "codec/chooser.h"
#include "codec/found_numbers.h"
#include "core/sync.h"

namespace varve {

/// The encoders of one who saves again and again, with one policy for each kind of pack: a class has the same one in
/// each save, so that what trials found for one set serves the next, too. Small sets have one pack of a class, and a
/// trial takes as long as encoding that. Thread-safe.
class KeptEncoders {
 public:
  /// A set begins. What the last two had none of is forgotten.
  void begin_set();
  /// The encoder of packs that are called so. `policy` and `contents`: the same each time.
  std::shared_ptr<Encoder> of(const std::string& key, const CodecPolicy& policy, PackContents contents);

 private:
  struct Kept {
    std::shared_ptr<Encoder> encoder;
    uint64_t set = 0;  ///< the last one that had it
  };
  const std::shared_ptr<FoundNumbers> found_ = std::make_shared<FoundNumbers>();
  Mutex mutex_;
  std::map<std::string, Kept> encoders_ VARVE_GUARDED_BY(mutex_);
  uint64_t set_ VARVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace varve
