#include "core/guarded.h"

#include <exception>
#include <new>

namespace varve {

namespace {
/// Made when the program starts, as to say so is not to need any; and never destroyed, as threads may still be at work.
const Status& kOutOfMemory =  // NOLINT(cert-err58-cpp): what fails then fails before anything was begun
    *new Status(Status::resource_limit("out of memory", {}, Remedy::use_less_memory));
}  // namespace

Status status_from_current_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::exception& exception) {
    try {
      return Status::internal("a task failed unexpectedly", exception.what());
    } catch (const std::bad_alloc&) {
      return kOutOfMemory;
    }
  } catch (...) {
    return Status::internal("a task failed unexpectedly", "unknown exception");
  }
}

}  // namespace varve
