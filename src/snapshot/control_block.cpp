#include "snapshot/control_block.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <ctime>

#include "core/status_codec.h"
#include "core/sync.h"
#include "hash/score.h"

namespace varve {

namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

// Never FUTEX_PRIVATE_FLAG: the other side may be another process.
long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, static_cast<const void*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit <= std::chrono::nanoseconds::zero()) return;
  // It is added to a clock: keep far from the end of that.
  limit = std::min(limit, std::chrono::nanoseconds(std::chrono::hours(24)));
  if (current_scheduler != nullptr) {
    return current_scheduler->wait_for_change(word, seen, current_scheduler->now() + limit);
  }
  timespec time{};
  time.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  // Woken, changed, interrupted, out of time: the caller looks again in any case.
  (void)futex(word, FUTEX_WAIT, seen, &time);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  if (current_scheduler != nullptr) return current_scheduler->note_change();
  (void)futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

namespace {
constexpr size_t kTextBytesMax = 300;

void put_step(ByteWriter& out, const std::optional<uint64_t>& step) {
  out.u8(step ? 1 : 0);
  out.le64(step.value_or(0));
}

Result<std::optional<uint64_t>> get_step(ByteReader& in) {
  VARVE_ASSIGN(const uint8_t there, in.u8());
  VARVE_ASSIGN(const uint64_t step, in.le64());
  return there != 0 ? std::optional(step) : std::nullopt;
}
}  // namespace

ByteVector encode_news(const GroupNews& news) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_step(out, news.newest_persistent);
  put_step(out, news.finished_step);
  out.le64(news.bytes_to_write);
  out.le64(news.bytes_written);
  put_step(out, news.failed_step);
  put_status(out, news.last_error, kTextBytesMax);
  return bytes;
}

Result<GroupNews> decode_news(ByteSpan bytes) {
  ByteReader in(bytes);
  GroupNews news;
  VARVE_ASSIGN(news.newest_persistent, get_step(in));
  VARVE_ASSIGN(news.finished_step, get_step(in));
  VARVE_ASSIGN(news.bytes_to_write, in.le64());
  VARVE_ASSIGN(news.bytes_written, in.le64());
  VARVE_ASSIGN(news.failed_step, get_step(in));
  VARVE_TRY(get_status(in, news.last_error));
  return news;
}

SlotNews SlotCell::news() const {
  SlotNews news;
  const uint32_t state = state_.load(std::memory_order_acquire);
  if (state > static_cast<uint32_t>(SlotState::drained)) return news;
  news.state = static_cast<SlotState>(state);
  news.step = step_.load(std::memory_order_relaxed);
  news.fill_number = fill_number_.load(std::memory_order_relaxed);
  const uint32_t value = restartable_.load(std::memory_order_acquire);
  news.restartable = value == restartable;
  news.shown = value == shown;
  if (news.state == SlotState::drained) {
    const auto bytes = outcome_;
    ByteReader in(bytes);
    Status outcome;
    const Status readable = get_status(in, outcome);
    news.outcome = readable.ok() ? outcome : readable;
  }
  return news;
}

