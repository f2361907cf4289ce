#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

// What people and programs call a step. A step is a number of 64 bits, by which sets are told apart and put in order:
// either a count, as it is, or a time ("0.02", "1e-05", "-180"), as which the upper half of the numbers is read
// (FORMAT.md, "Steps that are times"). So every time comes after every count. The time 1 is written "1.0", so that each
// step has a text of its own; where "1" is asked for, it may be meant as well (Catalog::find()). Stateless, for any
// thread.

/// None: of a time that is no number, or neither 0 nor of a size from 2^-510 up to but not including 2^513.
std::optional<uint64_t> step_of_time(double time);
/// None: the step is a count.
std::optional<double> time_of_step(uint64_t step);

/// "7", "0.02", "1.0": a time in as few digits as tell it from its neighbours and from counts, with an exponent below
/// 0.0001 and from 1e15 on. parse_step() gives the step back.
std::string step_text(uint64_t step);
/// Of a count in digits alone, or a decimal number with a point, an exponent or a minus. None: it is neither.
std::optional<uint64_t> parse_step(std::string_view text);
/// The count for a time that is a whole number, the time for a count.
std::optional<uint64_t> namesake_of_step(uint64_t step);

/// What the name of a folder or file says: of "0.02" or "1e-05" the time; otherwise the last number in it, which of a
/// name of digits alone is a time `among_times`, if there is such a time. None: it has no number that fits.
std::optional<uint64_t> step_of_name(std::string_view name, bool among_times = false);
/// Whether a name is a decimal number that is no count.
bool is_name_of_time(std::string_view name);

}  // namespace varve
