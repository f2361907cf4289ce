/* The C interface for reading a set without a session, as a C99 program sees it. The folder to work in is its
 * argument. */
#include <string.h>

#include "check.h"
#include "varve/varve_reader.h"

enum { kRows = 4, kColumns = 6 };

#define CHECK_READER(reader, call, expected)                                                             \
  do {                                                                                                   \
    const int check_code = (call);                                                                       \
    if (check_code != (expected)) {                                                                      \
      fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call, varve_code_name(check_code), \
              varve_reader_error_message(reader));                                                       \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

static double value_at(int row, int column) { return row * 100.0 + column; }

static void save_a_set(const char* store) {
  double field[kRows][kColumns];
  int32_t step = 3;
  unsigned char blob[5] = {1, 2, 3, 4, 5};
  const uint64_t cells[2] = {kRows, kColumns}, offset[2] = {0, 0};
  struct varve_options options;
  struct varve_shape shape;
  varve_session* session = NULL;
  int row, column;
  for (row = 0; row < kRows; ++row) {
    for (column = 0; column < kColumns; ++column) field[row][column] = value_at(row, column);
  }
  varve_options_init(&options);
  options.store = store;
  options.job = "c";
  options.stop_on_signals = VARVE_NO;
  varve_shape_init(&shape);
  shape.dimensions = 2;
  shape.cells = cells;
  shape.global_cells = cells;
  shape.global_offset = offset;
  CHECK_OK(NULL, varve_open(&options, &session));
  CHECK_OK(session, varve_protect_array(session, "field", VARVE_DOUBLE, field, kRows * kColumns, &shape));
  CHECK_OK(session, varve_protect_scalar(session, "step", VARVE_INT32, &step));
  CHECK_OK(session, varve_protect_array(session, "blob", VARVE_BYTE, blob, sizeof blob, NULL));
  CHECK_OK(session, varve_checkpoint(session, 3, VARVE_NOW));
  CHECK_OK(NULL, varve_close(session));
}

static varve_reader* open_reader(const char* store) {
  struct varve_reader_options options;
  varve_reader* reader = NULL;
  varve_reader_options_init(&options);
  options.threads = 2;
  CHECK_READER(NULL, varve_reader_open(store, "c@3", &options, &reader), VARVE_OK);
  CHECK(reader != NULL);
  return reader;
}

static void look_at_variables(varve_reader* reader) {
  struct varve_variable variable;
  struct varve_part part;
  varve_variable_init(&variable);
  varve_part_init(&part);
  CHECK(strcmp(varve_reader_set(reader), "c@3") == 0 && varve_reader_step(reader) == 3);
  CHECK(varve_reader_rank_count(reader) == 1 && varve_reader_has_all_ranks(reader) == 1);
  CHECK(varve_reader_variable_count(reader) == 3);
  CHECK_READER(reader, varve_reader_variable(reader, 0, &variable), VARVE_OK);
  CHECK(strcmp(variable.name, "blob") == 0 && variable.type == VARVE_BYTE && variable.bytes == 5);
  CHECK_READER(reader, varve_reader_variable(reader, 3, &variable), VARVE_NOT_FOUND);
  CHECK_READER(reader, varve_reader_find(reader, "step", &variable), VARVE_OK);
  CHECK(variable.type == VARVE_INT32 && variable.dimensions == 0 && variable.cells == NULL && variable.bytes == 4);
  CHECK_READER(reader, varve_reader_find(reader, "field", &variable), VARVE_OK);
  CHECK(variable.type == VARVE_DOUBLE && strncmp(variable.type_name, "F64", 3) == 0 && variable.element_bytes == 8);
  CHECK(variable.is_one_array == 1 && variable.dimensions == 2 && variable.bytes == kRows * kColumns * 8);
  CHECK(variable.cells[0] == kRows && variable.cells[1] == kColumns && variable.part_count == 1);
  CHECK_READER(reader, varve_reader_part(reader, "field", 0, &part), VARVE_OK);
  CHECK(part.rank == 0 && part.dimensions == 2 && part.cells[1] == kColumns && part.global_offset[0] == 0);
  CHECK(part.bytes == kRows * kColumns * 8);
  CHECK_READER(reader, varve_reader_part(reader, "field", 1, &part), VARVE_NOT_FOUND);
}

static void read_numbers(varve_reader* reader) {
  double field[kRows][kColumns], few[2][3];
  int32_t step = 0;
  const uint64_t offset[2] = {1, 2}, cells[2] = {2, 3};
  struct varve_section box;
  int row, column;
  memset(field, 0, sizeof field);
  varve_section_init(&box);
  box.dimensions = 2;
  box.offset = offset;
  box.cells = cells;
  CHECK_READER(reader, varve_reader_read(reader, "field", NULL, field, sizeof field), VARVE_OK);
  CHECK(field[3][5] == value_at(3, 5) && field[0][0] == value_at(0, 0));
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, sizeof few), VARVE_OK);
  for (row = 0; row < 2; ++row) {
    for (column = 0; column < 3; ++column) CHECK(few[row][column] == value_at(row + 1, column + 2));
  }
  memset(few, 0, sizeof few);
  CHECK_READER(reader, varve_reader_read_rank(reader, "field", 0, &box, few, sizeof few), VARVE_OK);
  CHECK(few[1][2] == value_at(2, 4));
  CHECK_READER(reader, varve_reader_read(reader, "step", NULL, &step, sizeof step), VARVE_OK);
  CHECK(step == 3);
}

