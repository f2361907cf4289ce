#include "service/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/unique_id.h"

namespace varve {
namespace {

class KeyFile : public testing::Test {
 protected:
  KeyFile() : path_(std::filesystem::temp_directory_path() / ("varve-test-" + UniqueId::random()->hex())) {}
  ~KeyFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  StatusCode outcome() const { return read_key_file(path_).status().code(); }

  const std::string path_;
};

TEST_F(KeyFile, HoldsANewKeyForItsOwnerAlone) {
  ASSERT_TRUE(make_key_file(path_).ok());
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  EXPECT_TRUE(read_key_file(path_).ok());
  EXPECT_EQ(make_key_file(path_).code(), StatusCode::already_exists);
}

TEST_F(KeyFile, IsRefusedIfOthersCanUseIt) {
  ASSERT_TRUE(make_key_file(path_).ok());
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u, 0610u}) {
    ::chmod(path_.c_str(), mode);
    EXPECT_EQ(outcome(), StatusCode::permission_denied) << mode;
  }
  ::chmod(path_.c_str(), 0400);
  EXPECT_EQ(outcome(), StatusCode::ok);
}

TEST_F(KeyFile, IsRefusedIfItBelongsToAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away, and root may read all";
  ASSERT_TRUE(make_key_file(path_).ok());
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(outcome(), StatusCode::permission_denied);
}

TEST_F(KeyFile, IsRefusedIfItHoldsTooLittle) {
  for (const std::string& text :
       {std::string(), std::string("password"), std::string(100, 'a'), std::string("0123456789abcdef0123456789abcdef"),
        std::string("0123456789abcdef0123456789abcdef\n\n\n\n\n\n\n\n\n\n\n"), std::string(5000, 'x')}) {
    write(text);
    EXPECT_EQ(outcome(), StatusCode::invalid_argument) << text;
  }
  write("These are 32 bytes, not too many!");
  EXPECT_EQ(outcome(), StatusCode::ok);
}

TEST_F(KeyFile, GivesTheSameKeyWhateverItsLastLineEndsWith) {
  const std::string digits = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
  write(digits);
  const SharedKey key = read_key_file(path_).value();
  write(digits + "\r\n");
  EXPECT_EQ(read_key_file(path_).value(), key);
  write(digits + "0");
  EXPECT_NE(read_key_file(path_).value(), key);
}

TEST_F(KeyFile, IsNamedWhenItIsMissing) { EXPECT_EQ(outcome(), StatusCode::not_found); }

}  // namespace
}  // namespace varve
