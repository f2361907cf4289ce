#ifndef VARVE_VARVE_H
#define VARVE_VARVE_H

/*
 * Checkpoints of a running program, for C (C99): what varve/session.h is for C++, with the same words. See there for
 * what each call means; here is what differs.
 *
 * Every function that returns an int returns VARVE_OK (0) or an error (varve_code), unless it says otherwise. Then
 * varve_error_message() tells what happened. Strings that are returned belong to the session, and stay until the next
 * call with it. A session is used by one thread at a time; different ones are independent.
 *
 * A program may be linked with a newer library than it was compiled for. So a struct that the program makes begins with
 * its size; <its name>_init() sets that, and all else to zero, which says nothing. Members keep their place and
 * meaning, later versions add some at the end: what an older program's struct lacks is not said, and what a newer
 * program's struct says to a library that does not know it is an error (VARVE_UNSUPPORTED).
 */

/* NOLINTBEGIN(modernize-*): this is C */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "varve/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. The numbers stay as they are. */
enum varve_code {
  VARVE_OK = 0,
  VARVE_INVALID_ARGUMENT = 1,  /* the caller asked for something that makes no sense */
  VARVE_NOT_FOUND = 2,         /* what was named does not exist */
  VARVE_ALREADY_EXISTS = 3,    /* what was to be created exists */
  VARVE_CORRUPT = 4,           /* stored bytes contradict their checksum, score or format */
  VARVE_IO_ERROR = 5,          /* the operating system failed to read or write, or ranks cannot be reached */
  VARVE_NO_SPACE = 6,          /* file system full, or quota reached */
  VARVE_PERMISSION_DENIED = 7, /* the operating system refused access */
  VARVE_UNSUPPORTED = 8,       /* a valid thing that this build or version cannot do */
  VARVE_RESOURCE_LIMIT = 9,    /* a limit would be exceeded, or the memory is used up */
  VARVE_BUSY = 10,             /* somebody else is in the way; trying again may help */
  VARVE_CANCELLED = 11,        /* the caller asked to stop */
  VARVE_INTERNAL = 12          /* a bug in Varve */
};

/* What an element is. The numbers stay as they are. */
enum varve_type {
  VARVE_BYTE = 0, /* of anything: structs, packed buffers; counted in bytes */
  VARVE_INT8 = 1,
  VARVE_INT16 = 2,
  VARVE_INT32 = 3,
  VARVE_INT64 = 4,
  VARVE_UINT8 = 5,
  VARVE_UINT16 = 6,
  VARVE_UINT32 = 7,
  VARVE_UINT64 = 8,
  VARVE_FLOAT = 9,
  VARVE_DOUBLE = 10
};

enum varve_choice { VARVE_DEFAULT = 0, VARVE_YES = 1, VARVE_NO = 2 };

/* What to do when a checkpoint is due and the one before is not persistent yet. */
enum varve_when_busy {
  VARVE_BUSY_DEFAULT = 0,
  VARVE_BUSY_WAIT = 1,      /* the program waits for it */
  VARVE_BUSY_SKIP = 2,      /* the new checkpoint is left out */
  VARVE_BUSY_TWO_SLOTS = 3, /* memory for a second snapshot; the program waits only if both are taken */
  VARVE_BUSY_AUTOMATIC = 4  /* memory for a second snapshot once it is wanted, where there is plenty; else it waits */
};

enum varve_persistence {
  VARVE_LATER = 0, /* varve_checkpoint() returns after the snapshot */
  VARVE_NOW = 1    /* varve_checkpoint() returns when the set is complete in the store, or has failed */
};

/*
 * What a session can be told. Begin with varve_options_init(). What is zero is not said, and taken from elsewhere: the
 * environment (VARVE_STORE, ...), the options file, or the default (docs/GUIDE.md, "Options of a run").
 */
