#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace varve {

// The files of tools/varve/report/page and the charting library, as they were when the program was built
// (page_files.S.in).
std::string_view page_template();
std::string_view page_style();
std::string_view page_script();
std::string_view page_charts();  ///< empty: the program was built without it
std::string_view timeline_template();
std::string_view timeline_script();

/// Text of it that is safe wherever it is put: bytes that are not UTF-8 become U+FFFD, numbers that are not finite
/// null.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
/// JSON that may stand in a script element: no "</script>" or "<!--" can be in it.
std::string json_in_script(const nlohmann::ordered_json& json);
std::string escape_html(std::string_view text);

/// A page with each "{{name}}" replaced by what `part` gives for the name.
std::string fill_page(std::string_view page, const std::function<std::string(std::string_view name)>& part);

}  // namespace varve
