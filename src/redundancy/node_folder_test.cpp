#include "redundancy/node_folder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/memory_file_system.h"
#include "store/store.h"

namespace varve {
namespace {

const std::string kArena = "00112233445566778899aabbccddeeff.arena";

std::string header_of_a_new_store() {
  MemoryFileSystem fs;
  EXPECT_TRUE(Store::create(fs, "/new").ok());
  return std::string(as_text(read_file(fs, "/new/varve.store", NodeFolder::kHeaderBytesMax).value()));
}

/// The record of a set that has nothing.
std::string record_of(const SetName& name) {
  SetRecord record;
  record.name = name;
  return std::string(as_text(encode_set_record(record, ScoreFunction::preferred())));
}

class NodeFolderTest : public testing::Test {
 protected:
  void make(const std::string& name, std::string_view text) {
    auto file = folder_.create(folder_.path() + "/" + name);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE((*file)->write_at(0, as_bytes(text)).ok() && (*file)->sync().ok());
  }
  Status rename(const std::string& name) {
    return folder_.rename(folder_.path() + "/" + name + ".rebuilding", folder_.path() + "/" + name);
  }
  bool exists(const std::string& path) { return fs_.stat(path).ok(); }

  MemoryFileSystem fs_;
  NodeFolder folder_{fs_, "/a/b/store/", SetName{"job", 7}};
};

TEST_F(NodeFolderTest, IsAViewOfTheStore) {
  EXPECT_EQ(folder_.path(), "/a/b/store");
  EXPECT_EQ(folder_.place_of("store-header").value(), "/a/b/store/varve.store");
  EXPECT_EQ(folder_.place_of("record").value(), "/a/b/store/sets/job/7.set");
  EXPECT_EQ(folder_.place_of(kArena).value(), "/a/b/store/arenas/" + kArena);
  EXPECT_EQ(folder_.place_of("redundancy.parity").value(), "/a/b/store/redundancy/job@7/redundancy.parity");
  EXPECT_EQ(folder_.place_of("record.rebuilding").value(), "/a/b/store/redundancy/job@7/record.rebuilding");
  for (const char* name : {"", "x", "../record", "varve.store", "a.arena", "00112233445566778899AABBCCDDEEFF.arena",
                           ".rebuilding", "x.rebuilding", "record.rebuilding.rebuilding"}) {
    EXPECT_EQ(folder_.place_of(name).status().code(), StatusCode::invalid_argument) << name;
    EXPECT_FALSE(NodeFolder::is_protected_name(name));
  }
  EXPECT_FALSE(NodeFolder::is_protected_name("redundancy.parity"));
  EXPECT_TRUE(NodeFolder::is_protected_name(kArena));
  EXPECT_EQ(folder_.open_read("/a/b/other/record").status().code(), StatusCode::invalid_argument);
}

TEST_F(NodeFolderTest, MakesTheFoldersOfAStoreDurably) {
  ASSERT_TRUE(folder_.prepare().ok());
  const auto after = fs_.after_crash({CrashPolicy::Kind::drop_unsynced});
  for (const char* name : {"sets", "arenas", "writers", "condemned", "index", "redundancy/job@7"}) {
    EXPECT_TRUE(after->stat(std::string("/a/b/store/") + name).ok()) << name;
  }
  EXPECT_TRUE(folder_.prepare().ok()) << "again";
}

TEST_F(NodeFolderTest, GivesFilesTheirPlacesOnlyWhenItIsSyncedRecordsLast) {
  ASSERT_TRUE(folder_.prepare().ok());
  const std::map<std::string, std::string> contents{
      {"record", record_of({"job", 7})}, {kArena, "arena"}, {"store-header", header_of_a_new_store()}};
  for (const auto& [name, text] : contents) {
    make(name + ".rebuilding", text);
    ASSERT_TRUE(rename(name).ok());
    EXPECT_FALSE(exists(folder_.place_of(name).value()));
  }
  EXPECT_EQ(folder_.list(folder_.path()).value().size(), 3u);
  ASSERT_TRUE(folder_.sync_directory(folder_.path()).ok());
  for (const auto& [name, text] : contents) {
    EXPECT_EQ(as_text(read_file(fs_, folder_.place_of(name).value(), 4096).value()), text);
  }
  EXPECT_EQ(folder_.list(folder_.path()).value().size(), 3u);
  for (const char* folder : {"redundancy/job@7", "writers"}) {
    EXPECT_TRUE(fs_.list(std::string("/a/b/store/") + folder).value().empty()) << folder;
  }
}

TEST_F(NodeFolderTest, GivesAFileItsPlaceThatAnEarlierAttemptHadMadeToo) {
  ASSERT_TRUE(folder_.prepare().ok());
  for (const char* text : {"first", "second"}) {
    folder_.remove(join_path(folder_.path(), kArena + ".rebuilding")).ignore("there is none at first");
    make(kArena + ".rebuilding", text);
    ASSERT_TRUE(rename(kArena).ok());
  }
  ASSERT_TRUE(folder_.sync_directory(folder_.path()).ok());
  EXPECT_EQ(as_text(read_file(fs_, folder_.place_of(kArena).value(), 4096).value()), "second");
}

TEST(NodeFolderHeader, IsReplacedOnlyIfItIsDamagedOrTheSameOrThatOfAStoreThatHasHadNothing) {
  const std::string ours = header_of_a_new_store(), other = header_of_a_new_store();
  struct There {
    const char* what;
    std::string header;
    bool before = false, in_use = false, goes = false;
  };
  for (const There& there : {There{.what = "made meanwhile", .header = other},
                             There{.what = "empty before", .header = other, .before = true, .goes = true},
                             There{.what = "in use since", .header = other, .before = true, .in_use = true},
                             There{.what = "damaged", .header = other.substr(1), .in_use = true, .goes = true},
                             There{.what = "too long", .header = std::string(9000, 'x'), .in_use = true, .goes = true},
                             There{.what = "the same", .header = ours, .in_use = true, .goes = true}}) {
    SCOPED_TRACE(there.what);
    MemoryFileSystem fs;
    NodeFolder folder(fs, "/store", SetName{"job", 7});
    const std::string header = folder.place_of("store-header").value(), record = folder.place_of("record").value();
    ASSERT_TRUE(fs.create_directory("/store").ok());
    if (there.before) {
      ASSERT_TRUE(write_file_durably(fs, header, as_bytes(there.header)).ok());
    }
    folder.note_header();
    ASSERT_TRUE(folder.prepare().ok());
    if (!there.before) {
      ASSERT_TRUE(write_file_durably(fs, header, as_bytes(there.header)).ok());
    }
    if (there.in_use) {
      ASSERT_TRUE(fs.create("/store/arenas/" + kArena).ok());
    }
    for (const std::string name : {"store-header", "record"}) {
      const std::string path = join_path(folder.path(), name);
      const std::string text = name == "record" ? record_of({"job", 7}) : ours;
      ASSERT_TRUE(write_file_durably(fs, folder.place_of(name + ".rebuilding").value(), as_bytes(text)).ok());
      ASSERT_TRUE(folder.rename(path + ".rebuilding", path).ok());
    }
    const Status given = folder.sync_directory(folder.path());
    EXPECT_EQ(given.code(), there.goes ? StatusCode::ok : StatusCode::already_exists) << given.to_string();
    EXPECT_EQ(as_text(read_file(fs, header, 9000).value()), there.goes ? ours : there.header);
    EXPECT_EQ(fs.stat(record).ok(), there.goes);
  }
}

TEST_F(NodeFolderTest, ChangesNothingElse) {
  ASSERT_TRUE(folder_.prepare().ok());
  EXPECT_FALSE(folder_.create(folder_.path() + "/record").ok());
  EXPECT_FALSE(folder_.remove(folder_.path() + "/record").ok());
  EXPECT_FALSE(folder_.rename(folder_.path() + "/record", folder_.path() + "/store-header").ok());
  EXPECT_FALSE(folder_.rename(folder_.path() + "/record.rebuilding", folder_.path() + "/store-header").ok());
  EXPECT_FALSE(folder_.create_directory(folder_.path() + "/x").ok());
  EXPECT_FALSE(folder_.remove_directory(folder_.path()).ok());
}

TEST(NodeLabel, RoundTripsAndRefusesAllElse) {
  const NodeLabel label{{"a.1-of-2", 12}, 2, 7};
  EXPECT_EQ(label.text(), "a.1-of-2@12.3-of-7");
  EXPECT_EQ(NodeLabel::parse(label.text()), label);
  for (const char* text : {"", "job@7", "job@7.", "job@7.0-of-1", "job@7.2-of-1", "job@7.01-of-1", "job@07.1-of-1",
                           "job.1-of-1", "@7.1-of-1", "job@7.1-of-", "job@7.-of-1", "job@7.1-of-1x", "a/b@7.1-of-1"}) {
    EXPECT_FALSE(NodeLabel::parse(text)) << text;
  }
  EXPECT_EQ(parse_set_name("a@b@3"), std::nullopt) << "a job's name has no @";
  EXPECT_EQ(parse_set_name("job@18446744073709551615"), (SetName{"job", UINT64_MAX}));
  EXPECT_EQ(parse_set_name("job@18446744073709551616"), std::nullopt);
}

}  // namespace
}  // namespace varve
