// `varve-mpi`: what `varve` becomes where a launcher has started several processes.

#include <string>
#include <vector>

#include "cli/launcher.h"
#include "cli/program.h"
#include "comm/mpi_program.h"

namespace varve::cli {

namespace {
class MpiRanks final : public ProgramRanks {
 public:
  Status prepare(const std::vector<std::string>&) override { return {}; }

  Result<Communicator*> join() override {
    if (mpi_) return &mpi_->ranks();
    VARVE_ASSIGN(mpi_, MpiProgram::start());
    const Launch launch = find_launch();
    if (launch.process_count > 1 && launch.process_count != mpi_->ranks().rank_count()) {
      return Status(StatusCode::unsupported, "the launcher and this program's MPI library do not know each other", "",
                    "start it with the launcher of the MPI that Varve was built with");
    }
    return &mpi_->ranks();
  }

  void give_up(ExitCode code) override {
    if (mpi_) mpi_->give_up(static_cast<int>(code));
  }

 private:
  std::unique_ptr<MpiProgram> mpi_;
};
}  // namespace

}  // namespace varve::cli

int main(int argc, char** argv) {
  varve::cli::MpiRanks ranks;
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return static_cast<int>(varve::cli::run_program(arguments, ranks));
}
