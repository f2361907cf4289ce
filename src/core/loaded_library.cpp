#include "core/loaded_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace varve {

Result<LoadedLibrary> LoadedLibrary::open(const char* file, const char* what, const char* hint) {
  void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return LoadedLibrary(file, handle);
  const char* const why = ::dlerror();
  return Status::unsupported(fmt::format("{} cannot be loaded, and so there is no {}: {}", file, what,
                                         why == nullptr ? "nobody says why" : why),
                             file, hint);
}

LoadedLibrary::Address LoadedLibrary::find(const char* name) {
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr && status_.ok())
    status_ = Status::unsupported(fmt::format("the library lacks {}()", name), file_);
  return Address(address);
}

}  // namespace varve
