#include "backend/throttled_backend.h"

#include <gtest/gtest.h>

#include <thread>

#include "backend/folder_backend.h"
#include "core/memory_file_system.h"

namespace varve {
namespace {

constexpr double kRate = 1'000'000;

class ThrottledWrites : public testing::Test {
 protected:
  std::unique_ptr<ObjectWriter> create(const std::string& name) { return slow_.put("/" + name).value(); }
  static ByteVector bytes(size_t count) { return ByteVector(count, std::byte{7}); }

  ManualClock clock_;
  MemoryFileSystem memory_;
  FolderBackend folder_{memory_, "/"};
  ThrottledBackend slow_{folder_, kRate, clock_};
};

TEST_F(ThrottledWrites, TakeTheTimeThatTheRateAllows) {
  auto file = create("a");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(file->write_at(0, bytes(100'000)).ok());
  EXPECT_NEAR(clock_.seconds(), 2.0, 0.011);
}

TEST_F(ThrottledWrites, ShareTheRateAmongFiles) {
  auto first = create("a"), second = create("b");
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(first->write_at(0, bytes(100'000)).ok());
    ASSERT_TRUE(second->write_at(0, bytes(100'000)).ok());
  }
  EXPECT_NEAR(clock_.seconds(), 2.0, 0.011);
}

TEST_F(ThrottledWrites, ShareTheRateAmongThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      auto file = create(std::string(1, static_cast<char>('a' + t)));
      for (int i = 0; i < 25; ++i) EXPECT_TRUE(file->write_at(0, bytes(10'000)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Several sleep at once on a clock that adds up what each sleeps: it is late, but never early.
  EXPECT_GE(clock_.seconds(), 1.0 - 0.011);
}

TEST_F(ThrottledWrites, DoNotSaveUpWhatWasNotUsed) {
  auto file = create("a");
  clock_.advance(1000);
  ASSERT_TRUE(file->write_at(0, bytes(1'000'000)).ok());
  EXPECT_NEAR(clock_.seconds(), 1001.0, 0.011);
}

TEST_F(ThrottledWrites, CountTheTimeThatTheProgramTookAnyway) {
  auto file = create("a");
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(file->write_at(0, bytes(1000)).ok());
    clock_.advance(0.002);
  }
  EXPECT_NEAR(clock_.seconds(), 0.2, 0.011);
}

TEST_F(ThrottledWrites, AreSoonOverOnceTheyAreToEndHoweverLittleMayPass) {
  int looks = 0;
  ThrottledBackend slow(folder_, 1e-300, clock_, [&] { return ++looks > 3; });
  auto file = slow.put("/a").value();
  ASSERT_TRUE(file->write_at(0, bytes(1000)).ok());
  ASSERT_TRUE(file->write_at(0, bytes(1000)).ok());
  EXPECT_LT(clock_.seconds(), 10);
}

TEST_F(ThrottledWrites, ReadAtFullSpeed) {
  {
    auto object = create("a");
    ASSERT_TRUE(object->write_at(0, bytes(1000)).ok());
    ASSERT_TRUE(object->seal(1000).ok());
  }
  const double before = clock_.seconds();
  auto object = slow_.open("/a").value();
  ByteVector back(1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(*object->read_at(0, back), 1000u);
  EXPECT_EQ(back, bytes(1000));
  EXPECT_EQ(clock_.seconds(), before);
}

}  // namespace
}  // namespace varve
