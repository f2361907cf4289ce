# varve_precompile(target [headers of ours...])
# Nearly every file includes these, and to read them takes as long as to compile what a file says itself.
function(varve_precompile target)
  # Without optimisation, fmt asks GCC for some, and a precompiled header says of all code that it is optimised.
  if(NOT VARVE_PRECOMPILE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    return()
  endif()
  set(headers <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <filesystem> <functional> <map> <memory> <optional>
      <set> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
  foreach(header ${ARGN})
    list(APPEND headers ${PROJECT_SOURCE_DIR}/${header})
  endforeach()
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
  target_precompile_headers(${target} PRIVATE ${headers})
  # So that ccache finds its way (with CCACHE_SLOPPINESS=pch_defines,time_macros).
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# varve_units(target sources...)
# Has the sources of one folder, some at a time, compiled as one unit where VARVE_UNITY is on: what they include is then
# read once for all of them, which is most of the time that it takes to build everything. Names in anonymous namespaces
# are therefore unique in a folder. Sources with options of their own stay alone.
function(varve_units target)
  if(NOT VARVE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a source that is included for a header, whose classes should not rest on anonymous namespaces.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(at 0)
  foreach(source ${ARGN})
    math(EXPR unit "${at} / 8")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${unit})
    math(EXPR at "${at} + 1")
  endforeach()
endfunction()
