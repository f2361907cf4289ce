#include "codec/kept_encoders.h"

namespace varve {

void KeptEncoders::begin_set() {
  found_->begin_set();
  const MutexLock lock(mutex_);
  ++set_;
  std::erase_if(encoders_, [now = set_](const auto& each) { return each.second.set + 2 < now; });
  for (auto& [key, kept] : encoders_) kept.encoder->begin_set();
}

std::shared_ptr<Encoder> KeptEncoders::of(const std::string& key, const CodecPolicy& policy, PackContents contents) {
  const MutexLock lock(mutex_);
  Kept& kept = encoders_[key];
  if (kept.encoder == nullptr) kept.encoder = make_encoder(policy, contents, found_);
  kept.set = set_;
  return kept.encoder;
}

}  // namespace varve
