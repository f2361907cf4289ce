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