static void be_refused(varve_reader* reader) {
  double few[6];
  uint64_t offset[2] = {3, 0}, cells[2] = {2, 3};
  struct varve_section box;
  struct varve_variable variable;
  varve_section_init(&box);
  box.dimensions = 2;
  box.offset = offset;
  box.cells = cells;
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, sizeof few), VARVE_INVALID_ARGUMENT);
  CHECK(strstr(varve_reader_error_message(reader), "does not lie in it") != NULL);
  offset[0] = 0;
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, 47), VARVE_INVALID_ARGUMENT);
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, NULL, 48), VARVE_INVALID_ARGUMENT);
  box.dimensions = 1;
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, 16), VARVE_INVALID_ARGUMENT);
  box.dimensions = (size_t)-1;
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, 48), VARVE_INVALID_ARGUMENT);
  box.dimensions = 2;
  box.size = 0;
  CHECK_READER(reader, varve_reader_read(reader, "field", &box, few, 48), VARVE_INVALID_ARGUMENT);
  CHECK_READER(reader, varve_reader_read(reader, "nothing", NULL, few, 48), VARVE_NOT_FOUND);
  CHECK(strcmp(varve_reader_error_remedy(reader), "list_variables") == 0);
  CHECK_READER(reader, varve_reader_read_rank(reader, "field", 1, NULL, few, 48), VARVE_NOT_FOUND);
  CHECK_READER(reader, varve_reader_read(reader, NULL, NULL, few, 48), VARVE_INVALID_ARGUMENT);
  CHECK_READER(reader, varve_reader_find(reader, "field", NULL), VARVE_INVALID_ARGUMENT);
  memset(&variable, 0, sizeof variable);
  CHECK_READER(reader, varve_reader_find(reader, "field", &variable), VARVE_INVALID_ARGUMENT);
}

static void open_nothing(const char* store) {
  varve_reader* reader = (varve_reader*)store;
  CHECK(varve_reader_open(store, "c@4", NULL, &reader) == VARVE_NOT_FOUND && reader == NULL);
  CHECK(strlen(varve_reader_error_message(NULL)) > 0);
  CHECK(varve_reader_open(NULL, "c@3", NULL, &reader) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_reader_open(store, NULL, NULL, &reader) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_reader_open(store, "c@3", NULL, NULL) == VARVE_INVALID_ARGUMENT);
  CHECK(varve_reader_variable_count(NULL) == 0 && strcmp(varve_reader_set(NULL), "") == 0);
  CHECK(varve_reader_read(NULL, "field", NULL, NULL, 0) == VARVE_INVALID_ARGUMENT);
  varve_reader_close(NULL);
}

int main(int argument_count, char** arguments) {
  varve_reader* reader;
  CHECK(argument_count == 2);
  save_a_set(arguments[1]);
  open_nothing(arguments[1]);
  reader = open_reader(arguments[1]);
  look_at_variables(reader);
  read_numbers(reader);
  be_refused(reader);
  varve_reader_close(reader);
  return 0;
}
