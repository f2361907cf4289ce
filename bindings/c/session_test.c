/* The C interface, as a C99 program sees it. The folder to work in is its argument. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "varve/varve.h"

enum { kRows = 6, kColumns = 8 };

struct particles {
  int count;
  double masses[16];
};

/* All that a run has. */
struct program {
  double field[kRows][kColumns]; /* with one ghost cell around */
  int32_t step;
  struct particles particles;
  void* grid; /* of 1000 floats, lent at each checkpoint */
};

static int save_particles(void* context, varve_bytes* to) {
  const struct particles* particles = context;
  const int code = varve_append(to, &particles->count, sizeof particles->count);
  return code != VARVE_OK ? code : varve_append(to, particles->masses, sizeof(double) * (size_t)particles->count);
}

static int load_particles(void* context, const void* data, size_t bytes) {
  struct particles* particles = context;
  if (bytes < sizeof particles->count) return VARVE_CORRUPT;
  memcpy(&particles->count, data, sizeof particles->count);
  if (bytes != sizeof particles->count + sizeof(double) * (size_t)particles->count) return VARVE_CORRUPT;
  memcpy(particles->masses, (const char*)data + sizeof particles->count, bytes - sizeof particles->count);
  return VARVE_OK;
}

static int refuse_to_save(void* context, varve_bytes* to) {
  (void)context;
  (void)to;
  return 4711;
}

static varve_session* open_in(const char* store) {
  struct varve_options options;
  varve_session* session = NULL;
  varve_options_init(&options);
  options.store = store;
  options.job = "c";
  options.every_steps = 2;
  options.stop_on_signals = VARVE_NO;
  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK(session != NULL);
  return session;
}

static void protect_all(varve_session* session, struct program* program) {
  const uint64_t cells[2] = {kRows, kColumns}, ghosts[2] = {1, 1};
  struct varve_shape shape;
  varve_shape_init(&shape);
  shape.dimensions = 2;
  shape.cells = cells;
  shape.ghosts_low = ghosts;
  shape.ghosts_high = ghosts;
  CHECK_OK(session, varve_protect_array(session, "field", VARVE_DOUBLE, program->field, kRows * kColumns, &shape));
  CHECK_OK(session, varve_protect_scalar(session, "step", VARVE_INT32, &program->step));
  CHECK_OK(session, varve_protect_callbacks(session, "particles", save_particles, load_particles, &program->particles));
  CHECK_OK(session, varve_make_grid(session, "grid", 1000 * sizeof(float), &program->grid));
  CHECK_OK(session, varve_protect_array(session, "grid", VARVE_FLOAT, program->grid, 1000, NULL));
}

static void compute(struct program* program, int step) {
  float* grid = program->grid;
  int row, column, i;
  for (row = 0; row < kRows; ++row) {
    for (column = 0; column < kColumns; ++column) program->field[row][column] = step * 100.0 + row * 10.0 + column;
  }
  program->step = step;
  program->particles.count = step % 16;
  for (i = 0; i < program->particles.count; ++i) program->particles.masses[i] = step + i;
  for (i = 0; i < 1000; ++i) grid[i] = (float)(step * i);
}

static void run_some_steps(const char* store) {
  struct program program;
  struct varve_state state;
  struct varve_level_state level;
  varve_session* session = open_in(store);
  uint64_t step = 7;
  int restarted = 1, i;
  memset(&program, 0, sizeof program);
  varve_state_init(&state);
  varve_level_state_init(&level);
  protect_all(session, &program);
  CHECK_OK(session, varve_restart(session, &step, &restarted));
  CHECK(restarted == 0 && step == 7);
  CHECK(strstr(varve_effective_options(session), "every_steps") != NULL);
  for (i = 1; i <= 5; ++i) {
    compute(&program, i);
    CHECK(varve_due(session, (uint64_t)i) == (i % 2 == 0));
    if (i % 2 != 0) continue;
    CHECK_OK(session, varve_lend(session, "grid", &program.grid));
    CHECK_OK(session, varve_checkpoint(session, (uint64_t)i, i == 4 ? VARVE_NOW : VARVE_LATER));
    CHECK(varve_should_stop(session) == 0);
  }
  CHECK_OK(session, varve_wait(session));
  CHECK_OK(session, varve_progress(session, &state));
  CHECK(state.has_persistent == 1 && state.newest_persistent == 4);
  CHECK(state.last_error == VARVE_OK && strcmp(varve_last_error(session), "") == 0);
  CHECK(varve_level_count(session) == 2);
  CHECK(strcmp(varve_level_name(session, 0), "memory") == 0);
  CHECK(strncmp(varve_level_name(session, 1), "dir:", 4) == 0 && strcmp(varve_level_name(session, 2), "") == 0);
  CHECK_OK(session, varve_level_progress(session, 1, &level));
  CHECK(level.has_newest == 1 && level.newest == 4 && level.waiting == 0 && level.last_error == VARVE_OK);
  CHECK(strcmp(varve_level_error(session, 1), "") == 0);
  CHECK(varve_level_progress(session, 2, &level) == VARVE_NOT_FOUND);
  CHECK(varve_level_count(NULL) == 0);
  CHECK(varve_next_warning(session) == NULL);
  CHECK_OK(session, varve_finish(session, 60.0));
  CHECK(strlen(varve_report(session)) > 0);
  CHECK(varve_report_json(session)[0] == '{');
  CHECK_OK(NULL, varve_close(session));
}

