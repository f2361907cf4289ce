#ifndef VARVE_BINDINGS_C_CHECK_H
#define VARVE_BINDINGS_C_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* The test ends where something is not as it should be. */
#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* A call gives this code; if not, the words of its error are shown. */
#define CHECK_CODE(session, call, expected)                                                              \
  do {                                                                                                   \
    const int check_code = (call);                                                                       \
    if (check_code != (expected)) {                                                                      \
      fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call, varve_code_name(check_code), \
              varve_error_message(session));                                                             \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)
#define CHECK_OK(session, call) CHECK_CODE(session, call, VARVE_OK)

#endif
