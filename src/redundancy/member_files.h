#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/file_system.h"
#include "hash/score.h"
#include "redundancy/parity_file.h"
#include "redundancy/parity_group.h"
#include "varve/status.h"

namespace varve {

/// Reads the files `names` of a member's folder once, and says what is to be protected: they must not change any more.
/// Names in any order. invalid_argument for names that cannot be protected, or that come twice.
Result<ProtectedMember> describe_member(FileSystem& fs, const std::string& folder, const std::string& node,
                                        std::vector<std::string> names, const Redundancy& redundancy,
                                        ScoreAlgorithm algorithm = ScoreFunction::preferred().algorithm());

/// The header of the redundancy file in a member's folder; not_found if there is none, else as read_parity_header().
Result<ParityHeader> read_member_header(FileSystem& fs, const std::string& folder);

/// The group that all members' redundancy files describe: a description from each member, empty from those that have
/// none (any more). Those with another label are left aside. not_found if none is left; corrupt if they differ, since
/// then it is unknown which files are the right ones.
Result<ParityGroup> agree_on_group(std::span<const ByteVector> descriptions, std::string_view label);

/// What of a member's files is whole.
struct MemberSurvey {
  std::vector<bool> lost_files;  ///< as many as the member protects: missing, damaged or unreadable
  bool parity_lost = false;      ///< the same of its redundancy file
  std::vector<Status> damages;   ///< what was wrong with files that are there, for people

  /// Everything of a member is lost, or nothing.
  static MemberSurvey all_lost(const ParityGroup& group, uint32_t position);
  static MemberSurvey all_whole(const ParityGroup& group, uint32_t position);
  bool anything_lost() const;
};

struct SurveyOptions {
  /// Read all bytes; else only those of small files, and the rest is whole if it is as long as it should be.
  bool contents = true;
  /// Files that were found whole, by name with their sums: they are not read again, and others are added. Null: none.
  std::map<std::string, Score>* known_whole = nullptr;
};

/// Reads all files of a member, its redundancy file among them, and compares them with what the group says of them.
MemberSurvey survey_member(FileSystem& fs, const std::string& folder, const ParityGroup& group, uint32_t position,
                           const SurveyOptions& options = {});

/// Serves ranges of what a member has to the others. Checks nothing but that the bytes are there: who asked does. One
/// thread at a time; keeps one file open.
class MemberReader {
 public:
  /// `fs` and `files`, those that the member protects, outlive it.
  MemberReader(FileSystem& fs, std::string folder, const std::vector<ProtectedFile>& files);
  /// Fills `into` with the bytes of the member's stream from `offset` on. invalid_argument beyond its end; else what
  /// the file system says, and corrupt for a file that is too short.
  Status read_stream(uint64_t offset, MutableByteSpan into);
  /// The same, of its redundancy file.
  Status read_parity_file(uint64_t offset, MutableByteSpan into);

 private:
  Status read_file(const std::string& name, uint64_t offset, MutableByteSpan into);
  FileSystem& fs_;
  std::string folder_;
  const std::vector<ProtectedFile>& files_;
  std::vector<uint64_t> ends_;  ///< of the files, in the stream
  std::string open_name_;
  std::unique_ptr<File> open_;
};

/// What is whole on a member, as a message to the others; of the damages only the first few, cut short.
ByteVector encode_survey(const MemberSurvey& survey);
/// The reverse, of untrusted bytes; corrupt unless they are a survey of that very member.
Result<MemberSurvey> decode_survey(ByteSpan bytes, const ParityGroup& group, uint32_t position);

/// Writes the lost files of a member from its stream: each under an unfinished name, until it is complete, has the hash
/// that it had, and is durable; then it gets its own name, and replaces what has it. One file is open at a time. Its
/// destructor removes a file that was not completed. One thread at a time.
class LostFilesWriter {
 public:
  /// `fs` and `member` outlive it. No unfinished file of these names is there (already_exists later).
  LostFilesWriter(FileSystem& fs, std::string folder, const ProtectedMember& member,
                  const std::vector<bool>& lost_files, ScoreAlgorithm algorithm);
  LostFilesWriter(const LostFilesWriter&) = delete;
  LostFilesWriter& operator=(const LostFilesWriter&) = delete;
  ~LostFilesWriter();

  /// Takes what the lost files need of these bytes of the stream. In ascending order, and nothing of a lost file is
  /// left out (internal otherwise). corrupt if a file that is complete is not what it was.
  Status write(uint64_t stream_offset, ByteSpan bytes);
  /// After the last bytes: all lost files have their names, and these are durable.
  Status finish();

 private:
  struct LostFile {
    const ProtectedFile* file = nullptr;
    ByteRange range;  ///< of the stream
  };
  std::string unfinished_path(const ProtectedFile& file) const;
  /// Begins the file lost_[at_] unless that has been done.
  Status begin_file();
  Status complete_file();

  FileSystem& fs_;
  std::string folder_;
  ScoreAlgorithm algorithm_;
  std::vector<LostFile> lost_;
  size_t at_ = 0;       ///< the one that comes next, or is being written
  uint64_t bytes_ = 0;  ///< of it, that are there
  std::unique_ptr<File> open_;
  std::optional<ScoreStream> sum_;
};

}  // namespace varve