static void go_on(const char* store) {
  struct program program, expected;
  varve_session* session = open_in(store);
  float expected_grid[1000];
  uint64_t step = 0;
  int restarted = 0, row, column;
  memset(&program, 0, sizeof program);
  memset(&expected, 0, sizeof expected);
  expected.grid = expected_grid;
  compute(&expected, 4);
  program.field[0][0] = 42; /* a ghost cell: not in the checkpoint */
  protect_all(session, &program);
  CHECK_OK(session, varve_restart(session, &step, &restarted));
  CHECK(restarted == 1 && step == 4 && program.step == 4);
  for (row = 1; row + 1 < kRows; ++row) {
    for (column = 1; column + 1 < kColumns; ++column) CHECK(program.field[row][column] == expected.field[row][column]);
  }
  CHECK(program.field[0][0] == 42);
  CHECK(program.particles.count == 4);
  CHECK(memcmp(program.particles.masses, expected.particles.masses, sizeof expected.particles.masses) == 0);
  CHECK(memcmp(program.grid, expected_grid, sizeof expected_grid) == 0);
  CHECK_OK(NULL, varve_close(session));
}

static void name_levels(const char* store) {
  struct varve_options options;
  varve_session* session = NULL;
  char levels[1000];
  snprintf(levels, sizeof levels, "memory; local:%s-near keep=1; dir:%s-far every=2", store, store);
  varve_options_init(&options);
  options.levels = levels;
  options.job = "c";
  options.stop_on_signals = VARVE_NO;
  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK(varve_level_count(session) == 3 && strncmp(varve_level_name(session, 2), "dir:", 4) == 0);
  CHECK_OK(NULL, varve_close(session));
  options.store = store;
  CHECK(varve_open(&options, &session) == VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(NULL), "levels") != NULL);
}

static void refuse_what_does_not_fit(const char* store) {
  double numbers[3] = {1, 2, 3};
  uint64_t step = 99;
  int restarted = 7;
  varve_session* session = open_in(store);
  CHECK_OK(session, varve_protect_array(session, "field", VARVE_DOUBLE, numbers, 3, NULL));
  CHECK_CODE(session, varve_restart(session, &step, &restarted), VARVE_INVALID_ARGUMENT);
  CHECK(numbers[0] == 1 && numbers[1] == 2 && numbers[2] == 3 && step == 99);
  CHECK(strstr(varve_error_message(session), "field") != NULL);
  CHECK(strcmp(varve_error_remedy(session), "none") == 0);
  CHECK_CODE(session, varve_protect_array(session, "field", VARVE_INT64, numbers, 3, NULL), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_protect_array(session, "other", 99, numbers, 3, NULL), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_protect_array(session, "other", VARVE_DOUBLE, NULL, 3, NULL), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_protect_array(session, NULL, VARVE_DOUBLE, numbers, 3, NULL), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_protect_array(session, "other", VARVE_DOUBLE, numbers, UINT64_MAX, NULL),
             VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_unprotect(session, "nothing"), VARVE_NOT_FOUND);
  CHECK_OK(session, varve_unprotect(session, "field"));
  CHECK_CODE(session, varve_checkpoint(session, 5, 3), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_finish(session, -1.0), VARVE_INVALID_ARGUMENT);
  CHECK_OK(NULL, varve_close(session));
}

/* Ends a session as after the death of another rank, and opens the next one beside it. */
static void abandon_and_go_on(const char* store) {
  double value = 7;
  uint64_t step = 0;
  int restarted = 0;
  varve_session *abandoned = open_in(store), *next;
  CHECK_OK(abandoned, varve_protect_scalar(abandoned, "value", VARVE_DOUBLE, &value));
  CHECK_OK(abandoned, varve_checkpoint(abandoned, 200, VARVE_NOW));
  CHECK_OK(abandoned, varve_abandon(abandoned));
  CHECK_CODE(abandoned, varve_checkpoint(abandoned, 201, VARVE_NOW), VARVE_INVALID_ARGUMENT);
  value = 0;
  next = open_in(store);
  CHECK_OK(next, varve_protect_scalar(next, "value", VARVE_DOUBLE, &value));
  CHECK_OK(next, varve_restart(next, &step, &restarted));
  CHECK(restarted == 1 && step == 200 && value == 7);
  CHECK_OK(NULL, varve_close(next));
  CHECK_OK(NULL, varve_close(abandoned));
}

