#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aggregate/source.h"
#include "aggregate/source_reader.h"
#include "layout/layout_service.h"

namespace varve {

/// Some files of a folder, as scan_source_tree() found them.
class FolderSource final : public Source {
 public:
  /// `layouts` must outlive this.
  FolderSource(std::string folder, std::vector<SourceFile> files, LayoutService& layouts,
               LayoutReadOptions layout_options)
      : folder_(std::move(folder)),
        files_(std::move(files)),
        layouts_(layouts),
        layout_options_(std::move(layout_options)),
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
  const std::string folder_;
  const std::vector<SourceFile> files_;
  LayoutService& layouts_;
  const LayoutReadOptions layout_options_;
  SourceReader reader_;
};

}  // namespace varve
