// Writes a series of synthetic checkpoint sets, the kind that a simulation on a grid leaves behind:
// FOLDER/step_0001/state.bin, FOLDER/step_0002/state.bin, ...
//
// A set is one flat file of `variables` arrays of edge^3 doubles, native byte order. A field is a sum of six separable
// waves, whose phases drift with the step, plus uniform noise. From one step to the next a share of the 8 KiB blocks is
// evaluated anew, and every other block keeps its bytes. Which blocks change is a two-state Markov chain over the
// blocks, whose runs of change have a given mean length: 1 for scattered change, more for clustered change.
//
// The value of a block depends only on the block and the step of its last change, so memory is one byte per block.
// The same arguments give the same bytes.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kBlockDoubles = 1024;  // 8 KiB
constexpr std::size_t kWaves = 6;

struct Options {
  std::string folder;
  std::size_t sets = 5;
  std::size_t variables = 8;
  std::size_t edge = 256;      ///< a power of two, 16 to 1024
  double changed_share = 0.3;  ///< share of the blocks that change from one set to the next
  double run_blocks = 1;       ///< mean length of a run of changed blocks
  double noise = 1e-6;         ///< amplitude, where that of the field is about 1
};

/// The SplitMix64 generator (Steele, Lea and Flood, 2014): a good hash of a counter.
std::uint64_t split_mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Uniform in [0, 1).
double unit(std::uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

/// The six waves of one variable at one step, tabulated along each axis.
class Field {
 public:
  Field(std::size_t variable, std::size_t step, std::size_t edge) : edge_(edge) {
    const double drift = 0.05 * static_cast<double>(step) + static_cast<double>(variable);
    for (std::size_t wave = 0; wave < kWaves; ++wave) {
      const std::uint64_t random = split_mix(variable * 1000 + wave);
      const double amplitude = wave == 0 ? 1.0 : 0.5 / static_cast<double>(wave);
      std::array<double, 3> periods{};
      for (std::size_t axis = 0; axis < 3; ++axis)
        periods[axis] = 1.0 + static_cast<double>((random >> (8 * axis)) % 4);
      for (auto& table : {&x_[wave], &y_[wave], &z_[wave]}) table->resize(edge);
      for (std::size_t i = 0; i < edge; ++i) {
        const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(edge);
        x_[wave][i] = amplitude * std::sin(periods[0] * angle + drift);
        y_[wave][i] = std::cos(periods[1] * angle + 0.3 * drift);
        z_[wave][i] = std::sin(periods[2] * angle + 0.1 * drift + 0.7);
      }
    }
  }

  /// Adds the field to `count` values along x, a part of one row.
  void add_row(double* values, std::size_t count, std::size_t x, std::size_t y, std::size_t z) const {
    for (std::size_t wave = 0; wave < kWaves; ++wave) {
      const double factor = y_[wave][y] * z_[wave][z];
      const double* along_x = x_[wave].data() + x;
      for (std::size_t i = 0; i < count; ++i) values[i] += factor * along_x[i];
    }
  }

  std::size_t edge() const { return edge_; }

 private:
  std::size_t edge_;
  std::array<std::vector<double>, kWaves> x_, y_, z_;
};

void fill_block(std::array<double, kBlockDoubles>& values, const Field& field, std::size_t block, std::uint64_t seed,
                double noise) {
  for (std::size_t i = 0; i < kBlockDoubles; ++i) values[i] = noise * (2 * unit(split_mix(seed + i)) - 1);
  const std::size_t edge = field.edge();
  for (std::size_t done = 0; done < kBlockDoubles;) {
    const std::size_t at = block * kBlockDoubles + done;
    const std::size_t count = std::min(kBlockDoubles - done, edge - at % edge);
    field.add_row(values.data() + done, count, at % edge, at / edge % edge, at / (edge * edge));
    done += count;
  }
}

/// Draws which blocks change at a step: `last_change[block]` becomes `step` for these.
void change_blocks(std::vector<std::uint8_t>& last_change, std::size_t step, const Options& options) {
  const double share = options.changed_share;
  // Scattered: each block for itself. Clustered: the chain's stationary share and its mean run are what was asked for.
  const bool scattered = options.run_blocks <= 1;
  const double begins = scattered ? share : share / (1 - share) / options.run_blocks;
  const double goes_on = scattered ? share : 1 - 1 / options.run_blocks;
  std::uint64_t state = split_mix(step);
  bool changing = unit(state) < share;
  for (std::uint8_t& last : last_change) {
    state = split_mix(state);
    changing = unit(state) < (changing ? goes_on : begins);
    if (changing) last = static_cast<std::uint8_t>(step);
  }
}

bool write_set(const Options& options, std::size_t step, const std::vector<std::uint8_t>& last_change) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%04zu", step + 1);
  const std::filesystem::path folder = std::filesystem::path(options.folder) / name;
  std::filesystem::create_directories(folder);
  std::FILE* file = std::fopen((folder / "state.bin").c_str(), "wb");
  if (file == nullptr) return false;

  const std::size_t blocks = last_change.size() / options.variables;
  std::array<double, kBlockDoubles> values;
  bool written = true;
  for (std::size_t variable = 0; variable < options.variables && written; ++variable) {
    std::vector<Field> fields;  // by the step of the last change
    for (std::size_t then = 0; then <= step; ++then) fields.emplace_back(variable, then, options.edge);
    for (std::size_t block = 0; block < blocks && written; ++block) {
      const std::size_t number = variable * blocks + block;
      const std::size_t then = last_change[number];
      const std::uint64_t seed = split_mix((std::uint64_t{then} << 48) ^ (std::uint64_t{number} * kBlockDoubles));
      fill_block(values, fields[then], block, seed, options.noise);
      written = std::fwrite(values.data(), sizeof(double), kBlockDoubles, file) == kBlockDoubles;
    }
  }
  return std::fclose(file) == 0 && written;
}

