#include "snapshot/snapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>

#include "snapshot/snapshot_reader.h"
#include "snapshot/snapshot_view.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kLong = 10min;
constexpr ElementType kDouble = element_type_of<double>();

std::unique_ptr<SnapshotMemory> make_memory(const SegmentOwner& owner, uint32_t slots = 1) {
  SnapshotOptions options;
  options.slots = slots;
  options.copy_threads = 3;
  Result<std::unique_ptr<SnapshotMemory>> memory = SnapshotMemory::create(owner, options);
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  return std::move(memory).value();
}

/// A program with a field that is large enough for helpers, ghost cells, a vector and a number.
struct Program {
  std::vector<double> field = std::vector<double>(1'000'000);
  std::vector<double> ghosted = std::vector<double>(300 * 400);
  std::vector<double> list = std::vector<double>(10);
  uint64_t step = 0;
  VariableTable table;

  Program() {
    EXPECT_TRUE(table.protect_array("field", kDouble, field.data(), field.size(), {}).ok());
    const ArrayShape shape = ArrayShape::with_ghosts({300, 400}, 1);
    EXPECT_TRUE(table.protect_array("ghosted", kDouble, ghosted.data(), ghosted.size(), shape).ok());
    EXPECT_TRUE(table.protect_scalar("step", element_type_of<uint64_t>(), &step).ok());
    const auto bytes = [this] { return std::as_bytes(std::span(list)); };
    const auto resize = [this](uint64_t count) {
      list.resize(count);
      return std::as_writable_bytes(std::span(list));
    };
    EXPECT_TRUE(table.protect_vector("list", kDouble, bytes, resize).ok());
  }
  /// What the program would have computed by then.
  void advance_to(uint64_t to) {
    step = to;
    for (std::vector<double>* values : {&field, &ghosted, &list}) {
      std::iota(values->begin(), values->end(), static_cast<double>(to) * 1000.25);
    }
  }
  bool is_at(uint64_t at) const {
    return step == at && field.front() == static_cast<double>(at) * 1000.25 &&
           field.back() == static_cast<double>(at) * 1000.25 + 999'999 && list.front() == field.front() &&
           ghosted[401] == field.front() + 401;
  }
};

Status load(Program& program, const SnapshotReader& reader) {
  VARVE_ASSIGN(ImageTarget * target, program.table.begin_load(reader.image()));
  VARVE_TRY(reader.load(2, *target));
  return program.table.finish_load();
}

ByteVector read_all(const SnapshotReader& reader) {
  ByteVector image(reader.image().image_bytes);
  EXPECT_TRUE(reader.read(0, image).ok());
  return image;
}

TEST(Snapshot, HoldsWhatWasProtectedAtThatStep) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner());
  program.advance_to(3);
  ASSERT_TRUE(memory->fill({3}, program.table).ok());
  EXPECT_EQ(memory->newest_step(), 3U);

  const auto view = *SnapshotView::open(folder.owner());
  EXPECT_EQ(view->full_steps(), std::vector<uint64_t>{3});
  EXPECT_EQ(view->begin_drain(2).status().code(), StatusCode::not_found);
  const Result<const SnapshotReader*> reader = view->begin_drain(3);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_TRUE((*reader)->verify().ok());
  program.advance_to(9);
  ASSERT_TRUE(load(program, **reader).ok());
  EXPECT_TRUE(program.is_at(3));
  view->end_drain({});
}

TEST(Snapshot, CanBeViewedInRunsWithoutACopy) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner());
  program.advance_to(1);
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  const auto view = *SnapshotView::open(folder.owner());
  const SnapshotReader& reader = **view->begin_drain(1);
  const ByteVector image = read_all(reader);
  ByteVector viewed;
  while (viewed.size() < image.size()) {
    const ByteSpan run = reader.view(viewed.size(), 100'000);
    ASSERT_FALSE(run.empty());
    viewed.insert(viewed.end(), run.begin(), run.end());
  }
  EXPECT_EQ(viewed, image);
  EXPECT_TRUE(reader.view(image.size(), 1).empty());
  ByteVector beyond(2);
  EXPECT_FALSE(reader.read(image.size() - 1, beyond).ok());
  view->end_drain({});
}

