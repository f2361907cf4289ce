#include "redundancy/member_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/status_codec.h"
#include "hash/score.h"

namespace varve {

namespace {
/// The hashes of files that come one after another, as one stream of bytes.
class FileSums {
 public:
  static Result<FileSums> create(std::vector<ProtectedFile>& files, ScoreAlgorithm algorithm) {
    VARVE_ASSIGN(ScoreStream stream, ScoreStream::create(algorithm));
    return FileSums(files, algorithm, std::move(stream));
  }
  /// The next bytes; together they are as many as the files have.
  Status append(ByteSpan data) {
    while (!data.empty()) {
      VARVE_TRY(finish_whole_files());
      if (at_ == files_.size()) return Status::internal("more bytes than the protected files have");
      const ByteSpan part = data.first(std::min<uint64_t>(data.size(), files_[at_].bytes - bytes_));
      stream_.append(part);
      bytes_ += part.size();
      data = data.subspan(part.size());
    }
    return {};
  }
  Status finish() {
    VARVE_TRY(finish_whole_files());
    return at_ == files_.size() ? Status() : Status::internal("fewer bytes than the protected files have");
  }

 private:
  FileSums(std::vector<ProtectedFile>& files, ScoreAlgorithm algorithm, ScoreStream stream)
      : files_(files), algorithm_(algorithm), stream_(std::move(stream)) {}
  Status finish_whole_files() {
    for (; at_ < files_.size() && bytes_ == files_[at_].bytes; ++at_) {
      files_[at_].sum = stream_.finish();
      VARVE_ASSIGN(stream_, ScoreStream::create(algorithm_));
      bytes_ = 0;
    }
    return {};
  }

  std::vector<ProtectedFile>& files_;
  ScoreAlgorithm algorithm_;
  ScoreStream stream_;  ///< of the file at_
  size_t at_ = 0;
  uint64_t bytes_ = 0;  ///< of that file
};

/// The files with their lengths, in the order of the stream.
Result<std::vector<ProtectedFile>> measure_files(FileSystem& fs, const std::string& folder,
                                                 std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return Status::invalid_argument("a file is protected twice", *twice);
  }
  std::vector<ProtectedFile> files;
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    VARVE_TRY(check_protected_name(name));
    VARVE_ASSIGN(const FileStatus status, fs.stat(join_path(folder, name)));
    if (status.is_directory) return Status::invalid_argument("a folder cannot be protected", join_path(folder, name));
    bytes += std::min(status.bytes, kStreamBytesMax);
    files.push_back({name, status.bytes, {}});
  }
  if (bytes > kStreamBytesMax || files.size() > kProtectedFilesMax) {
    return Status::resource_limit(
        fmt::format("a node protects at most {} bytes in {} files", kStreamBytesMax, kProtectedFilesMax), folder);
  }
  return files;
}

/// So large a file is small enough to be read whenever it is looked at.
constexpr uint64_t kSmallFileBytes = 64_KiB;

Status check_file(FileSystem& fs, const std::string& path, const ProtectedFile& expected, ScoreAlgorithm algorithm,
                  bool contents) {
  VARVE_ASSIGN(const std::unique_ptr<File> file, fs.open_read(path));
  VARVE_ASSIGN(const uint64_t bytes, file->size());
  if (bytes != expected.bytes) {
    return Status::corrupt(fmt::format("a protected file has {} bytes instead of {}", bytes, expected.bytes), path);
  }
  if (!contents && bytes > kSmallFileBytes) return {};
  VARVE_ASSIGN(ScoreStream stream, ScoreStream::create(algorithm));
  Buffer block(std::min(bytes, kParityBlockBytes));
  for (uint64_t at = 0; at < bytes; at += kParityBlockBytes) {
    const auto part = MutableByteSpan(block).first(std::min(kParityBlockBytes, bytes - at));
    VARVE_TRY(read_exactly(*file, at, part, path));
    stream.append(part);
  }
  if (stream.finish() != expected.sum) return Status::corrupt("a protected file is not what it was", path);
  return {};
}
}  // namespace

Result<ProtectedMember> describe_member(FileSystem& fs, const std::string& folder, const std::string& node,
                                        std::vector<std::string> names, const Redundancy& redundancy,
                                        ScoreAlgorithm algorithm) {
  ProtectedMember member{node, {}, {}};
  VARVE_ASSIGN(member.files, measure_files(fs, folder, std::move(names)));
  const uint64_t stream_bytes = member.stream_bytes();
  MemberReader reader(fs, folder, member.files);
  VARVE_ASSIGN(FileSums sums, FileSums::create(member.files, algorithm));
  Buffer buffer(std::min(stream_bytes, kParityBlockBytes));
  // Piece after piece, block after block is the order of the stream: so both kinds of sums are of the very same bytes.
  for (uint32_t piece = 0; piece < redundancy.data_parts; ++piece) {
    const ByteRange range = piece_of_stream(stream_bytes, redundancy.data_parts, piece);
    for (uint64_t at = range.begin; at < range.end; at += kParityBlockBytes) {
      const auto block = MutableByteSpan(buffer).first(std::min(kParityBlockBytes, range.end - at));
      VARVE_TRY(reader.read_stream(at, block));
      member.block_sums.push_back(crc32c(block));
      VARVE_TRY(sums.append(block));
    }
  }
  VARVE_TRY(sums.finish());
  return member;
}

