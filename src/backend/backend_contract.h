#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace varve {

/// A backend under test, with nothing in it.
struct BackendSubject {
  virtual ~BackendSubject() = default;
  Backend* backend = nullptr;
};

struct BackendKind {
  const char* name;
  std::function<std::unique_ptr<BackendSubject>()> make;
};
inline void PrintTo(const BackendKind& kind, std::ostream* out) { *out << kind.name; }

/// Tests that all backends pass: backend_contract.cpp, which every program that tests one has among its sources, and
/// which INSTANTIATE_TEST_SUITE_P gives the kinds.
class EveryBackend : public testing::TestWithParam<BackendKind> {
 protected:
  std::string name(std::string_view of) const { return join_path(backend_.root(), of); }
  Status put(const std::string& of, ByteSpan contents);
  std::string read(const std::string& of);
  std::vector<std::string> names(const std::string& folder);
  /// Makes a record, and commits it in the place of whatever has the name.
  Status commit(const std::string& object, std::string_view contents);

  std::unique_ptr<BackendSubject> subject_ = GetParam().make();
  Backend& backend_ = *subject_->backend;
  Records& records_ = backend_.records();
  int commits_ = 0;
};

}  // namespace varve
