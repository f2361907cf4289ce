# One step of the installation test: cmake -D step=install|cmake_package|pkg_config ... -P install_test.cmake
set(prefix ${work_dir}/prefix)

function(must_run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
endfunction()

set(sanitizer_flag "")
if(sanitize)
  set(sanitizer_flag -fsanitize=${sanitize})
endif()

if(step STREQUAL "install")
  file(REMOVE_RECURSE ${prefix})
  must_run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${prefix} --config ${config})
  foreach(file ${library_dir}/libvarve.a include/varve/status.h ${library_dir}/cmake/varve/VarveConfig.cmake
          ${library_dir}/pkgconfig/varve.pc)
    if(NOT EXISTS ${prefix}/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
elseif(step STREQUAL "cmake_package")
  file(REMOVE_RECURSE ${work_dir}/consumer)
  must_run(${CMAKE_COMMAND} -S ${consumer_dir} -B ${work_dir}/consumer -G ${generator}
    -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_BUILD_TYPE=${config}
    -D CMAKE_CXX_FLAGS=${sanitizer_flag})
  must_run(${CMAKE_COMMAND} --build ${work_dir}/consumer --config ${config})
  must_run(${work_dir}/consumer/consumer)
elseif(step STREQUAL "pkg_config")
  # The file names the prefix of the configured build; this prefix is another, as with any staged installation.
  set(pkg_config pkg-config --static --define-variable=prefix=${prefix})
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${library_dir}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs varve OUTPUT_VARIABLE flags RESULT_VARIABLE result
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not find varve, or what varve requires")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  # Every object of the archive, so that a library which the file forgot to name is noticed.
  set(whole_archive -Wl,--whole-archive ${prefix}/${library_dir}/libvarve.a -Wl,--no-whole-archive)
  must_run(${cxx_compiler} -std=c++20 ${sanitizer_flag} ${consumer_dir}/consumer.cpp -o ${work_dir}/consumer_pkg_config
    ${whole_archive} ${flags})
  must_run(${work_dir}/consumer_pkg_config)
else()
  message(FATAL_ERROR "no step called '${step}'")
endif()
