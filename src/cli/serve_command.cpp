#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "service/server.h"

namespace varve::cli {

namespace {
class ServeCommand final : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "give other processes and machines a store"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.text("--listen", "ADDRESS", listen_, "where clients find it: unix:/path or tcp://host:port");
    arguments.text("--dir", "DIR", folder_, "the store's folder; made, if it is missing or empty");
    arguments.text("--key-file", "FILE", key_file_,
                   "the key that clients over TCP share (else\nVARVE_KEY_FILE of the environment)");
    arguments.text("--next", "STORE", next_, "the store that clients may have sets pushed to and\npulled from");
    arguments.count("--connections", "N", connections_, "connections at a time (256)");
    arguments.flag("--log", log_, "say on standard error what happens");
    arguments.examples(
        "  varve serve --listen unix:/run/varve/store.sock --dir /nvme/store\n"
        "  varve save --store unix:/run/varve/store.sock output\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (listen_.empty()) return Status::invalid_argument("listen where?", "", "give --listen unix:/path");
    if (folder_.empty()) return Status::invalid_argument("serve which folder?", "", "give --dir DIR");
    ServerOptions options;
    VARVE_ASSIGN(options.listen, ServerAddress::parse(listen_));
    options.folder = folder_;
    options.key_file = key_file_;
    options.next = next_;
    if (connections_ > 0) options.connections_max = connections_;
    if (log_) options.log = [](const std::string& line) { fmt::print(stderr, "varve serve: {}\n", line); };
    VARVE_TRY(make_store());
    note_interrupts();
    VARVE_ASSIGN(const std::unique_ptr<Server> server, Server::start(std::move(options)));
    session.print(fmt::format("serving {} at {}\n", quote_name(folder_), server->address().to_string()));
    VARVE_TRY(session.finish_printing());
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server->stop();
    return ExitCode::success;
  }

 private:
  Status make_store() const {
    FileSystem& fs = posix_file_system();
    const Result<std::vector<DirectoryEntry>> entries = fs.list(folder_);
    const bool missing = entries.status().code() == StatusCode::not_found;
    if (!missing) VARVE_TRY(entries.status());
    if (missing || entries->empty()) {
      const Status made = Store::create(fs, folder_);
      // Made by somebody else just now.
      if (!made.ok() && made.code() != StatusCode::already_exists) return made;
    }
    return Store::open(fs, folder_).status();
  }

  std::string listen_, folder_, key_file_, next_;
  uint32_t connections_ = 0;
  bool log_ = false;
};
}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace varve::cli
