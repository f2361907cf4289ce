#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>

#include "cli/command.h"
#include "cli/text.h"
#include "cli/top_sources.h"
#include "core/process.h"
#include "runtime/live_file.h"

namespace varve::cli {

namespace {
constexpr double kShortestRefresh = 0.1, kLongestRefresh = 3600;

volatile std::sig_atomic_t window_was_resized = 0, pause_was_asked_for = 0;

/// A window that is resized is drawn anew at once, and Ctrl-Z finds the terminal as it was before: a wait ends.
void notice_terminal() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = [](int) { window_was_resized = 1; };
  ::sigaction(SIGWINCH, &action, nullptr);
  action.sa_handler = [](int) { pause_was_asked_for = 1; };
  ::sigaction(SIGTSTP, &action, nullptr);
}

/// A screen of a terminal, as long as it exists: what is shown replaces what was shown before. Where standard input is
/// a terminal, keys are read without their being shown.
class TopScreen {
 public:
  TopScreen() { enter(); }
  ~TopScreen() { leave(); }
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  void enter() {
    is_input_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (is_input_) {
      termios quiet = before_;
      quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      quiet.c_cc[VMIN] = 0;
      quiet.c_cc[VTIME] = 0;
      ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    // Another screen than that of the shell, without a cursor.
    (void)write("\x1b[?1049h\x1b[?25l");
  }
  void leave() const {
    (void)write("\x1b[?25h\x1b[?1049l");
    if (is_input_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  /// If Ctrl-Z was pressed, until the program is to go on.
  void pause_if_asked() {
    if (pause_was_asked_for == 0) return;
    pause_was_asked_for = 0;
    leave();
    ::raise(SIGSTOP);
    enter();
  }

  /// False: the terminal is gone.
  bool show(std::string_view text) const {
    winsize size{};
    const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    return write("\x1b[H" + clip(text, is_known ? size.ws_row : 24, is_known ? size.ws_col : 80) + "\x1b[J");
  }

  enum class Event : uint8_t { nothing, quit, gone };
  /// Waits for a key, or until the time is over, or something has changed.
  Event wait(double seconds) const {
    pollfd input{.fd = is_input_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    // A signal that comes before the wait does not get lost: it is let in by the wait alone.
    sigset_t held, before;
    sigemptyset(&held);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) sigaddset(&held, number);
    ::pthread_sigmask(SIG_BLOCK, &held, &before);
    const auto whole = static_cast<time_t>(seconds);
    const timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    const bool has_news = interrupted() || window_was_resized != 0 || pause_was_asked_for != 0;
    const int ready = has_news ? 0 : ::ppoll(&input, 1, &limit, &before);
    window_was_resized = 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (ready <= 0) return Event::nothing;
    char key = 0;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Event::nothing;
    if (got <= 0) return Event::gone;
    return key == 'q' || key == 'Q' || key == '\x04' ? Event::quit : Event::nothing;
  }

 private:
  static bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t now = ::write(STDOUT_FILENO, text.data(), text.size());
      if (now < 0 && errno == EAGAIN) {
        pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
        if (::poll(&output, 1, 1000) > 0) continue;
      }
      if (now < 0 && errno == EINTR && !interrupted()) continue;
      if (now <= 0) return false;
      text.remove_prefix(static_cast<size_t>(now));
    }
    return true;
  }

  /// So many lines of so many columns, each cleared behind its end; the last one does not scroll the screen.
  static std::string clip(std::string_view text, size_t rows, size_t columns) {
    std::string clipped;
    for (size_t row = 0; row < rows && !text.empty(); ++row) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      size_t bytes = 0, shown = 0;
      while (bytes < line.size() && shown < columns) {
        ++bytes;
        // What follows the first byte of a character belongs to it.
        while (bytes < line.size() && (static_cast<unsigned char>(line[bytes]) & 0xc0) == 0x80) ++bytes;
        ++shown;
      }
      clipped += fmt::format("{}{}\x1b[K", row > 0 ? "\r\n" : "", line.substr(0, bytes));
    }
    return clipped;
  }

  termios before_{};
  bool is_input_ = false;
};

class TopCommand final : public Command {
 public:
  std::string_view name() const override { return "top"; }
  std::string_view summary() const override {
    return "show the runs, watchers and servers that are at work, again and again";
  }
  bool works_on_store() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.list(
        "--from", "PLACE", places_,
        "what tells metrics, in place of the runs, watchers and servers of this node: a file, a folder of .prom "
        "files, a port of this machine, HOST:PORT, or a URL; several may be given");
    arguments.flag("--once", once_, "print one table, and end (as where standard output is no terminal)");
    arguments.seconds("--interval", interval_, "how often to look (default: 2s)");
    arguments.examples(
        "  varve top                                        what runs on this node; q ends it\n"
        "  varve top --once\n"
        "  varve top --from 9117 --from /var/lib/prometheus/node-exporter\n"
        "  varve top --from http://node17:9117/metrics --json\n");
  }

  Result<ExitCode> run(Session& session) override {
    TopView view = look();
    add_rates(view, nullptr);
    if (session.json()) {
      session.print_facts(to_json(view));
      return outcome_of(view);
    }
    if (once_ || ::isatty(STDOUT_FILENO) != 1) {
      session.print(top_text(view));
      return outcome_of(view);
    }
    note_interrupts();
    notice_terminal();
    return follow(std::move(view));
  }

 private:
  TopView look() const { return places_.empty() ? view_of_node(live_folder()) : view_of_places(places_); }

  /// Where nothing that was named could be read, that is a failure.
  ExitCode outcome_of(const TopView& view) const {
    const bool has_read_nothing = view.runs.empty() && view.watchers.empty() && view.servers.empty();
    return has_read_nothing && !view.unread.empty() ? exit_code_of(view.unread.front().second.code())
                                                    : ExitCode::success;
  }

  Result<ExitCode> follow(TopView view) const {
    const double pause = std::clamp(interval_, kShortestRefresh, kLongestRefresh);
    TopScreen screen;
    double looked = view.at;
    for (;;) {
      const std::string where = places_.empty() ? host_name() : "";
      const std::string head = fmt::format(
          "varve top  {}  {}  {}, {}, {}\n\n", where, format_time(static_cast<int64_t>(view.at)),
          format_count(view.runs.size(), "run", "runs"), format_count(view.watchers.size(), "watcher", "watchers"),
          format_count(view.servers.size(), "server", "servers"));
      // A terminal that was closed is no failure of ours.
      if (!screen.show(head + top_text(view))) return ExitCode::interrupted;
      const TopScreen::Event event = screen.wait(pause);
      if (event == TopScreen::Event::quit) return ExitCode::success;
      if (event == TopScreen::Event::gone || interrupted()) return ExitCode::interrupted;
      screen.pause_if_asked();
      if (calendar_time() - looked < pause / 2) continue;  // it was resized, or a key was pressed
      TopView next = look();
      add_rates(next, &view);
      view = std::move(next);
      looked = view.at;
    }
  }

  std::vector<std::string> places_;
  bool once_ = false;
  double interval_ = 2;
};
}  // namespace

std::unique_ptr<Command> make_top_command() { return std::make_unique<TopCommand>(); }

}  // namespace varve::cli
