#include "runtime/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "core/memory_file_system.h"
#include "runtime/option_table.h"

namespace varve {
namespace {

class Options : public testing::Test {
 protected:
  void write(const std::string& path, std::string_view contents) {
    ASSERT_TRUE(files_.create(path).value()->write_at(0, as_bytes(contents)).ok());
  }
  Result<Settings> resolve() { return resolve_settings(code_, sources()); }
  SettingsSources sources() {
    return {.command_line = command_line_, .environment = environment_, .program = "solver", .files = &files_};
  }
  /// What is said where the options cannot be resolved.
  std::string failure() {
    const Result<Settings> settings = resolve();
    return settings.ok() ? "no failure" : settings.status().to_string();
  }
  static const EffectiveOption& option(const Settings& settings, std::string_view name) {
    for (const EffectiveOption& option : settings.options) {
      if (option.name == name) return option;
    }
    ADD_FAILURE() << name << " is no option";
    return settings.options.front();
  }

  SessionOptions code_;
  std::map<std::string, std::string> command_line_;
  std::map<std::string, std::string> environment_;
  MemoryFileSystem files_;
};

TEST_F(Options, HaveDefaults) {
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.store, "varve-store");
  EXPECT_EQ(settings.job, "solver");
  EXPECT_EQ(settings.group.kind, GroupRule::Kind::node);
  EXPECT_EQ(settings.saving.codec.name(), "balanced");
  EXPECT_EQ(settings.saving.scheme, Scheme::aware);
  EXPECT_FALSE(settings.saving.threads);
  EXPECT_EQ(settings.saving.memory_bytes, 256_MiB);
  EXPECT_FALSE(settings.cadence.every_steps || settings.cadence.every_seconds);
  EXPECT_EQ(settings.cadence.mean_time_between_failures, 86'400);
  EXPECT_EQ(settings.snapshots.when_busy, WhenBusy::automatic);
  EXPECT_FALSE(settings.keep_last || settings.write_bytes_per_second || settings.stop.after_seconds);
  EXPECT_FALSE(settings.stop.file.has_value());
  EXPECT_TRUE(settings.stop.on_signals && settings.saving.low_priority);
  EXPECT_EQ(settings.snapshots.shared_memory, "/dev/shm");
  EXPECT_TRUE(settings.warnings.empty());
  for (const EffectiveOption& option : settings.options) EXPECT_EQ(option.where, "default") << option.name;
}

TEST_F(Options, OfTheProgramAreTaken) {
  code_ = {.options_file = {},
           .store = "s",
           .key_file = "k",
           .s3_endpoint = "https://s3",
           .job = "j",
           .group = "4",
           .effort = "best",
           .codec = "zstd:3",
           .scheme = "agnostic",
           .threads = 3,
           .memory_bytes = 64_MiB,
           .every_steps = 100,
           .every_seconds = 0.25,
           .mean_time_between_failures = 1e6,
           .when_busy = WhenBusy::two_slots,
           .wait_limit = 60,
           .keep_last = 2,
           .write_bytes_per_second = 1.5e8,
           .stop_after_seconds = 3600,
           .stop_file = "halt",
           .stop_on_signals = false,
           .low_priority = false,
           .shared_memory = "/tmp",
           .snapshot_folder = "/var/tmp",
           .take_over = true,
           .variables_may_change = true,
           .print_warnings = false,
           .metrics_file = "m.prom",
           .timeline = "times"};
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.metrics_file + settings.timeline, "m.promtimes");
  EXPECT_EQ(settings.store + settings.job + settings.snapshots.shared_memory + *settings.stop.file, "sj/tmphalt");
  EXPECT_EQ(settings.reach.key_file, "k");
  EXPECT_EQ(settings.reach.s3_endpoint, "https://s3");
  EXPECT_EQ(settings.group.kind, GroupRule::Kind::count);
  EXPECT_EQ(settings.group.count, 4u);
  EXPECT_EQ(settings.saving.codec.name(), "zstd:3");
  EXPECT_EQ(settings.saving.scheme, Scheme::agnostic);
  EXPECT_EQ(settings.saving.threads, 3u);
  EXPECT_EQ(settings.saving.memory_bytes, 64_MiB);
  EXPECT_EQ(settings.cadence.every_steps, 100u);
  EXPECT_EQ(settings.cadence.every_seconds, 0.25);
  EXPECT_EQ(settings.cadence.mean_time_between_failures, 1e6);
  EXPECT_EQ(settings.snapshots.when_busy, WhenBusy::two_slots);
  EXPECT_EQ(settings.snapshots.wait_limit, 60);
  EXPECT_EQ(settings.keep_last, 2u);
  EXPECT_EQ(settings.write_bytes_per_second, 1.5e8);
  EXPECT_EQ(settings.stop.after_seconds, 3600);
  EXPECT_FALSE(settings.stop.on_signals || settings.saving.low_priority || settings.print_warnings);
  EXPECT_TRUE(settings.take_over && settings.variables_may_change);
  EXPECT_EQ(settings.snapshots.spill_folder, "/var/tmp");
  // What whoever starts the program knows, and it does not.
  const std::set<std::string> not_its = {"grace", "end_time", "note_file", "redistribution"};
  for (const EffectiveOption& option : settings.options)
    EXPECT_EQ(option.origin == OptionOrigin::code, !not_its.contains(option.name)) << option.name;
}

TEST_F(Options, OfWhoeverStartsTheProgramAreTaken) {
  environment_ = {{"VARVE_GRACE", "90s"}, {"VARVE_END_TIME", "2000000000"}, {"VARVE_NOTE_FILE", "/job/note"}};
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.stop.grace, 90);
  EXPECT_EQ(settings.stop.end_time, 2e9);
  EXPECT_EQ(settings.note_file, "/job/note");
  environment_ = {{"VARVE_REDISTRIBUTION", " a = b=same;c=evenly ; d=ignore; "}};
  const std::map<std::string, Redistribution> divided = {
      {"a = b", Redistribution::same}, {"c", Redistribution::evenly}, {"d", Redistribution::ignore}};
  EXPECT_EQ(resolve()->redistribution, divided);
  for (const char* wrong : {"a", "a=", "=same", "a=odd", "a=same;;b=same", "a=same;;", "a=same;a=ignore", ";"}) {
    environment_ = {{"VARVE_REDISTRIBUTION", wrong}};
    EXPECT_EQ(resolve().status().code(), StatusCode::invalid_argument) << wrong;
  }
  environment_ = {{"VARVE_GRACE", "soon"}};
  EXPECT_EQ(resolve().status().code(), StatusCode::invalid_argument);
}

