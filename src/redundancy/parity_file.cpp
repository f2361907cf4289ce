#include "redundancy/parity_file.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve {

namespace {
constexpr std::string_view kMagic = "VARVEPAR";
constexpr uint16_t kVersion = 1;
constexpr size_t kFixedBytes = 16;  ///< before the description
constexpr size_t kHeaderSumBytes = 4;

/// The header's fields but for the description.
struct FixedFields {
  uint16_t position = 0;
  uint32_t description_bytes = 0;
};

Result<FixedFields> decode_fixed(ByteSpan bytes, const std::string& path) {
  ByteReader in(bytes);
  VARVE_ASSIGN(const ByteSpan magic, in.bytes(kMagic.size()));
  if (as_text(magic) != kMagic) return Status::corrupt("not a redundancy file", path);
  VARVE_ASSIGN(const uint16_t version, in.le16());
  if (version != kVersion) {
    return Status::unsupported(fmt::format("a redundancy file of version {}", version), path, "use a newer Varve");
  }
  FixedFields fields;
  VARVE_ASSIGN(fields.position, in.le16());
  VARVE_ASSIGN(fields.description_bytes, in.le32());
  return fields;
}

/// The first record at or after a place that has any bytes: rows of no bytes have none.
void skip_empty_rows(const ParityGroup& group, uint32_t position, uint32_t& row, uint64_t& block) {
  const StripeGeometry& geometry = group.geometry();
  while (row < geometry.parity_parts() &&
         block >= parity_blocks(geometry.stripe_bytes(geometry.stripe_of_parity(position, row)))) {
    ++row;
    block = 0;
  }
}
}  // namespace

ByteVector encode_parity_header(const ParityGroup& group, uint32_t position) {
  ByteVector bytes;
  bytes.reserve(group.header_bytes());
  ByteWriter out(bytes);
  out.bytes(as_bytes(kMagic));
  out.le16(kVersion);
  out.le16(static_cast<uint16_t>(position));
  out.le32(static_cast<uint32_t>(group.description().size()));
  out.bytes(group.description());
  out.le32(crc32c(bytes));
  return bytes;
}

Result<ParityHeader> read_parity_header(File& file, const std::string& path) {
  VARVE_ASSIGN(const uint64_t file_bytes, file.size());
  ByteVector bytes(kFixedBytes);
  VARVE_TRY(read_exactly(file, 0, bytes, path));
  VARVE_ASSIGN(const FixedFields fields, decode_fixed(bytes, path));
  const uint64_t header_bytes = kFixedBytes + uint64_t{fields.description_bytes} + kHeaderSumBytes;
  if (fields.description_bytes > kDescriptionBytesMax || header_bytes > file_bytes) {
    return Status::corrupt("the header of a redundancy file is longer than it can be", path);
  }
  bytes.resize(header_bytes);
  VARVE_TRY(read_exactly(file, kFixedBytes, MutableByteSpan(bytes).subspan(kFixedBytes), path));
  const ByteSpan summed = ByteSpan(bytes).first(header_bytes - kHeaderSumBytes);
  if (load_le<uint32_t>(bytes.data() + summed.size()) != crc32c(summed)) {
    return Status::corrupt("the header of a redundancy file does not match its checksum", path);
  }
  Result<ParityGroup> group = ParityGroup::decode(summed.subspan(kFixedBytes));
  if (!group.ok()) return group.status().with_context(path);
  if (fields.position >= group->members()) return Status::corrupt("a redundancy file of no node of its group", path);
  const uint64_t expected_bytes = group->parity_file_bytes(fields.position);
  if (file_bytes != expected_bytes) {
    return Status::corrupt(fmt::format("a redundancy file has {} bytes instead of {}", file_bytes, expected_bytes),
                           path);
  }
  return ParityHeader{std::move(*group), fields.position};
}

ParityFileWriter::ParityFileWriter(std::unique_ptr<File> file, const ParityGroup& group, uint32_t position)
    : file_(std::move(file)), group_(group), position_(position), offset_(group.header_bytes()) {
  skip_empty_rows(group_, position_, row_, block_);
}

Result<ParityFileWriter> ParityFileWriter::create(FileSystem& fs, const std::string& path, const ParityGroup& group,
                                                  uint32_t position) {
  VARVE_ASSIGN(std::unique_ptr<File> file, fs.create(path));
  if (const Status written = file->write_at(0, encode_parity_header(group, position)); !written.ok()) {
    fs.remove(path).ignore("the first failure is the one to report");
    return written;
  }
  return ParityFileWriter(std::move(file), group, position);
}

Status ParityFileWriter::append(ByteSpan block) {
  if (row_ == group_.geometry().parity_parts() ||
      group_.record_bytes(position_, row_, block_) != kHeaderSumBytes + block.size()) {
    return Status::internal("a block of a redundancy file is out of turn");
  }
  record_.resize(kHeaderSumBytes);
  store_le<uint32_t>(record_.data(), group_.record_sum(position_, offset_, block));
  record_.insert(record_.end(), block.begin(), block.end());
  VARVE_TRY(file_->write_at(offset_, record_));
  offset_ += record_.size();
  ++block_;
  skip_empty_rows(group_, position_, row_, block_);
  return {};
}

Status ParityFileWriter::finish() {
  if (row_ != group_.geometry().parity_parts()) return Status::internal("a redundancy file lacks blocks");
  return file_->sync();
}

Result<ByteSpan> open_parity_record(const ParityGroup& group, uint32_t position, uint64_t offset, ByteSpan record) {
  const ByteSpan block = record.subspan(std::min(record.size(), kHeaderSumBytes));
  if (block.empty() || load_le<uint32_t>(record.data()) != group.record_sum(position, offset, block)) {
    return Status::corrupt(fmt::format("a block of a redundancy file does not match its checksum (byte {})", offset),
                           group.name_of(position));
  }
  return block;
}

Status verify_parity_file(FileSystem& fs, const std::string& path, const ParityGroup& group, uint32_t position,
                          bool blocks) {
  VARVE_ASSIGN(const std::unique_ptr<File> file, fs.open_read(path));
  {
    VARVE_ASSIGN(const ParityHeader header, read_parity_header(*file, path));
    if (header.position != position || header.group.description() != group.description()) {
      return Status::corrupt("a redundancy file of another group or node", path);
    }
  }
  if (!blocks) return {};
  uint32_t row = 0;
  uint64_t block = 0;
  ByteVector record;
  for (skip_empty_rows(group, position, row, block); row < group.geometry().parity_parts();
       skip_empty_rows(group, position, row, block)) {
    const uint64_t offset = group.record_offset(position, row, block);
    record.resize(group.record_bytes(position, row, block));
    VARVE_TRY(read_exactly(*file, offset, record, path));
    VARVE_TRY(open_parity_record(group, position, offset, record).status());
    ++block;
  }
  return {};
}

}  // namespace varve
