#include "sim/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/sync.h"

namespace varve::sim {

namespace {
constexpr size_t kStoryLinesMax = 4000;
constexpr uint32_t kDirector = 1;  ///< the number of the process that no fault hits
}  // namespace

Simulator::Simulator(uint64_t seed) : random_(seed), now_(std::chrono::hours(1000)), start_(now_) {
  // Some seeds stay long with one thread, some change at every opportunity.
  const double chances[] = {0.02, 0.1, 0.3, 0.7};
  switch_chance_ = chances[random_.below(4)];
}

Process& Simulator::current_process() { return *running_->process; }

void Simulator::enter(Machine& machine) {
  auto process = std::make_unique<Process>();
  process->name = "director";
  process->number = kDirector;
  process->machine = &machine;
  process->boot = machine.boot;
  process->thread_count = 1;
  auto task = std::make_unique<Task>();
  task->process = process.get();
  running_ = task.get();
  live_.push_back(task.get());
  tasks_.push_back(std::move(task));
  processes_.push_back(std::move(process));
  current_scheduler = this;
}

Process& Simulator::start_process(std::string name, Machine& machine, std::function<void()> body) {
  auto made = std::make_unique<Process>();
  Process& process = *made;
  process.name = std::move(name);
  process.number = static_cast<uint32_t>(1000 + processes_.size());
  process.start = static_cast<uint64_t>(now_.time_since_epoch().count());
  process.machine = &machine;
  process.boot = machine.boot;
  processes_.push_back(std::move(made));
  Process* const before = running_->process;
  running_->process = &process;  // whose thread it is that starts now
  Result<Thread> thread = start_thread(std::move(body));
  running_->process = before;
  // Nobody joins it: await_end() tells when it is over.
  if (thread.ok()) static_cast<void>(new Thread(*std::move(thread)));
  return process;
}

void Simulator::kill(Process& process) {
  if (!process.alive) return;
  tell(fmt::format("{} is killed", process.name));
  process.alive = false;
  std::erase_if(live_, [&](const Task* task) { return task->process == &process; });
  wake(&process, true);
  if (running_->process == &process) yield();
}

void Simulator::pause(Process& process, std::chrono::nanoseconds time) {
  tell(fmt::format("{} gets no processor for {:.1f} s", process.name, std::chrono::duration<double>(time).count()));
  process.paused_until = std::max(process.paused_until, now_ + time);
  if (running_->process == &process) yield();
}

void Simulator::spend(std::chrono::nanoseconds time) {
  static const char nothing = 0;
  (void)wait(&nothing, now_ + time);
}

bool Simulator::await_end(const Process& process, Moment until) {
  while (process.alive && process.thread_count > 0) {
    if (!wait(&process, until)) return false;
  }
  return true;
}

void Simulator::tell(std::string_view what) {
  std::string line =
      fmt::format("{:12.6f}  {:<10} {:<16} {:>3}  {}", std::chrono::duration<double>(now_ - start_).count(),
                  running_->process->machine->name, running_->process->name, running_->number, what);
  if (shown_) fmt::print("{}\n", line);
  story_.push_back(std::move(line));
  if (story_.size() > kStoryLinesMax) story_.pop_front();
}

void Simulator::note_doing(std::string what) { running_->doing = std::move(what); }

// Turns

bool Simulator::can_run(const Task& task) const {
  if (task.process->paused_until > now_) return false;
  return task.state == State::ready || (task.state == State::waiting && (task.woken || task.until <= now_));
}

Simulator::Task& Simulator::choose() {
  for (;;) {
    size_t ready = 0;
    Task* chosen = nullptr;
    for (Task* task : live_) {
      if (!can_run(*task)) continue;
      ++ready;
      if (random_.below(ready) == 0) chosen = task;
    }
    if (chosen != nullptr) return *chosen;
    // Everybody waits: time goes on to the first who waits for it.
    Moment next = Moment::max();
    for (const Task* task : live_) {
      const bool due = task->state == State::ready || task->woken;
      next = std::min(next, std::max(due ? now_ : task->until, task->process->paused_until));
    }
    if (next == Moment::max()) {
      on_deadlock(describe_tasks());
    } else if (next > end_of_time) {
      on_timeout(describe_tasks());
    }
    now_ = std::max(now_, next);
  }
}

void Simulator::yield() {
  Task* const self = running_;
  Task& next = choose();
  if (&next != self) {
    pass_to(next);
    self->turn.acquire();
  }
  // It is our turn.
  self->state = State::ready;
}

void Simulator::pass_to(Task& next) {
  ++switches_;
  running_ = &next;
  next.turn.release();
}

void Simulator::hand_over() {
  ++steps_;
  if (random_.chance(switch_chance_)) yield();
}

void Simulator::hand_over_eagerly() {
  ++steps_;
  Process& process = *running_->process;
  if (process.pause_chance > 0 && random_.chance(process.pause_chance)) {
    return pause(process, std::chrono::seconds(random_.between(1, process.pause_seconds_max)));
  }
  if (random_.chance(0.5)) yield();
}

void Simulator::hand_over_before_removal() {
  Process& process = *running_->process;
  if (process.removal_pause_chance > 0 && random_.chance(process.removal_pause_chance)) {
    pause(process, std::chrono::seconds(random_.between(20, 400)));
  }
}

bool Simulator::wait(const void* object, Moment until) {
  ++steps_;
  Task& task = *running_;
  task.state = State::waiting;
  task.object = object;
  task.until = until;
  task.woken = false;
  yield();
  task.object = nullptr;
  return task.woken;
}

void Simulator::wake(const void* object, bool all) {
  size_t waiting = 0;
  Task* chosen = nullptr;
  for (Task* task : live_) {
    if (task->state != State::waiting || task->object != object || task->woken) continue;
    if (all) {
      task->woken = true;
      continue;
    }
    if (random_.below(++waiting) == 0) chosen = task;
  }
  if (chosen != nullptr) chosen->woken = true;
}

void Simulator::wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, Moment until) {
  if (word.load() != seen) return hand_over();
  Task& task = *running_;
  task.word = &word;
  task.seen = seen;
  (void)wait(&word, until);
  task.word = nullptr;
}