TEST(Snapshot, WithOneSlotWaitsUntilItIsDrained) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner());
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  EXPECT_FALSE(memory->has_free_slot());
  EXPECT_EQ(memory->fill({2}, program.table).code(), StatusCode::busy);
  EXPECT_EQ(memory->wait_for_free_slot(1ms).code(), StatusCode::busy);

  const auto view = *SnapshotView::open(folder.owner());
  ASSERT_TRUE(view->begin_drain(1).ok());
  EXPECT_EQ(memory->fill({2}, program.table).code(), StatusCode::busy);
  std::thread drain([&] { view->end_drain(Status::io_error("disk gone")); });
  EXPECT_TRUE(memory->wait_for_free_slot(kLong).ok());
  drain.join();
  EXPECT_EQ(memory->slot(0).outcome.code(), StatusCode::io_error);
  EXPECT_EQ(memory->newest_step(), 1U) << "it can still be restarted from";
  EXPECT_TRUE(memory->fill({2}, program.table).ok());
}

TEST(Snapshot, WithTwoSlotsKeepsTheNewestAndDrainsTheOldestFirst) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner(), 2);
  const auto view = *SnapshotView::open(folder.owner());
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  ASSERT_TRUE(memory->fill({2}, program.table).ok());
  EXPECT_EQ(view->full_steps(), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(memory->has_free_slot());
  for (uint64_t step = 3; step < 10; ++step) {
    ASSERT_TRUE(view->begin_drain(step - 2).ok());
    view->end_drain({});
    ASSERT_TRUE(memory->fill({step}, program.table).ok());
    EXPECT_EQ(view->full_steps(), (std::vector<uint64_t>{step - 1, step}));
  }
  for (uint64_t step : {8, 9}) {
    ASSERT_TRUE(view->begin_drain(step).ok());
    view->end_drain({});
  }
  ASSERT_TRUE(memory->fill({10}, program.table).ok());
  const uint64_t other = memory->slot(0).step == 10 ? memory->slot(1).step : memory->slot(0).step;
  EXPECT_EQ(other, 9U);
}

TEST(Snapshot, GrowsWithWhatIsProtected) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner());
  const auto view = *SnapshotView::open(folder.owner());
  uint64_t step = 0;
  for (const size_t size : {10, 2'000'000, 5, 3'000'000}) {
    ++step;
    program.list.resize(size);
    program.advance_to(step);
    ASSERT_TRUE(memory->fill({step}, program.table).ok());
    const Result<const SnapshotReader*> reader = view->begin_drain(step);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_TRUE((*reader)->verify().ok());
    program.list.clear();
    ASSERT_TRUE(load(program, **reader).ok());
    EXPECT_TRUE(program.is_at(step));
    EXPECT_EQ(program.list.size(), size);
    view->end_drain({});
  }
}

TEST(Snapshot, FindsTheMemoryThatWasReservedForIt) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  Program program;
  const auto memory = make_memory(owner, 2);
  const auto view = *SnapshotView::open(owner);
  ASSERT_TRUE(memory->reserve(program.table).ok());
  memory->settle();
  const std::array<uintmax_t, 2> reserved = {std::filesystem::file_size(owner.slot_path(0)),
                                             std::filesystem::file_size(owner.slot_path(1))};
  for (uint64_t step = 1; step <= 2; ++step) {
    program.advance_to(step);
    ASSERT_TRUE(memory->fill({step}, program.table).ok());
    const Result<const SnapshotReader*> reader = view->begin_drain(step);
    ASSERT_TRUE(reader.ok() && (*reader)->verify().ok() && load(program, **reader).ok());
    EXPECT_TRUE(program.is_at(step));
    view->end_drain({});
  }
  for (uint32_t slot : {0U, 1U}) EXPECT_EQ(std::filesystem::file_size(owner.slot_path(slot)), reserved[slot]);
}

