#include "aggregate/save_plan.h"

#include <algorithm>

#include "core/bytes.h"

namespace varve {

namespace {
void write_file(ByteWriter& w, const SourceFile& file) {
  w.text(file.path);
  w.u8(static_cast<uint8_t>(file.type));
  w.varint(file.mode);
  w.signed_varint(file.modified_s);
  w.varint(file.modified_ns);
  w.text(file.link_target);
  w.varint(file.bytes);
  w.u8(file.sparse ? 1 : 0);
  w.signed_varint(file.changed_s);
  w.varint(file.changed_ns);
  w.signed_varint(file.rank);
}

Result<SourceFile> read_file(ByteReader& reader) {
  SourceFile file;
  VARVE_ASSIGN(file.path, reader.text());
  VARVE_ASSIGN(const uint8_t type, reader.u8());
  if (type > static_cast<uint8_t>(FileType::symlink)) return Status::corrupt("an impossible type of file", file.path);
  file.type = static_cast<FileType>(type);
  VARVE_ASSIGN(const uint64_t mode, reader.varint());
  file.mode = static_cast<uint32_t>(mode);
  VARVE_ASSIGN(file.modified_s, reader.signed_varint());
  VARVE_ASSIGN(const uint64_t modified_ns, reader.varint());
  file.modified_ns = static_cast<uint32_t>(modified_ns);
  VARVE_ASSIGN(file.link_target, reader.text());
  VARVE_ASSIGN(file.bytes, reader.varint());
  VARVE_ASSIGN(const uint8_t sparse, reader.u8());
  file.sparse = sparse != 0;
  VARVE_ASSIGN(file.changed_s, reader.signed_varint());
  VARVE_ASSIGN(const uint64_t changed_ns, reader.varint());
  file.changed_ns = static_cast<uint32_t>(changed_ns);
  VARVE_ASSIGN(file.rank, reader.signed_varint());
  return file;
}
}  // namespace

ByteVector encode_save_plan(const SavePlan& plan) {
  ByteVector raw;
  ByteWriter w(raw);
  w.text(plan.name.job);
  w.varint(plan.name.step);
  w.bytes(plan.run.bytes);
  w.varint(plan.groups.size());
  for (const std::vector<SourceFile>& files : plan.groups) {
    w.varint(files.size());
    for (const SourceFile& file : files) write_file(w, file);
  }
  return raw;
}

Result<SavePlan> decode_save_plan(ByteSpan raw) {
  ByteReader reader(raw);
  SavePlan plan;
  VARVE_ASSIGN(plan.name.job, reader.text());
  VARVE_ASSIGN(plan.name.step, reader.varint());
  VARVE_ASSIGN(const ByteSpan run, reader.bytes(16));
  std::copy(run.begin(), run.end(), plan.run.bytes.begin());
  VARVE_ASSIGN(const uint64_t group_count, reader.count(1));
  for (uint64_t i = 0; i < group_count; ++i) {
    VARVE_ASSIGN(const uint64_t file_count, reader.count(1));
    std::vector<SourceFile>& files = plan.groups.emplace_back();
    for (uint64_t k = 0; k < file_count; ++k) {
      VARVE_ASSIGN(SourceFile file, read_file(reader));
      files.push_back(std::move(file));
    }
  }
  if (!reader.at_end()) return Status::corrupt("a plan is longer than its fields");
  return plan;
}

}  // namespace varve