static void tell_of_callbacks_that_fail(const char* store) {
  int nothing = 0;
  varve_session* session = open_in(store);
  CHECK_OK(session, varve_protect_callbacks(session, "odd", refuse_to_save, load_particles, &nothing));
  CHECK_CODE(session, varve_checkpoint(session, 100, VARVE_NOW), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), "4711") != NULL);
  CHECK_CODE(session, varve_protect_callbacks(session, "odder", NULL, load_particles, &nothing),
             VARVE_INVALID_ARGUMENT);
  CHECK_OK(NULL, varve_close(session));
}

static void take_null_for_what_it_is(const char* store) {
  struct varve_options options;
  varve_session* session = (varve_session*)&options;
  struct varve_state state;
  varve_state_init(&state);
  varve_options_init(&options);
  options.store = store;
  options.when_busy = 17;
  CHECK_CODE(NULL, varve_open(&options, &session), VARVE_INVALID_ARGUMENT);
  CHECK(session == NULL);
  CHECK(strstr(varve_error_message(NULL), "when_busy") != NULL);
  CHECK_CODE(NULL, varve_open(&options, NULL), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(NULL, varve_checkpoint(NULL, 1, VARVE_LATER), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(NULL, varve_progress(NULL, &state), VARVE_INVALID_ARGUMENT);
  CHECK(varve_due(NULL, 1) == 0 && varve_should_stop(NULL) == 0);
  CHECK(strcmp(varve_report(NULL), "") == 0 && varve_next_warning(NULL) == NULL);
  CHECK_OK(NULL, varve_close(NULL));
}

/* The program was compiled for another version of the library than it is linked with. */
static void serve_other_versions(const char* store) {
  struct {
    struct varve_options known;
    uint64_t added[2];
  } newer;
  struct {
    struct varve_state known;
    uint64_t added[2];
  } newer_state;
  struct varve_options older;
  struct varve_state state;
  struct varve_level_state level;
  struct varve_shape shape;
  double number = 1;
  varve_session* session = NULL;

  /* An older program's options end before the last member: what lies there is no option. */
  varve_options_init(&older);
  older.size = offsetof(struct varve_options, key_file);
  older.key_file = "no such file";
  older.store = store;
  older.job = "older";
  older.when_busy = VARVE_BUSY_SKIP;
  older.stop_on_signals = VARVE_NO;
  CHECK_OK(NULL, varve_open(&older, &session));
  CHECK(strstr(varve_effective_options(session), "no such file") == NULL);
  CHECK(strstr(varve_effective_options(session), "\"older\"") != NULL);
  CHECK(strstr(varve_effective_options(session), "\"skip\"") != NULL);

  /* Its state does, too. */
  memset(&state, 0x5a, sizeof state);
  state.size = offsetof(struct varve_state, skipped);
  CHECK_OK(session, varve_progress(session, &state));
  CHECK(state.size == offsetof(struct varve_state, skipped));
  CHECK(state.has_persistent == 0 && state.bytes_written == 0 && state.skipped == 0x5a5a5a5a5a5a5a5aULL);
  /* What a newer program would like to know besides is zero. */
  memset(&newer_state, 0x5a, sizeof newer_state);
  newer_state.known.size = sizeof newer_state;
  CHECK_OK(session, varve_progress(session, &newer_state.known));
  CHECK(newer_state.known.size == sizeof newer_state && newer_state.known.last_error == VARVE_OK);
  CHECK(newer_state.added[0] == 0 && newer_state.added[1] == 0);

  /* No size at all. */
  memset(&state, 0, sizeof state);
  memset(&level, 0, sizeof level);
  memset(&shape, 0, sizeof shape);
  CHECK_CODE(session, varve_progress(session, &state), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), "varve_state_init()") != NULL);
  CHECK_CODE(session, varve_level_progress(session, 0, &level), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), "varve_level_state_init()") != NULL);
  CHECK_CODE(session, varve_protect_array(session, "number", VARVE_DOUBLE, &number, 1, &shape), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), "varve_shape_init()") != NULL);
  CHECK_OK(NULL, varve_close(session));
  memset(&older, 0, sizeof older);
  CHECK_CODE(NULL, varve_open(&older, &session), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(NULL), "varve_options_init()") != NULL);
  memset(&older, 0x5a, sizeof older);
  CHECK_CODE(NULL, varve_open(&older, &session), VARVE_INVALID_ARGUMENT);

  /* A newer program that says nothing new is served; one that does is told that the library is too old. */
  memset(&newer, 0, sizeof newer);
  newer.known.size = sizeof newer;
  newer.known.store = store;
  newer.known.job = "newer";
  newer.known.stop_on_signals = VARVE_NO;
  CHECK_OK(NULL, varve_open(&newer.known, &session));
  CHECK_OK(NULL, varve_close(session));
  newer.added[1] = 1;
  CHECK_CODE(NULL, varve_open(&newer.known, &session), VARVE_UNSUPPORTED);
  CHECK(strstr(varve_error_message(NULL), "older than the program") != NULL);
  CHECK(strstr(varve_error_message(NULL), varve_version_text()) != NULL);
}