void Simulator::note_change() {
  for (Task* task : live_) {
    if (task->state == State::waiting && task->word != nullptr && task->word->load() != task->seen) task->woken = true;
  }
  hand_over();
}

std::string Simulator::describe_tasks() const {
  std::string text;
  for (const Task* task : live_) {
    text += fmt::format("  {} {} thread {}: {}{}\n", task->process->machine->name, task->process->name, task->number,
                        task->until == Moment::max() ? "waits without limit" : "waits for a time or news",
                        task->doing.empty() ? "" : ", in " + task->doing);
  }
  return text;
}

// Chance and time

int64_t Simulator::calendar_seconds() {
  constexpr int64_t begin = 1'790'000'000;
  const auto passed = std::chrono::duration_cast<std::chrono::seconds>(now_ - start_).count();
  return begin + passed + running_->process->machine->calendar_error;
}

void Simulator::fill_with_random(std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t drawn = random_.next();
    std::memcpy(bytes.data() + i, &drawn, std::min(sizeof drawn, bytes.size() - i));
  }
}

// Threads

uint64_t Simulator::add_thread() {
  auto task = std::make_unique<Task>();
  task->number = tasks_.size();
  task->process = running_->process;
  ++task->process->thread_count;
  live_.push_back(task.get());
  const MutexLock lock(beginning_);
  tasks_.push_back(std::move(task));
  return tasks_.back()->number;
}

void Simulator::forget_thread(uint64_t thread) {
  Task& task = *tasks_[thread];
  --task.process->thread_count;
  task.state = State::ended;
  std::erase(live_, &task);
}

void Simulator::begin_thread(uint64_t thread) {
  Task* task = nullptr;
  {
    const MutexLock lock(beginning_);
    task = tasks_[thread].get();
  }
  task->turn.acquire();
  task->state = State::ready;
}

void Simulator::end_thread(uint64_t thread) {
  Task& task = *tasks_[thread];
  task.state = State::ended;
  std::erase(live_, &task);
  if (--task.process->thread_count == 0) wake(task.process, true);
  wake(&task, true);
  pass_to(choose());
}

void Simulator::join_thread(uint64_t thread) {
  Task& task = *tasks_[thread];
  while (task.state != State::ended) (void)wait(&task, Moment::max());
}

// Processes

ProcessNumber Simulator::own_process() {
  const Process& process = current_process();
  return {process.boot, process.start, process.number};
}

bool Simulator::is_alive(const ProcessNumber& asked) {
  const Machine* const here = current_process().machine;
  return std::any_of(processes_.begin(), processes_.end(), [&](const std::unique_ptr<Process>& process) {
    return process->number == asked.number && process->alive && process->thread_count > 0 && process->machine == here &&
           process->boot == here->boot &&
           (asked.start == 0 || (asked.start == process->start && asked.boot == process->boot));
  });
}

std::string Simulator::host_name() { return current_process().machine->name; }

std::string Simulator::path_on_machine(const std::string& path) {
  const std::string& memory = current_process().machine->memory;
  return path.starts_with(kMemoryFolder) ? memory + path.substr(std::strlen(kMemoryFolder)) : path;
}

}  // namespace varve::sim
