#include "codec/kept_encoders.h"

#include <algorithm>

#include "codec/learned.h"

namespace varve {

namespace {
/// How large packs of a class should be is found anew once in so many sets.
constexpr unsigned kSetsPerLook = 4;

std::string key_of(const CodecPolicy& policy, const std::string& class_key) { return policy.name() + ' ' + class_key; }

/// Something of its own length, so that what cannot be read is no part of what follows.
template <class Write>
void write_part(ByteWriter& w, const Write& write) {
  ByteVector part;
  ByteWriter of_part(part);
  write(of_part);
  w.text(as_text(part));
}
}  // namespace

void KeptEncoders::begin_set() {
  found_->begin_set();
  const MutexLock lock(mutex_);
  ++set_;
  std::erase_if(encoders_, [now = set_](const auto& each) { return each.second.set + 2 < now; });
  for (auto& [key, kept] : encoders_) {
    if (kept.encoder != nullptr) kept.encoder->begin_set();
    if (kept.sets_left > 0) --kept.sets_left;
  }
}

std::shared_ptr<Encoder> KeptEncoders::of(const CodecPolicy& policy, const std::string& class_key,
                                          PackContents contents) {
  const MutexLock lock(mutex_);
  Kept& kept = encoders_[key_of(policy, class_key)];
  if (kept.encoder == nullptr) {
    kept.encoder = make_encoder(policy, contents, found_);
    ByteReader learned(kept.learned);
    if (!kept.learned.empty() && kept.encoder->read_learned(learned).ok()) {
      kept.encoder->begin_set();
    } else if (!kept.learned.empty()) {
      kept.encoder = make_encoder(policy, contents, found_);
    }
    kept.learned = ByteVector();
  }
  kept.set = set_;
  return kept.encoder;
}

std::optional<uint64_t> KeptEncoders::wide_pack_bytes(const CodecPolicy& policy, const std::string& class_key) {
  const MutexLock lock(mutex_);
  const auto kept = encoders_.find(key_of(policy, class_key));
  if (kept == encoders_.end() || kept->second.sets_left == 0) return std::nullopt;
  kept->second.set = set_;
  return kept->second.pack_bytes;
}

void KeptEncoders::note_wide_pack_bytes(const CodecPolicy& policy, const std::string& class_key, uint64_t bytes) {
  const MutexLock lock(mutex_);
  Kept& kept = encoders_[key_of(policy, class_key)];
  kept.set = set_;
  kept.pack_bytes = bytes;
  kept.sets_left = kSetsPerLook;
}

ByteVector KeptEncoders::learned() const {
  ByteVector learned;
  ByteWriter w(learned);
  write_part(w, [this](ByteWriter& part) { found_->write_learned(part); });
  const MutexLock lock(mutex_);
  const auto is_of_set = [now = set_](const auto& each) { return each.second.set == now; };
  w.varint(static_cast<uint64_t>(std::count_if(encoders_.begin(), encoders_.end(), is_of_set)));
  for (const auto& each : encoders_) {
    if (!is_of_set(each)) continue;
    const auto& [key, kept] = each;
    w.text(key);
    w.varint(kept.pack_bytes);
    w.varint(kept.sets_left);
    write_part(w, [&encoder = kept.encoder](ByteWriter& part) {
      if (encoder != nullptr) encoder->write_learned(part);
    });
    if (learned.size() > kLearnedBytesMax) return {};
  }
  return learned;
}

Status KeptEncoders::learn(ByteSpan learned) {
  ByteReader reader(learned);
  VARVE_ASSIGN(const std::string_view found, reader.text());
  std::map<std::string, Kept> all;
  VARVE_ASSIGN(const uint64_t count, reader.count(4));
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(const std::string_view key, reader.text());
    Kept& kept = all[std::string(key)];
    VARVE_ASSIGN(kept.pack_bytes, reader.varint());
    VARVE_ASSIGN(kept.sets_left, read_at_most(reader, kSetsPerLook));
    VARVE_ASSIGN(const std::string_view of_encoder, reader.text());
    const ByteSpan bytes = as_bytes(of_encoder);
    kept.learned.assign(bytes.begin(), bytes.end());
  }
  if (!reader.at_end()) return Status::corrupt("more than what a save has learned");
  ByteReader of_all(as_bytes(found));
  VARVE_TRY(found_->read_learned(of_all));
  const MutexLock lock(mutex_);
  encoders_ = std::move(all);
  return {};
}

}  // namespace varve
