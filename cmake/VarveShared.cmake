# libvarve.so and libvarve_mpi.so, beside the static libraries and made of the same objects. Only what include/varve declares is
# visible (cmake/varve.map). A shared library links shared ones: static ones are not always built for it, and the system
# keeps the others up to date.
if(NOT VARVE_SHARED)
  return()
endif()

set(VARVE_ABI 1)  # changes with a release that takes a name away or changes what it means

# A shared library of the objects of a static one, which shows what `map` lists.
function(varve_shared_library name archive map)
  add_library(${name} SHARED $<TARGET_OBJECTS:${archive}>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${archive} VERSION ${VARVE_ABI} SOVERSION ${VARVE_ABI}
    LINKER_LANGUAGE CXX LINK_DEPENDS ${map})
  target_link_options(${name} PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined -Wl,--as-needed)
endfunction()

varve_shared_library(varve_shared varve ${PROJECT_SOURCE_DIR}/cmake/varve.map)
if(TARGET varve_blake3)
  target_sources(varve_shared PRIVATE $<TARGET_OBJECTS:varve_blake3>)
endif()
target_compile_features(varve_shared INTERFACE cxx_std_20)
target_include_directories(varve_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
get_target_property(varve_links varve LINK_LIBRARIES)
list(REMOVE_DUPLICATES varve_links)
# By their files, so that who uses the package need not find them.
foreach(library ${varve_links})
  string(REGEX REPLACE "^PkgConfig::" "" module "${library}")
  set(type file)
  if(TARGET ${library})
    get_target_property(type ${library} TYPE)
  endif()
  if(DEFINED ${module}_LINK_LIBRARIES)
    target_link_libraries(varve_shared PRIVATE ${${module}_LINK_LIBRARIES})
  elseif(library MATCHES "^(hdf5|HDF5)::")
    target_link_libraries(varve_shared PRIVATE ${HDF5_SHARED_LINK_LIBRARIES})
  elseif(type MATCHES "^(SHARED|STATIC|UNKNOWN)_LIBRARY$")
    target_link_libraries(varve_shared PRIVATE $<TARGET_LINKER_FILE:${library}>)
  elseif(type STREQUAL "file")
    target_link_libraries(varve_shared PRIVATE ${library})
  endif()
endforeach()

if(TARGET varve_mpi)
  varve_shared_library(varve_mpi_shared varve_mpi ${PROJECT_SOURCE_DIR}/cmake/varve_mpi.map)
  target_link_libraries(varve_mpi_shared PUBLIC varve_shared MPI::MPI_C)
  target_compile_definitions(varve_mpi_shared INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endif()