TEST_F(Options, ThatAreEmptyInTheEnvironmentAreNotSaid) {
  environment_ = {{"VARVE_STORE", ""}};
  EXPECT_EQ(resolve()->store, "varve-store");
}

TEST_F(Options, AreWrittenWithUnits) {
  environment_ = {{"VARVE_MEMORY_BYTES", "512M"},
                  {"VARVE_EVERY_SECONDS", "30min"},
                  {"VARVE_MEAN_TIME_BETWEEN_FAILURES", "7d"},
                  {"VARVE_WRITE_BYTES_PER_SECOND", "100MB/s"},
                  {"VARVE_STOP_AFTER_SECONDS", "23h30min"}};
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.saving.memory_bytes, 512_MiB);
  EXPECT_EQ(settings.cadence.every_seconds, 1800);
  EXPECT_EQ(settings.cadence.mean_time_between_failures, 604'800);
  EXPECT_EQ(settings.write_bytes_per_second, 1e8);
  EXPECT_EQ(settings.stop.after_seconds, 84'600);
}

TEST_F(Options, AreTakenAwayByNone) {
  code_ = {.key_file = "key", .codec = "zstd", .every_steps = 10, .keep_last = 3, .stop_file = "halt"};
  for (const char* name : {"KEY_FILE", "CODEC", "EVERY_STEPS", "KEEP_LAST", "STOP_FILE"})
    environment_[std::string("VARVE_") + name] = "none";
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.saving.codec.name(), "balanced");
  EXPECT_FALSE(settings.cadence.every_steps || settings.keep_last || settings.stop.file);
  EXPECT_EQ(settings.reach.key_file, "");
}