static const void* ids_now(void* context, uint64_t* count) {
  struct particles* particles = context;
  *count = (uint64_t)particles->count;
  return particles->masses;
}

/* There should be some, but they are not to be had. */
static const void* ids_nowhere(void* context, uint64_t* count) {
  (void)context;
  *count = 5;
  return NULL;
}

/* More than memory can hold: their bytes, counted round, would be none. */
static const void* ids_beyond_memory(void* context, uint64_t* count) {
  struct particles* particles = context;
  *count = UINT64_C(1) << 61;
  return particles->masses;
}

static void* room_for_ids(void* context, uint64_t count) {
  struct particles* particles = context;
  if (count > sizeof particles->masses / sizeof particles->masses[0]) return NULL;
  particles->count = (int)count;
  return particles->masses;
}

static uint32_t own_all(void* context, const void* element) {
  (void)context;
  (void)element;
  return 0;
}

static void find_cell(void* context, const void* element, uint64_t* cell) {
  (void)context;
  (void)element;
  cell[0] = cell[1] = 0;
}

/* A mesh in two patches, in Fortran's order, and particles; then choosing, rejecting, going back. */
static void choose_and_go_back(const char* store) {
  struct particles particles = {3, {1, 2, 3}};
  double left[4] = {1, 2, 3, 4}, right[2] = {5, 6};
  const uint64_t whole[2] = {2, 3}, left_cells[2] = {2, 2}, right_cells[2] = {2, 1}, right_offset[2] = {0, 2};
  struct varve_shape left_shape, right_shape;
  struct varve_box left_box, right_box;
  const struct varve_box* const boxes[2] = {&left_box, &right_box};
  const char* const together[1] = {"ids"};
  struct varve_restart_choice choice;
  struct varve_restart_point point;
  struct varve_saved_variable variable;
  struct varve_saved_part part;
  struct varve_options options;
  varve_session* session = NULL;
  uint64_t step, count;
  int restarted = 0;
  varve_options_init(&options);
  options.store = store;
  options.job = "chosen";
  options.stop_on_signals = VARVE_NO;
  options.variables_may_change = VARVE_YES;
  CHECK_OK(NULL, varve_open(&options, &session));
  varve_shape_init(&left_shape);
  left_shape.dimensions = 2;
  left_shape.cells = left_cells;
  left_shape.order = VARVE_FASTEST_FIRST;
  right_shape = left_shape;
  right_shape.cells = right_cells;
  right_shape.global_offset = right_offset;
  varve_box_init(&left_box);
  left_box.data = left;
  left_box.count = 4;
  left_box.shape = &left_shape;
  varve_box_init(&right_box);
  right_box.data = right;
  right_box.count = 2;
  right_box.shape = &right_shape;
  CHECK_CODE(session, varve_protect_boxes(session, "mesh", VARVE_DOUBLE, 2, whole, boxes, 2, 7),
             VARVE_INVALID_ARGUMENT);
  CHECK_OK(session, varve_protect_boxes(session, "mesh", VARVE_DOUBLE, 2, whole, boxes, 2, VARVE_FASTEST_FIRST));
  CHECK_OK(session, varve_protect_vector(session, "ids", VARVE_DOUBLE, 0, ids_now, room_for_ids, &particles));
  CHECK_OK(session, varve_redistribute_by_owner(session, "ids", own_all, NULL, NULL, 0));
  CHECK_OK(session, varve_redistribute_by_cell(session, "ids", "mesh", find_cell, NULL, together, 1));
  CHECK_CODE(session, varve_redistribute_by_owner(session, "none", own_all, NULL, NULL, 0), VARVE_NOT_FOUND);
  CHECK_OK(session, varve_redistribute(session, "ids", VARVE_REDISTRIBUTE_EVENLY));
  CHECK_CODE(session, varve_redistribute(session, "mesh", VARVE_REDISTRIBUTE_EVENLY), VARVE_INVALID_ARGUMENT);
  CHECK_CODE(session, varve_reject(session, &step, NULL), VARVE_INVALID_ARGUMENT);
  for (step = 1; step <= 3; ++step) {
    left[0] = (double)step;
    right[1] = 10.0 * (double)step;
    particles.count = (int)step;
    CHECK_OK(session, varve_checkpoint(session, step, VARVE_LATER));
  }
  CHECK_OK(session, varve_wait(session));
  CHECK_OK(session, varve_protect_vector(session, "lost", VARVE_DOUBLE, 0, ids_nowhere, room_for_ids, &particles));
  CHECK_CODE(session, varve_checkpoint(session, 4, VARVE_NOW), VARVE_INVALID_ARGUMENT);
  CHECK_OK(session, varve_unprotect(session, "lost"));
  CHECK_OK(session,
           varve_protect_vector(session, "vast", VARVE_DOUBLE, 0, ids_beyond_memory, room_for_ids, &particles));
  CHECK_CODE(session, varve_checkpoint(session, 5, VARVE_NOW), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), "cannot be so many elements") != NULL);
  CHECK_OK(session, varve_unprotect(session, "vast"));

  varve_restart_choice_init(&choice);
  choice.has_exactly = 1;
  choice.exactly = 7;
  CHECK_CODE(session, varve_restart_from(session, &choice, &step, NULL), VARVE_NOT_FOUND);
  choice.has_exactly = 0;
  choice.has_at_most = 1;
  choice.at_most = 2;
  CHECK_OK(session, varve_restart_from(session, &choice, &step, &restarted));
  CHECK(restarted == 1 && step == 2 && left[0] == 2 && right[1] == 20 && particles.count == 2);
  CHECK_OK(session, varve_reject(session, &step, &restarted));
  CHECK(restarted == 1 && step == 1 && left[0] == 1 && particles.count == 1);

  varve_restart_point_init(&point);
  CHECK_OK(session, varve_list_restart_points(session, &count));
  CHECK(count == 3);
  CHECK_OK(session, varve_restart_point_at(session, 1, &point));
  CHECK(point.step == 2 && point.rank_count == 1 && point.made_s > 1000000000 && strncmp(point.place, "dir:", 4) == 0);
  CHECK_CODE(session, varve_restart_point_at(session, 3, &point), VARVE_NOT_FOUND);
  varve_saved_variable_init(&variable);
  varve_saved_part_init(&part);
  CHECK_OK(session, varve_list_saved_variables(session, 3, &count));
  CHECK(count == 2);
  CHECK_OK(session, varve_saved_variable_at(session, 1, &variable));
  CHECK(strcmp(variable.name, "mesh") == 0 && variable.type == VARVE_DOUBLE && variable.bytes == 6 * sizeof(double));
  CHECK(variable.dimensions == 2 && variable.global_cells[0] == 3 && variable.part_count == 2);
  CHECK_OK(session, varve_saved_part_of(session, 1, 1, &part));
  CHECK(part.rank == 0 && part.dimensions == 2 && part.cells[0] == 1 && part.cells[1] == 2);
  CHECK(part.global_offset[0] == 2 && part.global_offset[1] == 0);
  CHECK_CODE(session, varve_saved_part_of(session, 1, 2, &part), VARVE_NOT_FOUND);
  CHECK_OK(NULL, varve_close(session));
}

