#include "layout/reader_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>

#include "layout/array_exchange.h"
#include "layout/layout.h"
#include "layout/raw_layout.h"

namespace varve {

namespace {

constexpr size_t kReceiveBytes = 64_KiB;
constexpr int kReadsPerReceive = 16;  // then the lengths are looked at: a process may write without end

std::string words_for_end(int wait_status) {
  if (wait_status == -1) return "does not react";
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGXCPU) return "used up its processor time";
  if (WIFSIGNALED(wait_status)) return fmt::format("crashed (signal {})", WTERMSIG(wait_status));
  return fmt::format("crashed (exit code {})", WEXITSTATUS(wait_status));
}

Result<Result<Layout>> decode_answer(ByteSpan bytes) {
  ByteReader in(bytes);
  VARVE_ASSIGN(uint8_t is_layout, in.u8());
  if (is_layout == 1) {
    VARVE_ASSIGN(Layout layout, decode_layout(in));
    if (!in.at_end()) return Status::corrupt("a layout has bytes after its end");
    return Result<Layout>(std::move(layout));
  }
  VARVE_ASSIGN(uint8_t code, in.u8());
  VARVE_ASSIGN(std::string_view message, in.text());
  VARVE_ASSIGN(std::string_view subject, in.text());
  if (code == 0 || code > static_cast<uint8_t>(StatusCode::internal)) return Status::corrupt("an unknown status");
  return Result<Layout>(Status(static_cast<StatusCode>(code), std::string(message), std::string(subject)));
}

}  // namespace

bool ReaderClient::send(uint32_t reader_index, int fd, uint64_t file_bytes) {
  ReaderRequest request{};
  request.reader_index = reader_index;
  request.file_bytes = file_bytes;
  return send_message(requests_.get(), std::as_bytes(std::span(&request, 1)), &fd, 1, /*wait=*/false) == 0;
}

bool ReaderClient::send_socket(uint32_t reader_index, int socket, uint64_t file_bytes) {
  ReaderRequest request{};
  request.reader_index = reader_index;
  request.decodes = 1;
  request.file_bytes = file_bytes;
  return send_message(requests_.get(), std::as_bytes(std::span(&request, 1)), &socket, 1, /*wait=*/false) == 0;
}

bool ReaderClient::receive() {
  if (consumed_ > received_.size() / 2) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(consumed_));
    consumed_ = 0;
  }
  for (int reads = 0; reads < kReadsPerReceive;) {
    size_t filled = received_.size();
    received_.resize(filled + kReceiveBytes);
    ssize_t got = ::read(responses_.get(), received_.data() + filled, kReceiveBytes);
    received_.resize(filled + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    // A short read means that the pipe is empty: no need to ask again.
    if (static_cast<size_t>(got) < kReceiveBytes) return true;
    ++reads;
  }
  return true;
}

Result<std::optional<Result<Layout>>> ReaderClient::next_answer() {
  using Answer = std::optional<Result<Layout>>;
  ByteSpan rest = ByteSpan(received_).subspan(consumed_);
  if (rest.size() < sizeof(uint64_t)) return Answer();
  auto length = load_le<uint64_t>(rest.data());
  if (length > kAnswerBytesMax) return Status::corrupt("an answer is too long");
  if (rest.size() - sizeof(uint64_t) < length) return Answer();
  consumed_ += sizeof(uint64_t) + length;
  VARVE_ASSIGN(Result<Layout> answer, decode_answer(rest.subspan(sizeof(uint64_t), length)));
  return Answer(std::move(answer));
}

ReaderSpawner::~ReaderSpawner() { stop_locked(); }

Status ReaderSpawner::start() {
  const MutexLock lock(mutex_);
  return start_locked();
}

Status ReaderSpawner::start_locked() {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return Status::from_errno(errno, "make a socket for reader processes", {});
  }
  UniqueFd ours(sockets[0]), theirs(sockets[1]);
  pid_t self = ::getpid();
  pid_t child = ::fork();
  if (child == 0) run_ancestor(theirs.get(), self, readers_, limits_);
  if (child < 0) return Status::from_errno(errno, "start a reader process", {});
  ancestor_ = child;
  owner_ = self;
  control_ = std::move(ours);
  return {};
}

bool ReaderSpawner::owns() {
  const MutexLock lock(mutex_);
  return ancestor_ >= 0 && owner_ == ::getpid();
}

void ReaderSpawner::forget_inherited() {
  if (ancestor_ < 0 || owner_ == ::getpid()) return;
  control_.reset();
  ancestor_ = -1;
}