TEST_F(Options, AdaptTheEffortUnlessOneOrACodecIsSaid) {
  EXPECT_TRUE(resolve()->saving.adapts_effort);
  for (const char* effort : {"fast", "balanced", "best"}) {
    code_ = {.effort = effort};
    EXPECT_FALSE(resolve()->saving.adapts_effort) << effort;
    EXPECT_EQ(resolve()->saving.codec.name(), effort);
  }
  code_ = {.codec = "zstd"};
  EXPECT_FALSE(resolve()->saving.adapts_effort);
  environment_ = {{"VARVE_EFFORT", "auto"}};
  EXPECT_TRUE(resolve()->saving.adapts_effort) << "it has the last word";
  EXPECT_EQ(resolve()->saving.codec.name(), "balanced");
}

TEST_F(Options, LetACodecReplaceAnEffortUnlessTheEffortHasTheLastWord) {
  code_ = {.effort = "fast", .codec = "zstd"};
  EXPECT_EQ(resolve()->saving.codec.name(), "zstd");
  environment_ = {{"VARVE_EFFORT", "best"}};
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.saving.codec.name(), "best");
  EXPECT_EQ(option(settings, "codec").text, "none");
}

TEST_F(Options, ThatMakeNoSenseAreRefusedWithTheirPlace) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"VARVE_JOB", "a/b"},
                                                                  {"VARVE_GROUP", "rack"},
                                                                  {"VARVE_GROUP", "0"},
                                                                  {"VARVE_EFFORT", "heroic"},
                                                                  {"VARVE_SCHEME", "clever"},
                                                                  {"VARVE_THREADS", "0"},
                                                                  {"VARVE_THREADS", "-1"},
                                                                  {"VARVE_MEMORY_BYTES", "much"},
                                                                  {"VARVE_MEMORY_BYTES", "1M"},
                                                                  {"VARVE_EVERY_STEPS", "0"},
                                                                  {"VARVE_EVERY_STEPS", "1.5"},
                                                                  {"VARVE_EVERY_SECONDS", "0"},
                                                                  {"VARVE_EVERY_SECONDS", "5m"},
                                                                  {"VARVE_MEAN_TIME_BETWEEN_FAILURES", "none"},
                                                                  {"VARVE_WHEN_BUSY", "panic"},
                                                                  {"VARVE_KEEP_LAST", "0"},
                                                                  {"VARVE_WRITE_BYTES_PER_SECOND", "0"},
                                                                  {"VARVE_STOP_AFTER_SECONDS", "-5"},
                                                                  {"VARVE_STOP_ON_SIGNALS", "perhaps"}}) {
    environment_ = {{name, value}};
    const Result<Settings> settings = resolve();
    EXPECT_EQ(settings.status().code(), StatusCode::invalid_argument) << name << "=" << value;
    EXPECT_NE(failure().find(name), std::string::npos) << failure();
  }
}

TEST_F(Options, AskForNoCodecThatThisBuildLacks) {
  environment_ = {{"VARVE_CODEC", "rot13"}};
  EXPECT_EQ(resolve().status().code(), StatusCode::unsupported);
  EXPECT_NE(failure().find("VARVE_CODEC"), std::string::npos) << failure();
}

TEST_F(Options, OfTheProgramAreCheckedLikeOthers) {
  for (const double wrong : {0.0, -1.0, std::nan(""), 1e300}) {
    code_ = {.every_seconds = wrong};
    EXPECT_NE(failure().find("the option every_seconds (the program)"), std::string::npos) << wrong << failure();
  }
}

