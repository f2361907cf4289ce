#include "sets/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>
#include <system_error>

#include "core/process.h"
#include "hash/score.h"

namespace varve::test {

namespace {
constexpr size_t kBlockBytes = 64_KiB;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "cannot " + what);
}

/// A hash of the blocks of a file that are not all zeros.
std::string contents_of(const std::string& path, uint64_t bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) fail("open " + path);
  const ScoreFunction score = ScoreFunction::preferred();
  ByteVector summary, block(kBlockBytes);
  ByteWriter w(summary);
  off_t at = 0;
  while ((at = ::lseek(fd.get(), at, SEEK_DATA)) >= 0) {
    at -= at % static_cast<off_t>(kBlockBytes);
    const ssize_t got = ::pread(fd.get(), block.data(), block.size(), at);
    if (got < 0) fail("read " + path);
    if (got == 0) break;
    const ByteSpan part = ByteSpan(block).first(static_cast<size_t>(got));
    if (std::any_of(part.begin(), part.end(), [](std::byte b) { return b != std::byte{0}; })) {
      w.le64(static_cast<uint64_t>(at));
      w.bytes(score(part).bytes);
    }
    at += got;
  }
  return fmt::format("{} bytes {}", bytes, score(summary).hex(8));
}

std::string describe(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail("look at " + path.string());
  std::string text =
      fmt::format("mode {:o} time {}.{:09} ", status.st_mode & 07777u, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  if (S_ISDIR(status.st_mode)) return text + "folder";
  if (S_ISLNK(status.st_mode)) return text + "link to " + std::filesystem::read_symlink(path).string();
  if (S_ISREG(status.st_mode)) return text + contents_of(path.string(), static_cast<uint64_t>(status.st_size));
  return text + "something else";
}
}  // namespace

TempFolder::TempFolder(Where where) {
  const bool disk = where == Where::disk || std::getenv("TMPDIR") != nullptr || ::access("/dev/shm", W_OK) != 0;
  const std::filesystem::path above = disk ? std::filesystem::temp_directory_path() : "/dev/shm";
  std::string name = (above / "varve-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("create " + name);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void write_file(const std::string& path, ByteSpan contents) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const std::string_view text = as_text(contents);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) fail("write " + path);
}

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count + 8);
  for (size_t i = 0; i < count; i += 8) store_le<uint64_t>(bytes.data() + i, random());
  bytes.resize(count);
  return bytes;
}

ByteVector smooth_field(size_t count, uint64_t seed) {
  ByteVector bytes(count * 8);
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i) * 0.01 + static_cast<double>(seed);
    store_le<double>(bytes.data() + 8 * i, std::sin(x) + 1e-9 * std::cos(17 * x));
  }
  return bytes;
}

Snapshot snapshot_of(const std::string& folder, const std::function<bool(const std::string&)>& takes) {
  Snapshot snapshot;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder).string();
    if (!takes || takes(path)) snapshot[path] = describe(entry.path());
  }
  return snapshot;
}

}  // namespace varve::test