void ReaderSpawner::stop_locked() {
  forget_inherited();
  if (ancestor_ < 0) return;
  // The ancestor ends when it sees this; the end of another process's copy would not tell it.
  ::shutdown(control_.get(), SHUT_RDWR);
  control_.reset();
  while (::waitpid(ancestor_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ancestor_ = -1;
}

Result<ReaderClient> ReaderSpawner::spawn() {
  const MutexLock lock(mutex_);
  forget_inherited();
  for (bool retry = true;; retry = false) {
    if (ancestor_ < 0) VARVE_TRY(start_locked());
    SpawnerCommand command{.kind = SpawnerCommand::Kind::spawn, .pid = 0};
    SpawnerReply reply;
    std::array<int, 2> fds{-1, -1};
    bool alive = send_message(control_.get(), std::as_bytes(std::span(&command, 1)), nullptr, 0, true) == 0 &&
                 receive_message(control_.get(), std::as_writable_bytes(std::span(&reply, 1)), fds.data(), fds.size());
    if (!alive) {
      stop_locked();
      if (retry) continue;
      return Status::io_error("the process that starts reader processes dies");
    }
    UniqueFd requests(fds[0]), responses(fds[1]);
    if (reply.pid < 0) return Status::from_errno(reply.detail, "start a reader process", {});
    if (!requests.valid() || !responses.valid()) return Status::from_errno(EMFILE, "talk to a reader process", {});
    return ReaderClient(reply.pid, std::move(requests), std::move(responses));
  }
}

ReaderEnd ReaderSpawner::end(const ReaderClient& client) {
  const MutexLock lock(mutex_);
  forget_inherited();
  if (ancestor_ < 0) return {};
  SpawnerCommand command{.kind = SpawnerCommand::Kind::end, .pid = client.pid()};
  SpawnerReply reply;
  bool alive = send_message(control_.get(), std::as_bytes(std::span(&command, 1)), nullptr, 0, true) == 0 &&
               receive_message(control_.get(), std::as_writable_bytes(std::span(&reply, 1)), nullptr, 0);
  if (alive) {
    const bool was_killed = reply.detail != -1 && WIFSIGNALED(reply.detail) && WTERMSIG(reply.detail) == SIGKILL;
    return {words_for_end(reply.detail), was_killed};
  }
  stop_locked();
  return {};
}

namespace {

constexpr size_t kDescriptorsMax = 2;
constexpr int kFirstFreeDescriptor = 16;  // above the fixed places that keep_only() fills

template <class T>
ByteSpan bytes_of(const T& message) {
  return std::as_bytes(std::span(&message, 1));
}
template <class T>
MutableByteSpan writable_bytes_of(T& message) {
  return std::as_writable_bytes(std::span(&message, 1));
}

/// Closes every descriptor but these, and moves them to 3, 4, …; 0 to 2 lead to /dev/null.
template <size_t N>
void keep_only(std::array<int, N>& fds) {
  for (int& fd : fds) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
  int null_fd = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < 3; ++standard) ::dup2(null_fd, standard);
  int place = 3;
  for (int& fd : fds) {
    ::dup2(fd, place);
    fd = place++;
  }
  ::close_range(static_cast<unsigned>(place), ~0U, 0);
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  // These are for the program, which the terminal or the batch system may want to end in good order. When it ends, its
  // end of the sockets closes, and readers go too.
  for (int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) ::signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

uint64_t address_space_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  unsigned long pages = 0;
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
  std::fclose(file);
  return uint64_t{pages} * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void lower_limit(__rlimit_resource resource, uint64_t value) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  limit.rlim_cur = std::min<rlim_t>(value, limit.rlim_max);
  if (resource != RLIMIT_CPU) limit.rlim_max = limit.rlim_cur;
  ::setrlimit(resource, &limit);
}

/// The parent keeps the time; this ends a reader whose parent cannot any more.
void renew_processor_time(const ReaderLimits& limits) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  auto used_seconds = static_cast<uint64_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  auto allowed = static_cast<uint64_t>(std::chrono::ceil<std::chrono::seconds>(limits.timeout).count());
  lower_limit(RLIMIT_CPU, used_seconds + allowed + 2);
}

Result<Layout> read_sidecar(int fd, uint64_t file_bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "read the layout description", {});
  auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes > kSidecarBytesMax) return Status::resource_limit("the layout description is too large");
  std::string text(bytes, '\0');
  ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  if (got < 0) return Status::from_errno(errno, "read the layout description", {});
  text.resize(static_cast<size_t>(got));
  return sidecar_layout(text, file_bytes);
}

Result<Layout> read_layout(const LayoutReaders& readers, const ReaderRequest& request, int fd) {
  // Other libraries throw, at the latest when memory runs out.
  try {
    if (request.reader_index == kSidecarReader) return read_sidecar(fd, request.file_bytes);
    if (request.reader_index >= readers.size()) return Status::internal("no such reader");
    return readers[request.reader_index]->read(fd, request.file_bytes);
  } catch (const std::bad_alloc&) {
    return Status::resource_limit("not enough memory");
  } catch (const std::exception& failure) {
    return Status::corrupt(failure.what());
  }
}

void encode_answer(const Result<Layout>& result, ByteVector& out) {
  out.assign(sizeof(uint64_t), std::byte{0});
  ByteWriter writer(out);
  writer.u8(result.ok() ? 1 : 0);
  if (result.ok()) {
    encode_layout(*result, writer);
  } else {
    writer.u8(static_cast<uint8_t>(result.status().code()));
    writer.text(result.status().message());
    writer.text(result.status().subject());
  }
  store_le<uint64_t>(out.data(), out.size() - sizeof(uint64_t));
}

