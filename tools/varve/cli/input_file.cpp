#include "cli/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "core/bytes.h"
#include "core/file_system.h"
#include "core/process.h"

namespace varve::cli {

namespace {
constexpr size_t kPieceBytes = 1_MiB;

Status write_all(int to, ByteSpan bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(to, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::from_errno(errno, "write", path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}
}  // namespace

InputFile::InputFile(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}

InputFile::InputFile(InputFile&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), name_(std::move(other.name_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(name_, other.name_);
  return *this;
}

InputFile::~InputFile() {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string InputFile::path() const { return join_path(folder_, name_); }

Result<InputFile> InputFile::read(const std::string& name) {
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "varve-input-XXXXXX").string();
  if (error || ::mkdtemp(folder.data()) == nullptr)
    return Status::from_errno(errno, "make a folder in $TMPDIR", folder);
  InputFile input(folder, name);
  const std::string path = input.path();
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, "make", path);
  ByteVector piece(kPieceBytes);
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "read standard input", {});
    if (got == 0) return input;
    VARVE_TRY(write_all(file.get(), ByteSpan(piece).first(static_cast<size_t>(got)), path)
                  .with_hint("$TMPDIR names the folder in which the input waits to be saved"));
  }
}

}  // namespace varve::cli
