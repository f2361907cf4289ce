#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "mount/seal_request.h"

namespace varve::cli {

namespace {
class SealCommand final : public Command {
 public:
  std::string_view name() const override { return "seal"; }
  std::string_view summary() const override { return "commit sets that were written into a mounted store"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional_list("DIR/JOB/STEP", folders_, "folders of open sets in a mount");
    arguments.flag("--status", only_ask_, "only say what is known of them");
    arguments.examples(
        "  varve seal ckpt/run/7\n"
        "  varve seal --status ckpt/run/8.tmp\n");
  }

  Result<ExitCode> run(Session& session) override {
    for (const std::string& folder : folders_) {
      if (only_ask_) {
        VARVE_ASSIGN(const std::string state, request_set_state(folder));
        session.print(fmt::format("{}: {}", quote_name(folder), state));
        continue;
      }
      VARVE_TRY(request_seal(folder));
      session.print(fmt::format("sealed {}\n", quote_name(folder)));
    }
    return ExitCode::success;
  }

 private:
  std::vector<std::string> folders_;
  bool only_ask_ = false;
};
}  // namespace

std::unique_ptr<Command> make_seal_command() { return std::make_unique<SealCommand>(); }

}  // namespace varve::cli
