#pragma once

#include <string_view>

namespace varve {

// The files of src/report/page and the charting library, as they were when the program was built (page_files.S.in).
std::string_view page_template();
std::string_view page_style();
std::string_view page_script();
std::string_view page_charts();  ///< empty: the program was built without it

}  // namespace varve
