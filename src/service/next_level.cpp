#include "service/next_level.h"

#include <optional>

#include "core/throttled_file_system.h"
#include "service/location.h"
#include "service/remote_reply.h"
#include "service/server_link.h"
#include "service/stoppable_progress.h"
#include "transfer/transfer.h"

namespace varve {

namespace {
TransferNumbers numbers_of(const TransferReport& report) {
  return {.was_there = report.was_there ? 1u : 0u,
          .sent_packs = report.sent_packs,
          .sent_nodes = report.sent_nodes,
          .sent_bytes = report.sent_bytes,
          .held_packs = report.held_packs,
          .held_bytes = report.held_bytes,
          .recoded_packs = report.recoded_packs,
          .recoded_from_bytes = report.recoded_from_bytes,
          .recoded_to_bytes = report.recoded_to_bytes,
          .unchecked_packs = report.unchecked_packs};
}
}  // namespace

Reply NextLevel::transfer(const Request& request, const SignOfLife& alive) {
  Reply reply;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  Result<TransferNumbers> numbers = Status::busy("another set is being copied to or from the server's next level");
  if (lock.owns_lock()) {
    try {
      const Pulse pulse(alive);
      numbers = pulse.started().ok() ? copy(request) : pulse.started();
    } catch (const std::bad_alloc&) {
      numbers = Status::resource_limit("the server is out of memory");
    }
  }
  if (numbers.ok()) {
    reply.transfer = *numbers;
    return reply;
  }
  reply.outcome = Outcome::failed;
  reply.status = numbers.status();
  return reply;
}

Result<TransferNumbers> NextLevel::copy(const Request& request) {
  if (stopping_) return Status::cancelled();
  TransferOptions options;
  options.check_held = request.check_held;
  if (!request.recode.empty()) {
    VARVE_ASSIGN(options.recode, CodecPolicy::parse(request.recode));
  }
  VARVE_ASSIGN(const std::unique_ptr<StorePlace> next, open_location(location_, {.key_file = key_file_}));
  const bool push = request.message == Message::push;
  FileSystem& target = push ? next->fs() : posix_file_system();
  std::optional<ThrottledFileSystem> slow;
  if (request.bytes_per_second > 0) slow.emplace(target, request.bytes_per_second);
  FileSystem& written = slow ? static_cast<FileSystem&>(*slow) : target;
  VARVE_ASSIGN(const std::unique_ptr<Store> own, Store::open(push ? posix_file_system() : written, store_path_));
  VARVE_ASSIGN(const std::unique_ptr<Store> other,
               Store::open(push ? written : next->fs(), next->path(), next->chunk_lookup(), next->spread()));
  const Store& from = push ? *own : *other;
  const Store& to = push ? *other : *own;
  VARVE_ASSIGN(const SetName name, Catalog(from).resolve(request.path));
  StoppableProgress progress(stopping_);
  VARVE_ASSIGN(const TransferReport report, copy_set(from, to, name, options, progress));
  return numbers_of(report);
}

Result<TransferNumbers> transfer_on_server(ServerLink& link, Message direction, const ServerTransfer& what) {
  Request request;
  request.message = direction;
  request.path = what.set;
  request.recode = what.recode;
  request.check_held = what.check_held;
  request.bytes_per_second = what.bytes_per_second;
  VARVE_ASSIGN(const Reply reply, link.ask(std::move(request)));
  VARVE_TRY(failure_of(reply, what.set));
  return reply.transfer;
}

}  // namespace varve
