/* The smallest C program with a session. The folder of its store is its argument. Its package says EXPECTED_VERSION. */
#include <stdio.h>
#include <string.h>
#include <varve/varve.h>

int main(int argument_count, char** arguments) {
  struct varve_options options;
  varve_session* session = NULL;
  double value = 1.5;
  int code;
  if (strcmp(EXPECTED_VERSION, varve_version_text()) != 0 || varve_version() != VARVE_VERSION) {
    fprintf(stderr, "the package is " EXPECTED_VERSION ", the library %s\n", varve_version_text());
    return 1;
  }
  varve_options_init(&options);
  options.store = argument_count > 1 ? arguments[1] : NULL;
  code = varve_open(&options, &session);
  if (code == VARVE_OK) code = varve_protect_scalar(session, "value", VARVE_DOUBLE, &value);
  if (code == VARVE_OK) code = varve_checkpoint(session, 1, VARVE_NOW);
  if (code != VARVE_OK) fprintf(stderr, "%s\n", varve_error_message(session));
  return varve_close(session) == VARVE_OK && code == VARVE_OK ? 0 : 1;
}
