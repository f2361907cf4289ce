#include "varve/session.h"

#include <utility>

#include "runtime/run_session.h"

namespace varve {

/// The public face of a RunSession.
class Session::Impl {
 public:
  explicit Impl(std::unique_ptr<RunSession> run_session) : run(std::move(run_session)) {}
  const std::unique_ptr<RunSession> run;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::open(std::unique_ptr<Communicator> ranks, SessionOptions options) {
  VARVE_ASSIGN(std::unique_ptr<RunSession> run, RunSession::open(std::move(ranks), options));
  return Session(std::make_unique<Impl>(std::move(run)));
}

Status Session::protect(std::string_view name, std::function<Status(std::vector<std::byte>&)> save,
                        std::function<Status(std::span<const std::byte>)> load) {
  return impl_->run->variables().protect_object(name, std::move(save), std::move(load));
}

Status Session::protect_array(std::string_view name, ElementType type, void* data, uint64_t count,
                              const ArrayShape& shape) {
  return impl_->run->variables().protect_array(name, type, data, count, shape);
}

Status Session::protect_scalar(std::string_view name, ElementType type, void* data) {
  return impl_->run->variables().protect_scalar(name, type, data);
}

Status Session::protect_vector(std::string_view name, ElementType type,
                               std::function<std::span<const std::byte>()> bytes,
                               std::function<std::span<std::byte>(uint64_t count)> resize) {
  return impl_->run->variables().protect_vector(name, type, std::move(bytes), std::move(resize));
}

Status Session::unprotect(std::string_view name) { return impl_->run->variables().unprotect(name); }

Result<std::byte*> Session::make_grid_bytes(std::string_view name, uint64_t bytes) {
  return impl_->run->make_grid(name, bytes);
}

Result<std::byte*> Session::lend_bytes(std::string_view name, std::byte* grid) { return impl_->run->lend(name, grid); }

Result<std::optional<uint64_t>> Session::restart() { return impl_->run->restart(); }
bool Session::due(uint64_t step) { return impl_->run->due(step); }
Status Session::checkpoint(uint64_t step, Persistence persistence) { return impl_->run->checkpoint(step, persistence); }
bool Session::should_stop() const { return impl_->run->should_stop(); }
Status Session::wait() { return impl_->run->wait(); }
Status Session::finish(std::chrono::duration<double> limit) { return impl_->run->finish(limit); }
SessionProgress Session::progress() const { return impl_->run->progress(); }
std::vector<Status> Session::warnings() { return impl_->run->warnings(); }
std::string Session::effective_options() const { return impl_->run->effective_options(); }
std::string Session::report() const { return impl_->run->report(); }
std::string Session::report_json() const { return impl_->run->report_json(); }

}  // namespace varve