static void tell_the_version(void) {
  char text[40];
  snprintf(text, sizeof text, "%d.%d.%d", VARVE_VERSION_MAJOR, VARVE_VERSION_MINOR, VARVE_VERSION_PATCH);
  CHECK(strcmp(text, VARVE_VERSION_TEXT) == 0 && strcmp(text, varve_version_text()) == 0);
  CHECK(varve_version() == VARVE_VERSION);
  CHECK(VARVE_VERSION == VARVE_VERSION_MAJOR * 10000 + VARVE_VERSION_MINOR * 100 + VARVE_VERSION_PATCH);
}

static void name_every_code(void) {
  int code;
  CHECK(strcmp(varve_code_name(VARVE_OK), "ok") == 0);
  CHECK(strcmp(varve_code_name(VARVE_NOT_FOUND), "not_found") == 0);
  CHECK(strcmp(varve_code_name(VARVE_INTERNAL), "internal") == 0);
  for (code = VARVE_OK; code <= VARVE_INTERNAL; ++code) CHECK(strcmp(varve_code_name(code), "unknown") != 0);
  CHECK(strcmp(varve_code_name(13), "unknown") == 0 && strcmp(varve_code_name(-1), "unknown") == 0);
}

/* Of one rank, what it gave is all there is. */
static int gather_alone(void* context, const void* mine, size_t bytes, varve_bytes* const* all) {
  ++*(int*)context;
  return varve_append(all[0], mine, bytes);
}