Result<ParityHeader> read_member_header(FileSystem& fs, const std::string& folder) {
  const std::string path = join_path(folder, kParityFileName);
  VARVE_ASSIGN(const std::unique_ptr<File> file, fs.open_read(path));
  return read_parity_header(*file, path);
}

Result<ParityGroup> agree_on_group(std::span<const ByteVector> descriptions, std::string_view label) {
  std::optional<ParityGroup> agreed;
  for (const ByteVector& description : descriptions) {
    if (description.empty() || (agreed && agreed->description() == description)) continue;
    VARVE_ASSIGN(ParityGroup group, ParityGroup::decode(description));
    if (group.group().label != label) continue;
    if (agreed) {
      return Status::corrupt("redundancy files of one failure group contradict each other", std::string(label),
                             "remove those that are left over from another run");
    }
    agreed = std::move(group);
  }
  if (agreed) return std::move(*agreed);
  return Status::not_found("no node of the failure group has a redundancy file of it", std::string(label));
}

MemberSurvey MemberSurvey::all_lost(const ParityGroup& group, uint32_t position) {
  return {std::vector<bool>(group.member(position).files.size(), true), true, {}};
}

MemberSurvey MemberSurvey::all_whole(const ParityGroup& group, uint32_t position) {
  return {std::vector<bool>(group.member(position).files.size(), false), false, {}};
}

bool MemberSurvey::anything_lost() const {
  return parity_lost || std::find(lost_files.begin(), lost_files.end(), true) != lost_files.end();
}

MemberSurvey survey_member(FileSystem& fs, const std::string& folder, const ParityGroup& group, uint32_t position,
                           const SurveyOptions& options) {
  MemberSurvey survey = MemberSurvey::all_whole(group, position);
  // A file that cannot be read is as good as lost, whatever the reason. One that is not there needs no words.
  const auto is_lost = [&](const Status& status) {
    if (!status.ok() && status.code() != StatusCode::not_found) survey.damages.push_back(status);
    return !status.ok();
  };
  const std::vector<ProtectedFile>& files = group.member(position).files;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = join_path(folder, files[i].name);
    bool contents = options.contents;
    if (options.known_whole != nullptr) {
      const auto known = options.known_whole->find(files[i].name);
      contents = contents && (known == options.known_whole->end() || known->second != files[i].sum);
    }
    survey.lost_files[i] = is_lost(check_file(fs, path, files[i], group.group().algorithm, contents));
    if (contents && !survey.lost_files[i] && options.known_whole != nullptr) {
      options.known_whole->insert_or_assign(files[i].name, files[i].sum);
    }
  }
  const std::string parity_path = join_path(folder, kParityFileName);
  survey.parity_lost = is_lost(verify_parity_file(fs, parity_path, group, position, options.contents));
  return survey;
}

MemberReader::MemberReader(FileSystem& fs, std::string folder, const std::vector<ProtectedFile>& files)
    : fs_(fs), folder_(std::move(folder)), files_(files) {
  uint64_t end = 0;
  for (const ProtectedFile& file : files) ends_.push_back(end += file.bytes);
}

Status MemberReader::read_stream(uint64_t offset, MutableByteSpan into) {
  if (offset > (ends_.empty() ? 0 : ends_.back()) || into.size() > (ends_.empty() ? 0 : ends_.back()) - offset) {
    return Status::invalid_argument("bytes behind the end of what a node protects are asked for", folder_);
  }
  while (!into.empty()) {
    const auto file = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    const uint64_t begin = ends_[file] - files_[file].bytes;
    const auto part = into.first(std::min<uint64_t>(into.size(), ends_[file] - offset));
    VARVE_TRY(read_file(files_[file].name, offset - begin, part));
    offset += part.size();
    into = into.subspan(part.size());
  }
  return {};
}

Status MemberReader::read_parity_file(uint64_t offset, MutableByteSpan into) {
  return read_file(std::string(kParityFileName), offset, into);
}

Status MemberReader::read_file(const std::string& name, uint64_t offset, MutableByteSpan into) {
  const std::string path = join_path(folder_, name);
  if (open_ == nullptr || open_name_ != name) {
    VARVE_ASSIGN(open_, fs_.open_read(path));
    open_name_ = name;
  }
  return read_exactly(*open_, offset, into, path);
}

namespace {
constexpr size_t kDamagesMax = 4;
constexpr size_t kDamageTextBytesMax = 300;
}  // namespace

// Redundancy file lost u8 | files varint | a bit for each, the first the lowest | damages varint | each a Status.

