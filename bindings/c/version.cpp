#include "varve/version.h"

extern "C" {

int varve_version(void) { return VARVE_VERSION; }
const char* varve_version_text(void) { return VARVE_VERSION_TEXT; }

}  // extern "C"
