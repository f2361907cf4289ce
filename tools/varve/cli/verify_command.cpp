#include "store/verify.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "comm/agreement.h"
#include "store/condemn.h"

namespace varve::cli {

namespace {
class VerifyCommand final : public Command {
 public:
  std::string_view name() const override { return "verify"; }
  std::string_view summary() const override { return "check the store for damage"; }

  bool works_together() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.flag("--deep", deep_, "read every byte and check it against its hash");
    arguments.value(
        "--sample", "SHARE",
        [this](const std::string& text) -> Status {
          VARVE_ASSIGN(sample_, parse_share(text));
          if (*sample_ > 0) return {};
          return Status::invalid_argument("a sample of nothing shows nothing", text, "leave --sample away");
        },
        "read every byte of this share of the packs, drawn anew each time; of one at least");
    arguments.examples(
        "  varve verify             records, trees and headers: quick\n"
        "  varve verify --deep      every byte\n"
        "  varve verify --sample 5% each night, so that most is read once a month\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (deep_ && sample_) return Status::invalid_argument("--deep reads all, and --sample a part");
    VARVE_ASSIGN(Communicator* const ranks, session.join());
    const Result<std::unique_ptr<Store>> store = session.open_store();
    VARVE_TRY(agree(*ranks, store.status()));
    VARVE_ASSIGN(VerifyReport report, verify_store_together(**store, sample_ ? VerifyDepth::sample(*sample_) : deep_,
                                                            *ranks, session.begin_progress()));
    session.end_progress();
    for (const Damage& damage : report.damages) {
      if (damage.arena && damage.what.code() == StatusCode::corrupt)
        (*store)->found_damage()->note_arena(*damage.arena);
    }
    if (session.json()) {
      print_json(session, report);
    } else {
      print_text(session, report);
    }
    return report.whole() ? ExitCode::success : ExitCode::damaged;
  }

 private:
  static void print_json(Session& session, const VerifyReport& report) {
    session.print_facts(Json{{"whole", report.whole()},
                             {"set_count", report.set_count},
                             {"arena_count", report.arena_count},
                             {"pack_count", report.pack_count},
                             {"checked_bytes", report.checked_bytes},
                             {"sampled_count", report.sampled_count},
                             {"damages", damages_json(report)}});
  }

  void print_text(Session& session, const VerifyReport& report) const {
    for (const Damage& damage : report.damages) print_damage(session, damage);
    if (!report.whole()) session.print("`varve repair --from STORE` mends what another store or level has whole\n");
    session.print(
        fmt::format("{}, {}, {}, {} checked{}: {}\n", format_count(report.set_count, "set", "sets"),
                    format_count(report.arena_count, "arena", "arenas"),
                    format_count(report.pack_count, "pack", "packs"), format_size(report.checked_bytes),
                    deep_     ? ", every byte"
                    : sample_ ? fmt::format(", every byte of {}", format_count(report.sampled_count, "pack", "packs"))
                              : "",
                    report.whole() ? "no damage" : format_count(report.damages.size(), "damage", "damages")));
  }

  bool deep_ = false;
  std::optional<double> sample_;
};
}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace varve::cli
