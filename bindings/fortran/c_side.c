/* What C saves for session_test.f90, and finds of it. */
#include "../c/check.h"
#include "varve/varve.h"

enum { kRows = 3, kColumns = 5 };

static varve_session* open_session(const char* store, const char* job, double* t) {
  static const uint64_t cells[] = {kRows, kColumns};
  struct varve_options options;
  struct varve_shape shape;
  varve_session* session = NULL;
  varve_options_init(&options);
  options.store = store;
  options.job = job;
  CHECK_OK(NULL, varve_open(&options, &session));
  varve_shape_init(&shape);
  shape.dimensions = 2;
  shape.cells = cells;
  CHECK_OK(session, varve_protect_array(session, "t", VARVE_DOUBLE, t, kRows * kColumns, &shape));
  return session;
}

void c_saves(const char* store);
void c_saves(const char* store) {
  double t[kRows * kColumns];
  varve_session* const session = open_session(store, "c", t);
  int i;
  for (i = 0; i < kRows * kColumns; ++i) t[i] = 10 * (i / kColumns) + i % kColumns;
  CHECK_OK(session, varve_checkpoint(session, 4, VARVE_NOW));
  CHECK_OK(NULL, varve_close(session));
}

int c_finds(const char* store);
int c_finds(const char* store) {
  double t[kRows * kColumns] = {0};
  varve_session* const session = open_session(store, "fortran", t);
  uint64_t step = 0;
  int right = 1, i;
  CHECK_OK(session, varve_restart(session, &step, NULL));
  for (i = 0; i < kRows * kColumns; ++i) right = right && t[i] == 10 * (i / kColumns) + i % kColumns;
  CHECK_OK(NULL, varve_close(session));
  return right && step == 5;
}
