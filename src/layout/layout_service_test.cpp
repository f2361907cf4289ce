#include "layout/layout_service.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "layout/test_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

/// Does what the file's contents tell it to.
class ObedientReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "obedient"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t) const override {
    return first_bytes.size() >= 3 && as_text(first_bytes.first(3)) == "DO ";
  }
  Result<Layout> read(int fd, uint64_t file_bytes) const override {
    std::string text(file_bytes, '\0');
    if (::pread(fd, text.data(), text.size(), 0) < 0) return Status::io_error("read");
    if (text == "DO crash") ::raise(SIGSEGV);
    if (text == "DO exit") ::_exit(3);
    if (text == "DO hang") ::pause();
    if (text == "DO spin") {
      for (volatile uint64_t turns = 0;;) turns = turns + 1;
    }
    if (text == "DO eat") return eat();
    if (text == "DO throw") throw std::runtime_error("thrown");
    if (text == "DO refuse") return Status::corrupt("refused", "this");
    if (text == "DO babble") babble();
    Layout layout = opaque_layout(file_bytes, "/obeyed");
    if (text == "DO lie") layout.variables[0].extents[0].bytes += 1;
    if (text == "DO many") layout.variables.assign(100'000, empty_variable());
    return layout;
  }

 private:
  static Variable empty_variable() {
    Variable variable;
    variable.name = "/many";
    variable.shape = {1};
    return variable;
  }
  static Result<Layout> eat() {
    std::vector<std::string> eaten;
    for (;;) eaten.push_back(std::string(64_MiB, 'x'));
  }
  /// Writes nonsense to wherever it can: one of these is the answer's pipe.
  static void babble() {
    for (int fd = 3; fd < 8; ++fd) {
      if (::write(fd, std::string(1000, '\x7f').data(), 1000) < 0) continue;
    }
  }
};

struct Service : testing::Test {
  void start(unsigned worker_count, int timeout_milliseconds = 20'000) {
    LayoutServiceOptions options{.worker_count = worker_count, .limits = {}, .readers = built_in_readers()};
    options.limits.timeout = std::chrono::milliseconds(timeout_milliseconds);
    options.limits.memory_bytes = 512_MiB;
    options.readers.push_back(std::make_unique<ObedientReader>());
    auto started = LayoutService::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    service = std::move(*started);
  }
  std::string file(const std::string& name, std::string_view contents) {
    write_text(directory.path() / name, contents);
    return (directory.path() / name).string();
  }
  LayoutOutcome obey(const std::string& order) {
    std::string path = file("order", "DO " + order);
    return service->read(path, std::filesystem::file_size(path));
  }
  static bool obeyed(const LayoutOutcome& outcome) {
    return !outcome.warning && outcome.layout.variables.size() == 1 && outcome.layout.variables[0].name == "/obeyed";
  }
  static bool opaque(const LayoutOutcome& outcome, const std::string& because) {
    return outcome.warning && outcome.warning->find(because) != std::string::npos &&
           outcome.warning->find("saved as one opaque variable") != std::string::npos &&
           outcome.layout.variables.size() == 1 && outcome.layout.variables[0].name == "/order";
  }

  TemporaryDirectory directory;
  std::unique_ptr<LayoutService> service;
};
using LayoutServiceTest = Service;

TEST_F(LayoutServiceTest, SaysTheSameAsTheReadersForTheWholeZoo) {
  start(2);
  zoo::make_zoo(directory.path(), {.tiny_variables = 200, .huge_file_bytes = uint64_t{1} << 40});
  LayoutReaders readers = built_in_readers();
  std::vector<LayoutRequest> requests;
  for (const auto& path : files_below(directory.path()))
    requests.push_back({path.string(), std::filesystem::file_size(path)});
  std::vector<LayoutOutcome> outcomes = service->read_many(requests);
  ASSERT_EQ(outcomes.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(outcomes[i].warning) << *outcomes[i].warning;
    EXPECT_TRUE(validate_layout(outcomes[i].layout, requests[i].file_bytes).ok());
    Result<Layout> here = read_here(readers, requests[i].path);
    if (here.ok()) {
      EXPECT_EQ(outcomes[i].layout, *here) << requests[i].path;
    } else {
      EXPECT_EQ(outcomes[i].layout.format, "raw");
    }
  }
}

TEST_F(LayoutServiceTest, LosesOnlyTheLayoutOfAFileOnWhichAReaderFails) {
  start(1, 300);
  EXPECT_TRUE(opaque(obey("crash"), "the obedient reader crashed (signal 11) on "));
  EXPECT_TRUE(obeyed(obey("well")));
  EXPECT_TRUE(opaque(obey("exit"), "crashed (exit code 3)"));
  EXPECT_TRUE(opaque(obey("hang"), "took longer than 0.3 s"));
  EXPECT_TRUE(opaque(obey("spin"), "took longer than 0.3 s"));
  EXPECT_TRUE(opaque(obey("throw"), "rejects"));
  EXPECT_TRUE(opaque(obey("refuse"), "refused: this"));
  EXPECT_TRUE(opaque(obey("lie"), "past the end of the file"));
  EXPECT_TRUE(opaque(obey("babble"), "makes no sense"));
  EXPECT_TRUE(obeyed(obey("well")));
}

TEST_F(LayoutServiceTest, EndsAReaderThatEatsMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not return from a failed allocation";
#endif
  start(1);
  EXPECT_TRUE(opaque(obey("eat"), "not enough memory"));
  EXPECT_TRUE(obeyed(obey("well")));
}

