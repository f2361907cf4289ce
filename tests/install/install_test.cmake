# One step of the installation test: cmake -D step=install|cmake_package|pkg_config ... -P install_test.cmake
set(prefix ${work_dir}/prefix)

function(must_run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
endfunction()

# Runs a program that makes a checkpoint.
function(must_save program)
  file(REMOVE_RECURSE ${program}_store)
  must_run(${ARGN} ${program} ${program}_store)
endfunction()

# The same on two ranks. Thread sanitizer cannot see into an MPI library that was built without it.
function(must_save_on_ranks program)
  if(NOT sanitize MATCHES "thread")
    must_save(${program} ${mpiexec} ${mpiexec_count_flag} 2)
  endif()
endfunction()

# What `pkg-config --static` says of a package, in a prefix that is not that of the configured build.
function(package_flags package flags)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${library_dir}/pkgconfig)
  execute_process(COMMAND pkg-config --static --cflags --libs ${package}
    OUTPUT_VARIABLE said RESULT_VARIABLE result OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not find ${package}, or what ${package} requires")
  endif()
  separate_arguments(said UNIX_COMMAND "${said}")
  set(${flags} ${said} PARENT_SCOPE)
endfunction()

set(sanitizer_flag "")
if(sanitize)
  set(sanitizer_flag -fsanitize=${sanitize})
endif()

if(step STREQUAL "install")
  file(REMOVE_RECURSE ${prefix})
  must_run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${prefix} --config ${config})
  set(files ${library_dir}/libvarve.a include/varve/status.h include/varve/varve.h include/varve/version.h
      ${library_dir}/cmake/varve/VarveConfig.cmake ${library_dir}/pkgconfig/varve.pc)
  if(mpi)
    list(APPEND files ${library_dir}/libvarve_mpi.a include/varve/varve_mpi.h ${library_dir}/pkgconfig/varve-mpi.pc)
  elseif(EXISTS ${prefix}/include/varve/mpi.h)
    message(FATAL_ERROR "installed, but of no use without MPI: include/varve/mpi.h")
  endif()
  foreach(file ${files})
    if(NOT EXISTS ${prefix}/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
elseif(step STREQUAL "cmake_package")
  file(REMOVE_RECURSE ${work_dir}/consumer)
  must_run(${CMAKE_COMMAND} -S ${consumer_dir} -B ${work_dir}/consumer -G ${generator}
    -D CMAKE_C_COMPILER=${c_compiler} -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_BUILD_TYPE=${config}
    -D CMAKE_C_FLAGS=${sanitizer_flag} -D CMAKE_CXX_FLAGS=${sanitizer_flag} -D CONSUMER_MPI=${mpi})
  must_run(${CMAKE_COMMAND} --build ${work_dir}/consumer --config ${config})
  must_run(${work_dir}/consumer/consumer)
  must_save(${work_dir}/consumer/c_consumer)
  if(mpi)
    must_save_on_ranks(${work_dir}/consumer/mpi_consumer)
    must_save_on_ranks(${work_dir}/consumer/mpi_c_consumer)
  endif()
elseif(step STREQUAL "pkg_config")
  package_flags(varve flags)
  # Every object of the archive, so that a library which the file forgot to name is noticed.
  set(whole_archive -Wl,--whole-archive ${prefix}/${library_dir}/libvarve.a -Wl,--no-whole-archive)
  must_run(${cxx_compiler} -std=c++20 ${sanitizer_flag} ${consumer_dir}/consumer.cpp -o ${work_dir}/consumer_pkg_config
    ${whole_archive} ${flags})
  must_run(${work_dir}/consumer_pkg_config)
  # A C program is linked as C++, as our library is.
  execute_process(COMMAND pkg-config --modversion varve OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
  must_run(${c_compiler} -std=c99 ${sanitizer_flag} -D "EXPECTED_VERSION=\"${version}\"" -c ${consumer_dir}/c_consumer.c
    -o ${work_dir}/c_consumer.o ${flags})
  must_run(${cxx_compiler} ${sanitizer_flag} ${work_dir}/c_consumer.o -o ${work_dir}/c_consumer_pkg_config ${flags})
  must_save(${work_dir}/c_consumer_pkg_config)
  if(mpi)
    package_flags(varve-mpi flags)
    must_run(${cxx_compiler} -std=c++20 ${sanitizer_flag} ${consumer_dir}/mpi_consumer.cpp
      -o ${work_dir}/mpi_consumer_pkg_config ${flags})
    must_save_on_ranks(${work_dir}/mpi_consumer_pkg_config)
  endif()
else()
  message(FATAL_ERROR "no step called '${step}'")
endif()