void SlotCell::begin_fill(uint64_t step, uint64_t fill_number) {
  // First of all: from here on until end_fill() there is nothing in it, whenever the process dies.
  state_.store(static_cast<uint32_t>(SlotState::filling), std::memory_order_seq_cst);
  restartable_.store(not_restartable, std::memory_order_seq_cst);
  step_.store(step, std::memory_order_relaxed);
  fill_number_.store(fill_number, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SlotCell::end_fill(bool summed, bool kept) {
  restartable_.store(!kept ? not_kept : summed ? restartable : not_restartable, std::memory_order_release);
  become(SlotState::full);
}

void SlotCell::end_fill_shown() {
  restartable_.store(shown, std::memory_order_release);
  become(SlotState::full);
}

void SlotCell::cancel_fill() { become(SlotState::empty); }

void SlotCell::mark_overwritten() {
  // Before the first byte is overwritten.
  restartable_.store(not_restartable, std::memory_order_seq_cst);
}

bool SlotCell::begin_drain(uint64_t step) {
  auto state = static_cast<uint32_t>(SlotState::full);
  if (state_.load(std::memory_order_acquire) != state || step_.load(std::memory_order_relaxed) != step) return false;
  return state_.compare_exchange_strong(state, static_cast<uint32_t>(SlotState::draining), std::memory_order_acq_rel);
}

void SlotCell::mark_restartable() {
  uint32_t before = not_restartable;
  restartable_.compare_exchange_strong(before, restartable, std::memory_order_acq_rel);
}

void SlotCell::end_drain(const Status& outcome) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_status(out, outcome, kTextBytesMax);
  std::copy(bytes.begin(), bytes.end(), outcome_.begin());
  become(SlotState::drained);
}

namespace {

constexpr std::string_view kControlMagic = "VARVECTL";
constexpr uint32_t kControlVersion = 2;
constexpr uint64_t kIdentityBytes = 128;
constexpr size_t kNewsWords = kNewsBytesMax / sizeof(uint64_t);
constexpr size_t kWindowBytes = 64_KiB;
/// How long a process that died may stay unseen.
constexpr std::chrono::milliseconds kLookInterval(200);
/// A reader begins anew only if two more news were posted while it read: of an honest writer, hardly ever.
constexpr int kNewsAttempts = 1000;

/// magic 8 | version u32 | run 16 | boot 16 | PID namespace u64 | start u64 | pid u32 | rank u32 | ranks u32 | slots
/// u32 | crc32c u32
ByteVector encode_identity(const ControlBlock::Identity& identity) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.bytes(as_bytes(kControlMagic));
  out.le32(kControlVersion);
  out.bytes(identity.run.bytes);
  out.bytes(identity.process.boot.bytes);
  out.le64(identity.process.pid_namespace);
  out.le64(identity.process.start_ticks);
  out.le32(identity.process.pid);
  out.le32(identity.rank);
  out.le32(identity.rank_count);
  out.le32(identity.slot_count);
  out.le32(crc32c(bytes));
  return bytes;
}

Result<ControlBlock::Identity> decode_identity(ByteSpan bytes) {
  ByteReader in(bytes);
  VARVE_ASSIGN(const ByteSpan magic, in.bytes(kControlMagic.size()));
  if (as_text(magic) != kControlMagic) return Status::corrupt("this is no control segment");
  VARVE_ASSIGN(const uint32_t version, in.le32());
  if (version != kControlVersion) return Status::unsupported("a control segment of another version of varve");
  ControlBlock::Identity identity;
  VARVE_ASSIGN(identity.run, UniqueId::read(in));
  VARVE_ASSIGN(identity.process.boot, UniqueId::read(in));
  VARVE_ASSIGN(identity.process.pid_namespace, in.le64());
  VARVE_ASSIGN(identity.process.start_ticks, in.le64());
  VARVE_ASSIGN(identity.process.pid, in.le32());
  VARVE_ASSIGN(identity.rank, in.le32());
  VARVE_ASSIGN(identity.rank_count, in.le32());
  VARVE_ASSIGN(identity.slot_count, in.le32());
  const uint32_t expected = crc32c(bytes.first(in.position()));
  VARVE_ASSIGN(const uint32_t crc, in.le32());
  if (crc != expected || identity.rank >= identity.rank_count || identity.slot_count == 0 ||
      identity.slot_count > kSlotsMax) {
    return Status::corrupt("a control segment contradicts itself");
  }
  return identity;
}

/// Two places, used in turn: while the writer is at one of them, however long, the news before are whole in the other.
/// Words, so that reading them while they are written is no data race.
struct NewsCell {
  std::atomic<uint64_t> begun;   ///< how many news the writer has begun to post
  std::atomic<uint64_t> posted;  ///< how many are whole; the last one lies at place `posted % 2`
  std::array<std::array<std::atomic<uint64_t>, kNewsWords>, 2> places;
};

/// The rest of a CheckpointId. Written while the slot is filling, read when it is full.
struct CheckpointCell {
  std::array<std::atomic<uint64_t>, sizeof(UniqueId::bytes) / sizeof(uint64_t)> run;
  std::atomic<uint64_t> number;
};

/// Through which an image is shown. Whoever asks sets what is asked, and then the state; who answers, the data and then
/// the state.
struct WindowCell {
  enum State : uint32_t { idle = 0, asked = 1, answered = 2 };
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> image_bytes;
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> bytes;
  std::array<std::byte, kWindowBytes> data;
};

}  // namespace

