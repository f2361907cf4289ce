#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "varve/status.h"
#include "varve/version.h"

namespace varve::c_binding {

// Structs that the program makes begin with their size, as the program knows it, since program and library may be of
// different versions. Members are only ever added, at the end; zeros in one say what its absence does.

/// No struct is so large: its first member was never set.
constexpr size_t kStructBytesMax = 4096;

/// invalid_argument: it says no size that can be. `name`: of the struct, whose initialiser is <name>_init().
template <class Struct>
Status check_size(const Struct& theirs, const std::string& name) {
  if (theirs.size >= sizeof theirs.size && theirs.size <= kStructBytesMax) return {};
  return Status::invalid_argument("a struct does not say its size", name, "begin with " + name + "_init()");
}

/// A struct of the program as this library knows it: what the program's lacks is zero. unsupported: it says something
/// that is not known here.
template <class Struct>
Result<Struct> read_struct(const Struct& theirs, const std::string& name) {
  VARVE_TRY(check_size(theirs, name));
  Struct ours{};
  const auto* const bytes = reinterpret_cast<const char*>(&theirs);
  if (theirs.size > sizeof ours &&
      std::any_of(bytes + sizeof ours, bytes + theirs.size, [](char byte) { return byte != 0; })) {
    return Status::unsupported("the library is older than the program, and does not know all that is said", name,
                               std::string("link Varve newer than ") + varve_version_text());
  }
  std::memcpy(&ours, &theirs, std::min(theirs.size, sizeof ours));
  return ours;
}

/// Fills a struct of the program, as far as it goes; what is not known here becomes zero.
template <class Struct>
Status write_struct(const Struct& ours, Struct& theirs, const std::string& name) {
  VARVE_TRY(check_size(theirs, name));
  const size_t size = theirs.size, known = std::min(size, sizeof ours);
  std::memcpy(&theirs, &ours, known);
  std::memset(reinterpret_cast<char*>(&theirs) + known, 0, size - known);
  theirs.size = size;
  return {};
}

}  // namespace varve::c_binding