bool write_all(int fd, ByteSpan from) {
  while (!from.empty()) {
    ssize_t written = ::write(fd, from.data(), from.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from = from.subspan(static_cast<size_t>(written));
  }
  return true;
}

[[noreturn]] void run_reader(int requests, int responses, pid_t ancestor, const LayoutReaders& readers,
                             const ReaderLimits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != ancestor) ::_exit(0);  // it died before the line above
  std::array<int, 2> fds{requests, responses};
  keep_only(fds);
  lower_limit(RLIMIT_AS, address_space_bytes() + limits.memory_bytes);
  lower_limit(RLIMIT_CORE, 0);
  lower_limit(RLIMIT_FSIZE, 0);
  ::prctl(PR_SET_DUMPABLE, 0);  // a core handler on a pipe does not heed RLIMIT_CORE
  ByteVector answer;
  for (;;) {
    ReaderRequest request;
    int fd = -1;
    if (!receive_message(fds[0], writable_bytes_of(request), &fd, 1) || fd < 0) ::_exit(0);
    renew_processor_time(limits);
    if (request.decodes != 0 && request.reader_index < readers.size()) {
      decode_for(fd, *readers[request.reader_index], request.file_bytes, [&] { renew_processor_time(limits); });
      ::close(fd);
      continue;
    }
    encode_answer(read_layout(readers, request, fd), answer);
    ::close(fd);
    if (answer.size() > kAnswerBytesMax) encode_answer(Status::resource_limit("the layout is too large"), answer);
    if (!write_all(fds[1], answer)) ::_exit(0);
  }
}

void spawn_reader(int control, const LayoutReaders& readers, const ReaderLimits& limits) {
  SpawnerReply reply{.pid = -1, .detail = 0};
  int sockets[2], pipes[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    reply.detail = errno;
    send_message(control, bytes_of(reply), nullptr, 0, true);
    return;
  }
  UniqueFd request_out(sockets[0]), request_in(sockets[1]);
  UniqueFd response_in, response_out;
  if (::pipe2(pipes, O_CLOEXEC) == 0) {
    response_in.reset(pipes[0]);
    response_out.reset(pipes[1]);
    ::fcntl(response_in.get(), F_SETFL, O_NONBLOCK);
    pid_t self = ::getpid();
    reply.pid = ::fork();
    if (reply.pid == 0) run_reader(request_in.get(), response_out.get(), self, readers, limits);
  }
  reply.detail = errno;
  std::array<int, 2> fds{request_out.get(), response_in.get()};
  send_message(control, bytes_of(reply), fds.data(), reply.pid > 0 ? fds.size() : 0, true);
}

/// A killed process is gone in microseconds, unless a system call of it hangs (a dead file server): then it is left
/// behind.
int end_reader(pid_t pid) {
  constexpr int kTriesMax = 5000;
  constexpr useconds_t kPauseMicroseconds = 200;
  int status = -1;
  ::kill(pid, SIGKILL);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    if (::waitpid(pid, &status, WNOHANG) != 0) return status;
    ::usleep(kPauseMicroseconds);
  }
  return -1;
}

}  // namespace

int send_message(int socket, ByteSpan message, const int* fds, size_t fd_count, bool wait) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd_count > 0) {
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    std::memcpy(CMSG_DATA(rights), fds, sizeof(int) * fd_count);
  }
  for (;;) {
    if (::sendmsg(socket, &header, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

bool receive_message(int socket, MutableByteSpan message, int* fds, size_t fd_count) {
  iovec part{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  header.msg_controllen = space.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  for (size_t i = 0; i < fd_count; ++i) fds[i] = -1;
  if (got != static_cast<ssize_t>(message.size())) return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS && fds != nullptr) {
    size_t count = std::min(fd_count, (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
  }
  return true;
}

void run_ancestor(int control, pid_t parent, const LayoutReaders& readers, const ReaderLimits& limits) {
  constexpr int kParentCheckMilliseconds = 5000;
  reset_signals();
  std::array<int, 1> fds{control};
  keep_only(fds);
  for (;;) {
    pollfd waiting{fds[0], POLLIN, 0};
    // A closed socket tells of the parent's end, unless another of its children holds a copy.
    if (::poll(&waiting, 1, kParentCheckMilliseconds) == 0) {
      if (::getppid() != parent) ::_exit(0);
      continue;
    }
    SpawnerCommand command;
    if (!receive_message(fds[0], writable_bytes_of(command), nullptr, 0)) ::_exit(0);
    if (command.kind == SpawnerCommand::Kind::spawn) {
      spawn_reader(fds[0], readers, limits);
    } else {
      SpawnerReply reply{.pid = command.pid, .detail = end_reader(command.pid)};
      send_message(fds[0], bytes_of(reply), nullptr, 0, true);
    }
  }
}

}  // namespace varve
