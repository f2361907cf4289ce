include(GoogleTest)

# Test programs that are built and run without optimisation as well (`./run test`, preset ci-debug), where what undefined
# behaviour does is another thing: those of the parts in which several threads, processes and nodes meet.
set(VARVE_DEBUG_TESTS comm_test snapshot_test redundancy_test level_test runtime_test sessions_test levels_test level_contract_test)
add_custom_target(debug_tests)

# varve_module(NAME name SOURCES ... [IN target] [TESTS ...] [LIBRARIES ...])
# Adds a folder's sources to the library (or to another one), and its unit tests (which lie beside the code) as one test
# program.
function(varve_module)
  cmake_parse_arguments(M "" "NAME;IN" "SOURCES;TESTS;LIBRARIES" ${ARGN})
  if(NOT M_IN)
    set(M_IN varve)
  endif()
  list(TRANSFORM M_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${M_IN} PRIVATE ${M_SOURCES})
  varve_units(${M_IN} ${M_SOURCES})
  foreach(library ${M_LIBRARIES})
    target_link_libraries(${M_IN} PRIVATE ${library})
  endforeach()
  if(VARVE_TESTS AND M_TESTS)
    varve_test(NAME ${M_NAME}_test SOURCES ${M_TESTS} LIBRARIES ${M_IN} ${M_LIBRARIES})
    varve_units(${M_NAME}_test ${M_TESTS})
  endif()
endfunction()

# varve_test(NAME name SOURCES ... [LIBRARIES ...] [LABELS ...])
function(varve_test)
  cmake_parse_arguments(T "" "NAME" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  add_executable(${T_NAME} ${T_SOURCES})
  target_link_libraries(${T_NAME} PRIVATE varve varve_warnings varve_fmt GTest::gtest GTest::gtest_main rapidcheck ${T_LIBRARIES})
  target_include_directories(${T_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  # What is tested is optimised; to optimise the tests themselves takes longer than they do.
  target_compile_options(${T_NAME} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(T_NAME IN_LIST VARVE_DEBUG_TESTS)
    add_dependencies(debug_tests ${T_NAME})
    list(APPEND T_LABELS debug)
  endif()
  gtest_discover_tests(${T_NAME} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120 PROPERTIES LABELS "${T_LABELS}")
endfunction()
