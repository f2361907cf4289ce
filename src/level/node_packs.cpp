#include "level/node_packs.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <type_traits>

#include "snapshot/control_block.h"

namespace varve {

namespace {
constexpr size_t kEntries = 1024, kReaders = 512;
constexpr uint64_t kAlignmentBytes = 64;
/// The board comes first in the segment, then the packs.
constexpr uint64_t kBoardBytes = 256_KiB;
constexpr uint64_t kMark = 0x3153'4b43'4150'5656;  // "VVPACKS1": another version lays it out in another way
/// Whoever holds the lock does so for some thousand instructions; after so many pauses it is dead.
constexpr std::chrono::milliseconds kLockPause(1);
constexpr int kLockTriesMax = 2'000;

enum class Filled : uint32_t { no, going_on, yes };
}  // namespace

struct NodePacks::Entry {
  Score pack;
  PackPlace place;
  uint64_t begin = 0, bytes = 0;  ///< in a ring of kBytes that goes round for ever
  uint32_t readers = 0;           ///< that look at it now
  Filled filled = Filled::no;
};

struct NodePacks::Board {
  struct Reader {
    bool used = false;
    PackPlace next;
  };
  uint64_t mark = kMark;
  std::atomic<uint32_t> lock{0};
  std::atomic<uint32_t> broken{0};  ///< who held the lock has died: nobody can tell what is true
  Bell changed;
  uint64_t oldest = 0, newest = 0;  ///< entries [oldest, newest) are there, each at its number modulo kEntries
  std::array<Entry, kEntries> entries;
  std::array<Reader, kReaders> readers;

  Entry& entry(uint64_t number) { return entries[number % kEntries]; }
  uint64_t free_from() { return newest == oldest ? 0 : entry(newest - 1).begin + entry(newest - 1).bytes; }

