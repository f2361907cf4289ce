#include "report/page.h"

extern "C" {
extern const char varve_page_template[], varve_page_template_end[];
extern const char varve_page_style[], varve_page_style_end[];
extern const char varve_page_script[], varve_page_script_end[];
extern const char varve_page_charts[], varve_page_charts_end[];
extern const char varve_timeline_template[], varve_timeline_template_end[];
extern const char varve_timeline_script[], varve_timeline_script_end[];
}

namespace varve {

namespace {
std::string_view between(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }
}  // namespace

std::string_view page_template() { return between(varve_page_template, varve_page_template_end); }
std::string_view page_style() { return between(varve_page_style, varve_page_style_end); }
std::string_view page_script() { return between(varve_page_script, varve_page_script_end); }
std::string_view page_charts() { return between(varve_page_charts, varve_page_charts_end); }
std::string_view timeline_template() { return between(varve_timeline_template, varve_timeline_template_end); }
std::string_view timeline_script() { return between(varve_timeline_script, varve_timeline_script_end); }

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string json_in_script(const nlohmann::ordered_json& json) {
  const std::string text = json_text(json);
  std::string safe;
  safe.reserve(text.size());
  for (const char byte : text) {
    if (byte == '<') {
      safe += "\\u003c";
    } else {
      safe += byte;
    }
  }
  return safe;
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char byte : text) {
    switch (byte) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      default: escaped += byte;
    }
  }
  return escaped;
}

std::string fill_page(std::string_view page, const std::function<std::string(std::string_view name)>& part) {
  std::string filled;
  while (true) {
    const size_t begin = page.find("{{"), end = page.find("}}");
    filled += page.substr(0, begin);
    if (begin == std::string_view::npos) return filled;
    filled += part(page.substr(begin + 2, end - begin - 2));
    page.remove_prefix(end + 2);
  }
}

}  // namespace varve