TEST(Snapshot, GetsASecondSlotOnceTheFirstIsLate) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  Program program;
  SnapshotOptions options{.slots = 2, .second_is_extra = true};
  const auto memory = *SnapshotMemory::create(owner, options);
  const auto view = *SnapshotView::open(owner);
  ASSERT_TRUE(memory->reserve(program.table).ok());
  memory->settle();
  EXPECT_FALSE(std::filesystem::exists(owner.slot_path(1))) << "nobody wants it yet";

  program.advance_to(1);
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  for (int i = 0; i < 10'000 && !std::filesystem::exists(owner.slot_path(1)); ++i) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(std::filesystem::exists(owner.slot_path(1))) << "the first is not written";
  ASSERT_TRUE(memory->has_free_slot());
  program.advance_to(2);
  ASSERT_TRUE(memory->fill({2}, program.table).ok());
  EXPECT_FALSE(memory->has_free_slot());
  EXPECT_EQ(view->full_steps(), (std::vector<uint64_t>{1, 2}));
  for (const uint64_t step : {1, 2}) {
    const Result<const SnapshotReader*> reader = view->begin_drain(step);
    ASSERT_TRUE(reader.ok() && load(program, **reader).ok());
    EXPECT_TRUE(program.is_at(step));
    view->end_drain({});
  }
}

TEST(Snapshot, NeedsNoSecondSlotIfTheFirstIsWrittenInTime) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  Program program;
  const auto memory = *SnapshotMemory::create(owner, {.slots = 2, .second_is_extra = true});
  const auto view = *SnapshotView::open(owner);
  for (uint64_t step = 1; step <= 3; ++step) {
    program.advance_to(step);
    std::this_thread::sleep_for(1s);
    ASSERT_TRUE(memory->fill({step}, program.table).ok());
    ASSERT_TRUE(view->begin_drain(step).ok());
    view->end_drain({});
  }
  memory->settle();
  EXPECT_FALSE(std::filesystem::exists(owner.slot_path(1)));
}

TEST(Snapshot, OfNothingIsASnapshotToo) {
  const test::SegmentFolder folder;
  VariableTable table;
  const auto memory = make_memory(folder.owner());
  ASSERT_TRUE(memory->fill({0}, table).ok());
  const auto view = *SnapshotView::open(folder.owner());
  const Result<const SnapshotReader*> reader = view->begin_drain(0);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE((*reader)->verify().ok());
  EXPECT_TRUE((*reader)->image().variables.empty());
}

TEST(Snapshot, ThatFailsLeavesTheEarlierOne) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner(), 2);
  program.advance_to(1);
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  const auto save = [](ByteVector&) { return Status::io_error("cannot say"); };
  ASSERT_TRUE(program.table.protect_object("object", save, [](ByteSpan) { return Status(); }).ok());
  EXPECT_EQ(memory->fill({2}, program.table).code(), StatusCode::io_error);
  ASSERT_TRUE(program.table.unprotect("object").ok());
  double none = 0;
  ASSERT_TRUE(program.table.protect_array("huge", kDouble, &none, 1ULL << 50, {}).ok());
  EXPECT_FALSE(memory->fill({2}, program.table).ok());
  ASSERT_TRUE(program.table.unprotect("huge").ok());

  EXPECT_EQ(memory->newest_step(), 1U);
  EXPECT_TRUE(memory->has_free_slot());
  EXPECT_TRUE(memory->fill({2}, program.table).ok());
}

TEST(Snapshot, PassesNewsToWhoWaitsForAStep) {
  const test::SegmentFolder folder;
  const auto memory = make_memory(folder.owner());
  const auto view = *SnapshotView::open(folder.owner());
  EXPECT_EQ(memory->group().wait_for_step(5, 1ms).code(), StatusCode::busy);
  std::thread leader([&] {
    GroupNews news;
    news.finished_step = news.newest_persistent = 5;
    view->post(news);
  });
  EXPECT_TRUE(memory->group().wait_for_step(5, kLong).ok());
  leader.join();
  EXPECT_EQ(memory->group().news()->newest_persistent, 5U);
}

