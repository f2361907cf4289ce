#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "study/estimate.h"
#include "study/study_set.h"

namespace varve {

/// Some files of a set, or a sample of them, as a source that the engine can save: its files consist of the pieces that
/// a plan takes, in their order. A file that is taken whole is as it is.
class PartSource final : public Source {
 public:
  /// `files`: ordinals in the set; `set` and `plan` outlive this.
  PartSource(const StudySet& set, const SamplePlan& plan, const std::vector<uint32_t>& files);

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override;
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override;
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  /// A study does not mind.
  Status check_unchanged() override { return {}; }

  uint64_t bytes() const;

 private:
  /// Where a piece of one of files() lies in the set.
  struct Piece {
    uint64_t offset = 0;  ///< in files()
    uint64_t real_offset = 0;
    uint64_t bytes = 0;
  };
  struct Part {
    uint32_t file = 0;          ///< ordinal in the set
    std::vector<Piece> pieces;  ///< empty: the whole file
    Layout layout;
  };
  Part sample_file(uint32_t file, size_t first_stream, const SamplePlan& plan) const;

  const StudySet& set_;
  std::vector<SourceFile> files_;
  std::vector<Part> parts_;
  std::unique_ptr<SetReader> reader_;
};

/// The files of a set as groups of so many ranks: ordinals in the set, as a save would split them.
std::vector<std::vector<uint32_t>> groups_of(const StudySet& set, uint32_t group_size);
/// All of them.
std::vector<uint32_t> all_files(const StudySet& set);

}  // namespace varve
