#include "store/verify_findings.h"

#include <algorithm>

#include "core/status_codec.h"

namespace varve {

namespace {
void encode_place(ByteWriter& w, const Status& what, const std::optional<ArenaId>& arena) {
  w.text(as_text(encode_status(what)));
  w.u8(arena ? 1 : 0);
  if (arena) w.bytes(arena->bytes);
}

Status decode_place(ByteReader& reader, Status& what, std::optional<ArenaId>& arena) {
  VARVE_ASSIGN(const std::string_view text, reader.text());
  VARVE_TRY(decode_status(as_bytes(text), what));
  VARVE_ASSIGN(const uint8_t in_arena, reader.u8());
  if (in_arena == 0) return {};
  VARVE_ASSIGN(const ByteSpan id, reader.bytes(sizeof(ArenaId::bytes)));
  std::copy(id.begin(), id.end(), arena.emplace().bytes.begin());
  return {};
}

Result<Damage> decode_damage(ByteReader& reader) {
  Damage damage;
  VARVE_TRY(decode_place(reader, damage.what, damage.arena));
  for (std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
    VARVE_ASSIGN(const uint64_t count, reader.count(1));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(const std::string_view text, reader.text());
      texts->emplace_back(text);
    }
  }
  VARVE_ASSIGN(const uint8_t disposable, reader.u8());
  damage.disposable = disposable != 0;
  return damage;
}

Result<PackDamage> decode_pack_damage(ByteReader& reader) {
  PackDamage damage;
  VARVE_TRY(decode_place(reader, damage.what, damage.arena));
  VARVE_ASSIGN(const uint64_t count, reader.count(Score().bytes.size()));
  for (uint64_t i = 0; i < count; ++i) {
    Score score;
    VARVE_ASSIGN(const ByteSpan bytes, reader.bytes(score.bytes.size()));
    std::copy(bytes.begin(), bytes.end(), score.bytes.begin());
    damage.packs.insert(score);
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
  w.varint(report.damages.size());
  for (const Damage& damage : report.damages) {
    encode_place(w, damage.what, damage.arena);
    for (const std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
      w.varint(texts->size());
      for (const std::string& text : *texts) w.text(text);
    }
    w.u8(damage.disposable ? 1 : 0);
  }
  for (const PackDamage& damage : findings.pack_damages) {
    encode_place(w, damage.what, damage.arena);
    w.varint(damage.packs.size());
    for (const Score& score : damage.packs) w.bytes(score.bytes);
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
  VARVE_ASSIGN(const uint64_t count, reader.count(1));
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(Damage damage, decode_damage(reader));
    report.damages.push_back(std::move(damage));
  }
  while (!reader.at_end()) {
    VARVE_ASSIGN(PackDamage damage, decode_pack_damage(reader));
    findings.pack_damages.push_back(std::move(damage));
  }
  return findings;
}

}  // namespace varve
