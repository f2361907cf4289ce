#pragma once

#include "cli/json.h"
#include "cli/session.h"
#include "store/verify.h"

namespace varve::cli {

/// One damage, with whom it affects, for a person.
void print_damage(Session& session, const Damage& damage);
/// All of them, for a program.
Json damages_json(const VerifyReport& report);

}  // namespace varve::cli