struct varve_options {
  size_t size;              /* of this struct */
  const char* options_file; /* TOML */
  const char* store;        /* a folder (created if need be), a server, or "s3://bucket/prefix" */
  const char* levels;       /* in its place: "memory; local:/nvme/varve keep=2; dir:/lustre/varve every=10" */
  const char* job;
  const char* group; /* ranks that share a checkpoint thread: "rank", "socket", "node" or a number */
  const char* effort;
  const char* codec;
  const char* scheme;
  uint32_t threads;      /* working for each group's checkpoint thread */
  int when_busy;         /* enum varve_when_busy */
  uint64_t memory_bytes; /* that a group's engine holds */
  uint64_t every_steps;
  double every_seconds;
  double mean_time_between_failures; /* seconds, of the whole job */
  uint64_t keep_last;                /* sets of this job; older ones go when a newer is complete */
  double write_bytes_per_second;     /* that a group's thread writes at most */
  double stop_after_seconds;         /* since varve_open() */
  const char* stop_file;
  int stop_on_signals;         /* enum varve_choice: SIGTERM and SIGUSR1 ask for a stop */
  int low_priority;            /* enum varve_choice: of the checkpoint threads where no free core is found */
  const char* shared_memory;   /* folder of a memory file system */
  const char* key_file;        /* what servers over TCP share with their clients; on every node */
  const char* snapshot_folder; /* for snapshots that shared memory has no room for; "auto", "none" */
  int take_over;               /* enum varve_choice: open it though another run of the job may live */
  int print_warnings;          /* enum varve_choice: rank 0 says on standard error what would be missed */
  double wait_limit;           /* seconds that a call waits at most for others, before it says who is missing */
  const char* s3_endpoint;     /* "http[s]://host[:port]": where the service of buckets is */
  int variables_may_change;    /* enum varve_choice: added variables keep what they hold, removed ones are left out */
  const char* metrics_file;    /* where rank 0 writes facts for Prometheus: a file, or a folder */
  const char* timeline;        /* folder in which rank 0 notes what becomes of each checkpoint; "auto", "none" */
};

/* In which order a varve_shape names the dimensions. */
enum varve_order {
  VARVE_SLOWEST_FIRST = 0, /* as C does */
  VARVE_FASTEST_FIRST = 1  /* as Fortran does */
};

/*
 * How an array lies in memory, and in the whole that the ranks share. All in elements, in the order of `order`; each
 * pointer is to `dimensions` numbers, or NULL where there is nothing to say. Begin with varve_shape_init().
 */
struct varve_shape {
  size_t size; /* of this struct */
  size_t dimensions;
  const uint64_t* cells;         /* of the buffer, ghost cells and padding included; NULL: one dimension */
  const uint64_t* ghosts_low;    /* left out of the checkpoint at the low end of each dimension */
  const uint64_t* ghosts_high;   /* and at the high end */
  const uint64_t* global_cells;  /* of the array of which this rank has a part */
  const uint64_t* global_offset; /* where the saved part lies in it */
  int order;                     /* enum varve_order */
};

/* One of the boxes that a rank has of a whole. Begin with varve_box_init(). */
struct varve_box {
  size_t size; /* of this struct */
  void* data;
  uint64_t count;                  /* of elements, ghost cells included */
  const struct varve_shape* shape; /* its global_cells may be left out */
};

/* Which checkpoint a restart takes: the newest if nothing is said. Begin with varve_restart_choice_init(). */
struct varve_restart_choice {
  size_t size;     /* of this struct */
  int has_at_most; /* whether `at_most` counts: the newest that is of this step or a lower one */
  int has_exactly; /* whether `exactly` counts: of this step, or VARVE_NOT_FOUND */
  uint64_t at_most;
  uint64_t exactly;
};

/* A checkpoint that a restart may take. Begin with varve_restart_point_init(). */
struct varve_restart_point {
  size_t size; /* of this struct */
  uint64_t step;
  uint64_t rank_count; /* that made it; 0: not known */
  int64_t made_s;      /* seconds since 1970, by the clock of who made it; 0: not known, as in memory */
  const char* place;   /* "memory", or the level's name; stays until the points are listed again */
};

