#include "cli/damage_text.h"

#include <algorithm>

#include "cli/text.h"

namespace varve::cli {

namespace {
/// Files of one damage that are named to a person; --json has more.
constexpr size_t kFilesShownMax = 10;
}  // namespace

void print_damage(Session& session, const Damage& damage) {
  session.print(std::string(damage.disposable ? "disposable: " : "damage: ") + escape_text(damage.what.message()) +
                ": " + quote_name(damage.what.subject()) + "\n");
  if (!damage.what.hint().empty()) session.print("  hint: " + escape_text(damage.what.hint()) + "\n");
  if (damage.affected_sets.empty()) {
    session.print("  affects no set\n");
    return;
  }
  for (const std::string& set : damage.affected_sets) session.print("  affects " + quote_name(set) + "\n");
  const size_t shown = std::min(damage.affected_files.size(), kFilesShownMax);
  for (size_t i = 0; i < shown; ++i) session.print("    " + quote_name(damage.affected_files[i]) + "\n");
  if (damage.affected_files.size() > shown) session.print("    and more\n");
}

Json damages_json(const VerifyReport& report) {
  Json damages = Json::array();
  for (const Damage& damage : report.damages) {
    damages.push_back({{"what", to_json(damage.what)},
                       {"affected_sets", damage.affected_sets},
                       {"affected_files", damage.affected_files},
                       {"disposable", damage.disposable}});
  }
  return damages;
}

}  // namespace varve::cli
