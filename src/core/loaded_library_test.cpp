#include "core/loaded_library.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve {
namespace {

struct Arithmetic : LoadedLibrary {
  explicit Arithmetic(const LoadedLibrary& library) : LoadedLibrary(library) {}
  double (*root)(double) = find("sqrt");
};
struct MoreThanThereIs : LoadedLibrary {
  explicit MoreThanThereIs(const LoadedLibrary& library) : LoadedLibrary(library) {}
  double (*root)(double) = find("sqrt");
  void (*none)() = find("varve_is_not_here");
  void (*neither)() = find("neither_is_this");
};

TEST(LoadedLibrary, FindsFunctionsAndNamesTheFirstThatIsNotThere) {
  const Result<Arithmetic> library = LoadedLibrary::load<Arithmetic>("libm.so.6", "arithmetic", "install a C library");
  ASSERT_TRUE(library.ok()) << library.status().to_string();
  ASSERT_NE(library->root, nullptr);
  EXPECT_EQ(library->root(49), 7);
  const Status lacking =
      LoadedLibrary::load<MoreThanThereIs>("libm.so.6", "arithmetic", "install a C library").status();
  EXPECT_EQ(lacking.code(), StatusCode::unsupported);
  EXPECT_NE(lacking.to_string().find("varve_is_not_here()"), std::string::npos) << lacking.to_string();
}

TEST(LoadedLibrary, SaysWhatThereIsNotWithoutIt) {
  const Status loaded =
      LoadedLibrary::load<Arithmetic>("libnowhere.so.1", "tar archive", "install libnowhere").status();
  EXPECT_EQ(loaded.code(), StatusCode::unsupported);
  EXPECT_NE(loaded.to_string().find("there is no tar archive"), std::string::npos) << loaded.to_string();
  EXPECT_EQ(loaded.hint(), "install libnowhere");
}

}  // namespace
}  // namespace varve
