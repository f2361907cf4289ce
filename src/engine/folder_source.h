#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/process.h"
#include "engine/folder_scan.h"
#include "engine/second_reading.h"
#include "engine/source.h"
#include "layout/layout_service.h"

namespace varve {

/// Reads files of a folder. One thread.
class SourceReader {
 public:
  SourceReader(std::string folder, const std::vector<SourceFile>& files);
  ~SourceReader();
  SourceReader(const SourceReader&) = delete;
  SourceReader& operator=(const SourceReader&) = delete;

  /// Fills `into` with the file's bytes from `offset`. busy if the file is shorter than that.
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into);

  /// How many of the `bytes_max` bytes from `offset` are a hole of the (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max);

  /// Somebody reads the file otherwise, from here on: what is written to it is noticed from now. False: its times may
  /// not tell, so that what he has read has to be read by him again, too, before check_unnoticed().
  Result<bool> notice(uint32_t file);

  const std::string& folder() const { return folder_; }
  const std::vector<SourceFile>& files() const { return files_; }

  /// Closes what is open; who reads on opens it again.
  void close_all();

  /// busy if what was read of the file, or of any, is not one state of it, as far as its times do not tell: then it is
  /// read again.
  Status check_unnoticed(uint32_t file);
  Status check_unnoticed();

 private:
  struct OpenFile {
    UniqueFd fd;
    std::list<uint32_t>::iterator used;
  };
  Result<int> open(uint32_t file);
  void close(uint32_t file);
  Status look_first(uint32_t file, int descriptor, uint64_t device, const std::string& path);
  /// Of a file whose times may not tell that it changes; else null.
  SecondReading* second_reading(uint32_t file);

  const std::string folder_;
  const std::vector<SourceFile>& files_;
  const size_t open_files_max_;
  std::vector<bool> seen_;  ///< those that were open once: writes to them are noticed from then on, or
  std::map<uint32_t, SecondReading> second_readings_;  ///< they are among these
  std::map<uint64_t, bool> devices_;                   ///< and whether times_may_miss_writes() there
  Buffer reread_;                                      ///< for second readings
  std::unordered_map<uint32_t, OpenFile> open_;
  std::list<uint32_t> recently_used_;

  // The last hole found: the block schemes ask for it piece by piece.
  uint32_t hole_file_ = UINT32_MAX;
  uint64_t hole_begin_ = 0, hole_end_ = 0;

  // Small extents that lie near one another (headers between variables) are read with one call: the second of them
  // opens a window. One that stands alone is read alone.
  uint32_t small_file_ = UINT32_MAX;
  uint64_t small_end_ = 0;
  uint32_t window_file_ = UINT32_MAX;
  uint64_t window_offset_ = 0;
  ByteVector window_;
};

/// Some files of a folder, as scan_source_tree() found them, or scan_chosen_files() by `choice`.
class FolderSource final : public Source {
 public:
  /// `layouts` must outlive this.
  FolderSource(std::string folder, std::vector<SourceFile> files, LayoutService& layouts,
               LayoutReadOptions layout_options, FileChoice choice = {})
      : folder_(std::move(folder)),
        files_(std::move(files)),
        layouts_(layouts),
        layout_options_(std::move(layout_options)),
        choice_(std::move(choice)),
        reader_(folder_, files_) {}
  FolderSource(const FolderSource&) = delete;
  FolderSource& operator=(const FolderSource&) = delete;

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override;
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    return reader_.read(file, offset, into);
  }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return reader_.hole_bytes(file, offset, bytes_max);
  }
  Status check_unchanged() override;

 private:
  Status notice_files();
  Status check_layouts();

  const std::string folder_;
  const std::vector<SourceFile> files_;
  LayoutService& layouts_;
  const LayoutReadOptions layout_options_;
  const FileChoice choice_;
  SourceReader reader_;
  /// Of those files whose times may not tell that they change, a sum of the layout; until it was compared.
  std::map<uint32_t, uint32_t> unnoticed_layouts_;
};

}  // namespace varve
