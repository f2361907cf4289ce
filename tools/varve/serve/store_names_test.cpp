#include "serve/rights.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace {

const std::string kHexId = "0123456789abcdef0123456789abcdef";

TEST(StoreNames, ServeWhatTheFolderOfAStoreHas) {
  for (const std::string& path : {std::string(),
                                  std::string("varve.store"),
                                  "varve.store." + kHexId + ".tmp",
                                  std::string("sets"),
                                  std::string("sets/run"),
                                  std::string("sets/my run, 2nd.x/0.set"),
                                  std::string("sets/run/18446744073709551615.set"),
                                  std::string("parts"),
                                  "parts/run@7." + kHexId + ".0-of-4.part",
                                  "parts/a.b@7." + kHexId + ".3-of-4.part",
                                  "parts/run@7." + kHexId + ".0-of-4.failed",
                                  std::string("runs/my run.lease"),
                                  "runs/" + kHexId + ".tmp",
                                  std::string("arenas"),
                                  "arenas/" + kHexId + ".arena",
                                  "arenas/" + kHexId + ".part",
                                  std::string("writers"),
                                  "writers/" + kHexId,
                                  std::string("condemned"),
                                  "condemned/" + kHexId,
                                  std::string("index"),
                                  "index/" + kHexId + ".run",
                                  "index/" + kHexId + ".run.part",
                                  "index/" + kHexId + ".part",
                                  std::string("runs"),
                                  std::string("runs/my run, 2nd.x.lease"),
                                  "runs/" + kHexId + ".tmp",
                                  "runs/" + kHexId + ".stale",
                                  "sets/job/7.set." + std::string(40, 'a') + "." + kHexId + ".aside"}) {
    EXPECT_TRUE(is_store_path(path)) << path;
  }
}

TEST(StoreNames, RefuseAllElse) {
  for (const std::string& path : {std::string("."),
                                  std::string(".."),
                                  std::string("/"),
                                  std::string("/etc/passwd"),
                                  std::string("../x"),
                                  std::string("sets/.."),
                                  std::string("sets/../x.set"),
                                  std::string("sets/.hidden"),
                                  std::string("sets/run/.."),
                                  std::string("sets/run/../7.set"),
                                  std::string("sets//7.set"),
                                  std::string("sets/run/007.set"),
                                  std::string("sets/run/7.set/x"),
                                  std::string("sets/run/7"),
                                  std::string("sets/run/x.set"),
                                  std::string("sets/"),
                                  std::string("sets/-run"),
                                  std::string("sets/a@b"),
                                  std::string("sets/a\nb"),
                                  std::string("arenas/x.arena"),
                                  "arenas/" + kHexId,
                                  "arenas/" + kHexId + ".arena.part",
                                  "arenas/" + kHexId + "/x",
                                  "arenas/../" + kHexId,
                                  "Arenas/" + kHexId + ".arena",
                                  "writers/" + kHexId + ".x",
                                  "writers/" + kHexId.substr(1),
                                  "other/" + kHexId,
                                  std::string("varve.store.x.tmp"),
                                  std::string("varve.storex"),
                                  std::string("sets/run/7.set\0", 15),
                                  std::string("parts/run@7.part"),
                                  "parts/run@07." + kHexId + ".0-of-4.part",
                                  "parts/@7." + kHexId + ".0-of-4.part",
                                  "sets/" + std::string(101, 'a'),
                                  std::string("sets/run/1844674407370955161599.set")}) {
    EXPECT_FALSE(is_store_path(path)) << path;
  }
}

TEST(StoreNames, PlainPathsStayInTheirFolder) {
  EXPECT_TRUE(is_plain_path(""));
  EXPECT_TRUE(is_plain_path("a/.b/c"));
  for (const std::string& path : {std::string("/a"), std::string("a/"), std::string("a//b"), std::string("a/../b"),
                                  std::string("."), std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_plain_path(path)) << path;
  }
}

}  // namespace
}  // namespace varve