static int fail_to_gather(void* context, const void* mine, size_t bytes, varve_bytes* const* all) {
  (void)context, (void)mine, (void)bytes, (void)all;
  return VARVE_IO_ERROR;
}

static void bring_ranks(const char* store) {
  struct varve_options options;
  struct varve_ranks ranks;
  varve_session* session = NULL;
  double value = 1;
  int calls = 0;
  varve_options_init(&options);
  options.store = store;
  options.job = "ranks";
  varve_ranks_init(&ranks);
  CHECK(varve_open_ranks(NULL, &options, &session) == VARVE_INVALID_ARGUMENT && session == NULL);
  CHECK(varve_open_ranks(&ranks, &options, &session) == VARVE_INVALID_ARGUMENT);
  ranks.rank_count = 1;
  ranks.context = &calls;
  CHECK(varve_open_ranks(&ranks, &options, &session) == VARVE_INVALID_ARGUMENT);
  ranks.all_gather = fail_to_gather;
  CHECK(varve_open_ranks(&ranks, &options, &session) == VARVE_IO_ERROR && session == NULL);
  ranks.all_gather = gather_alone;
  ranks.rank = 1;
  CHECK(varve_open_ranks(&ranks, &options, &session) == VARVE_INVALID_ARGUMENT);
  ranks.rank = 0;
  CHECK_OK(NULL, varve_open_ranks(&ranks, &options, &session));
  CHECK_OK(session, varve_protect_scalar(session, "value", VARVE_DOUBLE, &value));
  CHECK_OK(session, varve_checkpoint(session, 1, VARVE_NOW));
  CHECK(calls > 0);
  CHECK(varve_checkpoint(session, 1, VARVE_LATER) == VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_error_message(session), varve_error_hint(session)) != NULL);
  CHECK_OK(NULL, varve_close(session));
}