TEST(Snapshot, DamageIsFoundAndTheVariableNamed) {
  const test::SegmentFolder folder;
  Program program;
  const auto memory = make_memory(folder.owner());
  program.advance_to(1);
  ASSERT_TRUE(memory->fill({1}, program.table).ok());
  const auto view = *SnapshotView::open(folder.owner());
  const SnapshotReader& reader = **view->begin_drain(1);
  const SharedSegment raw = *SharedSegment::open(folder.owner().slot_path(0), SharedSegment::Access::read_write);
  const uint64_t image_at = decode_slot_description(raw.bytes())->parts.front().region.first_byte;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{5'000'000}, reader.image().image_bytes - 1}) {
    std::byte& byte = raw.data()[image_at + offset];
    byte ^= std::byte{16};
    EXPECT_EQ(reader.verify().code(), StatusCode::corrupt);
    byte ^= std::byte{16};
    EXPECT_TRUE(reader.verify().ok());
  }
}

// Lent grids

struct GridProgram {
  static constexpr uint64_t kCount = 200'000;
  VariableTable table;
  std::unique_ptr<SnapshotMemory> memory;
  std::span<double> current, next;

  explicit GridProgram(const SegmentOwner& owner, uint32_t slots = 1, const ArrayShape& shape = {})
      : memory(make_memory(owner, slots)) {
    current = make();
    next = make();
    EXPECT_TRUE(table.protect_array("f", kDouble, current.data(), kCount, shape).ok());
  }
  std::span<double> make() {
    const Result<std::byte*> grid = memory->make_grid("f", kCount * sizeof(double));
    EXPECT_TRUE(grid.ok()) << grid.status().to_string();
    return {reinterpret_cast<double*>(*grid), kCount};
  }
  Result<std::byte*> lend(std::span<double> grid, std::chrono::nanoseconds limit = 0ns) {
    return memory->lend("f", reinterpret_cast<std::byte*>(grid.data()), table, limit);
  }
};

TEST(LentGrid, IsTakenWithoutACopyAndGivenBackOnlyWhenDrained) {
  const test::SegmentFolder folder;
  GridProgram program(folder.owner());
  const auto view = *SnapshotView::open(folder.owner());
  std::fill(program.current.begin(), program.current.end(), 1.5);
  const Result<std::byte*> spare = program.lend(program.current);
  ASSERT_TRUE(spare.ok()) << spare.status().to_string();
  EXPECT_NE(*spare, reinterpret_cast<std::byte*>(program.current.data()));
  EXPECT_NE(*spare, reinterpret_cast<std::byte*>(program.next.data()));
  EXPECT_EQ(program.lend(program.current).status().code(), StatusCode::invalid_argument) << "lent already";
  ASSERT_TRUE(program.memory->fill({1}, program.table).ok());
  EXPECT_EQ(program.memory->newest_step(), std::nullopt) << "not summed yet";
  EXPECT_EQ(program.lend(program.next).status().code(), StatusCode::busy) << "the only other one is being written";

  const Result<const SnapshotReader*> reader = view->begin_drain(1);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(program.memory->newest_step(), 1U) << "summed by now";
  EXPECT_TRUE((*reader)->verify().ok());
  const ImageVariable& variable = (*reader)->image().variables[0];
  ByteVector bytes(variable.bytes);
  ASSERT_TRUE((*reader)->read(variable.offset, bytes).ok());
  const auto expected = std::as_bytes(program.current);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
  EXPECT_EQ(program.lend(program.next).status().code(), StatusCode::busy);
  view->end_drain({});

  const Result<std::byte*> back = program.lend(program.next);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, reinterpret_cast<std::byte*>(program.current.data()));
  EXPECT_EQ(program.memory->newest_step(), std::nullopt) << "the program writes over it now";
}

TEST(LentGrid, NeedsNoRoomInASlot) {
  const test::SegmentFolder folder;
  GridProgram program(folder.owner());
  ASSERT_TRUE(program.memory->reserve(program.table).ok());
  program.memory->settle();
  EXPECT_LT(std::filesystem::file_size(folder.owner().slot_path(0)), GridProgram::kCount * sizeof(double));
  ASSERT_TRUE(program.lend(program.current).ok());
  ASSERT_TRUE(program.memory->fill({1}, program.table).ok());
  EXPECT_LT(std::filesystem::file_size(folder.owner().slot_path(0)), GridProgram::kCount * sizeof(double));
}

