#ifndef VARVE_SCR_H
#define VARVE_SCR_H

/*
 * The functions of SCR, for programs that were written for it: compiled with this header and linked with this libscr,
 * they keep their checkpoints in a store of Varve, in the folder "varve" of SCR_PREFIX. Names and meanings are those
 * that SCR documents; what is otherwise is said in docs/PEERS.md. All are collective over MPI_COMM_WORLD, but for
 * SCR_Route_file(), SCR_Config() and SCR_Get_version().
 */

#ifdef __cplusplus
extern "C" {
#endif

#define SCR_SUCCESS (0) /* of anything else, what happened is said on standard error */
#define SCR_MAX_FILENAME (1024)

/* What a dataset is: something to restart from, plain files below SCR_PREFIX, or both. */
#define SCR_FLAG_NONE (0)
#define SCR_FLAG_CHECKPOINT (1)
#define SCR_FLAG_OUTPUT (2)

int SCR_Init(void);
int SCR_Finalize(void);
char* SCR_Get_version(void);
int SCR_Should_exit(int* flag);

/* Before SCR_Init(), "KEY=VALUE" sets, "KEY=" takes that back, and "STORE=/ssd COUNT=3" or "CKPT=0 TYPE=XOR" describe:
 * these give NULL. "KEY" and "STORE=/ssd COUNT" ask, at any time: what is returned is free()d, NULL is nothing. */
const char* SCR_Config(const char* config);
#ifdef __GNUC__
__attribute__((format(printf, 1, 2)))
#endif
const char*
SCR_Configf(const char* format, ...);

/* `file` has SCR_MAX_FILENAME bytes. */
int SCR_Route_file(const char* name, char* file);

int SCR_Have_restart(int* flag, char* name);
int SCR_Start_restart(char* name);
int SCR_Complete_restart(int valid);

int SCR_Need_checkpoint(int* flag);
int SCR_Start_checkpoint(void);
int SCR_Complete_checkpoint(int valid);
int SCR_Start_output(const char* name, int flags);
int SCR_Complete_output(int valid);

/* The program goes on from the checkpoint of this name; no restart takes it any more. */
int SCR_Current(const char* name);
int SCR_Drop(const char* name);
int SCR_Delete(const char* name);

#ifdef __cplusplus
}
#endif

#endif /* VARVE_SCR_H */