  /// Whether nobody needs it any more.
  bool is_past(const Entry& entry) const {
    if (entry.readers > 0 || entry.filled == Filled::going_on) return false;
    return entry.filled == Filled::no || std::all_of(readers.begin(), readers.end(), [&](const Reader& reader) {
             return !reader.used || entry.place < reader.next;
           });
  }
  /// Where so many bytes lie together, if what is there longest makes room for them.
  std::optional<uint64_t> make_room(uint64_t bytes) {
    uint64_t begin = free_from();
    if (begin % kBytes + bytes > kBytes) begin += kBytes - begin % kBytes;
    const auto is_short = [&] {
      return newest > oldest && (newest - oldest == kEntries || begin + bytes - entry(oldest).begin > kBytes);
    };
    while (is_short()) {
      if (!is_past(entry(oldest))) return std::nullopt;
      ++oldest;
    }
    return begin;
  }
};

/// The board's lock; not held if the board is broken.
class NodePacks::Guard {
 public:
  explicit Guard(Board& board) : board_(board) {
    for (int tries = 0; tries < kLockTriesMax && board_.broken == 0; ++tries) {
      uint32_t free = 0;
      held_ = board_.lock.compare_exchange_strong(free, 1, std::memory_order_acquire);
      if (held_) return;
      futex_wait(board_.lock, 1, kLockPause);
    }
    board_.broken = 1;
  }
  ~Guard() {
    if (!held_) return;
    board_.lock.store(0, std::memory_order_release);
    futex_wake_all(board_.lock);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  bool held() const { return held_; }

 private:
  Board& board_;
  bool held_ = false;
};

NodePacks::~NodePacks() {
  end();
  const MutexLock lock(mutex_);
  if (made_here_) segment_.unlink().ignore("the job's next run removes it");
}

NodePacks::Board* NodePacks::board() {
  if (Board* const known = board_.load(std::memory_order_acquire); known != nullptr) return known;
  const MutexLock lock(mutex_);
  if (std::exchange(tried_, true)) return board_.load(std::memory_order_acquire);
  static_assert(std::is_trivially_destructible_v<Board> && sizeof(Board) <= kBoardBytes);
  // Memory for packs is taken as they come: all ranks may be at this at once, and most restarts need little.
  Result<SharedSegment> segment = SharedSegment::create_sparse(
      path_, kBoardBytes, kBoardBytes + kBytes, [](MutableByteSpan bytes) { new (bytes.data()) Board(); });
  made_here_ = segment.ok();
  if (segment.status().code() == StatusCode::already_exists)
    segment = SharedSegment::open(path_, SharedSegment::Access::read_write);
  if (!segment.ok() || segment->size() != kBoardBytes + kBytes) return nullptr;
  segment_ = std::move(*segment);
  Board* const board = std::launder(reinterpret_cast<Board*>(segment_.data()));
  if (board->mark != kMark) return nullptr;
  board_.store(board, std::memory_order_release);
  return board;
}

bool NodePacks::begin(const PackPlace& first) {
  Board* const board = this->board();
  if (board == nullptr || reading_.exchange(true)) return false;
  const Guard guard(*board);
  const auto free = std::find_if(board->readers.begin(), board->readers.end(),
                                 [](const Board::Reader& reader) { return !reader.used; });
  if (!guard.held() || free == board->readers.end()) {
    reading_ = false;
    return false;
  }
  *free = {true, first};
  reader_ = static_cast<size_t>(free - board->readers.begin());
  return true;
}

void NodePacks::go_on(const PackPlace& next) { stand_at(&next); }

void NodePacks::end() {
  if (!reading_) return;
  stand_at(nullptr);
  reading_ = false;
}

void NodePacks::stand_at(const PackPlace* place) {
  Board& board = *this->board();
  {
    const Guard guard(board);
    if (!guard.held()) return;
    Board::Reader& reader = board.readers[reader_];
    reader.used = place != nullptr;
    if (place != nullptr) reader.next = *place;
  }
  board.changed.ring();
}

NodePacks::Held NodePacks::find(const Score& pack, const PackPlace& place, uint64_t raw_bytes) {
  Board* const board = raw_bytes == 0 || raw_bytes > kPackBytesMax ? nullptr : this->board();
  if (board == nullptr) return {};
  Held held = look_for(*board, pack, place, raw_bytes);
  if (held.state_ == State::to_fill && !take_memory(held.bytes_).ok()) {
    held = {};
    held.state_ = State::alone;
  }
  return held;
}

NodePacks::Held NodePacks::look_for(Board& board, const Score& pack, const PackPlace& place, uint64_t raw_bytes) {
  Held held;
  const Guard guard(board);
  if (!guard.held()) return held;
  uint64_t number = board.oldest;
  const auto is_it = [&](const Entry& entry) {
    return entry.filled != Filled::no && entry.pack == pack && entry.bytes == raw_bytes;
  };
  while (number < board.newest && !is_it(board.entry(number))) ++number;
  if (number == board.newest) {
    if (board.oldest < board.newest && place < board.entry(board.oldest).place) {
      held.state_ = State::alone;
      return held;
    }
    const std::optional<uint64_t> begin =
        board.make_room((raw_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes);
    if (!begin) return held;
    held.state_ = State::to_fill;
    board.entry(board.newest++) = {pack, place, *begin, raw_bytes, 0, Filled::going_on};
  } else if (board.entry(number).filled == Filled::going_on) {
    held.state_ = State::on_its_way;
    return held;
  } else {
    held.state_ = State::whole;
    ++board.entry(number).readers;
  }
  held.packs_ = this;
  held.entry_ = number;
  held.bytes_ = {reinterpret_cast<std::byte*>(&board) + kBoardBytes + board.entry(number).begin % kBytes, raw_bytes};
  return held;
}

Status NodePacks::take_memory(ByteSpan room) {
  const MutexLock lock(mutex_);
  return segment_.take(static_cast<uint64_t>(room.data() - segment_.data()), room.size());
}

bool NodePacks::wait(std::chrono::nanoseconds limit) {
  Board* const board = this->board();
  if (board == nullptr) return false;
  const uint32_t seen = board->changed.count();
  board->changed.wait(seen, limit);
  return board->changed.count() != seen;
}

/// Whoever has looked at it does not any more; what was to be filled and is not is nobody's.
void NodePacks::release(const Held& held) {
  Board& board = *this->board();
  {
    const Guard guard(board);
    if (!guard.held()) return;
    Entry& entry = board.entry(held.entry_);
    if (held.state_ == State::to_fill) {
      entry.filled = Filled::no;
      while (board.newest > board.oldest && board.entry(board.newest - 1).filled == Filled::no) --board.newest;
    } else {
      --entry.readers;
    }
  }
  board.changed.ring();
}

NodePacks::Held& NodePacks::Held::operator=(Held&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(bytes_, other.bytes_);
  std::swap(packs_, other.packs_);
  std::swap(entry_, other.entry_);
  return *this;
}

NodePacks::Held::~Held() {
  if (packs_ != nullptr) packs_->release(*this);
}

void NodePacks::Held::publish() {
  Board& board = *packs_->board();
  {
    const Guard guard(board);
    // Then it stays on its way for others, who read for themselves.
    if (!guard.held()) return;
    Entry& entry = board.entry(entry_);
    entry.filled = Filled::yes;
    entry.readers = 1;
    state_ = State::whole;
  }
  board.changed.ring();
}

}  // namespace varve
