#pragma once

#include <atomic>

#include "core/progress.h"

namespace varve {

/// Only tells an operation when to end.
class StoppableProgress final : public ProgressSink {
 public:
  explicit StoppableProgress(const std::atomic<bool>& stopping) : stopping_(stopping) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return stopping_; }

 private:
  const std::atomic<bool>& stopping_;
};

}  // namespace varve
