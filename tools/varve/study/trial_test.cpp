#include "core/memory_file_system.h"
#include "runtime/settings.h"
#include "study/series_folder.h"
#include "study/study.h"

namespace varve {
namespace {

using test::joined;
using test::random_bytes;
using test::SeriesFolder;
using test::smooth_field;

/// What real saves of the sets into a store on a disk in memory take.
std::vector<uint64_t> really_stored(const std::string& path, SaveOptions options) {
  MemoryFileSystem fs;
  const std::unique_ptr<Store> store = test::make_store(fs);
  std::vector<uint64_t> stored;
  options.direct_io = false;
  options.job = "real";
  for (const SetPlace& place : find_series({path}).value()) {
    options.step = stored.size();
    const Result<SaveReport> report = save_folder(*store, place.folder, options, test::layout_service());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    stored.push_back(report.ok() ? report->record.stored_bytes() : 0);
  }
  return stored;
}

void expect_agreement(const std::string& path, const StudySeries& series, const SaveOptions& options,
                      const SamplePlan& plan = SamplePlan::whole(), double tolerance = 0.02) {
  const Result<TrialSeries> trial = try_save(series, plan, options, null_progress());
  ASSERT_TRUE(trial.ok()) << trial.status().to_string();
  const std::vector<uint64_t> real = really_stored(path, options);
  ASSERT_EQ(trial->sets.size(), real.size());
  double foretold = 0, stored = 0;
  for (size_t i = 0; i < real.size(); ++i) {
    foretold += trial->sets[i].stored_bytes.value;
    stored += static_cast<double>(real[i]);
    if (plan.takes_all()) {
      EXPECT_NEAR(trial->sets[i].stored_bytes.value, static_cast<double>(real[i]),
                  tolerance * static_cast<double>(real[i]))
          << trial->sets[i].label;
    }
  }
  EXPECT_NEAR(foretold, stored, tolerance * stored);
}

/// Fields of three ranks, of which a part stays as it is from set to set.
void write_fields(const SeriesFolder& folder, size_t elements) {
  for (int set = 1; set <= 3; ++set) {
    for (int rank = 0; rank < 3; ++rank) {
      const ByteVector still = smooth_field(elements, static_cast<uint64_t>(rank));
      const ByteVector moving = smooth_field(elements, static_cast<uint64_t>(100 * set + rank));
      folder.write(set, rank, joined({still, moving}));
    }
  }
}

TEST(TrialSave, AgreesWithARealSaveOfConstructedSeries) {
  const SeriesFolder folder;
  write_fields(folder, 40'000);
  const StudySeries series = folder.open("f64:80000");
  for (const Scheme scheme : {Scheme::agnostic, Scheme::aware, Scheme::aware_block}) {
    SaveOptions options = series.options;
    options.scheme = scheme;
    expect_agreement(folder.path(), series, options);
  }
  SaveOptions options = series.options;
  options.chunker = parse_chunker("gear:8192").value();
  options.codec = CodecPolicy::parse("best").value();
  options.ranks.group_size = 2;
  expect_agreement(folder.path(), series, options);
}

#ifdef VARVE_WITH_HDF5
TEST(TrialSave, AgreesWithARealSaveOfASmallRealSeries) {
  const std::string path = VARVE_SAMPLE_FOLDER;
  const StudySeries series = SeriesFolder::open_at(path);
  expect_agreement(path, series, series.options);
  SaveOptions options = series.options;
  options.scheme = Scheme::aware_block;
  options.codec = CodecPolicy::parse("fast").value();
  expect_agreement(path, series, options);
}
#endif

TEST(TrialSave, OfASampleIsNear) {
  const SeriesFolder folder;
  write_fields(folder, 300'000);
  const StudySeries series = folder.open("f64:600000");
  const SamplePlan plan = SamplePlan::of(series, series.bytes() / 4, 32);
  EXPECT_FALSE(plan.takes_all());
  // These fields are the same but for where they begin. What comes again far away is nearer in a sample, and not what
  // is looked at here.
  SaveOptions options = series.options;
  options.codec = CodecPolicy::parse("lorenzo+shuffle+zstd").value();
  expect_agreement(folder.path(), series, options, plan, 0.1);
}

TEST(SamplePlan, TakesTheSamePiecesOfEverySetAndSomeOfEveryClass) {
  const SeriesFolder folder;
  write_fields(folder, 300'000);
  for (int set = 1; set <= 3; ++set)
    test::write_file(folder.path() + "/dump" + std::to_string(set) + "/notes.txt", "of a class of its own");
  const StudySeries series = folder.open("f64:600000");
  const SamplePlan plan = SamplePlan::of(series, series.bytes() / 10, 32),
                   again = SamplePlan::of(series, series.bytes() / 10, 32);
  std::vector<uint64_t> taken(series.class_keys.size());
  uint64_t all = 0;
  for (size_t i = 0; i < series.sets[0].group.streams.size(); ++i) {
    const std::vector<StreamPiece> first = plan.pieces(series.sets[0], i), last = plan.pieces(series.sets[2], i),
                                   same = again.pieces(series.sets[0], i);
    ASSERT_EQ(first.size(), last.size());
    ASSERT_EQ(first.size(), same.size());
    for (size_t k = 0; k < first.size(); ++k) {
      EXPECT_EQ(first[k].begin, last[k].begin);
      EXPECT_EQ(first[k].begin, same[k].begin);
      EXPECT_LT(first[k].begin, first[k].end);
      taken[series.sets[0].keys[i].class_id] += first[k].end - first[k].begin;
      all += first[k].end - first[k].begin;
    }
  }
  for (size_t id = 0; id < taken.size(); ++id) {
    const bool is_empty = series.class_keys[id].starts_with("skeleton");
    EXPECT_EQ(taken[id] > 0, !is_empty) << series.class_keys[id];
  }
  const auto share = static_cast<double>(all) / static_cast<double>(series.sets[0].bytes());
  EXPECT_NEAR(share, 0.1, 0.05);
}

TEST(Estimates, HoldTheTrueValue) {
  std::vector<RatioUnit> units;
  for (uint32_t i = 0; i < 200; ++i) units.push_back({i % 2, 100.0, i % 2 == 0 ? 50.0 + i % 7 : 20.0 + i % 5});
  const std::vector<double> bases = {1e6, 3e6};
  const Estimate total = estimate_total(units, bases);
  EXPECT_NEAR(total.value, 1e6 * 0.53 + 3e6 * 0.22, 3e4);
  EXPECT_LT(total.low, total.value);
  EXPECT_GT(total.high, total.value);
  EXPECT_LT(total.high - total.low, 0.05 * total.value);
}

TEST(Estimates, SayThatFewUnitsTellLittle) {
  const std::vector<double> bases = {1e6, 1e6};
  const std::vector<RatioUnit> one = {{0, 100, 50}};
  EXPECT_EQ(estimate_total(one, bases).value, 1e6);
  EXPECT_EQ(estimate_total(one, bases).low, 0.5e6);
  EXPECT_EQ(estimate_total(one, bases).high, 2e6);
  // One unit in each of two strata: what they differ by is all that is known of the spread.
  const std::vector<RatioUnit> two = {{0, 100, 40}, {1, 100, 60}};
  EXPECT_EQ(estimate_total(two, bases).value, 1e6);
  EXPECT_LT(estimate_total(two, bases).low, 0.5e6);
}

CompressionPoint find_point(const std::vector<CompressionPoint>& points, Scheme scheme, const std::string& method,
                            uint64_t block_bytes = 64_KiB) {
  for (const CompressionPoint& point : points) {
    if (point.scheme == scheme && point.method == method && point.block_bytes == block_bytes) return point;
  }
  ADD_FAILURE() << method << " is missing";
  return {};
}

TEST(Compression, OfDataThatRanksShareBlockByBlockIsBestInBlocks) {
  const SeriesFolder folder;
  // Each rank has a stripe of every block; gzip sees no farther than 32 KiB, and a rank's file is much longer.
  const ByteVector common = random_bytes(256_KiB, 5);
  for (int rank = 0; rank < 8; ++rank) folder.write(1, rank, common);
  const Result<Compression> found = study_compression(folder.open(), {}, null_progress());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_LT(find_point(found->methods, Scheme::aware, "gzip:6").ratio().value, 1.05);
  EXPECT_GT(find_point(found->blocks, Scheme::aware_block, "by-type+gzip:6", 4_KiB).ratio().value, 5);
  EXPECT_TRUE(find_point(found->methods, Scheme::aware, "gzip:6").ratio().is_exact());
}

TEST(Compression, OfFieldsIsBetterWithCodecsThatKnowTypes) {
  const SeriesFolder folder;
  for (int rank = 0; rank < 4; ++rank) folder.write(1, rank, smooth_field(50'000, static_cast<uint64_t>(rank)));
  CompressionOptions options;
  options.sample_bytes = 600'000;
  const Result<Compression> found = study_compression(folder.open("f64:50000"), options, null_progress());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_LT(found->sampled_share, 1);
  EXPECT_EQ(found->rank_count, 4u);
  const CompressionPoint gzip = find_point(found->methods, Scheme::agnostic, "gzip:6");
  const CompressionPoint own = find_point(found->methods, Scheme::aware, "balanced");
  EXPECT_GT(own.ratio().value, gzip.ratio().value);
  EXPECT_GT(own.encode_bytes_per_second, 0);
  ASSERT_FALSE(found->improvements.empty());
  for (const Improvement& each : found->improvements) EXPECT_GE(each.best, each.worst);
}

StudyResult study_of(const StudySeries& series, ProgressSink& progress = null_progress()) {
  const Result<StudyResult> result = run_study(series, {}, progress);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return *result;
}

TEST(Advice, TakesChunksThatFollowTheContentsForDataThatMove) {
  const SeriesFolder folder;
  const ByteVector data = random_bytes(2_MiB, 6);
  folder.write(1, 0, data);
  folder.write(2, 0, joined({random_bytes(1000, 7), data}));
  const Result<Advice> advice = study_advice(folder.open(), {}, null_progress());
  ASSERT_TRUE(advice.ok()) << advice.status().to_string();
  EXPECT_TRUE(advice->trials[advice->chosen].chunker.starts_with("gear"));
  EXPECT_NE(advice->save_command.find("--chunker gear:8192"), std::string::npos) << advice->save_command;
}

#ifdef VARVE_WITH_TOML
TEST(Advice, IsAFileThatARunAccepts) {
  const SeriesFolder folder;
  write_fields(folder, 20'000);
  AdviceOptions options;
  options.mean_time_between_failures = 7200;
  const Result<Advice> advice = study_advice(folder.open("f64:40000"), options, null_progress());
  ASSERT_TRUE(advice.ok()) << advice.status().to_string();
  MemoryFileSystem files;
  ASSERT_TRUE(files.create("varve.toml").value()->write_at(0, as_bytes(advice->options_file)).ok());
  const Result<Settings> settings = resolve_settings({}, {.environment = {}, .program = "solver", .files = &files});
  ASSERT_TRUE(settings.ok()) << settings.status().to_string() << "\n" << advice->options_file;
  EXPECT_TRUE(settings->warnings.empty());
  EXPECT_EQ(scheme_name(settings->saving.scheme), advice->trials[advice->chosen].scheme);
  EXPECT_EQ(settings->saving.codec.name(), advice->trials[advice->chosen].policy);
  EXPECT_EQ(settings->cadence.mean_time_between_failures, 7200);
}
#endif

TEST(Study, ReportsWhatItHasWhenItIsStopped) {
  const SeriesFolder folder;
  write_fields(folder, 200'000);
  const StudySeries series = folder.open("f64:400000");
  test::StoppingProgress at_once(0);
  const StudyResult nothing = study_of(series, at_once);
  EXPECT_FALSE(nothing.complete);
  EXPECT_TRUE(nothing.contents.has_value());
  EXPECT_FALSE(nothing.dedup.has_value());

  test::StoppingProgress later(2 * series.bytes() + 1);
  const StudyResult some = study_of(series, later);
  EXPECT_FALSE(some.complete);
  ASSERT_TRUE(some.dedup.has_value());
  EXPECT_EQ(some.dedup->sets_done, 3u);
  EXPECT_FALSE(some.timing.has_value());
}

TEST(Study, ForetellsTimesFromWhatItMeasured) {
  const SeriesFolder folder;
  write_fields(folder, 40'000);
  const StudySeries series = folder.open("f64:80000");
  StudyOptions options;
  options.assumptions.io_bytes_per_second = 1e6;
  options.assumptions.node_count = 100;
  const Result<StudyResult> result = run_study(series, options, null_progress());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_TRUE(result->complete);
  ASSERT_TRUE(result->timing.has_value());
  const Timing& timing = *result->timing;
  ASSERT_EQ(timing.configurations.size(), 6u);
  EXPECT_EQ(timing.node_bytes, 640'000);
  const TimedConfiguration& plain = timing.configurations.front();
  EXPECT_NEAR(plain.checkpoint_seconds(), 64, 1e-6) << "100 nodes of 640 kB, one MB a second";
  EXPECT_NEAR(plain.written_bytes, 64e6, 1);
  const TimedConfiguration& own = timing.configurations.back();
  EXPECT_EQ(own.name, "Varve");
  EXPECT_LT(own.checkpoint_seconds(), plain.checkpoint_seconds());
  EXPECT_LT(own.waste, plain.waste);
}

TEST(Contents, DescribeFilesAndTypes) {
  const SeriesFolder folder;
  folder.write(1, 0, smooth_field(1000, 1));
  folder.write(1, 1, smooth_field(3000, 2));
  const Contents contents = study_contents(folder.open("f64:1000"));
  ASSERT_EQ(contents.sets.size(), 1u);
  const SetContents& set = contents.sets[0];
  EXPECT_EQ(set.file_count, 2u);
  EXPECT_EQ(set.rank_count, 2u);
  EXPECT_EQ(set.bytes, 32'000u);
  EXPECT_EQ(set.file_bytes.least, 8000);
  EXPECT_EQ(set.file_bytes.most, 24'000);
  EXPECT_EQ(set.file_bytes.mean, 16'000);
  EXPECT_NEAR(set.doubles + set.singles + set.other + set.skeleton, 1, 1e-9);
  EXPECT_GE(set.doubles, 0.25);
}

}  // namespace
}  // namespace varve