TEST_F(Options, OfAVariableThatIsNearlyOursGiveAWarning) {
  environment_ = {{"VARVE_EVERY_STEP", "10"}, {"VARVE_TEST_DATA", "/data"}, {"VARVE_WITH_HDF5", "1"}};
  const Settings settings = resolve().value();
  ASSERT_EQ(settings.warnings.size(), 1u);
  EXPECT_EQ(settings.warnings[0].subject(), "VARVE_EVERY_STEP");
  EXPECT_EQ(settings.warnings[0].hint(), "did you mean VARVE_EVERY_STEPS?");
}

TEST_F(Options, FallBackToAJobsNameThatIsAllowed) {
  SettingsSources sources = this->sources();
  sources.program = ".hidden";
  EXPECT_EQ(resolve_settings(code_, sources)->job, "run");
}

TEST_F(Options, OfThisProcessAreItsEnvironmentAndName) {
  ASSERT_EQ(::setenv("VARVE_EVERY_STEPS", "12", 1), 0);
  const SettingsSources sources = SettingsSources::of_process();
  ::unsetenv("VARVE_EVERY_STEPS");
  EXPECT_EQ(sources.environment.at("VARVE_EVERY_STEPS"), "12");
  EXPECT_EQ(sources.program, "runtime_test");
}

#ifdef VARVE_WITH_TOML
class OptionsFile : public Options {};

TEST_F(OptionsFile, OfTheEnvironmentWinOverTheFileAndThatOverTheProgram) {
  write("varve.toml", "# comment\nstore = \"from-file\"\njob = \"from-file\"\n");
  code_ = {.store = "from-code", .job = "from-code", .threads = 2};
  environment_ = {{"VARVE_STORE", "from-environment"}};
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.store, "from-environment");
  EXPECT_EQ(option(settings, "store").where, "VARVE_STORE");
  EXPECT_EQ(settings.job, "from-file");
  EXPECT_EQ(option(settings, "job").where, "varve.toml, line 3");
  EXPECT_EQ(settings.saving.threads, 2u);
  EXPECT_EQ(option(settings, "threads").where, "the program");
  EXPECT_EQ(option(settings, "group").where, "default");
}

TEST_F(OptionsFile, AndAllElseGiveWayToTheCommandLine) {
  command_line_ = {{"levels", "dir:/asked"}, {"key_file", ""}};
  for (const char* file :
       {"levels = [\"dir:/file\"]", "store = \"/file\"", "levels = \"dir:/file\"\nstore = \"/file\""}) {
    write("varve.toml", file);
    environment_ = {{"VARVE_STORE", "/environment"}, {"VARVE_LEVELS", "dir:/environment"}, {"VARVE_KEY_FILE", "key"}};
    const Settings settings = resolve().value();
    ASSERT_TRUE(files_.remove("varve.toml").ok());
    EXPECT_EQ(to_string(settings.levels), "dir:/asked") << file;
    EXPECT_EQ(option(settings, "levels").origin, OptionOrigin::command_line);
    EXPECT_EQ(option(settings, "levels").where, "--levels");
    EXPECT_EQ(settings.reach.key_file, "key") << "nothing is said by an empty option";
  }
  command_line_ = {{"levels", "floppy:/a"}, {"key_file", "of the command line"}};
  EXPECT_NE(failure().find("(--levels)"), std::string::npos) << failure();
  command_line_.erase("levels");
  environment_.clear();
  EXPECT_EQ(option(resolve().value(), "key_file").where, "--key-file");
}

