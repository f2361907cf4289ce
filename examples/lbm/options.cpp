#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

namespace lbm {

namespace {
constexpr const char* kHelp = R"(lbm: lattice-Boltzmann flow (D3Q19) with checkpoints

  mpirun -n 4 lbm --cells 96 --steps 400 --every 100 --picture flow.png

  --cells N | X,Y,Z   size of the domain                        (64)
  --steps N           time steps                                (200)
  --every N           steps from one checkpoint to the next     (50)
  --mode MODE         none | sync | async | lent | files        (async)
  --flow FLOW         cavity | channel                          (cavity)
  --reynolds R        Reynolds number                           (100)
  --picture FILE      a picture of the flow at the end, .png or .ppm
  --json FILE         figures of the run, written by rank 0
  --files DIR         where mode `files` writes                 (lbm-files)
  --files-rate BYTES  bytes per second that each rank writes there at most

Varve is told by VARVE_STORE (a folder, a server, or s3://bucket/prefix), VARVE_JOB, varve.toml, ...
Run it again after it was killed: it goes on from its newest checkpoint.
)";

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "lbm: %s (lbm --help)\n", what.c_str());
  std::exit(2);
}

double number(const std::string& name, const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0)) refuse(name + " is no number: " + text);
  return value;
}

template <class T>
T choice(const std::string& name, const std::map<std::string_view, T>& choices, const char* text) {
  const auto found = choices.find(text);
  if (found == choices.end()) refuse(name + " does not know " + text);
  return found->second;
}

std::array<int64_t, 3> sizes(const char* text) {
  long long x = 0, y = 0, z = 0;
  const int found = std::sscanf(text, "%lld,%lld,%lld", &x, &y, &z);
  if (found == 1) y = z = x;
  if ((found != 1 && found != 3) || x < 4 || y < 4 || z < 4) refuse(std::string("--cells is no size: ") + text);
  return {x, y, z};
}
}  // namespace

Options parse_options(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    if (i + 1 >= count) refuse(name + " needs a value, or is unknown");
    const char* const value = arguments[++i];
    if (name == "--cells")
      options.cells = sizes(value);
    else if (name == "--steps")
      options.steps = static_cast<uint64_t>(number(name, value));
    else if (name == "--every")
      options.every = static_cast<uint64_t>(number(name, value));
    else if (name == "--mode")
      options.mode = choice<Mode>(name,
                                  {{"none", Mode::none},
                                   {"sync", Mode::sync},
                                   {"async", Mode::async},
                                   {"lent", Mode::lent},
                                   {"files", Mode::files}},
                                  value);
    else if (name == "--flow")
      options.flow.flow = choice<Flow>(name, {{"cavity", Flow::cavity}, {"channel", Flow::channel}}, value);
    else if (name == "--reynolds")
      options.flow.reynolds = number(name, value);
    else if (name == "--picture")
      options.picture = value;
    else if (name == "--json")
      options.json = value;
    else if (name == "--files")
      options.files_folder = value;
    else if (name == "--files-rate")
      options.files_bytes_per_second = number(name, value);
    else
      refuse("unknown option " + name);
  }
  return options;
}

}  // namespace lbm
