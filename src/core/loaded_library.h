#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// A shared library that is loaded where it is wanted, and not with the program: it draws in many others, and whoever
/// does without should not wait for them at every start. Never unloaded: it may have threads and handlers of its own.
class LoadedLibrary {
 public:
  /// `file`: its name, with the version of the interface that the header describes. unsupported: it cannot be loaded,
  /// and so there is no `what`; `hint`: what to install.
  static Result<LoadedLibrary> load(const char* file, const char* what, const char* hint);

  /// Finds a function of its interface. unsupported, once a function was not there: it lacks that one.
  template <class Function>
  void find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(address_of(name));
  }
  const Status& status() const { return status_; }

 private:
  LoadedLibrary(const char* file, void* handle) : file_(file), handle_(handle) {}
  void* address_of(const char* name);

  std::string file_;
  void* handle_;
  Status status_;
};

}  // namespace varve
