#ifndef VARVE_VELOC_H
#define VARVE_VELOC_H

/*
 * The functions of VELOC, for programs that were written for it: compiled with this header and linked with this
 * libveloc-client, they keep their checkpoints in a store of Varve. Names and meanings are those that VELOC documents;
 * what is otherwise is said in docs/PEERS.md. All are collective, unless VELOC_Init_single() was called, but for those
 * of memory and files.
 */

#include <mpi.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1) /* what happened is said on standard error */
#define VELOC_MAX_NAME (1024)

/* Which memory: all of it, that of the given ids, or all but those. */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)
#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

/* With the configuration file of VELOC, of ranks or of one process by itself. Finalize waits for what is on its way if
 * `drain` says so; without it, the newest checkpoint may be in memory alone. */
int VELOC_Init(MPI_Comm comm, const char* cfg_file);
int VELOC_Init_single(unsigned int unique_id, const char* cfg_file);
int VELOC_Finalize(int drain);

/* Memory that belongs to all checkpoints (Mem), or to those of one name (Region). It may be freed once it is not
 * protected, or nothing is called any more that reads or writes it. */
int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name);
int VELOC_Region_unprotect(int id, const char* name);
int VELOC_Region_clear(const char* name);

/* The one file of this rank in the checkpoint that has begun, or in the restart: `routed` has VELOC_MAX_NAME bytes. */
int VELOC_Route_file(const char* original, char* routed);
/* Forgets what is in memory of the checkpoints of a name; those in the store stay. */
int VELOC_Cleanup(const char* name);

int VELOC_Checkpoint(const char* name, int version);
int VELOC_Checkpoint_begin(const char* name, int version);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids);
int VELOC_Checkpoint_end(int success);
int VELOC_Checkpoint_wait(void);
int VELOC_Checkpoint_finished(void); /* 1: nothing is on its way; 0: something is */

/* The newest version, or with `version` > 0 the newest that is not newer; VELOC_FAILURE if there is none. */
int VELOC_Restart_test(const char* name, int version);
int VELOC_Restart(const char* name, int version);
int VELOC_Restart_begin(const char* name, int version);
int VELOC_Recover_mem(void);
int VELOC_Recover_selective(int mode, int* ids, int no_ids);
int VELOC_Recover_size(int id); /* bytes in the checkpoint; VELOC_FAILURE if it has no such id */
int VELOC_Restart_end(int success);

#ifdef __cplusplus
}
#endif

#endif /* VARVE_VELOC_H */