static void write_text(varve_session* session, uint64_t step, const char* name, const char* text) {
  FILE* file = varve_fopen(session, step, name, "w");
  CHECK(file != NULL);
  CHECK(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void check_text(varve_session* session, uint64_t step, const char* name, const char* text) {
  char path[4096], found[64] = "";
  CHECK_OK(session, varve_route_file(session, step, name, path, sizeof path));
  FILE* file = fopen(path, "r");
  CHECK(file != NULL);
  CHECK(fread(found, 1, sizeof found - 1, file) == strlen(text) && strcmp(found, text) == 0);
  fclose(file);
}

/* Files that a program writes are parts of its checkpoints. */
static void route_files(const char* store) {
  struct varve_options options;
  struct varve_restart_choice choice;
  varve_session* session = NULL;
  double value = 1;
  uint64_t step = 0;
  int restarted = 1;
  char path[4096], old_path[4096];
  varve_options_init(&options);
  options.store = store;
  options.job = "files";
  options.variables_may_change = VARVE_YES;
  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK_OK(session, varve_protect_scalar(session, "value", VARVE_DOUBLE, &value));
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(!restarted && varve_file_count(session) == 0 && varve_file_name(session, 0) == NULL);
  write_text(session, 1, "dump.1/rank0", "of step 1");
  write_text(session, 1, "/absolute/name", "");
  CHECK_OK(session, varve_route_file(session, 1, "dump.1/rank0", old_path, sizeof old_path));
  const pid_t child = fork();
  if (child == 0) {
    varve_close(session); /* the parent's files are not the child's */
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  CHECK_OK(session, varve_checkpoint(session, 1, VARVE_LATER));
  CHECK(fopen(old_path, "r") == NULL); /* it is in the checkpoint now */
  write_text(session, 2, "dump.2/rank0", "of step 2");
  CHECK_OK(session, varve_route_file(session, 2, "dump.2/rank0", old_path, sizeof old_path));
  CHECK_OK(session, varve_route_file(session, 2, "never written", path, sizeof path));
  CHECK(varve_checkpoint(session, 2, VARVE_LATER) == VARVE_NOT_FOUND);
  CHECK(strstr(varve_error_message(session), "never written") != NULL);
  check_text(session, 2, "dump.2/rank0", "of step 2"); /* it may be tried again */
  write_text(session, 3, "dump.3/rank0", "of step 3");
  value = 3;
  CHECK_OK(session, varve_checkpoint(session, 3, VARVE_LATER));
  CHECK(access(old_path, F_OK) != 0); /* no checkpoint can take it any more */
  CHECK(varve_route_file(session, 4, "../out", path, sizeof path) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_route_file(session, 4, "a/../../out", path, sizeof path) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_route_file(session, 4, "", path, sizeof path) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_route_file(session, 4, "folder/", path, sizeof path) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_route_file(session, 4, "name", path, 5) == VARVE_RESOURCE_LIMIT);
  CHECK_OK(NULL, varve_close(session));

  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK_OK(session, varve_protect_scalar(session, "value", VARVE_DOUBLE, &value));
  value = 0;
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(restarted && step == 3 && value == 3);
  CHECK(varve_file_count(session) == 1 && strcmp(varve_file_name(session, 0), "dump.3/rank0") == 0);
  check_text(session, 3, "dump.3/rank0", "of step 3");
  CHECK(varve_route_file(session, 3, "dump.1/rank0", path, sizeof path) == VARVE_NOT_FOUND);
  varve_restart_choice_init(&choice);
  choice.has_at_most = 1;
  choice.at_most = 2;
  CHECK_OK(session, varve_restart_with_files(session, &choice, &step, &restarted));
  CHECK(restarted && step == 1 && value == 1 && varve_file_count(session) == 2);
  check_text(session, 1, "dump.1/rank0", "of step 1");
  check_text(session, 1, "/absolute/name", "");
  write_text(session, 2, "dump.2/rank0", "again");
  CHECK_OK(session, varve_checkpoint(session, 2, VARVE_NOW));
  /* What was restarted from is there to be read; to write it anew, a run goes before it. */
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(restarted && step == 2);
  CHECK(varve_fopen(session, 2, "new", "w") == NULL);
  CHECK(varve_checkpoint(session, 2, VARVE_LATER) == VARVE_INVALID_ARGUMENT);
  choice.at_most = 1;
  CHECK_OK(session, varve_restart_from(session, &choice, &step, &restarted));
  CHECK(restarted && step == 1 && varve_file_count(session) == 0);
  write_text(session, 2, "dump.2/rank0", "a third time");
  CHECK_OK(session, varve_checkpoint(session, 2, VARVE_NOW));
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(restarted && step == 2 && varve_file_count(session) == 1);
  check_text(session, 2, "dump.2/rank0", "a third time");
  CHECK_OK(session, varve_reject(session, &step, &restarted));
  CHECK(restarted && step == 3 && varve_file_count(session) == 0); /* it was made before */
  write_text(session, 4, "dump.4/rank0", "of step 4");
  CHECK_OK(session, varve_checkpoint(session, 4, VARVE_LATER));
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted)); /* what is on its way is waited for */
  CHECK(restarted && step == 4);
  check_text(session, 4, "dump.4/rank0", "of step 4");
  varve_restart_choice_init(&choice);
  choice.has_exactly = 1;
  choice.exactly = 7;
  CHECK(varve_restart_with_files(session, &choice, &step, &restarted) == VARVE_NOT_FOUND);
  CHECK_OK(NULL, varve_close(session));
}

/* A run that ends right after its checkpoint in memory, or right after it has gone on from that. */
static void end_at_once(const struct varve_options* options, int goes_on) {
  varve_session* session = NULL;
  double value = goes_on ? 0 : 1;
  uint64_t step = 0;
  CHECK_OK(NULL, varve_open(options, &session));
  CHECK_OK(session, varve_protect_scalar(session, "value", VARVE_DOUBLE, &value));
  if (goes_on) {
    CHECK_OK(session, varve_restart_with_files(session, NULL, &step, NULL));
    CHECK(step == 1 && value == 1);
    CHECK_OK(session, varve_wait(session));
  } else {
    write_text(session, 1, "folder/dump", "of step 1");
    CHECK_OK(session, varve_checkpoint(session, 1, VARVE_LATER));
  }
  raise(SIGKILL);
}

/* A restart from memory saves what it has loaded before it returns: that has the files as they were. */
static void keep_files_that_are_in_memory_alone(const char* store) {
  struct varve_options options;
  varve_session* session = NULL;
  char levels[1000];
  uint64_t step = 0;
  int goes_on, ended = 0;
  snprintf(levels, sizeof levels, "memory; dir:%s every=10", store);
  varve_options_init(&options);
  options.levels = levels;
  options.job = "files-in-memory";
  for (goes_on = 0; goes_on < 2; ++goes_on) {
    const pid_t child = fork();
    if (child == 0) end_at_once(&options, goes_on);
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && WIFSIGNALED(ended));
  }
  CHECK_OK(NULL, varve_open(&options, &session));
  double value = 0;
  CHECK_OK(session, varve_protect_scalar(session, "value", VARVE_DOUBLE, &value));
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, NULL));
  CHECK(step == 1 && value == 1 && varve_file_count(session) == 1);
  check_text(session, 1, "folder/dump", "of step 1");
  CHECK_OK(NULL, varve_close(session));
}

