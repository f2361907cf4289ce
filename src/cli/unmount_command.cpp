#include "cli/command.h"
#include "cli/text.h"
#include "mount/mount_point.h"

namespace varve::cli {

namespace {
class UnmountCommand final : public Command {
 public:
  std::string_view name() const override { return "unmount"; }
  std::string_view summary() const override { return "end a mount; what is not sealed stays in its spool"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.positional("DIR", folder_, "where the store is mounted, also if the mount has died");
    arguments.examples("  varve unmount ckpt\n");
  }

  Result<ExitCode> run(Session& session) override {
    VARVE_TRY(unmount(folder_));
    session.print("unmounted " + quote_name(folder_) + "\n");
    return ExitCode::success;
  }

 private:
  std::string folder_;
};
}  // namespace

std::unique_ptr<Command> make_unmount_command() { return std::make_unique<UnmountCommand>(); }

}  // namespace varve::cli
