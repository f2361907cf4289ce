#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "core/progress.h"

namespace varve::test {

/// Counts the bytes that are dealt with, and asks to stop once they are so many.
class StoppingProgress final : public ProgressSink {
 public:
  explicit StoppingProgress(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  void total(uint64_t) override {}
  void advance(uint64_t bytes) override { bytes_ += bytes; }
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return bytes_ >= bytes_max_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t bytes_max_;
  std::atomic<uint64_t> bytes_ = 0;
};

/// Does something when a phase begins, and may ask to stop from then on.
class PhaseProgress final : public ProgressSink {
 public:
  /// `act` returns whether to stop.
  explicit PhaseProgress(std::function<bool(std::string_view phase)> act) : act_(std::move(act)) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view name) override {
    if (act_(name)) stops_ = true;
  }
  void warning(const Status&) override {}
  bool cancelled() const override { return stops_; }

 private:
  const std::function<bool(std::string_view)> act_;
  std::atomic<bool> stops_{false};
};

}  // namespace varve::test
