#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

// How numbers, sizes, times and rates are read from people, and written for them. What cannot be read is
// invalid_argument, with a hint at what is wanted.

/// Without blanks, tabs and line ends around it.
std::string_view trimmed(std::string_view text);
/// A decimal number without sign, `max` at most.
Result<uint64_t> parse_number(std::string_view text, uint64_t max = UINT64_MAX);
/// A count of bytes with an optional unit: "4096", "64K", "64KiB", "1.5GiB". K, M, G, T count in 1024s, with or without
/// "iB".
Result<uint64_t> parse_size(std::string_view text);
/// Bytes of a calculation: the same, and "6.25GB", where kB (or KB), MB, GB, TB count in 1000s.
Result<double> parse_amount(std::string_view text);
/// Bytes per second above 0: an amount, with or without "/s": "100MB/s", "3G".
Result<double> parse_rate(std::string_view text);
/// Seconds: "90", "1.5h", "30min", "1h30min"; of ms, s, min, h and d.
Result<double> parse_duration(std::string_view text);

/// "512 B", "4.83 MiB": three significant digits, binary units.
std::string format_size(uint64_t bytes);
/// "3.20x"; "-" if nothing was stored.
std::string format_ratio(uint64_t raw_bytes, uint64_t stored_bytes);
/// "0.032 s", "1.25 s", "12.3 s".
std::string format_seconds(double seconds);
/// The same up to two minutes, then "12.5 min", "3.10 h", "2.50 d".
std::string format_duration(double seconds);
/// "100 MB/s", "3.00 GB/s": three significant digits, decimal units.
std::string format_rate(double bytes_per_second);
/// "0.35 %", "12.0 %".
std::string format_percent(double fraction);

}  // namespace varve