/* A variable of a checkpoint. Begin with varve_saved_variable_init(). */
struct varve_saved_variable {
  size_t size; /* of this struct */
  const char* name;
  int type;                     /* enum varve_type; VARVE_BYTE also of what is none of the others */
  uint64_t element_bytes;       /* of one element */
  uint64_t bytes;               /* of all ranks together */
  size_t dimensions;            /* of the whole; 0: nobody said of what whole it is */
  const uint64_t* global_cells; /* of the whole, slowest dimension first */
  uint64_t part_count;          /* what ranks have saved of it: varve_saved_part() */
};

/* What a rank has saved of a variable, without ghost cells; slowest dimension first. Begin with
 * varve_saved_part_init(). */
struct varve_saved_part {
  size_t size; /* of this struct */
  uint64_t rank;
  size_t dimensions; /* 0: a scalar */
  const uint64_t* cells;
  const uint64_t* global_offset; /* where it lies in the whole; NULL: not said */
};

/* How far stage 2 is. Begin with varve_state_init(). */
struct varve_state {
  size_t size;                /* of this struct */
  int has_snapshot;           /* whether there is a newest_snapshot */
  int has_persistent;         /* whether there is a newest_persistent */
  uint64_t newest_snapshot;   /* step whose snapshot is complete in memory */
  uint64_t newest_persistent; /* step whose set is complete in the store */
  uint64_t bytes_to_write;    /* raw bytes of this rank's group that are on their way */
  uint64_t bytes_written;     /* of them, dealt with */
  uint64_t skipped;           /* checkpoints left out because the one before was busy */
  int last_error;             /* of stage 2: a varve_code; the program goes on. In words: varve_last_error() */
};

/* How far one level is. Begin with varve_level_state_init(). */
struct varve_level_state {
  size_t size;      /* of this struct */
  int has_newest;   /* whether there is a newest */
  uint64_t newest;  /* step of the newest set that this run brought there, or snapshot */
  uint64_t waiting; /* sets that are on their way there, or wait for their turn */
  int last_error;   /* of bringing sets there: a varve_code. In words: varve_level_error() */
};

/* All members zero, but for the size. */
static inline void varve_options_init(struct varve_options* options) {
  memset(options, 0, sizeof *options);
  options->size = sizeof *options;
}
static inline void varve_shape_init(struct varve_shape* shape) {
  memset(shape, 0, sizeof *shape);
  shape->size = sizeof *shape;
}
static inline void varve_state_init(struct varve_state* state) {
  memset(state, 0, sizeof *state);
  state->size = sizeof *state;
}
static inline void varve_level_state_init(struct varve_level_state* state) {
  memset(state, 0, sizeof *state);
  state->size = sizeof *state;
}

static inline void varve_box_init(struct varve_box* box) {
  memset(box, 0, sizeof *box);
  box->size = sizeof *box;
}
static inline void varve_restart_choice_init(struct varve_restart_choice* choice) {
  memset(choice, 0, sizeof *choice);
  choice->size = sizeof *choice;
}
static inline void varve_restart_point_init(struct varve_restart_point* point) {
  memset(point, 0, sizeof *point);
  point->size = sizeof *point;
}
static inline void varve_saved_variable_init(struct varve_saved_variable* variable) {
  memset(variable, 0, sizeof *variable);
  variable->size = sizeof *variable;
}
static inline void varve_saved_part_init(struct varve_saved_part* part) {
  memset(part, 0, sizeof *part);
  part->size = sizeof *part;
}

/* Bytes that a callback gives. */
typedef struct varve_bytes varve_bytes;
int varve_append(varve_bytes* to, const void* data, size_t bytes);

/* Ranks that are not MPI's, but can gather. Begin with varve_ranks_init(). */
struct varve_ranks {
  size_t size; /* of this struct */
  uint32_t rank;
  uint32_t rank_count;
  /* Collective: appends to all[r] what rank r gave. Returns 0, or anything else to fail the call in which it runs, with
   * no rank left waiting. It runs inside calls with the session that are collective, on the calling thread. */
  int (*all_gather)(void* context, const void* mine, size_t bytes, varve_bytes* const* all);
  void* context;
};
static inline void varve_ranks_init(struct varve_ranks* ranks) {
  memset(ranks, 0, sizeof *ranks);
  ranks->size = sizeof *ranks;
}

