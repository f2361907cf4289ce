#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

/// The job of Slurm in which this process is, as far as Slurm's own commands tell.
class SlurmJob {
 public:
  /// Gives the value of an environment variable, or null.
  using Variable = std::function<const char*(const char*)>;
  /// Runs a shell's command line, and returns what it printed; io_error if it failed.
  using Ask = std::function<Result<std::string>(const std::string& command)>;

  /// None: the process is in no job of Slurm.
  static std::optional<SlurmJob> find(const Variable& variable, Ask ask);
  static std::optional<SlurmJob> find();

  const std::string& name() const { return name_; }
  /// When it is ended, in seconds since 1970; none: it has no limit, or that is not known. Asks once.
  std::optional<int64_t> end_time(int64_t now_s) const;
  /// Whether a job that ends with this code is put back into the queue (RequeueExit= of slurm.conf).
  bool is_requeued_by(int exit_code) const;
  /// Has it put back into the queue, which ends this process. busy: it runs no more, and Slurm itself has decided what
  /// becomes of it (it was cancelled, or preempted).
  Status requeue() const;

 private:
  SlurmJob(std::string id, std::string name, std::optional<int64_t> said_end, Ask ask)
      : id_(std::move(id)), name_(std::move(name)), said_end_(said_end), ask_(std::move(ask)) {}

  std::string id_, name_;
  std::optional<int64_t> said_end_;
  Ask ask_;
};

/// Seconds of "1-02:03:04", "03:04", as squeue prints what is left; none: it is no duration ("UNLIMITED").
std::optional<int64_t> parse_slurm_duration(std::string_view text);

}  // namespace varve::cli
