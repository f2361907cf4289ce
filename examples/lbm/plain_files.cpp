#include "plain_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

namespace lbm {

namespace {
[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }
}  // namespace

void write_plain_file(const std::string& path, std::span<const double> data, double bytes_per_second) {
  const std::string part = path + ".part";
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail("create " + part);
  const auto begin = std::chrono::steady_clock::now();
  std::span<const std::byte> bytes = std::as_bytes(data);
  constexpr size_t kStep = size_t{1} << 20;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), std::min(bytes.size(), kStep));
    if (written < 0) fail("write " + part);
    bytes = bytes.subspan(static_cast<size_t>(written));
    if (bytes_per_second > 0) {
      const double done = static_cast<double>(data.size_bytes() - bytes.size());
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                std::chrono::duration<double>(done / bytes_per_second)));
    }
  }
  if (::fsync(file) != 0 || ::close(file) != 0) fail("sync " + part);
  if (::rename(part.c_str(), path.c_str()) != 0) fail("rename " + part);
}

}  // namespace lbm
