#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/launcher.h"
#include "cli/program.h"

namespace varve::cli {

namespace {
constexpr const char* kProgramOfSeveral = "varve-mpi";

/// This process alone. Where a launcher has started several, `varve-mpi` takes its place: it has MPI, which would cost
/// every start of this program more than most commands take.
class AloneRanks final : public ProgramRanks {
 public:
  Status prepare(const std::vector<std::string>& arguments) override {
    if (find_launch().process_count == 1) return {};
    std::error_code error;
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return Status::from_errno(error.value(), "find this program", "/proc/self/exe");
    const std::string program = own.parent_path() / kProgramOfSeveral;
    std::vector<char*> words = {const_cast<char*>(kProgramOfSeveral)};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    ::execv(program.c_str(), words.data());
    return Status(StatusCode::unsupported,
                  "a launcher has started several processes, but the program for that is missing", program,
                  "build Varve with MPI, or set VARVE_ALONE=1 to have each process work for itself");
  }
  Result<Communicator*> join() override { return alone_.get(); }
  void give_up(ExitCode) override {}

 private:
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
};
}  // namespace

}  // namespace varve::cli

int main(int argc, char** argv) {
  varve::cli::AloneRanks ranks;
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return static_cast<int>(varve::cli::run_program(arguments, ranks));
}