struct ControlBlock::Shared {
  std::array<std::byte, kIdentityBytes> identity;
  alignas(64) Bell bell;
  std::atomic<uint32_t> ended;  ///< as an Ended; others count as Ended::rank
  alignas(64) std::array<SlotCell, kSlotsMax> slots;
  alignas(64) NewsCell news;
  alignas(64) std::atomic<uint64_t> given_up_count;  ///< one more than the newest step that was given up; 0: none
  alignas(64) WindowCell window;
  alignas(64) std::array<CheckpointCell, kSlotsMax> checkpoints;
};

Result<ControlBlock> ControlBlock::create(const SegmentOwner& owner, const Identity& identity) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(SlotCell) == 1024);
  static_assert(offsetof(Shared, bell) == 128 && offsetof(Shared, slots) == 192 && offsetof(Shared, news) == 2240);
  ControlBlock block;
  block.identity_ = identity;
  auto fill = [&](MutableByteSpan bytes) {
    // Of zeroes all else is as it should be: the slots are empty, nothing was posted.
    const ByteVector encoded = encode_identity(identity);
    std::copy(encoded.begin(), encoded.end(), bytes.begin());
  };
  VARVE_ASSIGN(block.segment_, SharedSegment::create(owner.control_path(), sizeof(Shared), fill));
  return block;
}

Result<ControlBlock> ControlBlock::open(const SegmentOwner& owner, SharedSegment::Access access) {
  ControlBlock block;
  VARVE_ASSIGN(block.segment_, SharedSegment::open(owner.control_path(), access));
  VARVE_ASSIGN(block.identity_, decode_identity(ByteSpan(block.segment_.bytes())));
  // What a dead run of an earlier version left may have no window; nobody asks it for anything.
  const bool needs_window = access == SharedSegment::Access::read_write;
  if (block.segment_.size() < (needs_window ? offsetof(Shared, checkpoints) : offsetof(Shared, window))) {
    return Status::corrupt("a control segment is cut off", owner.control_path());
  }
  if (block.identity_.run != owner.run || block.identity_.rank != owner.rank) {
    return Status::corrupt("a control segment is not that of its name", owner.control_path());
  }
  return block;
}

ControlBlock::Shared& ControlBlock::shared() const {
  // The mapping is aligned to pages.
  return *reinterpret_cast<Shared*>(segment_.data());
}

void ControlBlock::end(Ended what) const {
  shared().ended.store(static_cast<uint32_t>(what), std::memory_order_release);
}

ControlBlock::Ended ControlBlock::ended() const {
  const uint32_t said = shared().ended.load(std::memory_order_acquire);
  return said > static_cast<uint32_t>(Ended::rank) ? Ended::rank : static_cast<Ended>(said);
}

bool ControlBlock::owner_alive() const {
  if (ended() != Ended::no) return false;
  switch (liveness(identity_.process)) {
    case Liveness::alive: return true;
    case Liveness::dead: return false;
    case Liveness::unknown: return segment_.creator_holds_lock();
  }
  return true;
}

Bell& ControlBlock::bell() const { return shared().bell; }

SlotCell& ControlBlock::cell(uint32_t slot) const { return shared().slots[slot]; }

SlotNews ControlBlock::slot(uint32_t slot) const {
  return slot < identity_.slot_count ? shared().slots[slot].news() : SlotNews{};
}

void ControlBlock::begin_fill(uint32_t slot, const CheckpointId& checkpoint, uint64_t fill_number) const {
  cell(slot).begin_fill(checkpoint.step, fill_number);
  CheckpointCell& is = shared().checkpoints[slot];
  for (size_t i = 0; i < is.run.size(); ++i)
    is.run[i].store(load_le<uint64_t>(checkpoint.run.bytes.data() + i * sizeof(uint64_t)), std::memory_order_relaxed);
  is.number.store(checkpoint.number, std::memory_order_relaxed);
}

CheckpointId ControlBlock::checkpoint(uint32_t slot) const {
  CheckpointId checkpoint{.step = this->slot(slot).step};
  if (segment_.size() < sizeof(Shared)) return checkpoint;
  const CheckpointCell& is = shared().checkpoints[slot];
  for (size_t i = 0; i < is.run.size(); ++i)
    store_le(checkpoint.run.bytes.data() + i * sizeof(uint64_t), is.run[i].load(std::memory_order_relaxed));
  checkpoint.number = is.number.load(std::memory_order_relaxed);
  return checkpoint;
}

