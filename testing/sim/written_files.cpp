#include "sim/written_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/oracle.h"
#include "watch/originals.h"

namespace varve::sim {

namespace {
constexpr std::chrono::microseconds kCall(20);
constexpr std::chrono::milliseconds kLeaseLook(1);

[[noreturn]] void fail_with(const char* what) { fail(fmt::format("{}: {}", what, std::strerror(errno))); }

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}
}  // namespace

WrittenFiles::WrittenFiles(Simulator& simulator, std::string folder)
    : simulator_(simulator), folder_(std::move(folder)), staging_(folder_ + "-staging") {
  std::filesystem::create_directories(folder_);
  std::filesystem::create_directories(staging_);
}

std::string WrittenFiles::folder_of(uint64_t step) { return fmt::format("out{}", step); }

std::string WrittenFiles::path_of(uint64_t step, const std::string& name) const {
  return fmt::format("{}/{}/{}", folder_, folder_of(step), name);
}

size_t WrittenFiles::newest(uint64_t step, const std::string& name) const {
  for (size_t i = files_.size(); i-- > 0;) {
    if (files_[i].step == step && files_[i].name == name) return i;
  }
  fail("a file is there that nobody has made");
}

void WrittenFiles::stamp(int descriptor) const {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(simulator_.now().time_since_epoch()).count();
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1] = {static_cast<time_t>(now / 1'000'000'000), static_cast<long>(now % 1'000'000'000)};
  if (::futimens(descriptor, times) != 0) fail_with("a file's time");
}

void WrittenFiles::check_has_name(const Writer& writer) const {
  const File& file = files_[writer.file];
  struct stat status {};
  if (::fstat(writer.descriptor.get(), &status) != 0) fail_with("fstat");
  if (status.st_nlink > 0 || file.given_up) return;
  fail(fmt::format("{}/{} is removed, and a program has it open for writing", folder_of(file.step), file.name));
}

std::optional<WrittenFiles::Writer> WrittenFiles::create(uint64_t step, const std::string& name) {
  simulator_.spend(kCall);
  std::filesystem::create_directories(fmt::format("{}/{}", folder_, folder_of(step)));
  UniqueFd made(::open(path_of(step, name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!made.valid() && errno == EEXIST) return std::nullopt;
  if (!made.valid()) fail_with("a program makes a file");
  stamp(made.get());
  simulator_.tell(fmt::format("the program makes {}/{}", folder_of(step), name));
  files_.push_back({step, name, {}});
  descriptors_.insert(made.get());
  return Writer{std::move(made), files_.size() - 1};
}

std::optional<WrittenFiles::Writer> WrittenFiles::open(uint64_t step, const std::string& name) {
  simulator_.spend(kCall);
  // In two steps, as the kernel does it: the name is found, then the lease is waited for.
  const UniqueFd found(::open(path_of(step, name).c_str(), O_PATH | O_CLOEXEC));
  if (!found.valid()) return std::nullopt;
  const size_t file = newest(step, name);
  descriptors_.insert(found.get());
  const std::string link = fmt::format("/proc/self/fd/{}", found.get());
  simulator_.hand_over();
  UniqueFd opened(::open(link.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC));
  while (!opened.valid()) {
    if (errno != EWOULDBLOCK) fail_with("a program opens a file");
    simulator_.note_doing(fmt::format("open {}/{}, which has a lease", folder_of(step), name));
    simulator_.spend(kLeaseLook);
    opened = UniqueFd(::open(link.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC));
  }
  descriptors_.erase(found.get());
  descriptors_.insert(opened.get());
  simulator_.tell(fmt::format("the program opens {}/{}", folder_of(step), name));
  Writer writer{std::move(opened), file};
  check_has_name(writer);
  return writer;
}

void WrittenFiles::append(Writer& writer, const std::string& text) {
  simulator_.spend(kCall);
  check_has_name(writer);
  File& file = files_[writer.file];
  const ssize_t written = ::write(writer.descriptor.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) fail_with("a program writes");
  stamp(writer.descriptor.get());
  file.text += text;
  simulator_.tell(fmt::format("the program writes to {}/{}", folder_of(file.step), file.name));
}

void WrittenFiles::close(Writer writer) {
  simulator_.spend(kCall);
  check_has_name(writer);
  const File& file = files_[writer.file];
  simulator_.tell(fmt::format("the program closes {}/{}", folder_of(file.step), file.name));
  descriptors_.erase(writer.descriptor.get());
}

bool WrittenFiles::replace(uint64_t step, const std::string& name, const std::string& text) {
  simulator_.spend(kCall);
  const std::string made = fmt::format("{}/{}", staging_, files_.size());
  {
    const UniqueFd file(::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail_with("write");
    stamp(file.get());
  }
  const size_t before = newest(step, name);
  if (::rename(made.c_str(), path_of(step, name).c_str()) != 0) return false;
  simulator_.tell(fmt::format("the program replaces {}/{}", folder_of(step), name));
  files_[before].given_up = true;
  files_.push_back({step, name, text});
  return true;
}

bool WrittenFiles::is_there(const File& file) const {
  const std::string leaving = fmt::format("{}/{}", kRemovingFolder, file.name);
  return text_of(path_of(file.step, file.name)) == file.text || text_of(path_of(file.step, leaving)) == file.text;
}

bool WrittenFiles::is_being_removed(uint64_t step) const {
  return std::filesystem::exists(path_of(step, kRemovingFolder));
}

void WrittenFiles::close_for_the_dead() {
  std::vector<int> orphans;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    const int descriptor = std::stoi(entry.path().filename().string());
    if (!gone && target.starts_with(folder_ + "/") && !descriptors_.contains(descriptor)) orphans.push_back(descriptor);
  }
  for (const int descriptor : orphans) ::close(descriptor);
}

}  // namespace varve::sim
