#include "varve/session.h"

#include <unistd.h>

#include <type_traits>
#include <utility>

#include "comm/ending_ranks.h"
#include "core/guarded.h"
#include "runtime/run_session.h"

namespace varve {

namespace {
/// Sessions of a process that this one was forked from, which cannot end here. Held, so that they are not taken for
/// lost.
std::vector<RunSession*>& sessions_left() {
  static auto* const left = new std::vector<RunSession*>;
  return *left;
}
}  // namespace

/// The public face of a RunSession. It lets in the process that opened it alone: one that was forked from that has
/// neither its threads nor its place among the ranks, and what it would remove is the other's. It also ends the session
/// when its ranks can be reached for the last time.
class Session::Impl {
 public:
  /// `ranks`: of `run`, which owns them.
  Impl(std::unique_ptr<RunSession> run, Communicator& ranks) : run_(std::move(run)) {
    if (auto* const ending = dynamic_cast<EndingRanks*>(&ranks)) ending->set_before_end([this] { end_with_ranks(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!is_owner()) sessions_left().push_back(run_.release());
  }

  /// What `call` gives of the session; in another process the error, if it can give one, or nothing.
  template <class Call>
  auto with(Call call) const {
    using Given = std::invoke_result_t<Call&, RunSession&>;
    if constexpr (std::is_convertible_v<Status, Given>) {
      return is_owner() ? call(*run_) : Given(wrong_process());
    } else {
      return is_owner() ? call(*run_) : Given();
    }
  }

  /// The same of what all ranks do together. A rank that cannot go on in the midst of it, as it lacks memory, lets the
  /// others fail rather than wait for it, where the library below can tell them.
  template <class Call>
  auto together(Call call) const {
    return with([&](RunSession& run) -> std::invoke_result_t<Call&, RunSession&> {
      try {
        return call(run);
      } catch (...) {
        run.break_off();
        if constexpr (std::is_convertible_v<Status, std::invoke_result_t<Call&, RunSession&>>) {
          return status_from_current_exception().with_context(
              "this rank could not go on, and has given the session up");
        } else {
          return {};
        }
      }
    });
  }

  Status finish(std::chrono::duration<double> limit) {
    if (!is_owner()) return wrong_process();
    return ended_with_ranks_ ? *ended_with_ranks_ : run_->finish(limit);
  }
  SessionProgress progress() const {
    if (is_owner()) return run_->progress();
    SessionProgress nothing;
    nothing.last_error = wrong_process();
    return nothing;
  }

 private:
  bool is_owner() const { return ::getpid() == owner_; }
  static Status wrong_process() {
    return Status::invalid_argument("the session is that of the process from which this one was forked");
  }
  void end_with_ranks() {
    if (is_owner()) ended_with_ranks_ = run_guarded([this] { return run_->finish(kSessionEndPatience); });
  }

  std::unique_ptr<RunSession> run_;
  const pid_t owner_ = ::getpid();
  std::optional<Status> ended_with_ranks_;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::open(std::unique_ptr<Communicator> ranks, SessionOptions options) {
  Communicator* const theirs = ranks.get();
  VARVE_ASSIGN(std::unique_ptr<RunSession> run, RunSession::open(std::move(ranks), options));
  return Session(std::make_unique<Impl>(std::move(run), *theirs));
}

Status Session::protect(std::string_view name, std::function<Status(std::vector<std::byte>&)> save,
                        std::function<Status(std::span<const std::byte>)> load) {
  return impl_->with(
      [&](RunSession& run) { return run.variables().protect_object(name, std::move(save), std::move(load)); });
}

Status Session::protect_array(std::string_view name, ElementType type, void* data, uint64_t count,
                              const ArrayShape& shape) {
  return impl_->with([&](RunSession& run) { return run.variables().protect_array(name, type, data, count, shape); });
}

Status Session::protect_boxes_of(std::string_view name, ElementType type, const std::vector<uint64_t>& global_cells,
                                 const std::vector<ArrayBox<std::byte>>& boxes, DimensionOrder order) {
  return impl_->with(
      [&](RunSession& run) { return run.variables().protect_boxes(name, type, global_cells, boxes, order); });
}

Status Session::protect_scalar(std::string_view name, ElementType type, void* data) {
  return impl_->with([&](RunSession& run) { return run.variables().protect_scalar(name, type, data); });
}

Status Session::protect_vector(std::string_view name, ElementType type,
                               std::function<std::span<const std::byte>()> bytes,
                               std::function<std::span<std::byte>(uint64_t count)> resize) {
  return impl_->with(
      [&](RunSession& run) { return run.variables().protect_vector(name, type, std::move(bytes), std::move(resize)); });
}

Status Session::redistribute(std::string_view name, Redistribution how) {
  return impl_->with([&](RunSession& run) { return run.variables().redistribute(name, how); });
}

Status Session::redistribute(std::string_view name, ElementOwners owners, const std::vector<std::string>& together) {
  return impl_->with([&](RunSession& run) { return run.variables().redistribute(name, std::move(owners), together); });
}

Status Session::unprotect(std::string_view name) {
  return impl_->with([&](RunSession& run) { return run.variables().unprotect(name); });
}

Result<std::byte*> Session::make_grid_bytes(std::string_view name, uint64_t bytes) {
  return impl_->with([&](RunSession& run) { return run.make_grid(name, bytes); });
}

Result<std::byte*> Session::lend_bytes(std::string_view name, std::byte* grid) {
  return impl_->with([&](RunSession& run) { return run.lend(name, grid); });
}

Result<std::optional<uint64_t>> Session::restart(const RestartChoice& choice) {
  return impl_->together([&](RunSession& run) { return run.restart(choice); });
}

Result<std::optional<uint64_t>> Session::reject() {
  return impl_->together([](RunSession& run) { return run.reject(); });
}

Result<std::vector<RestartPoint>> Session::restart_points() {
  return impl_->together([](RunSession& run) { return run.restart_points(); });
}

Result<std::vector<SavedVariable>> Session::saved_variables(uint64_t step) {
  return impl_->together([&](RunSession& run) { return run.saved_variables(step); });
}

Status Session::drop(uint64_t step) {
  return impl_->together([&](RunSession& run) { return run.drop(step); });
}

bool Session::due(uint64_t step) {
  return impl_->together([&](RunSession& run) { return run.due(step); });
}

Status Session::checkpoint(uint64_t step, Persistence persistence) {
  return impl_->together([&](RunSession& run) { return run.checkpoint(step, persistence); });
}

bool Session::should_stop() const {
  return impl_->with([](const RunSession& run) { return run.should_stop(); });
}

Status Session::wait() {
  return impl_->together([](RunSession& run) { return run.wait(); });
}

Status Session::finish(std::chrono::duration<double> limit) { return impl_->finish(limit); }

Status Session::abandon() {
  return impl_->with([](RunSession& run) { return run.abandon(); });
}

SessionProgress Session::progress() const { return impl_->progress(); }

std::vector<Status> Session::warnings() {
  return impl_->with([](RunSession& run) { return run.warnings(); });
}

std::string Session::effective_options() const {
  return impl_->with([](const RunSession& run) { return run.effective_options(); });
}

std::string Session::report() const {
  return impl_->with([](const RunSession& run) { return run.report(); });
}

std::string Session::report_json() const {
  return impl_->with([](const RunSession& run) { return run.report_json(); });
}

}  // namespace varve