typedef struct varve_session varve_session;

/* Opens a session of one process; varve/varve_mpi.h has the one for ranks. `options` may be NULL. On failure *session
 * is NULL. */
int varve_open(const struct varve_options* options, varve_session** session);
/* The same on ranks that the program brings: of another library than MPI, of threads. Messages beside the program's
 * calls are not there: a level of one node's disks cannot be protected by other nodes. Collective. */
int varve_open_ranks(const struct varve_ranks* ranks, const struct varve_options* options, varve_session** session);
/* Ends the session as varve_finish() does, waiting as long as it takes, and frees it. NULL is nothing. Collective.
 * The error is the last one of what was still on its way. */
int varve_close(varve_session* session);

/* What happened in the last call with this session that failed; with NULL: in the last varve_open() or
 * varve_close() that failed on this thread. "" if none. Stays until the next failure. */
const char* varve_error_message(const varve_session* session);
/* What can be done about that failure, for programs that act on it: the name of a varve::Remedy (varve/status.h), such
 * as "free_space" or "take_job_over"; "none" if nothing is known. Names stay as they are. */
const char* varve_error_remedy(const varve_session* session);
/* The same in words, which are in varve_error_message(), too; "" if nothing is known. */
const char* varve_error_hint(const varve_session* session);
/* The name of a varve_code: "not_found". */
const char* varve_code_name(int code);

/* Protects an array of `count` elements (enum varve_type), ghost cells included. `data` must stay where it is; protect
 * it again (same type) after it moved or changed its size. `shape` may be NULL: one dimension. */
int varve_protect_array(varve_session* session, const char* name, int type, void* data, uint64_t count,
                        const struct varve_shape* shape);
/* Several boxes of a whole of `global_cells`, or none: together one variable, each with memory of its own. `order`
 * (enum varve_order) is that of `global_cells` and of all boxes. */
int varve_protect_boxes(varve_session* session, const char* name, int type, size_t dimensions,
                        const uint64_t* global_cells, const struct varve_box* const* boxes, size_t box_count,
                        int order);
/* One number. (A struct is an array of VARVE_BYTE.) */
int varve_protect_scalar(varve_session* session, const char* name, int type, void* value);

/* Both return 0, or anything else to fail the call in which they run; a varve_code then becomes its code. They run
 * inside varve_checkpoint() and varve_restart(), on the calling thread. */
typedef int (*varve_save_function)(void* context, varve_bytes* to);
typedef int (*varve_load_function)(void* context, const void* data, size_t bytes);
/* An object by callbacks: `save` appends its bytes, `load` takes them back. */
int varve_protect_callbacks(varve_session* session, const char* name, varve_save_function save,
                            varve_load_function load, void* context);
/* Elements of which there may be more or fewer at each checkpoint: `data` returns where they are, and how many
 * (NULL with a count fails the call in which it runs); `resize` makes room for `count` and returns it, or NULL if there
 * is none. `element_bytes` counts with VARVE_BYTE alone: of a struct; 0 is 1. */
typedef const void* (*varve_data_function)(void* context, uint64_t* count);
typedef void* (*varve_resize_function)(void* context, uint64_t count);
int varve_protect_vector(varve_session* session, const char* name, int type, uint64_t element_bytes,
                         varve_data_function data, varve_resize_function resize, void* context);
int varve_unprotect(varve_session* session, const char* name);

/* What a restart with another number of ranks does with a variable that does not say where its part lies in a whole
 * (varve_shape.global_cells). NONE, the default: what several ranks saved alike, and a lone rank's scalars, come back
 * everywhere; the rest is refused. SAME: what one rank saved, and all others alike, comes back everywhere. EVENLY: of a
 * vector each rank gets as many elements as the others, or one more, in the order of ranks. IGNORE: nothing comes back.
 */
