/* SCR's functions, as its programs call them: `scr_test TOLD run|leave|once|tidySTEP`. "run" computes some steps and
 * goes on where an earlier run has ended, however it has; "leave" ends such a run without a word to SCR and MPI; "once"
 * tries each function. The settings are those of the environment. */
#include "scr.h"

#include "calls.h"

/* SCR has no name for it, so that its programs have this one. */
#define SCR_FAILURE (!SCR_SUCCESS)

enum { kSteps = 6 };

static int write_one(const char* name, int step) {
  char path[SCR_MAX_FILENAME];
  if (CALL(SCR_Route_file(name, path)) != SCR_SUCCESS) return 0;
  FILE* file = fopen(path, "w");
  if (file == NULL) return 0;
  for (int i = 0; i < 2000; ++i) fprintf(file, "rank %d step %d line %d\n", rank_, step, i);
  return fclose(file) == 0;
}

/* Writes a file of the dataset that has been started, and tells where it lies in memory. */
static void write_at(const char* name, int step, char* path) {
  CHECK(write_one(name, step));
  CHECK_CALL(SCR_Route_file(name, path));
  CHECK(access(path, F_OK) == 0);
}

static int is_whole(const char* name, int step) {
  char path[SCR_MAX_FILENAME], line[99], wanted[99];
  if (CALL(SCR_Route_file(name, path)) != SCR_SUCCESS) return 0;
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  int good = 1;
  for (int i = 0; good && i < 2000; ++i) {
    snprintf(wanted, sizeof wanted, "rank %d step %d line %d\n", rank_, step, i);
    good = fgets(line, sizeof line, file) != NULL && strcmp(line, wanted) == 0;
  }
  good = good && fgets(line, sizeof line, file) == NULL;
  fclose(file);
  return good;
}

static void name_file(char* into, int step) { sprintf(into, "ckpt.%d/rank.%d", step, rank_); }

static int checkpoint(int step, int flags) {
  char dataset[99], name[99];
  sprintf(dataset, "ckpt.%d", step);
  name_file(name, step);
  CHECK_CALL(SCR_Start_output(dataset, flags));
  const int valid = write_one(name, step);
  return CALL(SCR_Complete_output(valid));
}

/* The step of the checkpoint that was read; 0: there is none. */
static int restart(int first_fails) {
  int have = 0;
  char dataset[SCR_MAX_FILENAME], again[SCR_MAX_FILENAME], name[99];
  while (1) {
    CHECK_CALL(SCR_Have_restart(&have, dataset));
    if (!have) return 0;
    CHECK_CALL(SCR_Start_restart(again));
    CHECK(strcmp(dataset, again) == 0);
    int step = 0;
    CHECK(sscanf(dataset, "ckpt.%d", &step) == 1);
    name_file(name, step);
    const int valid = is_whole(name, step) && !(first_fails && rank_ == rank_count_ - 1);
    CHECK(valid || first_fails);
    if (CALL(SCR_Complete_restart(valid)) == SCR_SUCCESS) return step;
    first_fails = 0;
  }
}

