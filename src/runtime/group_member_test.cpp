#include "runtime/group_member.h"

#include <gtest/gtest.h>

#include "core/bytes.h"

namespace varve {
namespace {

/// Counts how often all of its pages are left.
class CountingImage final : public DrainedImage {
 public:
  CountingImage() { table_.image_bytes = content_.size(); }
  const ImageTable& image() const override { return table_; }
  Status read(uint64_t, MutableByteSpan) override { return {}; }
  ByteSpan view(uint64_t offset, uint64_t bytes_max) override { return ByteSpan(content_).subspan(offset, bytes_max); }
  void leave_pages() override { ++left_; }
  void leave_pages(ByteSpan) override {}
  Status check_unchanged() override { return {}; }
  int left() const { return left_; }

 private:
  ByteVector content_ = ByteVector(1_MiB);
  ImageTable table_;
  int left_ = 0;
};

TEST(SnapshotsThatAreSaved, AreLeftOnceMoreWhenOthersAreLookedAt) {
  CountingImage first, second, third;
  SnapshotSource source({{0, &first}, {1, &second}, {2, &third}}, 0);
  const auto look_at = [&](uint32_t file, int mebibytes) {
    for (int i = 0; i < mebibytes; ++i) source.view(file, 0, 1_MiB);
  };
  look_at(0, 10);
  EXPECT_EQ(first.left(), 1);
  // What the first one's packs, on their way, have looked at again.
  look_at(1, 40);
  EXPECT_EQ(first.left(), 3);
  EXPECT_GE(second.left(), 4);
  EXPECT_EQ(third.left(), 0) << "there is nothing";
}

}  // namespace
}  // namespace varve
