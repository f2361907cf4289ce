# What a build can leave out, and how it is checked.
option(VARVE_SHARED "libvarve.so beside libvarve.a" ON)
option(VARVE_TESTS "Build the tests (GoogleTest, RapidCheck)" ON)
option(VARVE_EXAMPLES "Build the examples (examples/)" ON)
option(VARVE_BENCH "Build the benchmarks (Google Benchmark)" OFF)
option(VARVE_WITH_HDF5 "Read the layout of HDF5 files" ON)
option(VARVE_WITH_LZ4 "The lz4 codec" ON)
option(VARVE_WITH_MPI "Ranks over MPI, in a library of their own (if MPI is found)" ON)
option(VARVE_WITH_FORTRAN "The Fortran modules (if a compiler is found)" ON)
option(VARVE_WITH_PEERS "The functions of VELOC over Varve, for programs that call them (needs MPI)" ON)
option(VARVE_WITH_PYTHON "The Python package (if pybind11 is found; needs VARVE_SHARED)" ON)
option(VARVE_WITH_HWLOC "Find cores for checkpoint threads with hwloc" ON)
option(VARVE_WITH_TLS "Stores on servers over TCP, by TLS of OpenSSL (Unix sockets do without)" ON)
option(VARVE_WITH_S3 "Stores in buckets of S3 services, with libcurl and expat (if they are found)" ON)
option(VARVE_WITH_TOML "Options of a run in a TOML file" ON)
option(VARVE_WITH_CHARTS "The pages of `varve study` (with the charting library that tools/fetch_charts.sh brings)" ON)
option(VARVE_WITH_BLAKE3 "BLAKE3 scores (else SHA-256 of OpenSSL)" ON)
option(VARVE_WITH_FUSE "Mounts of stores, with libfuse 3" ON)
option(VARVE_WITH_METRICS "Metrics of servers and watchers over HTTP, with libmicrohttpd (files do without)" ON)
option(VARVE_WITH_TAR "Sets as tar archives, with libarchive" ON)
option(VARVE_PRECOMPILE "Precompile the headers that nearly every file includes" ON)
option(VARVE_UNITY "Compile sources of a folder together: all is built sooner, one changed file later" OFF)
set(VARVE_SANITIZE "" CACHE STRING "Sanitizers for all code, e.g. address,undefined or thread")
option(VARVE_WERROR "Treat warnings as errors" OFF)

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
include(GNUInstallDirs)

add_library(varve_warnings INTERFACE)
target_compile_options(varve_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-align -Woverloaded-virtual
  # GCC 12 sees overflows in std::string and std::vector that are not there (bugs 105329, 105762), GCC 14 frees of what
  # is in the middle of a block, where a vector of bytes grows.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds;-Wno-free-nonheap-object>
  # What a lock guards is used under that lock (src/core/thread_annotations.h), and locks are taken in their order; the
  # latter is still called beta.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety;-Wthread-safety-beta;-Werror=thread-safety;-Werror=thread-safety-beta>
  $<$<BOOL:${VARVE_WERROR}>:-Werror>)
if(VARVE_SANITIZE MATCHES "address")
  # With this sanitizer, GCC 12 sees uninitialised members in std::regex that are not there (bug 105562).
  target_compile_options(varve_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(VARVE_SANITIZE)
  add_compile_options(-fsanitize=${VARVE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${VARVE_SANITIZE})
endif()