TEST_F(OptionsFile, MayGiveNumbersStringsAndBooleans) {
  write("varve.toml",
        "group = 8\nthreads = 2\nmemory_bytes = 67108864\nevery_seconds = 0.5\nwrite_bytes_per_second = 25_000_000\n"
        "mean_time_between_failures = \"48h\"\nevery_steps = \"50\"\nlow_priority = false\nwhen_busy = \"skip\"\n");
  const Settings settings = resolve().value();
  EXPECT_EQ(settings.group.count, 8u);
  EXPECT_EQ(settings.saving.threads, 2u);
  EXPECT_EQ(settings.saving.memory_bytes, 64_MiB);
  EXPECT_EQ(settings.cadence.every_seconds, 0.5);
  EXPECT_EQ(settings.write_bytes_per_second, 25e6);
  EXPECT_EQ(settings.cadence.mean_time_between_failures, 172'800);
  EXPECT_EQ(settings.cadence.every_steps, 50u);
  EXPECT_FALSE(settings.saving.low_priority);
  EXPECT_EQ(settings.snapshots.when_busy, WhenBusy::skip);
}

TEST_F(OptionsFile, MayGiveLevelsAsAList) {
  write("varve.toml",
        "levels = [\"memory\", \"local:/nvme/varve keep=2\", \"xor:8 every=2\", \"dir:/far every=10\"]\n");
  const std::string levels = "memory; local:/nvme/varve keep=2; xor:8 every=2; dir:/far every=10";
  EXPECT_EQ(to_string(resolve().value().levels), levels);
  const std::string effective = effective_options(resolve().value());
  EXPECT_EQ(effective.find("store ="), std::string::npos) << effective;
  ASSERT_TRUE(files_.remove("varve.toml").ok());
  write("varve.toml", effective);
  EXPECT_EQ(to_string(resolve().value().levels), levels) << effective;
  ASSERT_TRUE(files_.remove("varve.toml").ok());
  write("varve.toml", "levels = \"memory; /x\"\n");
  EXPECT_EQ(to_string(resolve().value().levels), "memory; dir:/x");
  ASSERT_TRUE(files_.remove("varve.toml").ok());
  write("varve.toml", "levels = [\"memory\", 7]\n");
  EXPECT_NE(failure().find("another type"), std::string::npos) << failure();
}

TEST_F(OptionsFile, IsTakenFromTheEnvironmentOrTheProgram) {
  write("a.toml", "job = \"a\"\n");
  write("b.toml", "job = \"b\"\n");
  code_.options_file = "a.toml";
  EXPECT_EQ(resolve()->job, "a");
  environment_ = {{"VARVE_OPTIONS_FILE", "b.toml"}};
  EXPECT_EQ(resolve()->job, "b");
}

TEST_F(OptionsFile, MustBeThereWhenItIsNamed) {
  code_.options_file = "ghost.toml";
  EXPECT_EQ(resolve().status().code(), StatusCode::not_found);
}

TEST_F(OptionsFile, WithAnUnknownKeyIsRefusedWithItsLine) {
  write("varve.toml", "job = \"a\"\n\nevery_step = 10\n");
  EXPECT_EQ(failure(), "varve.toml, line 3: no such option: every_step (did you mean every_steps?)");
  ASSERT_TRUE(files_.remove("varve.toml").ok());
  write("varve.toml", "[session]\njob = \"a\"\n");
  EXPECT_NE(failure().find("varve.toml, line 1: no such option: session"), std::string::npos) << failure();
}

TEST_F(OptionsFile, WithAMalformedValueIsRefusedWithItsLine) {
  for (const char* line :
       {"every_steps = 1.5", "every_steps = true", "every_steps = -3", "job = 7", "store = [\"a\"]",
        "stop_on_signals = 1", "every_seconds = 1979-05-27", "every_seconds = inf", "threads = \"many\""}) {
    write("varve.toml", std::string("# options\n") + line + "\n");
    EXPECT_EQ(resolve().status().code(), StatusCode::invalid_argument) << line;
    EXPECT_NE(failure().find("varve.toml, line 2"), std::string::npos) << failure();
    EXPECT_NE(failure().find(std::string(line).substr(0, std::string(line).find(' '))), std::string::npos) << failure();
    ASSERT_TRUE(files_.remove("varve.toml").ok());
  }
}

TEST_F(OptionsFile, ThatIsNotTomlIsRefusedWithItsLine) {
  write("varve.toml", "job = \"a\"\nstore = \n");
  EXPECT_EQ(failure().find("varve.toml, line 2: not TOML: "), 0u) << failure();
  ASSERT_TRUE(files_.remove("varve.toml").ok());
  write("varve.toml", "job = \"a\"\njob = \"b\"\n");
  EXPECT_EQ(resolve().status().code(), StatusCode::invalid_argument) << "a key may be said once";
}

TEST_F(OptionsFile, CanBeMadeOfTheEffectiveOptions) {
  code_ = {.store = "odd \"name\" \\ \n", .codec = "zstd:3", .every_steps = 7, .write_bytes_per_second = 1e8};
  const Settings settings = resolve().value();
  write("again.toml", effective_options(settings));
  code_ = {.options_file = "again.toml"};
  const Settings again = resolve().value();
  ASSERT_EQ(again.options.size(), settings.options.size());
  for (size_t i = 0; i < again.options.size(); ++i) {
    EXPECT_EQ(again.options[i].text, settings.options[i].text) << again.options[i].name;
    EXPECT_EQ(again.options[i].where, "again.toml, line " + std::to_string(i + 1));
  }
}
#else
TEST_F(Options, OfAFileAreRefusedByABuildWithoutToml) {
  write("varve.toml", "job = \"a\"\n");
  EXPECT_EQ(resolve().status().code(), StatusCode::unsupported);
}
#endif

TEST_F(Options, ArePrintedWithTheirOrigin) {
  code_ = {.every_steps = 7};
  environment_ = {{"VARVE_JOB", "heat"}};
  const std::string text = effective_options(resolve().value());
  EXPECT_NE(text.find("job = \"heat\" "), std::string::npos) << text;
  EXPECT_NE(text.find("# VARVE_JOB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("every_steps = 7 "), std::string::npos) << text;
  EXPECT_NE(text.find("# the program\n"), std::string::npos) << text;
  // Of store and levels, only one counts.
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), option_rules().size() - 1);
}

// Where checkpoints go

TEST_F(Options, AStoreIsShortForMemoryAndOnePlace) {
  const std::pair<const char*, const char*> stores[] = {{"varve-store", "memory; dir:varve-store"},
                                                        {"/a path;%", "memory; dir:/a%20path%3B%25"},
                                                        {"dir:/x y", "memory; dir:/x%20y"},
                                                        {"tcp://host:7000", "memory; tcp://host:7000"},
                                                        {"unix:/run/varve", "memory; unix:/run/varve"},
                                                        {"s3://bucket/a", "memory; s3://bucket/a"}};
  for (const auto& [store, levels] : stores) {
    code_.store = store;
    EXPECT_EQ(to_string(resolve().value().levels), levels) << store;
  }
  for (const char* nowhere : {"http://host/store", "tcp://host", "unix:"}) {
    code_.store = nowhere;
    EXPECT_NE(failure().find("the option store (the program)"), std::string::npos) << nowhere << ": " << failure();
  }
}

TEST_F(Options, LevelsTakeThePlaceOfAStore) {
  code_.levels = "memory; local:/nvme keep=2; /far every=10";
  const Settings settings = resolve().value();
  EXPECT_EQ(to_string(settings.levels), "memory; local:/nvme keep=2; dir:/far every=10");
  EXPECT_TRUE(settings.store.empty());
  code_.store = "s";
  EXPECT_NE(failure().find("store (the program) and levels (the program)"), std::string::npos) << failure();
  environment_ = {{"VARVE_LEVELS", "/elsewhere"}};
  EXPECT_EQ(to_string(resolve().value().levels), "dir:/elsewhere") << "who comes first decides alone";
  environment_ = {{"VARVE_STORE", "/elsewhere"}};
  EXPECT_EQ(to_string(resolve().value().levels), "memory; dir:/elsewhere");
  environment_ = {{"VARVE_LEVELS", "disk:/x"}};
  EXPECT_NE(failure().find("levels (VARVE_LEVELS)"), std::string::npos) << failure();
  EXPECT_NE(failure().find("disk:/x"), std::string::npos) << failure();
}

TEST_F(Options, ForAllLevelsHoldForThoseThatSayNothingThemselves) {
  code_.levels = "memory; local:/nvme keep=2; /far bandwidth=5MB/s";
  code_.keep_last = 7;
  code_.write_bytes_per_second = 1e6;
  EXPECT_EQ(to_string(resolve().value().levels),
            "memory; local:/nvme keep=2 bandwidth=1MB/s; dir:/far keep=7 bandwidth=5MB/s");
}

TEST_F(Options, TakeNoNodeForAMisspeltOption) {
  environment_ = {{"VARVE_NODE", "a"}};
  EXPECT_TRUE(resolve().value().warnings.empty());
}

/// Rank 0 leaves a message, which the other ranks find.
class Relay final : public Communicator {
 public:
  explicit Relay(uint32_t rank, ByteVector& message) : rank_(rank), message_(message) {}
  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return 2; }
  Result<std::vector<std::byte>> broadcast(std::span<const std::byte> roots, uint32_t) override {
    if (rank_ == 0) message_.assign(roots.begin(), roots.end());
    return message_;
  }
  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>) override { return unused(); }
  Status all_min(std::span<uint64_t>) override { return unused(); }
  Status all_max(std::span<uint64_t>) override { return unused(); }
  Status barrier() override { return unused(); }
  bool concurrent() const override { return false; }
  Status send(uint32_t, uint32_t, std::span<const std::byte>) override { return unused(); }
  Status receive(uint32_t, uint32_t, std::span<std::byte>) override { return unused(); }

 private:
  static Status unused() { return Status::internal("not made for this"); }
  uint32_t rank_;
  ByteVector& message_;
};