static void run(const char* told, int leaves) {
  const int kept = told_before(told);
  CHECK_CALL(SCR_Init());
  int step = restart(0);
  CHECK(step >= kept);
  const int begin = step;
  while (step < kSteps) {
    int need = 0, stop = 0;
    ++step;
    CHECK_CALL(SCR_Need_checkpoint(&need));
    if (need) {
      CHECK(checkpoint(step, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
      tell_next(told, step);
    }
    CHECK_CALL(SCR_Should_exit(&stop));
    CHECK(!stop);
  }
  if (leaves) exit(0);
  CHECK_CALL(SCR_Finalize());
  if (rank_ == 0) printf("from %d calls %d\n", begin, calls_made);
}

/* Goes on from `step`, makes two more, and tidies up what is older. */
static void tidy(int step) {
  CHECK_CALL(SCR_Init());
  CHECK(restart(0) == step);
  CHECK(checkpoint(step + 1, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
  CHECK(checkpoint(step + 2, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
  char old[99];
  sprintf(old, "ckpt.%d", step - 4);
  CHECK_CALL(SCR_Delete(old));
  CHECK(SCR_Delete("not there") == SCR_FAILURE);
  CHECK_CALL(SCR_Finalize());
}

/* Whether SCR_Config() says `wanted` of what is asked for. */
static int says(const char* asked, const char* wanted) {
  char* const value = (char*)SCR_Config(asked);
  const int same = value == NULL || wanted == NULL ? value == wanted : strcmp(value, wanted) == 0;
  free(value);
  return same;
}

static void configure(void) {
  CHECK(SCR_Configf("SCR_CHECKPOINT_INTERVAL=%d", 2) == NULL);
  CHECK(says("SCR_CHECKPOINT_INTERVAL", "2"));
  CHECK(says("SCR_NOT_SAID", NULL) && says("", NULL) && says(NULL, NULL));
  CHECK(says("SCR_SOME = 1", NULL) && says("SCR_SOME", "1"));
  CHECK(says("SCR_SOME= /a/=/b=c", NULL) && says("SCR_SOME", "/a/=/b=c"));
  setenv("TEST_WHERE", "/there", 1);
  CHECK(says("SCR_SOME=$TEST_WHERE/x${TEST_WHERE}y$TEST_NOT_SAID${TEST_WHERE", NULL));
  CHECK(says("SCR_SOME", "/there/x/therey${TEST_WHERE"));
  CHECK(says("SCR_SOME=", NULL) && says("SCR_SOME", NULL));
  /* What the environment says is not taken back. */
  setenv("SCR_SOME", "$TEST_WHERE", 1);
  CHECK(says("SCR_SOME=2", NULL) && says("SCR_SOME=", NULL) && says("SCR_SOME", "/there"));
  /* Descriptors. */
  CHECK(says("STORE= /ssd GROUP = NODE COUNT  =1", NULL) && says("STORE=/nvme COUNT=2", NULL));
  CHECK(says("STORE=/ssd COUNT", "1") && says("STORE=/nvme COUNT", "2") && says("STORE = /ssd GROUP", "NODE"));
  CHECK(says("STORE", "/nvme") && says("STORE=/nvme GROUP", NULL) && says("STORE=/none COUNT", NULL));
  CHECK(says("STORE=/ssd COUNT=3", NULL) && says("STORE=/ssd COUNT", "3") && says("STORE=/ssd GROUP", NULL));
  CHECK(says("STORE=", NULL) && says("STORE", NULL) && says("STORE=/ssd COUNT", NULL));
  CHECK(says("CKPT=0 TYPE=XOR SET_SIZE=16", NULL) && says("CKPT=0 SET_SIZE", "16") && says("CKPT=1 SET_SIZE", NULL));
  CHECK(says("CKPT=", NULL));
}

static void write_again(int content) {
  CHECK_CALL(SCR_Start_output("again", SCR_FLAG_CHECKPOINT));
  CHECK(write_one("again.dat", content));
  CHECK_CALL(SCR_Complete_output(1));
}
static void check_next(int content) {
  int have = 0;
  char dataset[SCR_MAX_FILENAME];
  CHECK_CALL(SCR_Have_restart(&have, dataset));
  CHECK(have && strcmp(dataset, "again") == 0);
  CHECK_CALL(SCR_Start_restart(NULL));
  CHECK(is_whole("again.dat", content));
  CHECK_CALL(SCR_Complete_restart(1));
}

/* A name is that of the newest dataset that has it. */
static void use_a_name_again(void) {
  CHECK_CALL(SCR_Init());
  for (int content = 1; content <= 4; ++content) write_again(content);
  CHECK(checkpoint(5, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
  CHECK_CALL(SCR_Current("again"));
  check_next(4);
  CHECK_CALL(SCR_Delete("again"));
  CHECK_CALL(SCR_Current("again"));
  check_next(3);
  CHECK_CALL(SCR_Finalize());
  setenv("SCR_CURRENT", "again", 1);
  CHECK_CALL(SCR_Init());
  check_next(3);
  CHECK_CALL(SCR_Drop("again"));
  CHECK_CALL(SCR_Current("again"));
  check_next(2);
  CHECK_CALL(SCR_Finalize());
  unsetenv("SCR_CURRENT");
}

/* A folder that is named counts; a name without one does where it is that of one file alone. */
static void find_files_by_name(void) {
  char path[SCR_MAX_FILENAME];
  CHECK_CALL(SCR_Init());
  CHECK_CALL(SCR_Start_output("folders", SCR_FLAG_CHECKPOINT));
  CHECK(write_one("a/x", 1) && write_one("b/x", 2) && write_one("a/y", 3));
  CHECK_CALL(SCR_Complete_output(1));
  CHECK_CALL(SCR_Start_restart(NULL));
  CHECK(is_whole("a/x", 1) && is_whole("b/x", 2) && is_whole("b/../a/y", 3));
  CHECK(SCR_Route_file("c/x", path) == SCR_FAILURE);
  CHECK(SCR_Route_file("x", path) == SCR_FAILURE);
  CHECK(SCR_Route_file("b/y", path) == SCR_FAILURE);
  CHECK(SCR_Route_file("./y", path) == SCR_FAILURE);
  CHECK(is_whole("y", 3));
  CHECK_CALL(SCR_Complete_restart(1));
  CHECK_CALL(SCR_Finalize());
}

static void once(void) {
  int flag = 0;
  char path[SCR_MAX_FILENAME];
  CHECK(SCR_Start_checkpoint() == SCR_FAILURE);
  CHECK(SCR_Get_version() != NULL && strstr(SCR_Get_version(), "varve") != NULL);
  configure();
  CHECK_CALL(SCR_Init());
  CHECK(SCR_Init() == SCR_FAILURE);
  CHECK_CALL(SCR_Have_restart(&flag, NULL));
  CHECK(!flag && SCR_Start_restart(NULL) == SCR_FAILURE);
  CHECK_CALL(SCR_Need_checkpoint(&flag));
  CHECK(!flag);
  CHECK_CALL(SCR_Need_checkpoint(&flag));
  CHECK(flag);
  CHECK_CALL(SCR_Route_file("as/it/is", path));
  CHECK(strcmp(path, "as/it/is") == 0);
  CHECK(SCR_Complete_output(1) == SCR_FAILURE);
  CHECK(checkpoint(1, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
  CHECK(checkpoint(2, SCR_FLAG_CHECKPOINT | SCR_FLAG_OUTPUT) == SCR_SUCCESS);
  /* A rank that has not written all. */
  CHECK_CALL(SCR_Start_output("ckpt.3", SCR_FLAG_CHECKPOINT));
  CHECK(SCR_Start_output("ckpt.4", SCR_FLAG_CHECKPOINT) == SCR_FAILURE);
  write_at("ckpt.3/a/part", 3, path);
  CHECK(CALL(SCR_Complete_output(rank_ != 0)) == SCR_FAILURE);
  CHECK(access(path, F_OK) != 0); /* it takes up no memory */
  /* A dataset without a name, and an output alone, which is no checkpoint. */
  CHECK_CALL(SCR_Start_output("plots", SCR_FLAG_OUTPUT));
  char name[99];
  sprintf(name, "plots/picture.%d", rank_);
  write_at(name, 9, path);
  CHECK_CALL(SCR_Complete_output(1));
  CHECK(access(path, F_OK) != 0);
  CHECK(checkpoint(4, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS);
  CHECK_CALL(SCR_Finalize());
  CHECK_CALL(SCR_Init());
  CHECK(restart(0) == 4);
  CHECK_CALL(SCR_Finalize());
  CHECK_CALL(SCR_Init());
  CHECK(restart(1) == 2); /* 4 is not good on one rank */
  CHECK_CALL(SCR_Current("ckpt.1"));
  CHECK(restart(0) == 1);
  CHECK(SCR_Current("not there") == SCR_FAILURE);
  CHECK_CALL(SCR_Current("ckpt.4"));
  CHECK_CALL(SCR_Drop("ckpt.4"));
  CHECK(restart(0) == 2);
  CHECK_CALL(SCR_Finalize());
  CHECK_CALL(SCR_Init());
  CHECK(restart(0) == 2); /* later runs do not take it either */
  CHECK(SCR_Drop("ckpt.4") == SCR_FAILURE);
  CHECK_CALL(SCR_Delete("ckpt.1"));
  CHECK(SCR_Delete("ckpt.1") == SCR_FAILURE);
  /* The path that the file has in the prefix, and its name alone. */
  CHECK_CALL(SCR_Start_restart(NULL));
  sprintf(name, "rank.%d", rank_);
  CHECK(is_whole(name, 2));
  CHECK(SCR_Route_file("no.such.file", path) == SCR_FAILURE);
  CHECK_CALL(SCR_Complete_restart(1));
  CHECK_CALL(SCR_Start_checkpoint());
  CHECK(write_one("unnamed", 5));
  CHECK_CALL(SCR_Complete_checkpoint(1));
  CHECK_CALL(SCR_Have_restart(&flag, path));
  CHECK(flag && strstr(path, "scr.dataset.") == path);
  CHECK_CALL(SCR_Finalize());
  CHECK(SCR_Finalize() == SCR_FAILURE);
  use_a_name_again();
  find_files_by_name();
  /* What is output lies in the prefix, or where the program is below it. */
  const char* const prefix = getenv("SCR_PREFIX");
  const char* below = getenv("TEST_BELOW");
  if (below == NULL) below = "";
  CHECK(prefix != NULL);
  snprintf(path, sizeof path, "%s/%splots/picture.%d", prefix, below, rank_);
  FILE* file = fopen(path, "r");
  CHECK(file != NULL);
  fclose(file);
  snprintf(path, sizeof path, "%s/%sckpt.2/rank.%d", prefix, below, rank_);
  file = fopen(path, "r");
  CHECK(file != NULL);
  fclose(file);
}

int main(int argc, char** argv) {
  begin_test(&argc, &argv);
  CHECK(argc == 3);
  if (strcmp(argv[2], "once") == 0) {
    once();
  } else if (strncmp(argv[2], "tidy", 4) == 0) {
    tidy(atoi(argv[2] + 4));
  } else {
    run(argv[1], strcmp(argv[2], "leave") == 0);
  }
  MPI_Finalize();
  return 0;
}
