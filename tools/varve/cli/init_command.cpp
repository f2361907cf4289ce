#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"

namespace varve::cli {

namespace {
std::string_view algorithm_name(ScoreAlgorithm algorithm) {
  switch (algorithm) {
    case ScoreAlgorithm::blake3: return "blake3";
    case ScoreAlgorithm::sha256: return "sha256";
  }
  return "unknown";
}

class InitCommand final : public Command {
 public:
  std::string_view name() const override { return "init"; }
  std::string_view summary() const override { return "make a new store"; }

  void declare(Arguments& arguments) override {
    arguments.optional_positional("STORE", path_,
                                  "a new or empty folder, new servers, or s3://BUCKET/PREFIX (default: --store)");
    auto take_bits = [this](const std::string& bits) {
      if (bits != "160" && bits != "256") return Status::invalid_argument("scores have 160 or 256 bits", bits);
      options_.score_bytes = bits == "160" ? 20 : 32;
      return Status();
    };
    arguments.value("--score-bits", "160|256", take_bits, "length of the hashes that name chunks (default: 256)");
    arguments.examples(
        "  varve init /scratch/store\n"
        "  export VARVE_STORE=/scratch/store\n"
        "  varve init s3://checkpoints/me\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (path_.empty()) {
      VARVE_ASSIGN(path_, session.store_path());
    }
    VARVE_ASSIGN(StorePlace* const place, session.open_place(path_));
    VARVE_TRY(create_store(*place, options_));
    VARVE_ASSIGN(std::unique_ptr<Store> store, open_store(*place));
    const std::string_view algorithm = algorithm_name(store->score().algorithm());
    const size_t score_bits = store->score().score_bytes() * 8;
    if (session.json()) {
      session.print_facts(
          Json{{"path", path_}, {"id", store->id().hex()}, {"algorithm", algorithm}, {"score_bits", score_bits}});
    } else {
      session.print(
          fmt::format("made a store in {} (scores: {}, {} bits)\n", quote_name(path_), algorithm, score_bits));
    }
    return ExitCode::success;
  }

 private:
  std::string path_;
  CreateStoreOptions options_;
};
}  // namespace

std::unique_ptr<Command> make_init_command() { return std::make_unique<InitCommand>(); }

}  // namespace varve::cli