TEST_F(Options, AreThoseOfRankZeroOnAllRanks) {
  ByteVector message;
  Relay first(0, message), second(1, message);
  environment_ = {{"VARVE_EVERY_STEPS", "10"}};
  const Settings here = agree_on_settings(first, code_, sources()).value();
  environment_ = {{"VARVE_EVERY_STEPS", "99"}};
  code_.threads = 7;
  const Settings there = agree_on_settings(second, code_, sources()).value();
  EXPECT_EQ(there.cadence.every_steps, 10u);
  EXPECT_EQ(effective_options(there), effective_options(here));
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    ByteVector cut(message.begin(), message.begin() + static_cast<ptrdiff_t>(bytes));
    Relay damaged(1, cut);
    EXPECT_FALSE(agree_on_settings(damaged, code_, sources()).ok()) << bytes;
  }
}

TEST_F(Options, FailOnAllRanksWhereTheyFailOnRankZero) {
  ByteVector message;
  Relay first(0, message), second(1, message);
  environment_ = {{"VARVE_EVERY_STEPS", "often"}};
  const Status here = agree_on_settings(first, code_, sources()).status();
  environment_ = {};
  const Status there = agree_on_settings(second, code_, sources()).status();
  EXPECT_EQ(there.code(), StatusCode::invalid_argument);
  EXPECT_EQ(there.to_string(), here.to_string());
}

TEST(OptionNames, AreFoundNearby) {
  EXPECT_EQ(nearest_option("every_step"), "every_steps");
  EXPECT_EQ(nearest_option("keeplast"), "keep_last");
  EXPECT_EQ(nearest_option("stor"), "store");
  EXPECT_EQ(nearest_option("program"), "");
  EXPECT_EQ(nearest_option("x"), "");
  EXPECT_EQ(environment_name("every_steps"), "VARVE_EVERY_STEPS");
}

}  // namespace
}  // namespace varve
