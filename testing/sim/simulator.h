#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <vector>

#include "core/sync.h"
#include "sim/random.h"

namespace varve::sim {

/// A machine, as its processes know it.
struct Machine {
  std::string name;
  UniqueId boot;               ///< another one after each loss of power
  int64_t calendar_error = 0;  ///< seconds by which its calendar is wrong
  std::string memory{};        ///< the real folder of its shared memory, which programs see as kMemoryFolder
};

inline constexpr const char* kMemoryFolder = "/simulated-memory";

/// A simulated process: threads that live and die together.
struct Process {
  std::string name;
  uint32_t number = 0;
  uint64_t start = 0;
  Machine* machine = nullptr;
  UniqueId boot;  ///< of the machine when it began
  bool alive = true;
  Moment paused_until{};
  uint32_t thread_count = 0;  ///< that have not ended
  /// When it is about to change a name: that it gets no processor for up to so long just then.
  double pause_chance = 0;
  uint64_t pause_seconds_max = 200;
  /// The same just before it removes something, which it has made sure of: then for minutes.
  double removal_pause_chance = 0;
};

/// The Scheduler of the simulated cluster (core/sync.h). One thread runs at a time; the seed decides who is next.
/// Time is virtual: it goes on when an operation takes some, and jumps when everybody waits. A thread of a process that
/// was killed never goes on: it is left where it stands, as kill -9 leaves it, with all that it holds. So a schedule
/// runs in an operating system's process of its own, which ends without asking them.
class Simulator final : public Scheduler {
 public:
  explicit Simulator(uint64_t seed);

  // By the thread that runs.

  /// The calling thread becomes the first one, and belongs to a process that no fault hits.
  void enter(Machine& machine);
  Process& start_process(std::string name, Machine& machine, std::function<void()> body);
  /// Ends a process; does not return if it is the caller's own.
  void kill(Process& process);
  void pause(Process& process, std::chrono::nanoseconds time);
  Process& current_process();
  Random& random() { return random_; }
  /// Lets `time` pass for the calling thread.
  void spend(std::chrono::nanoseconds time);
  /// Somebody else goes on here rather than not: what comes next matters to others.
  void hand_over_eagerly();
  /// The calling process is about to remove something.
  void hand_over_before_removal();
  /// Waits until all of a process's threads have ended, or it was killed; false if `until` came first.
  bool await_end(const Process& process, Moment until);

  /// Writes a line of the story.
  void tell(std::string_view what);
  void set_story(bool shown) { shown_ = shown; }
  bool shows_story() const { return shown_; }
  /// The newest lines.
  const std::deque<std::string>& story() const { return story_; }
  /// Called instead of going on when nobody can, ever; gets what each thread waits for. Does not return.
  std::function<void(const std::string&)> on_deadlock;
  /// The same when virtual time is past any that a schedule may take.
  std::function<void(const std::string&)> on_timeout;
  Moment end_of_time = Moment::max();
  uint64_t steps() const { return steps_; }
  uint64_t switches() const { return switches_; }
  double seconds() { return std::chrono::duration<double>(now_ - start_).count(); }
  /// What the calling thread is doing, for reports of deadlocks.
  void note_doing(std::string what);

  // Scheduler

  void hand_over() override;
  bool wait(const void* object, Moment until) override;
  void wake(const void* object, bool all) override;
  void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, Moment until) override;
  void note_change() override;
  Moment now() override { return now_; }
  int64_t calendar_seconds() override;
  void fill_with_random(std::span<std::byte> bytes) override;
  uint32_t processor_count() override { return 1; }
  uint64_t add_thread() override;
  void forget_thread(uint64_t thread) override;
  void begin_thread(uint64_t thread) override;
  void end_thread(uint64_t thread) override;
  void join_thread(uint64_t thread) override;
  ProcessNumber own_process() override;
  bool is_alive(const ProcessNumber& process) override;
  std::string host_name() override;
  std::string path_on_machine(const std::string& path) override;

 private:
  enum class State : uint8_t { ready, waiting, ended };
  struct Task {
    uint64_t number = 0;
    Process* process = nullptr;
    State state = State::ready;
    bool woken = false;
    const void* object = nullptr;
    const std::atomic<uint32_t>* word = nullptr;
    uint32_t seen = 0;
    Moment until = Moment::max();
    std::string doing;
    std::binary_semaphore turn{0};
  };

  bool can_run(const Task& task) const;
  Task& choose();
  /// Gives the turn to whoever comes next, and returns when it is the caller's again.
  void yield();
  void pass_to(Task& next);
  std::string describe_tasks() const;

  Random random_;
  Moment now_, start_;
  SystemMutex beginning_;  ///< guards the vector's growth against threads that begin, whose turn it is not yet
  std::deque<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> live_;  ///< not ended, of processes that live
  std::vector<std::unique_ptr<Process>> processes_;
  Task* running_ = nullptr;
  double switch_chance_ = 0.1;
  uint64_t steps_ = 0, switches_ = 0;
  bool shown_ = false;
  std::deque<std::string> story_;
};

}  // namespace varve::sim
