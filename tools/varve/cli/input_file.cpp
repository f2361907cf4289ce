#include "cli/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cli/process.h"
#include "core/bytes.h"
#include "core/file_system.h"
#include "core/process.h"

namespace varve::cli {

namespace {
constexpr size_t kPieceBytes = 1_MiB;
constexpr int kLookAgainMilliseconds = 200;

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

bool InputFile::is_empty() const {
  std::error_code unknown;
  return std::filesystem::is_empty(path(), unknown);
}

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
  off_t bytes = 0;
  for (;;) {
    // A signal may come to another thread than this one.
    pollfd input_there{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input_there, 1, kLookAgainMilliseconds);
    if (interrupted()) return Status::cancelled();
    if (ready == 0) continue;
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "read standard input", {});
    if (got == 0) {
      // What a disk has lost of it must not be saved as if it had come so.
      struct stat status {};
      if (::fsync(file.get()) != 0 || ::fstat(file.get(), &status) != 0)
        return Status::from_errno(errno, "write", path);
      if (status.st_size != bytes) return Status::io_error("not all of the input could be written", path);
      return input;
    }
    bytes += got;
    VARVE_TRY(write_all(file.get(), ByteSpan(piece).first(static_cast<size_t>(got)), path)
                  .with_hint("$TMPDIR names the folder in which the input waits to be saved"));
  }
}

}  // namespace varve::cli
