# varve_mpi_test(NAME name RANKS count COMMAND program arguments... [ENVIRONMENT NAME=VALUE...] [LABELS ...])
# A test that mpirun starts, on more ranks than there are processors, as root in a container too. The settings are
# environment variables, so that each library takes those that it knows: all that has to do with one library
# alone is here.
set(VARVE_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none  # containers forbid the copy by the kernel
  # An MPI library never frees all of its modules, and has unloaded them when leaks are looked for: no telling whose they
  # are. Leaks of ours are found by the same tests with ranks that are threads.
  LSAN_OPTIONS=detect_leaks=0)

# The programs that tests with MPI start: what a build with another MPI library is for (preset ci-mpich).
add_custom_target(mpi_tests)

function(varve_mpi_test)
  cmake_parse_arguments(T "" "NAME;RANKS" "COMMAND;ENVIRONMENT;LABELS" ${ARGN})
  list(POP_FRONT T_COMMAND program)
  # With its whole path: not all launchers look in the working directory.
  if(TARGET ${program})
    add_dependencies(mpi_tests ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${T_NAME}
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${T_RANKS} ${MPIEXEC_PREFLAGS} ${program} ${T_COMMAND}
      ${MPIEXEC_POSTFLAGS})
  # Thread sanitizer cannot see into an MPI library that was built without it; what it finds there is not so.
  string(FIND "${VARVE_SANITIZE}" thread thread_sanitizer)
  # COST here and elsewhere: what takes more than one processor, or long, starts first; at the end it would go by itself.
  set_tests_properties(${T_NAME} PROPERTIES LABELS "mpi;${T_LABELS}" PROCESSORS ${T_RANKS} COST ${T_RANKS}
    ENVIRONMENT "${VARVE_MPI_ENVIRONMENT};${T_ENVIRONMENT}")
  if(NOT thread_sanitizer EQUAL -1)
    set_tests_properties(${T_NAME} PROPERTIES DISABLED ON)
  endif()
endfunction()