ByteVector encode_survey(const MemberSurvey& survey) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.u8(survey.parity_lost ? 1 : 0);
  out.varint(survey.lost_files.size());
  ByteVector bits((survey.lost_files.size() + 7) / 8);
  for (size_t i = 0; i < survey.lost_files.size(); ++i) {
    if (survey.lost_files[i]) bits[i / 8] |= static_cast<std::byte>(1u << i % 8);
  }
  out.bytes(bits);
  const size_t damage_count = std::min(survey.damages.size(), kDamagesMax);
  out.varint(damage_count);
  for (size_t i = 0; i < damage_count; ++i) put_status(out, survey.damages[i], kDamageTextBytesMax);
  return bytes;
}

Result<MemberSurvey> decode_survey(ByteSpan bytes, const ParityGroup& group, uint32_t position) {
  MemberSurvey survey = MemberSurvey::all_whole(group, position);
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint8_t parity_lost, in.u8());
  VARVE_ASSIGN(const uint64_t file_count, in.varint());
  if (parity_lost > 1 || file_count != survey.lost_files.size()) {
    return Status::corrupt("what a node says of its files makes no sense", group.name_of(position));
  }
  survey.parity_lost = parity_lost == 1;
  VARVE_ASSIGN(const ByteSpan bits, in.bytes((file_count + 7) / 8));
  for (size_t i = 0; i < file_count; ++i) {
    survey.lost_files[i] = (bits[i / 8] & static_cast<std::byte>(1u << i % 8)) != std::byte{0};
  }
  VARVE_ASSIGN(const uint64_t damage_count, in.count());
  for (uint64_t i = 0; i < damage_count; ++i) {
    Status damage;
    VARVE_TRY(get_status(in, damage));
    survey.damages.push_back(std::move(damage));
  }
  if (!in.at_end()) return Status::corrupt("what a node says of its files has bytes left", group.name_of(position));
  return survey;
}

LostFilesWriter::LostFilesWriter(FileSystem& fs, std::string folder, const ProtectedMember& member,
                                 const std::vector<bool>& lost_files, ScoreAlgorithm algorithm)
    : fs_(fs), folder_(std::move(folder)), algorithm_(algorithm) {
  uint64_t begin = 0;
  for (size_t i = 0; i < member.files.size(); ++i) {
    const uint64_t end = begin + member.files[i].bytes;
    if (lost_files[i]) lost_.push_back({&member.files[i], {begin, end}});
    begin = end;
  }
}

LostFilesWriter::~LostFilesWriter() {
  if (open_ == nullptr) return;
  open_.reset();
  fs_.remove(unfinished_path(*lost_[at_].file)).ignore("a leftover is harmless, and goes with the next attempt");
}

std::string LostFilesWriter::unfinished_path(const ProtectedFile& file) const {
  return join_path(folder_, file.name + std::string(kUnfinishedSuffix));
}

Status LostFilesWriter::begin_file() {
  if (open_ != nullptr) return {};
  VARVE_ASSIGN(sum_, ScoreStream::create(algorithm_));
  VARVE_ASSIGN(open_, fs_.create(unfinished_path(*lost_[at_].file)));
  bytes_ = 0;
  return {};
}

Status LostFilesWriter::complete_file() {
  const ProtectedFile& file = *lost_[at_].file;
  if (bytes_ != file.bytes) return Status::internal("a rebuilt file lacks bytes", join_path(folder_, file.name));
  if (sum_->finish() != file.sum) {
    return Status::corrupt("a rebuilt file is not what it was", join_path(folder_, file.name));
  }
  VARVE_TRY(open_->sync());
  VARVE_TRY(fs_.rename(unfinished_path(file), join_path(folder_, file.name)));
  open_.reset();
  ++at_;
  return {};
}

Status LostFilesWriter::write(uint64_t stream_offset, ByteSpan bytes) {
  const uint64_t end = stream_offset + bytes.size();
  while (at_ < lost_.size() && lost_[at_].range.begin < end) {
    const ByteRange& range = lost_[at_].range;
    VARVE_TRY(begin_file());
    const uint64_t from = std::max(stream_offset, range.begin), to = std::min(end, range.end);
    if (from < to) {
      if (from != range.begin + bytes_) return Status::internal("rebuilt bytes are out of turn");
      const ByteSpan part = bytes.subspan(from - stream_offset, to - from);
      VARVE_TRY(open_->write_at(bytes_, part));
      sum_->append(part);
      bytes_ += part.size();
    }
    if (end < range.end) return {};  // the rest of this file comes later
    VARVE_TRY(complete_file());
  }
  return {};
}

Status LostFilesWriter::finish() {
  if (lost_.empty()) return {};
  while (at_ < lost_.size()) {  // none of these needs any more bytes
    VARVE_TRY(begin_file());
    VARVE_TRY(complete_file());
  }
  return fs_.sync_directory(folder_);
}

}  // namespace varve
