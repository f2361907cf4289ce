#include "core/loaded_library.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve {
namespace {

TEST(LoadedLibrary, FindsFunctionsAndNamesTheFirstThatIsNotThere) {
  Result<LoadedLibrary> library = LoadedLibrary::load("libm.so.6", "arithmetic", "install a C library");
  ASSERT_TRUE(library.ok()) << library.status().to_string();
  double (*root)(double) = nullptr;
  library->find("sqrt", root);
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root(49), 7);
  EXPECT_TRUE(library->status().ok());
  void (*none)() = nullptr;
  library->find("varve_is_not_here", none);
  library->find("neither_is_this", none);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(library->status().code(), StatusCode::unsupported);
  EXPECT_NE(library->status().to_string().find("varve_is_not_here()"), std::string::npos)
      << library->status().to_string();
}

TEST(LoadedLibrary, SaysWhatThereIsNotWithoutIt) {
  const Status loaded = LoadedLibrary::load("libnowhere.so.1", "tar archive", "install libnowhere").status();
  EXPECT_EQ(loaded.code(), StatusCode::unsupported);
  EXPECT_NE(loaded.to_string().find("there is no tar archive"), std::string::npos) << loaded.to_string();
  EXPECT_EQ(loaded.hint(), "install libnowhere");
}

}  // namespace
}  // namespace varve
