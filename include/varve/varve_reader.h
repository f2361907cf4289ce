#ifndef VARVE_VARVE_READER_H
#define VARVE_VARVE_READER_H

/*
 * Reads the variables of one checkpoint set, from C, in any program: no session, and no other ranks. The same as
 * varve/checkpoint_reader.h for C++; what is said in varve/varve.h of errors, structs and versions is so here, too. A
 * reader is used by one thread at a time; different ones are independent.
 */

/* NOLINTBEGIN(modernize-*): this is C */

#include "varve/varve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a store is reached, and read. Begin with varve_reader_options_init(). What is zero is taken from the environment,
 * or the default. */
struct varve_reader_options {
  size_t size;             /* of this struct */
  const char* key_file;    /* what servers over TCP share with their clients */
  const char* s3_endpoint; /* "http[s]://host[:port]": where the service of buckets is */
  uint32_t threads;        /* that read and decode; default: one a processor */
};

/* A variable of a set. What it points at belongs to the reader, and stays until that is closed. Begin with
 * varve_variable_init(). */
struct varve_variable {
  size_t size;            /* of this struct */
  const char* name;       /* as it was protected; in a set of files "PATH:NAME" */
  const char* type_name;  /* of an element: "F64LE", "I32BE", "BYTES" */
  int type;               /* enum varve_type; VARVE_BYTE also for what has none, as of the other byte order */
  uint32_t element_bytes; /* of one element, at least 1 */
  int is_one_array;       /* 1: its parts are one array; 0: each part is one of its own */
  size_t dimensions;      /* of that */
  const uint64_t* cells;  /* of that, slowest dimension first; NULL if there is no dimension: a scalar */
  uint64_t bytes;         /* of that */
  uint64_t part_count;    /* the ranks, or files, that have a part */
};

/* What one rank, or one file, has of a variable: an array. Begin with varve_part_init(). */
struct varve_part {
  size_t size;                   /* of this struct */
  int64_t rank;                  /* -1: of a file that belongs to no rank */
  size_t dimensions;             /* of the part */
  const uint64_t* cells;         /* NULL if there is no dimension */
  const uint64_t* global_offset; /* where it lies in the whole, as many numbers; NULL: not said */
  uint64_t bytes;
};

/* Cells of an array: in each dimension, slowest first, `cells` of them, from `offset` on. Begin with
 * varve_section_init(). */
struct varve_section {
  size_t size; /* of this struct */
  size_t dimensions;
  const uint64_t* offset; /* `dimensions` numbers each */
  const uint64_t* cells;
};

static inline void varve_reader_options_init(struct varve_reader_options* options) {
  memset(options, 0, sizeof *options);
  options->size = sizeof *options;
}
static inline void varve_variable_init(struct varve_variable* variable) {
  memset(variable, 0, sizeof *variable);
  variable->size = sizeof *variable;
}
static inline void varve_part_init(struct varve_part* part) {
  memset(part, 0, sizeof *part);
  part->size = sizeof *part;
}
static inline void varve_section_init(struct varve_section* box) {
  memset(box, 0, sizeof *box);
  box->size = sizeof *box;
}

typedef struct varve_reader varve_reader;

/* Opens a set, "JOB@STEP", or "JOB" for its newest. `store`: a folder, a server or "s3://bucket/prefix". `options` may
 * be NULL. On failure *reader is NULL. VARVE_NOT_FOUND: there is no such store, or set. */
int varve_reader_open(const char* store, const char* set, const struct varve_reader_options* options,
                      varve_reader** reader);
/* NULL is nothing. */
void varve_reader_close(varve_reader* reader);

/* As varve_error_message(), varve_error_remedy() and varve_error_hint(), of the last call with this reader that failed;
 * with NULL: of the last varve_reader_open() that failed on this thread. */
const char* varve_reader_error_message(const varve_reader* reader);
const char* varve_reader_error_remedy(const varve_reader* reader);
const char* varve_reader_error_hint(const varve_reader* reader);

/* "job@step", and the step. */
const char* varve_reader_set(const varve_reader* reader);
uint64_t varve_reader_step(const varve_reader* reader);
/* Ranks of the run that made the set. 0 to `rank_count` - 1; a store that is a node's own has only some of them, and
 * then varve_reader_has_all_ranks() is 0. */
uint32_t varve_reader_rank_count(const varve_reader* reader);
int varve_reader_has_all_ranks(const varve_reader* reader);

/* The variables in the order of their names: how many, one of them, the one of a name, and its parts, lowest rank
 * first. VARVE_NOT_FOUND: there is none. */
uint64_t varve_reader_variable_count(const varve_reader* reader);
int varve_reader_variable(varve_reader* reader, uint64_t ordinal, struct varve_variable* variable);
int varve_reader_find(varve_reader* reader, const char* name, struct varve_variable* variable);
int varve_reader_part(varve_reader* reader, const char* name, uint64_t ordinal, struct varve_part* part);

/* Reads a variable, or a box of it, into `bytes` of memory, exactly its size: as it was saved, dense, slowest dimension
 * first. `box` may be NULL: all of it. VARVE_INVALID_ARGUMENT: it is no one array, the box does not lie in it, or the
 * memory has another size; VARVE_NOT_FOUND: no rank saved some of the cells, or they are on another node;
 * VARVE_UNSUPPORTED: the format of its file has encoded them in a way that is not known here; VARVE_CORRUPT: they are
 * damaged. */
int varve_reader_read(varve_reader* reader, const char* name, const struct varve_section* box, void* into,
                      uint64_t bytes);
/* The same of what one rank saved of it. */
int varve_reader_read_rank(varve_reader* reader, const char* name, uint32_t rank, const struct varve_section* box,
                           void* into, uint64_t bytes);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */

#endif /* VARVE_VARVE_READER_H */
