#include "store/verify_findings.h"

#include <algorithm>

#include "core/status_codec.h"

namespace varve {

namespace {
Result<Damage> decode_damage(ByteReader& reader) {
  Damage damage;
  VARVE_ASSIGN(const std::string_view what, reader.text());
  VARVE_TRY(decode_status(as_bytes(what), damage.what));
  for (std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
    VARVE_ASSIGN(const uint64_t count, reader.count(1));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(const std::string_view text, reader.text());
      texts->emplace_back(text);
    }
  }
  VARVE_ASSIGN(const uint8_t disposable, reader.u8());
  damage.disposable = disposable != 0;
  VARVE_ASSIGN(const uint8_t in_arena, reader.u8());
  if (in_arena != 0) {
    VARVE_ASSIGN(const ByteSpan id, reader.bytes(sizeof(ArenaId::bytes)));
    std::copy(id.begin(), id.end(), damage.arena.emplace().bytes.begin());
  }
  return damage;
}
}  // namespace

ByteVector encode_findings(const Findings& findings) {
  ByteVector raw;
  ByteWriter w(raw);
  const VerifyReport& report = findings.report;
  for (uint64_t number : {report.set_count, report.arena_count, report.pack_count, report.checked_bytes}) {
    w.varint(number);
  }
  w.varint(findings.damaged_packs.size());
  for (const Score& score : findings.damaged_packs) w.bytes(score.bytes);
  for (const Damage& damage : report.damages) {
    w.text(as_text(encode_status(damage.what)));
    for (const std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
      w.varint(texts->size());
      for (const std::string& text : *texts) w.text(text);
    }
    w.u8(damage.disposable ? 1 : 0);
    w.u8(damage.arena ? 1 : 0);
    if (damage.arena) w.bytes(damage.arena->bytes);
  }
  return raw;
}

Result<Findings> decode_findings(ByteSpan raw) {
  ByteReader reader(raw);
  Findings findings;
  VerifyReport& report = findings.report;
  for (uint64_t* number : {&report.set_count, &report.arena_count, &report.pack_count, &report.checked_bytes}) {
    VARVE_ASSIGN(*number, reader.varint());
  }
  VARVE_ASSIGN(const uint64_t score_count, reader.count(Score().bytes.size()));
  for (uint64_t i = 0; i < score_count; ++i) {
    Score score;
    VARVE_ASSIGN(const ByteSpan bytes, reader.bytes(score.bytes.size()));
    std::copy(bytes.begin(), bytes.end(), score.bytes.begin());
    findings.damaged_packs.insert(score);
  }
  while (!reader.at_end()) {
    VARVE_ASSIGN(Damage damage, decode_damage(reader));
    report.damages.push_back(std::move(damage));
  }
  return findings;
}

}  // namespace varve
