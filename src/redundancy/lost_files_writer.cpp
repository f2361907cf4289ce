#include "redundancy/lost_files_writer.h"

#include <algorithm>

namespace varve {

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
