#include "cli/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/process.h"
#include "cli/text.h"
#include "core/guarded.h"
#include "core/sync.h"

namespace varve::cli {

namespace {
constexpr std::chrono::seconds kQuietTime{1};
constexpr std::chrono::milliseconds kDrawInterval{100};
constexpr std::chrono::milliseconds kTellInterval{200};
/// The rate is that of these last seconds: long enough to be steady, short enough to follow a change.
constexpr std::chrono::seconds kRateTime{5};
constexpr size_t kBarCellsMax = 30;
constexpr size_t kBarCellsMin = 5;
/// Columns that are kept for the numbers, so that the bar does not change its length with them.
constexpr size_t kFactsColumns = 56;
}  // namespace

ProgressBar::ProgressBar(MessageWriter& messages) : messages_(messages) {
  note_interrupts();
  if (!messages_.can_redraw() && !messages_.tells_progress()) return;
  const bool told = messages_.tells_progress();
  Result<Thread> started = start_thread([this, told] { told ? tell_until_stopped() : draw_until_stopped(); });
  if (started.ok()) thread_ = std::move(*started);
}

ProgressBar::~ProgressBar() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
  if (messages_.can_redraw()) messages_.show_line("");
}

void ProgressBar::phase(std::string_view name) {
  if (messages_.is_verbose()) messages_.event(name);
  const MutexLock lock(mutex_);
  phase_ = name;
  total_bytes_ = 0;
  done_bytes_ = 0;
  samples_.assign(1, {Clock::now(), 0});
}

bool ProgressBar::cancelled() const { return interrupted(); }

void ProgressBar::draw_until_stopped() {
  const MutexLock lock(mutex_);
  const auto stopping = [this]() VARVE_REQUIRES(mutex_) { return stopping_; };
  if (stop_.wait_for(mutex_, kQuietTime, stopping)) return;
  do {
    messages_.show_line(line(Clock::now()));
  } while (!stop_.wait_for(mutex_, kDrawInterval, stopping));
}

void ProgressBar::tell_until_stopped() {
  const MutexLock lock(mutex_);
  const auto stopping = [this]() VARVE_REQUIRES(mutex_) { return stopping_; };
  bool last = false;
  do {
    last = stop_.wait_for(mutex_, kTellInterval, stopping);
    const uint64_t done = done_bytes_;
    messages_.progress(phase_, done, std::max(total_bytes_.load(), done));
  } while (!last);
}

std::string ProgressBar::line(Clock::time_point now) {
  const uint64_t done = done_bytes_, total = std::max(total_bytes_.load(), done);
  samples_.push_back({now, done});
  while (samples_.size() > 2 && now - samples_.front().time > kRateTime) samples_.pop_front();
  const double seconds = std::chrono::duration<double>(now - samples_.front().time).count();
  const double rate = seconds > 0 ? static_cast<double>(done - samples_.front().done_bytes) / seconds : 0;

  const std::string name = phase_.empty() ? "working" : phase_;
  std::string facts = total_bytes_ == 0 ? format_size(done) : format_size(done) + " of " + format_size(total);
  if (rate >= 1) facts += "  " + format_size(static_cast<uint64_t>(rate)) + "/s";
  if (rate >= 1 && total > done) facts += "  " + format_clock(static_cast<double>(total - done) / rate) + " left";
  if (interrupted()) facts = "stopping";

  const size_t columns = messages_.columns();
  std::string text = name + "  " + facts;
  if (total_bytes_ > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const size_t taken = name.size() + kFactsColumns;
    const size_t cells = columns > taken ? std::min(columns - taken, kBarCellsMax) : 0;
    std::string bar;
    if (cells >= kBarCellsMin) {
      const auto full = static_cast<size_t>(share * static_cast<double>(cells));
      bar = "[" + std::string(full, '#') + std::string(cells - full, '.') + "]";
    }
    text = fmt::format("{}  {} {:3.0f} %  {}", name, bar, std::floor(share * 100), facts);
  }
  // A line that wraps could not be taken back.
  return text.substr(0, columns > 0 ? columns - 1 : 0);
}

}  // namespace varve::cli
