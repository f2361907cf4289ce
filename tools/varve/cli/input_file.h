#pragma once

#include <string>

#include "varve/status.h"

namespace varve::cli {

/// What came on standard input, as a file of a given name in a folder of its own in $TMPDIR (or /tmp), which goes with
/// this object: what is saved is read more than once.
class InputFile {
 public:
  /// Reads to the end of the input.
  static Result<InputFile> read(const std::string& name);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  std::string path() const;
  /// Nothing came.
  bool is_empty() const;

 private:
  InputFile(std::string folder, std::string name);
  std::string folder_, name_;
};

}  // namespace varve::cli
