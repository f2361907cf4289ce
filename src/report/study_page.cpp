#include "report/study_page.h"

#include "report/page_files.h"

namespace varve {

namespace {
/// JSON that may stand in a script element: no "</script>" or "<!--" can be in it.
std::string without_tags(std::string json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char byte : json) {
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
}  // namespace

bool has_charts() { return !page_charts().empty(); }

Result<std::string> study_page(const nlohmann::ordered_json& study, const std::string& text) {
  if (!has_charts()) {
    return Status::unsupported("this program was built without the charting library, so it cannot make the page", "",
                               "write --json or --csv instead, or build it with ./run build where npm works");
  }
  std::string page;
  std::string_view rest = page_template();
  while (true) {
    const size_t begin = rest.find("{{"), end = rest.find("}}");
    page += rest.substr(0, begin);
    if (begin == std::string_view::npos) return page;
    const std::string_view name = rest.substr(begin + 2, end - begin - 2);
    if (name == "style") page += page_style();
    if (name == "charts") page += page_charts();
    if (name == "script") page += page_script();
    if (name == "data") page += without_tags(json_text(study));
    if (name == "text") page += escape_html(text);
    rest.remove_prefix(end + 2);
  }
}

}  // namespace varve
