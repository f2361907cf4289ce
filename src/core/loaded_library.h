#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// A shared library that is loaded where it is wanted, and not with the program: it draws in many others, and whoever
/// does without should not wait for them at every start. Never unloaded: it may have threads and handlers of its own.
/// What describes one derives from this, and has a member for each function that it needs:
/// `decltype(&::sqrt) square_root = find("sqrt");`
class LoadedLibrary {
 public:
  /// `file`: its name, with the version of the interface that the header describes. unsupported: it cannot be loaded,
  /// and so there is no `what`; `hint`: what to install. Or it lacks a function.
  template <class Library>
  static Result<Library> load(const char* file, const char* what, const char* hint) {
    VARVE_ASSIGN(const LoadedLibrary opened, open(file, what, hint));
    Library library(opened);
    VARVE_TRY(library.status_);
    return library;
  }

 protected:
  /// Of a function; it becomes a pointer of the type that it is given to.
  class Address {
   public:
    explicit Address(void* address) : address_(address) {}
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address_);
    }

   private:
    void* address_;
  };
  Address find(const char* name);

 private:
  LoadedLibrary(const char* file, void* handle) : file_(file), handle_(handle) {}
  static Result<LoadedLibrary> open(const char* file, const char* what, const char* hint);

  std::string file_;
  void* handle_;
  Status status_;  ///< of the first function that it lacks
};

}  // namespace varve