void ControlBlock::begin_showing(uint64_t image_bytes) const {
  WindowCell& window = shared().window;
  window.state.store(WindowCell::idle, std::memory_order_relaxed);
  window.image_bytes.store(image_bytes, std::memory_order_relaxed);
}

void ControlBlock::end_showing() const {
  shared().window.image_bytes.store(0, std::memory_order_release);
  bell().ring();
}

uint64_t ControlBlock::shown_bytes() const { return shared().window.image_bytes.load(std::memory_order_relaxed); }

Status ControlBlock::read_shown(uint64_t offset, MutableByteSpan into) const {
  WindowCell& window = shared().window;
  while (!into.empty()) {
    const size_t bytes = std::min(into.size(), kWindowBytes);
    window.offset.store(offset, std::memory_order_relaxed);
    window.bytes.store(bytes, std::memory_order_relaxed);
    window.state.store(WindowCell::asked, std::memory_order_release);
    bell().ring();
    for (;;) {
      const uint32_t seen = bell().count();
      if (window.state.load(std::memory_order_acquire) == WindowCell::answered) break;
      if (shown_bytes() == 0) return Status::cancelled("the program does not wait any more for its memory to be saved");
      bell().wait(seen, kLookInterval);
      if (window.state.load(std::memory_order_acquire) != WindowCell::answered && !owner_alive()) {
        return Status::io_error("the process died while its memory was being saved", segment_.path());
      }
    }
    std::copy_n(window.data.begin(), bytes, into.begin());
    offset += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

bool ControlBlock::answer_shown(const std::function<void(uint64_t offset, MutableByteSpan into)>& copy) const {
  WindowCell& window = shared().window;
  if (window.state.load(std::memory_order_acquire) != WindowCell::asked) return false;
  const uint64_t image_bytes = window.image_bytes.load(std::memory_order_relaxed);
  const uint64_t offset = std::min(window.offset.load(std::memory_order_relaxed), image_bytes);
  const uint64_t bytes =
      std::min({window.bytes.load(std::memory_order_relaxed), uint64_t{kWindowBytes}, image_bytes - offset});
  copy(offset, MutableByteSpan(window.data).first(bytes));
  window.state.store(WindowCell::answered, std::memory_order_release);
  bell().ring();
  return true;
}

void ControlBlock::give_up(uint64_t step) const {
  if (step == UINT64_MAX) --step;
  shared().given_up_count.store(step + 1, std::memory_order_release);
}

std::optional<uint64_t> ControlBlock::given_up() const {
  const uint64_t count = shared().given_up_count.load(std::memory_order_acquire);
  return count == 0 ? std::nullopt : std::optional(count - 1);
}

void ControlBlock::forget() const {
  shared().given_up_count.store(0, std::memory_order_release);
  post({});
}

void ControlBlock::post(const GroupNews& news) const {
  ByteVector bytes = encode_news(news);
  bytes.resize(kNewsWords * sizeof(uint64_t));

  NewsCell& cell = shared().news;
  // A writer that died in the middle has begun what it has not posted: the next one does that again.
  const uint64_t number = cell.posted.load(std::memory_order_relaxed) + 1;
  cell.begun.store(number, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  auto& words = cell.places[number % 2];
  for (size_t i = 0; i < kNewsWords; ++i) {
    // Release, so that who reads a new word also sees that this was begun.
    words[i].store(load_le<uint64_t>(bytes.data() + i * sizeof(uint64_t)), std::memory_order_release);
  }
  cell.posted.store(number, std::memory_order_release);
}

std::optional<GroupNews> ControlBlock::news() const {
  const NewsCell& cell = shared().news;
  for (int attempt = 0; attempt < kNewsAttempts; ++attempt) {
    const uint64_t number = cell.posted.load(std::memory_order_acquire);
    if (number == 0) return GroupNews{};  // nothing was posted yet
    const auto& words = cell.places[number % 2];
    std::array<std::byte, kNewsWords * sizeof(uint64_t)> bytes{};
    for (size_t i = 0; i < kNewsWords; ++i) {
      store_le(bytes.data() + i * sizeof(uint64_t), words[i].load(std::memory_order_acquire));
    }
    if (cell.begun.load(std::memory_order_relaxed) > number + 1) continue;  // it wrote there again
    const Result<GroupNews> news = decode_news(bytes);
    return news.ok() ? std::optional(*news) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace varve
