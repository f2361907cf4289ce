#include "reader/zarr_chunks.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(ZarrChunks, WentThroughNoMoreCodecsThanProgramsApply) {
  std::vector<ZarrCodec> codecs(32, {"crc32c"});
  EXPECT_TRUE(check_zarr_codecs(codecs).ok());
  codecs.push_back({"zstd"});
  EXPECT_EQ(check_zarr_codecs(codecs).code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace varve
