#include "service/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cstring>

#include "core/bytes.h"
#include "core/process.h"
#include "core/unique_id.h"
#include "hash/score.h"

namespace varve {

namespace {
constexpr size_t kSecretBytesMin = 32;
constexpr size_t kSecretDigitsMin = 2 * kSecretBytesMin;
constexpr size_t kFileBytesMax = 4096;
/// Of 32 random bytes, or 64 random digits, hardly ever fewer are different.
constexpr size_t kDifferentBytesMin = 8;
constexpr std::string_view kLabel = "varve shared key, version 1\n";
constexpr std::string_view kNameLabel = "varve key name, version 1\n";
constexpr size_t kNameBytes = 16;

SharedKey hash_of(std::string_view label, ByteSpan contents) {
  ByteVector labelled(as_bytes(label).begin(), as_bytes(label).end());
  labelled.insert(labelled.end(), contents.begin(), contents.end());
  return ScoreFunction::create(ScoreAlgorithm::sha256, 32).value()(labelled).bytes;
}

Status check_access(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Status::from_errno(errno, "look at the key file", path);
  if (!S_ISREG(status.st_mode)) return Status::invalid_argument("the key file is not a regular file", path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(StatusCode::permission_denied, "the key file can be used by others", path, "chmod 600 " + path);
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return Status(StatusCode::permission_denied, "the key file belongs to another user", path);
  return {};
}

Status check_secret(ByteSpan secret, const std::string& path) {
  const bool digits = std::all_of(secret.begin(), secret.end(), [](std::byte byte) {
    const auto c = static_cast<char>(byte);
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
  std::bitset<256> different;
  for (const std::byte byte : secret) different.set(std::to_integer<size_t>(byte));
  if (secret.size() >= (digits ? kSecretDigitsMin : kSecretBytesMin) && different.count() >= kDifferentBytesMin)
    return {};
  return Status::invalid_argument("the key file holds too little to be a secret", path, {Remedy::make_key, path});
}
}  // namespace

Result<SharedKey> read_key_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "open the key file", path);
  VARVE_TRY(check_access(file.get(), path));
  ByteVector contents(kFileBytesMax + 1);
  size_t bytes = 0;
  while (bytes < contents.size()) {
    const ssize_t got = ::read(file.get(), contents.data() + bytes, contents.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "read the key file", path);
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  if (bytes > kFileBytesMax) return Status::invalid_argument("the key file is too large for a key", path);
  while (bytes > 0 && std::strchr(" \t\r\n", static_cast<char>(contents[bytes - 1])) != nullptr &&
         contents[bytes - 1] != std::byte{0}) {
    --bytes;
  }
  contents.resize(bytes);
  VARVE_TRY(check_secret(contents, path));
  return hash_of(kLabel, contents);
}

std::string name_of_key(const SharedKey& key) {
  const SharedKey hash = hash_of(kNameLabel, key);
  UniqueId name;
  static_assert(sizeof name.bytes == kNameBytes);
  std::copy_n(hash.begin(), kNameBytes, name.bytes.begin());
  return name.hex();
}

Status make_key_file(const std::string& path) {
  VARVE_ASSIGN(const UniqueId first, UniqueId::random());
  VARVE_ASSIGN(const UniqueId second, UniqueId::random());
  const std::string text = first.hex() + second.hex() + "\n";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, "create the key file", path);
  if (::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file.get()) == 0)
    return {};
  const Status failed = Status::from_errno(errno, "write the key file", path);
  ::unlink(path.c_str());
  return failed;
}

}  // namespace varve