TEST(LentGrid, CanHaveGhostCells) {
  const test::SegmentFolder folder;
  GridProgram program(folder.owner(), 1, ArrayShape::with_ghosts({400, 500}, 1));
  std::iota(program.current.begin(), program.current.end(), 1);
  double other = 7;
  ASSERT_TRUE(program.table.protect_scalar("a", kDouble, &other).ok());
  ASSERT_TRUE(program.table.protect_scalar("z", kDouble, &other).ok());
  ASSERT_TRUE(program.memory->fill({1}, program.table).ok());
  const auto view = *SnapshotView::open(folder.owner());
  const ByteVector copied = read_all(**view->begin_drain(1));
  view->end_drain({});
  ASSERT_TRUE(program.lend(program.current).ok());
  ASSERT_TRUE(program.memory->fill({2}, program.table).ok());
  const Result<const SnapshotReader*> reader = view->begin_drain(2);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(read_all(**reader), copied);
  EXPECT_TRUE((*reader)->verify().ok());
}

TEST(LentGrid, CirculatesThroughManyCheckpoints) {
  for (const uint32_t slots : {1U, 2U}) {
    const test::SegmentFolder folder;
    GridProgram program(folder.owner(), slots);
    const auto view = *SnapshotView::open(folder.owner());
    constexpr uint64_t kSteps = 60;
    std::atomic<uint64_t> bad{0};
    std::thread checkpoint_thread([&] {
      for (uint64_t step = 1; step <= kSteps; ++step) {
        while (view->full_steps().empty() || view->full_steps().front() != step) std::this_thread::yield();
        const Result<const SnapshotReader*> reader = view->begin_drain(step);
        if (!reader.ok()) {
          ++bad;
          return;
        }
        for (int i = 0; i < 3; ++i) std::this_thread::yield();
        const ImageVariable& variable = (*reader)->image().variables[0];
        std::vector<double> values(GridProgram::kCount);
        if (!(*reader)->read(variable.offset, std::as_writable_bytes(std::span(values))).ok()) ++bad;
        if (std::any_of(values.begin(), values.end(), [&](double v) { return v != static_cast<double>(step); })) ++bad;
        if (!(*reader)->verify().ok()) ++bad;
        view->end_drain({});
      }
    });
    for (uint64_t step = 1; step <= kSteps; ++step) {
      std::fill(program.current.begin(), program.current.end(), static_cast<double>(step));
      const Result<std::byte*> spare = program.lend(program.current, kLong);
      ASSERT_TRUE(spare.ok()) << spare.status().to_string();
      ASSERT_TRUE(program.memory->wait_for_free_slot(kLong).ok());
      ASSERT_TRUE(program.memory->fill({step}, program.table).ok());
      // Toggle: what was next is current now, and the spare comes next. Scribbles on both.
      program.current = program.next;
      program.next = {reinterpret_cast<double*>(*spare), GridProgram::kCount};
      std::fill(program.next.begin(), program.next.end(), -1.0);
      std::fill(program.current.begin(), program.current.end(), -2.0);
    }
    checkpoint_thread.join();
    EXPECT_EQ(bad, 0U);
  }
}

TEST(LentGrid, ThatIsLentAgainOrLeftOutComesBackAtOnce) {
  const test::SegmentFolder folder;
  GridProgram program(folder.owner());
  const Result<std::byte*> spare = program.lend(program.current);
  ASSERT_TRUE(spare.ok());
  const Result<std::byte*> first = program.lend(program.next);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(*first, reinterpret_cast<std::byte*>(program.current.data()));
  program.memory->skip(program.table);
  EXPECT_EQ(program.memory->fill({1}, program.table).code(), StatusCode::invalid_argument)
      << "the content of f is in no protected memory";
  const Result<std::byte*> second = program.lend(program.current);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*second, reinterpret_cast<std::byte*>(program.next.data()));
  EXPECT_TRUE(program.memory->fill({1}, program.table).ok());
}

