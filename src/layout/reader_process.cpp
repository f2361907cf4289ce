#include "layout/reader_process.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>

#include "layout/layout_codec.h"
#include "layout/reader_child.h"

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
  std::lock_guard lock(mutex_);
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
  control_ = std::move(ours);
  return {};
}

void ReaderSpawner::stop_locked() {
  if (ancestor_ < 0) return;
  control_.reset();  // the ancestor ends when it sees this
  while (::waitpid(ancestor_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ancestor_ = -1;
}

Result<ReaderClient> ReaderSpawner::spawn() {
  std::lock_guard lock(mutex_);
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

std::string ReaderSpawner::end(const ReaderClient& client) {
  std::lock_guard lock(mutex_);
  if (ancestor_ < 0) return "was ended";
  SpawnerCommand command{.kind = SpawnerCommand::Kind::end, .pid = client.pid()};
  SpawnerReply reply;
  bool alive = send_message(control_.get(), std::as_bytes(std::span(&command, 1)), nullptr, 0, true) == 0 &&
               receive_message(control_.get(), std::as_writable_bytes(std::span(&reply, 1)), nullptr, 0);
  if (alive) return words_for_end(reply.detail);
  stop_locked();
  return "was ended";
}

}  // namespace varve