/* Damages a file from behind its head, or puts something in its place that cannot be opened. */
static void spoil(const char* path, int unreadable) {
  int byte;
  long at;
  if (unreadable) {
    CHECK(unlink(path) == 0 && mknod(path, S_IFSOCK | 0600, 0) == 0);
    return;
  }
  FILE* file = fopen(path, "r+");
  CHECK(file != NULL);
  for (at = 4096; fseek(file, at, SEEK_SET) == 0 && (byte = fgetc(file)) != EOF; ++at) {
    CHECK(fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 0x55, file) != EOF);
  }
  CHECK(at > 4096 && fclose(file) == 0);
}

/* Notes the arenas of a store; or spoils those that were not noted. */
static void look_at_arenas(const char* store, char noted[][64], int* count, int spoils, int unreadable) {
  char path[4096];
  const struct dirent* entry;
  int i, known, spoiled = 0;
  snprintf(path, sizeof path, "%s/arenas", store);
  DIR* folder = opendir(path);
  CHECK(folder != NULL);
  while ((entry = readdir(folder)) != NULL) {
    for (known = entry->d_name[0] == '.', i = 0; i < *count; ++i) known |= strcmp(noted[i], entry->d_name) == 0;
    if (known) continue;
    if (!spoils) {
      CHECK(*count < 64 && strlen(entry->d_name) < 64);
      strcpy(noted[(*count)++], entry->d_name);
      continue;
    }
    snprintf(path, sizeof path, "%s/arenas/%s", store, entry->d_name);
    spoil(path, unreadable);
    ++spoiled;
  }
  closedir(folder);
  CHECK(!spoils || spoiled > 0);
}

/* What cannot be loaded with its files is passed over, with a warning, for an older one. */
static void pass_over_what_cannot_be_loaded(const char* store, const char* job, int unreadable) {
  static double numbers[4000];
  char noted[64][64];
  struct varve_options options;
  struct varve_restart_choice choice;
  varve_session* session = NULL;
  const char* warning;
  uint64_t step;
  uint32_t random = unreadable ? 1 : 2;
  int i, count = 0, restarted = 0, told = 0;
  varve_options_init(&options);
  options.store = store;
  options.job = job;
  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK_OK(session, varve_protect_array(session, "numbers", VARVE_DOUBLE, numbers, 4000, NULL));
  for (step = 1; step <= 2; ++step) {
    for (i = 0; i < 4000; ++i) numbers[i] = (random = random * 1664525U + 1013904223U) / 3.0;
    write_text(session, step, "dump", step == 1 ? "of step 1" : "of step 2");
    CHECK_OK(session, varve_checkpoint(session, step, VARVE_NOW));
    if (step == 1) look_at_arenas(store, noted, &count, 0, unreadable);
  }
  CHECK_OK(NULL, varve_close(session));
  look_at_arenas(store, noted, &count, 1, unreadable);

  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK_OK(session, varve_protect_array(session, "numbers", VARVE_DOUBLE, numbers, 4000, NULL));
  varve_restart_choice_init(&choice);
  choice.has_exactly = 1;
  choice.exactly = 2;
  CHECK_CODE(session, varve_restart_with_files(session, &choice, &step, &restarted),
             unreadable ? VARVE_IO_ERROR : VARVE_CORRUPT);
  while (varve_next_warning(session) != NULL) continue;
  CHECK_OK(session, varve_restart_with_files(session, NULL, &step, &restarted));
  CHECK(restarted == 1 && step == 1 && varve_file_count(session) == 1);
  check_text(session, 1, "dump", "of step 1");
  while ((warning = varve_next_warning(session)) != NULL) {
    told += strstr(warning, "step 2 was passed over") != NULL;
  }
  CHECK(told == 1);
  CHECK_OK(NULL, varve_close(session));
}

int main(int argument_count, char** arguments) {
  CHECK(argument_count == 2);
  run_some_steps(arguments[1]);
  go_on(arguments[1]);
  name_levels(arguments[1]);
  refuse_what_does_not_fit(arguments[1]);
  tell_of_callbacks_that_fail(arguments[1]);
  abandon_and_go_on(arguments[1]);
  take_null_for_what_it_is(arguments[1]);
  serve_other_versions(arguments[1]);
  choose_and_go_back(arguments[1]);
  bring_ranks(arguments[1]);
  route_files(arguments[1]);
  keep_files_that_are_in_memory_alone(arguments[1]);
  pass_over_what_cannot_be_loaded(arguments[1], "damaged", 0);
  pass_over_what_cannot_be_loaded(arguments[1], "unreadable", 1);
  tell_the_version();
  name_every_code();
  puts("all is well");
  return 0;
}