TEST(LentGrid, MistakesAreRefused) {
  const test::SegmentFolder folder;
  GridProgram program(folder.owner());
  std::vector<double> other(GridProgram::kCount);
  EXPECT_EQ(program.lend(other).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(program.memory->make_grid("f", 8).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(program.memory->make_grid("g", 0).status().code(), StatusCode::invalid_argument);
  ASSERT_TRUE(program.table.unprotect("f").ok());
  EXPECT_EQ(program.lend(program.current).status().code(), StatusCode::invalid_argument);
}

// Two processes

TEST(SnapshotProcesses, OneFillsAndTheOtherDrains) {
  const test::SegmentFolder folder;
  constexpr uint64_t kSteps = 30;
  const SegmentOwner member = folder.owner(1), leader = folder.owner(0);
  const auto own = make_memory(leader);
  const pid_t child = ::fork();
  if (child == 0) {
    int failures = 0;
    {
      Program program;
      SnapshotOptions options{.rank_count = 2, .slots = 2, .copy_threads = 2};
      auto memory = SnapshotMemory::create(member, options);
      if (!memory.ok() || !(*memory)->group().attach_leader(leader).ok()) ::_exit(1);
      for (uint64_t step = 1; step <= kSteps; ++step) {
        program.list.resize(10 + step * 100);
        program.advance_to(step);
        failures += (*memory)->wait_for_free_slot(kLong).ok() ? 0 : 1;
        failures += (*memory)->fill({step}, program.table).ok() ? 0 : 1;
      }
      failures += (*memory)->group().wait_for_step(kSteps, kLong).ok() ? 0 : 1;
    }
    ::_exit(failures == 0 ? 0 : 2);
  }
  std::unique_ptr<SnapshotView> view;
  while (!view) {
    Result<std::unique_ptr<SnapshotView>> opened = SnapshotView::open(member);
    if (opened.ok()) view = std::move(opened).value();
  }
  Program program;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    for (uint32_t seen = own->group().bell().count(); view->full_steps().empty(); seen = own->group().bell().count()) {
      own->group().bell().wait(seen, 100ms);
    }
    const Result<const SnapshotReader*> reader = view->begin_drain(step);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_TRUE((*reader)->verify().ok());
    EXPECT_TRUE(load(program, **reader).ok());
    EXPECT_TRUE(program.is_at(step));
    view->end_drain({});
  }
  GroupNews news;
  news.finished_step = kSteps;
  view->post(news);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(view->member_alive());
}

TEST(SnapshotProcesses, WaitingEndsWhenTheLeaderDies) {
  const test::SegmentFolder folder;
  const SegmentOwner leader = folder.owner(0);
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto memory = SnapshotMemory::create(leader, {.rank_count = 2});
    (void)!::write(channel[1], "x", 1);
    ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(channel[0], &ready, 1), 1);
  {
    Program program;
    SnapshotOptions options{.rank_count = 2};
    const auto memory = *SnapshotMemory::create(folder.owner(1), options);
    ASSERT_TRUE(memory->group().attach_leader(leader).ok());
    ASSERT_TRUE(memory->fill({1}, program.table).ok());
    EXPECT_EQ(memory->wait_for_free_slot(1ms).code(), StatusCode::busy);
    ::kill(child, SIGKILL);
    EXPECT_EQ(memory->wait_for_free_slot(kLong).code(), StatusCode::io_error);
    EXPECT_EQ(memory->group().wait_for_step(1, kLong).code(), StatusCode::io_error);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(channel[0]);
  ::close(channel[1]);
  folder.clear();
}

TEST(SnapshotProcesses, AForkedProcessRemovesNothing) {
  const test::SegmentFolder folder;
  auto memory = make_memory(folder.owner());
  const size_t files = folder.files().size();
  EXPECT_GT(files, 0U);
  EXPECT_EQ(test::run_in_child([&] { memory.reset(); }), 0);
  EXPECT_EQ(folder.files().size(), files);
}

}  // namespace
}  // namespace varve
