#include "core/guarded.h"

#include <exception>
#include <new>

namespace varve {

Status status_from_current_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::resource_limit("out of memory", {}, Remedy::use_less_memory);
  } catch (const std::exception& exception) {
    return Status::internal("a task failed unexpectedly", exception.what());
  } catch (...) {
    return Status::internal("a task failed unexpectedly", "unknown exception");
  }
}

}  // namespace varve
