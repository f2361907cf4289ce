#include "report/page_files.h"

extern "C" {
extern const char varve_page_template[], varve_page_template_end[];
extern const char varve_page_style[], varve_page_style_end[];
extern const char varve_page_script[], varve_page_script_end[];
extern const char varve_page_charts[], varve_page_charts_end[];
}

namespace varve {

namespace {
std::string_view between(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }
}  // namespace

std::string_view page_template() { return between(varve_page_template, varve_page_template_end); }
std::string_view page_style() { return between(varve_page_style, varve_page_style_end); }
std::string_view page_script() { return between(varve_page_script, varve_page_script_end); }
std::string_view page_charts() { return between(varve_page_charts, varve_page_charts_end); }

}  // namespace varve
