// Any text is a box that lies in its array, or a Status: what `cat` and `export` take behind a variable's name. The
// array's dimensions are the first bytes.
#include "core/bytes.h"
#include "core/cell_box.h"
#include "fuzz_layout.h"
#include "reader/box_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kExtents[] = {0, 1, 5, 1000, UINT64_MAX};
  if (size == 0) return 0;
  const size_t dimensions = data[0] % 5;
  if (size < 1 + dimensions) return 0;
  std::vector<uint64_t> shape;
  for (size_t d = 0; d < dimensions; ++d) shape.push_back(kExtents[data[1 + d] % std::size(kExtents)]);
  const std::string_view text = varve::as_text(varve::fuzz_bytes(data, size)).substr(1 + dimensions);
  const varve::VariableText said = varve::split_box(text);
  if (said.name.size() + said.box.size() != text.size()) std::abort();
  for (const std::string_view box : {text, said.box}) {
    const auto written = varve::parse_box(box, shape);
    if (!written.ok()) continue;
    if (!lies_in(written->box, shape) || written->shape.size() != written->dimensions.size()) std::abort();
    for (size_t i = 0; i < written->dimensions.size(); ++i) {
      if (written->box.cells.at(written->dimensions[i]) != written->shape[i]) std::abort();
    }
  }
  return 0;
}
