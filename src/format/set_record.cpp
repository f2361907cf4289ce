#include "format/set_record.h"

#include <algorithm>

namespace varve {

namespace {
constexpr std::string_view kRecordMagic = "VARVESET";
/// Records of version 1 have neither number nor run.
constexpr uint16_t kRecordVersion = 2, kVersionWithoutNumber = 1;

void write_beginning(ByteWriter& w, const SetRecord& record) {
  w.bytes(as_bytes(kRecordMagic));
  w.le16(kRecordVersion);
  w.text(record.name.job);
  w.varint(record.name.step);
  w.signed_varint(record.created_s);
}
}  // namespace

uint64_t SetRecord::stored_bytes() const {
  uint64_t sum = 0;
  for (const GroupRecord& group : groups) sum += group.arena_bytes;
  return sum;
}

Status check_job_name(std::string_view job) {
  const bool characters_ok = std::none_of(job.begin(), job.end(), [](char c) {
    return c == '/' || c == '@' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!job.empty() && job.size() <= 100 && characters_ok && job[0] != '.' && job[0] != '-') return {};
  return Status::invalid_argument(
      "not a job name", std::string(job),
      "use 1 to 100 bytes without '/', '@' and control characters, not beginning with '.' or '-'");
}

bool same_trees(const SetRecord& a, const SetRecord& b) {
  return std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                    [](const GroupRecord& one, const GroupRecord& other) { return one.root == other.root; });
}

bool may_have_been(ByteSpan damaged, const SetRecord& record, const ScoreFunction& score) {
  ByteVector beginning;
  ByteWriter w(beginning);
  write_beginning(w, record);
  // Both versions begin alike, but for their number.
  const size_t fields = kRecordMagic.size() + sizeof(uint16_t);
  if (damaged.size() >= beginning.size() &&
      std::equal(beginning.begin() + fields, beginning.end(), damaged.begin() + fields))
    return true;
  const auto found = std::count_if(record.groups.begin(), record.groups.end(), [&](const GroupRecord& group) {
    ByteVector root;
    ByteWriter writer(root);
    write_score(writer, group.root, score.score_bytes());
    return std::search(damaged.begin(), damaged.end(), root.begin(), root.end()) != damaged.end();
  });
  return 2 * static_cast<size_t>(found) > record.groups.size();
}

ByteVector encode_set_record(const SetRecord& record, const ScoreFunction& score) {
  ByteVector out;
  ByteWriter w(out);
  write_beginning(w, record);
  for (const std::string* text : {&record.scheme, &record.policy, &record.chunker, &record.match}) w.text(*text);
  for (uint64_t number : {record.rank_count, record.file_count, record.raw_bytes, record.new_bytes}) w.varint(number);
  w.varint(record.number);
  w.bytes(record.run.bytes);
  w.varint(record.run_ranks);
  w.varint(record.groups.size());
  for (const GroupRecord& group : record.groups) {
    write_score(w, group.root, score.score_bytes());
    w.bytes(group.hint.bytes);
    w.varint(group.arena_bytes);
  }
  write_score(w, score(out), score.score_bytes());
  return out;
}

Result<SetRecord> decode_set_record(ByteSpan raw, const ScoreFunction& score) {
  const size_t score_bytes = score.score_bytes();
  if (raw.size() < kRecordMagic.size() + 2 + score_bytes || as_text(raw.first(8)) != kRecordMagic) {
    return Status::corrupt("not a set record");
  }
  const ByteSpan fields = raw.first(raw.size() - score_bytes);
  ByteReader tail(raw.last(score_bytes));
  VARVE_ASSIGN(Score named, read_score(tail, score_bytes));
  if (score(fields) != named) return Status::corrupt("the set record does not match its checksum");
  ByteReader reader(fields.subspan(8));
  VARVE_ASSIGN(uint16_t version, reader.le16());
  if (version != kRecordVersion && version != kVersionWithoutNumber) {
    return Status::unsupported("this set was saved in record version " + std::to_string(version), {},
                               "use a newer Varve");
  }
  SetRecord record;
  VARVE_ASSIGN(std::string_view job, reader.text());
  record.name.job = job;
  VARVE_TRY(check_job_name(job));
  VARVE_ASSIGN(record.name.step, reader.varint());
  VARVE_ASSIGN(record.created_s, reader.signed_varint());
  for (std::string* text : {&record.scheme, &record.policy, &record.chunker, &record.match}) {
    VARVE_ASSIGN(std::string_view value, reader.text());
    *text = value;
  }
  for (uint64_t* number : {&record.rank_count, &record.file_count, &record.raw_bytes, &record.new_bytes}) {
    VARVE_ASSIGN(*number, reader.varint());
  }
  if (version != kVersionWithoutNumber) {
    VARVE_ASSIGN(record.number, reader.varint());
    VARVE_ASSIGN(record.run, UniqueId::read(reader));
    VARVE_ASSIGN(record.run_ranks, reader.varint());
  }
  VARVE_ASSIGN(uint64_t group_count, reader.count(score_bytes + 17));
  record.groups.resize(group_count);
  for (GroupRecord& group : record.groups) {
    VARVE_ASSIGN(group.root, read_score(reader, score_bytes));
    VARVE_ASSIGN(group.hint, ArenaId::read(reader));
    VARVE_ASSIGN(group.arena_bytes, reader.varint());
  }
  if (!reader.at_end()) return Status::corrupt("a set record is longer than its fields");
  return record;
}

}  // namespace varve
