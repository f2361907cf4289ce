#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
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

}  // namespace varve
