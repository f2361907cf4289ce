#pragma once

#include <cstdint>
#include <string_view>

#include "varve/status.h"

namespace varve {

/// Is told how a long operation goes on; the library itself never prints. Called from several threads at once, while
/// work waits: implementations are thread-safe and quick, and throw nothing.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  /// How many bytes advance() will add up to in this phase; may be told again when it turns out to be more.
  virtual void total(uint64_t bytes) = 0;
  /// That `bytes` more have been dealt with.
  virtual void advance(uint64_t bytes) = 0;
  /// That a new phase begins ("reading", "writing", "checking"): count from zero again.
  virtual void phase(std::string_view name) = 0;
  /// Something that the user should know and that does not stop the operation.
  virtual void warning(const Status& what) = 0;
  /// Whether the user wants the operation to stop: it then ends with `cancelled` at the next convenient point.
  virtual bool cancelled() const = 0;
};

/// Listens to nothing and never cancels.
class NullProgress final : public ProgressSink {
 public:
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return false; }
};

/// A NullProgress for the whole process, for default arguments.
inline ProgressSink& null_progress() {
  static NullProgress progress;
  return progress;
}

}  // namespace varve