enum {
  VARVE_REDISTRIBUTE_NONE = 0,
  VARVE_REDISTRIBUTE_SAME = 1,
  VARVE_REDISTRIBUTE_EVENLY = 2,
  VARVE_REDISTRIBUTE_IGNORE = 3
};
int varve_redistribute(varve_session* session, const char* name, int how);
/* Of the vector `name`, and of those named in `together` (which had as many elements on each rank): each element goes
 * to the rank that `owner` names for that of `name`. All ranks must find the same. */
typedef uint32_t (*varve_owner_function)(void* context, const void* element);
int varve_redistribute_by_owner(varve_session* session, const char* name, varve_owner_function owner, void* context,
                                const char* const* together, size_t together_count);
/* The same: to the rank that has now the cell of the array `array` that `cell` fills in, in as many numbers as the
 * array has dimensions, in the order of its shape. */
typedef void (*varve_cell_function)(void* context, const void* element, uint64_t* cell);
int varve_redistribute_by_cell(varve_session* session, const char* name, const char* array, varve_cell_function cell,
                               void* context, const char* const* together, size_t together_count);

/* Memory for a grid that can be lent: zeroed, owned by the session until its end. Make all grids of a name with the
 * same size. */
int varve_make_grid(varve_session* session, const char* name, uint64_t bytes, void** grid);
/* Hands *grid, which holds the present content of the variable `name`, to the next checkpoint, and puts a spare in its
 * place to go on with. What was handed over may still be read, but not written, until it comes back as a spare. */
int varve_lend(varve_session* session, const char* name, void** grid);

/* Loads the newest set that is complete and intact on all ranks into what is protected, and puts its step into *step.
 * *restarted (may be NULL) says whether there was one; if not, *step stays as it is. Has the memory for checkpoints
 * made behind the program's back, too, so that the first one takes no longer than the others. What was in memory alone
 * begins to go to the store. VARVE_INVALID_ARGUMENT: a variable has another type or size there, or the set was made by
 * another number of ranks and does not say what of it is whose now (varve_redistribute()). VARVE_CORRUPT: there are
 * some, but none is whole. VARVE_IO_ERROR: no level that can be reached has one. A set is read straight into what is
 * protected, and checked on the way: an error after that says that what is protected is neither old nor new.
 * Collective. */
int varve_restart(varve_session* session, uint64_t* step, int* restarted);
/* The same with a choice, which all ranks make alike; NULL is the newest. Also after checkpoints: the run goes back. */
int varve_restart_from(varve_session* session, const struct varve_restart_choice* choice, uint64_t* step,
                       int* restarted);
/* What was loaded last will not do: takes the next older one. If there is none, *restarted is 0, and the run begins
 * anew. An older one that has files is taken by varve_restart_with_files(). */
int varve_reject(varve_session* session, uint64_t* step, int* restarted);
/* Removes the checkpoint of a step from memory and from the stores of all levels; those of other steps stay.
 * VARVE_NOT_FOUND: there is none. VARVE_IO_ERROR: a level cannot be reached that may have it, and nothing was dropped.
 * Collective. */
int varve_drop(varve_session* session, uint64_t step);
/* Lists what a restart may take, the newest first, and how many these are; and one of them (VARVE_NOT_FOUND if there
 * are not so many). Listing is collective. */
int varve_list_restart_points(varve_session* session, uint64_t* count);
int varve_restart_point_at(const varve_session* session, uint64_t index, struct varve_restart_point* point);
/* Lists the variables in the newest checkpoint of this step, and how many these are; one of them; what a rank has saved
 * of one. What is pointed to stays until variables are listed again. Listing is collective. */
int varve_list_saved_variables(varve_session* session, uint64_t step, uint64_t* count);
int varve_saved_variable_at(const varve_session* session, uint64_t index, struct varve_saved_variable* variable);
int varve_saved_part_of(const varve_session* session, uint64_t variable, uint64_t part, struct varve_saved_part* saved);