bool parse(std::string_view text, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_arguments(int count, char** arguments, Options& options) {
  if (count < 2) return false;
  options.folder = arguments[1];
  if (options.folder.starts_with("-")) return false;
  for (int i = 2; i < count; i += 2) {
    const std::string_view name = arguments[i];
    if (i + 1 == count) return false;
    const std::string_view value = arguments[i + 1];
    const bool known = (name == "--sets" && parse(value, options.sets)) ||
                       (name == "--variables" && parse(value, options.variables)) ||
                       (name == "--edge" && parse(value, options.edge)) ||
                       (name == "--changed-share" && parse(value, options.changed_share)) ||
                       (name == "--run-blocks" && parse(value, options.run_blocks)) ||
                       (name == "--noise" && parse(value, options.noise));
    if (!known) return false;
  }
  const bool power_of_two = (options.edge & (options.edge - 1)) == 0;
  return options.sets >= 1 && options.sets <= 255 && options.variables >= 1 && power_of_two && options.edge >= 16 &&
         options.edge <= 1024 && options.changed_share >= 0 && options.changed_share < 1;
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  if (!parse_arguments(count, arguments, options)) {
    std::fputs(
        "usage: make_series FOLDER [--sets 5] [--variables 8] [--edge 256] [--changed-share 0.3] "
        "[--run-blocks 1] [--noise 1e-6]\n",
        stderr);
    return 2;
  }
  const std::size_t values = options.variables * options.edge * options.edge * options.edge;
  std::vector<std::uint8_t> last_change(values / kBlockDoubles, 0);
  for (std::size_t step = 0; step < options.sets; ++step) {
    if (step > 0) change_blocks(last_change, step, options);
    if (!write_set(options, step, last_change)) {
      std::perror(options.folder.c_str());
      return 1;
    }
  }
  return 0;
}