TEST_F(LayoutServiceTest, HandsTheFilesAfterAFailureToAFreshProcess) {
  for (unsigned worker_count : {1U, 2U, 3U}) {
    start(worker_count, 1000);
    std::vector<LayoutRequest> requests;
    for (int i = 0; i < 60; ++i) {
      std::string order = i % 10 == 3 ? "DO crash" : i == 25 ? "DO hang" : "DO well";
      requests.push_back({file("order" + std::to_string(i), order), order.size()});
    }
    std::vector<LayoutOutcome> outcomes = service->read_many(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      bool fails = i % 10 == 3 || i == 25;
      EXPECT_EQ(outcomes[i].warning.has_value(), fails) << i << outcomes[i].warning.value_or("");
      EXPECT_EQ(outcomes[i].layout.variables.at(0).name, fails ? "/order" + std::to_string(i) : "/obeyed");
    }
  }
}

TEST_F(LayoutServiceTest, TakesAnswersThatAreLargerThanAPipe) {
  start(2);
  std::string path = file("order", "DO many");
  std::vector<LayoutRequest> requests(10, LayoutRequest{path, 7});
  for (const LayoutOutcome& outcome : service->read_many(requests))
    EXPECT_EQ(outcome.layout.variables.size(), 100'000U);
}

TEST_F(LayoutServiceTest, ServesSeveralThreadsAtOnce) {
  start(2, 500);
  std::string well = file("well", "DO well"), crash = file("order", "DO crash");
  std::vector<std::thread> threads;
  for (int t = 0; t < 5; ++t) {
    threads.emplace_back([this, &well, &crash, t] {
      for (int i = 0; i < 40; ++i) {
        if (t == 0 && i % 8 == 0) {
          EXPECT_TRUE(opaque(service->read(crash, 8), "crashed (signal 11)"));
        } else {
          EXPECT_TRUE(obeyed(service->read(well, 7)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LayoutServiceTest, DescribesUnknownFilesByTheirSidecarOrAsTheUserSays) {
  start(1);
  zoo::make_raw_files(directory.path());
  std::string described = (directory.path() / "fields.bin").string();
  std::string plain = (directory.path() / "undescribed.bin").string();
  LayoutOutcome outcome = service->read(described, std::filesystem::file_size(described));
  EXPECT_FALSE(outcome.warning) << *outcome.warning;
  ASSERT_EQ(outcome.layout.variables.size(), 2U);
  EXPECT_EQ(outcome.layout.variables[1].name, "/Fluid/Velocity");

  EXPECT_EQ(service->read(plain, 100'000).layout, opaque_layout(100'000, "/undescribed.bin"));
  outcome = service->read(plain, 100'000, {.raw = *parse_raw_description("f32:25,1000"), .sidecars = true});
  EXPECT_FALSE(outcome.warning);
  EXPECT_EQ(outcome.layout.variables[0].type.name(), "F32LE");
  outcome = service->read(plain, 100'000, {.raw = *parse_raw_description("f32:26,1000"), .sidecars = true});
  EXPECT_TRUE(outcome.warning);
  EXPECT_EQ(outcome.layout.variables[0].type.name(), "BYTES");

  write_text(plain + std::string(kSidecarSuffix),
             R"({"variables": [{"name": "/v", "type": "f64", "shape": [12501]}]})");
  const std::string sidecar = plain + std::string(kSidecarSuffix);
  outcome = service->read(sidecar, std::filesystem::file_size(sidecar), {.raw = *parse_raw_description("f64")});
  EXPECT_FALSE(outcome.warning) << *outcome.warning;
  EXPECT_EQ(outcome.layout.variables[0].type.name(), "BYTES");

  outcome = service->read(plain, 100'000);
  ASSERT_TRUE(outcome.warning);
  EXPECT_NE(outcome.warning->find("does not fit into the file's 100000 bytes"), std::string::npos) << *outcome.warning;
}

TEST_F(LayoutServiceTest, DoesNotStopAtFilesThatCannotBeRead) {
  start(1);
  std::string fifo = (directory.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(service->read(fifo, 10).warning);
  EXPECT_TRUE(service->read((directory.path() / "absent").string(), 10).warning);
  LayoutOutcome empty = service->read(file("empty", ""), 0);
  EXPECT_FALSE(empty.warning);
  EXPECT_TRUE(empty.layout.variables.empty());
}

TEST_F(LayoutServiceTest, LeavesNoProcessBehind) {
  start(3);
  std::vector<LayoutRequest> requests(50, LayoutRequest{file("well", "DO well"), 7});
  for (const LayoutOutcome& outcome : service->read_many(requests)) EXPECT_TRUE(obeyed(outcome));
  service.reset();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(LayoutServiceTest, SurvivesTheEndOfTheProcessThatForksTheReaders) {
  start(1);
  std::string children = read_text("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  EXPECT_TRUE(obeyed(obey("well")));
  ASSERT_EQ(::kill(std::stoi(children), SIGKILL), 0);
  // The reader dies with it, a little later. A file that meets that may lose its layout; then there is a fresh process.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  bool again = obeyed(obey("well")) || obeyed(obey("well"));
  EXPECT_TRUE(again);
  EXPECT_TRUE(opaque(obey("crash"), "crashed (signal 11)"));
}

}  // namespace
}  // namespace varve