/* Where to write the file `name` of the checkpoint of `step`: a path in memory, `path_bytes` of room for it, zero
 * included (VARVE_RESOURCE_LIMIT: it is longer). Folders in `name` are made. What is there in varve_checkpoint(step)
 * becomes part of that checkpoint, as the variable "file:NAME" of this rank; the file itself is gone afterwards.
 * After varve_restart_with_files() from that step, and until a checkpoint or a restart from another step, the path
 * where the file lies, to be read; VARVE_NOT_FOUND if the checkpoint has no such file of this rank. A run that is to
 * write that step anew first goes before it, by a restart with `at_most`. VARVE_INVALID_ARGUMENT: the name leads out of
 * its folder. Not collective. */
int varve_route_file(varve_session* session, uint64_t step, const char* name, char* path, size_t path_bytes);
/* Opens such a file as fopen() does. NULL: what varve_error_message() says, or errno. */
FILE* varve_fopen(varve_session* session, uint64_t step, const char* name, const char* mode);
/* As varve_restart_from(), with the files of the checkpoint: they lie where varve_route_file() says until the next
 * checkpoint or a restart from another step. Collective. */
int varve_restart_with_files(varve_session* session, const struct varve_restart_choice* choice, uint64_t* step,
                             int* restarted);
/* How many files of this rank that restart has laid out, and the name of one; NULL if there are not so many. */
uint64_t varve_file_count(const varve_session* session);
const char* varve_file_name(const varve_session* session, uint64_t index);

/* 1: a checkpoint should be made at this step; 0: no. The same on all ranks. Collective. */
int varve_due(varve_session* session, uint64_t step);
/* Snapshots all that is protected, and has it written while the program goes on. Steps grow from one to the next. If a
 * checkpoint before has failed since, its error is returned once; this one is on its way all the same.
 * Every rank must do it. `persistence` is an enum varve_persistence. */
int varve_checkpoint(varve_session* session, uint64_t step, int persistence);
/* 1: the program should end; the last checkpoint is made. 0: no. */
int varve_should_stop(const varve_session* session);

/* Waits until everything is persistent, on all nodes; the error if it is not. Collective. */
int varve_wait(varve_session* session);
/* Waits so long at most, removes our memory, and ends the session: no call but varve_report(), varve_report_json() and
 * varve_close() afterwards. VARVE_BUSY: time ran out, and the newest checkpoint was given up. Collective. */
int varve_finish(varve_session* session, double limit_seconds);
/* Ends the session after a rank has died, without a word to the others: no call but varve_report(), varve_report_json()
 * and varve_close() afterwards. What is on its way to the store is given up; what is in memory stays, and the ranks
 * that are left open a session anew on a communicator of their own, in the same processes, and varve_restart() goes on
 * from memory, the dead rank's snapshot included. Every rank that lives must do it before any of them opens the next
 * one (else that says VARVE_BUSY). Waits for no other rank. Not collective. */
int varve_abandon(varve_session* session);

int varve_progress(const varve_session* session, struct varve_state* state);
/* The levels, nearest first: their number, the name of one ("dir:/lustre/varve"; "" if there are not so many), how far
 * it is (VARVE_NOT_FOUND if there are not so many), and its last error in words ("" if there was none). */
uint32_t varve_level_count(const varve_session* session);
const char* varve_level_name(varve_session* session, uint32_t level);
int varve_level_progress(const varve_session* session, uint32_t level, struct varve_level_state* state);
const char* varve_level_error(varve_session* session, uint32_t level);
/* The last error of stage 2 in words; "" if there was none. */
const char* varve_last_error(varve_session* session);
/* Something that the user should know, the oldest first, and takes it off the list; NULL if there is nothing. */
const char* varve_next_warning(varve_session* session);
/* The options in effect and where each came from, one a line. */
const char* varve_effective_options(varve_session* session);
/* What checkpointing cost and would cost: a few lines for people, and as JSON. Rank 0's. */
const char* varve_report(varve_session* session);
const char* varve_report_json(varve_session* session);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */

#endif /* VARVE_VARVE_H */
