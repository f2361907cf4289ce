#include "core/guarded.h"

#include <exception>
#include <new>
#include <system_error>

namespace varve {

Status status_from_current_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::resource_limit("out of memory", {}, "lower --memory, or run it where there is more");
  } catch (const std::exception& exception) {
    return Status::internal("a task failed unexpectedly", exception.what());
  } catch (...) {
    return Status::internal("a task failed unexpectedly", "unknown exception");
  }
}

Result<std::thread> start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error&) {
    return Status::resource_limit("the system refuses another thread", {}, "raise the user's limit of processes");
  }
}

}  // namespace varve
