# Every library from outside, with what it is there for.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

find_package(fmt REQUIRED)                                            # text for people
# Its headers alone: so users of the libraries need none of it, and the program no shared library of C++ (varve_cli).
add_library(varve_fmt INTERFACE)
target_link_libraries(varve_fmt INTERFACE $<BUILD_INTERFACE:fmt::fmt-header-only>)
find_package(nlohmann_json REQUIRED)                                  # --json
find_package(CLI11 REQUIRED)                                          # the command line
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)              # the general codec
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)              # the smallest codec, for --effort best
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)              # CRC-32C, erasure codes
pkg_check_modules(DEFLATE REQUIRED IMPORTED_TARGET libdeflate)        # gzip, three times as fast as zlib
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)          # SHA-256 scores, random ids

if(VARVE_WITH_LZ4)
  pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)              # the fastest codec
endif()
if(VARVE_WITH_HDF5)
  # The static library, where there is one: the shared one of some distributions draws in forty others, which costs every start of the
  # program more than reading a small file does.
  set(HDF5_USE_STATIC_LIBRARIES ON)
  find_package(HDF5 REQUIRED COMPONENTS C)                            # where an HDF5 file's variables lie
  set_property(TARGET hdf5::hdf5 APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${HDF5_C_LIBRARIES})  # what a static one needs beside it
  if(VARVE_SHARED)
    # The same for libvarve.so, of the same version; the name alone may be that of a library over MPI.
    pkg_search_module(HDF5_SHARED REQUIRED IMPORTED_TARGET hdf5-serial=${HDF5_VERSION} hdf5=${HDF5_VERSION} hdf5)
  endif()
endif()
if(VARVE_WITH_TLS)
  pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl)              # stores on servers over TCP
endif()

if(VARVE_WITH_S3)
  pkg_check_modules(CURL QUIET libcurl>=7.85)                         # requests to S3 services; loaded by who makes some
  pkg_check_modules(EXPAT QUIET IMPORTED_TARGET expat)                # what they answer
  if(NOT CURL_FOUND OR NOT EXPAT_FOUND)
    message(STATUS "No libcurl or no expat found (Debian: libcurl4-openssl-dev, libexpat1-dev); no stores in buckets")
    set(VARVE_WITH_S3 OFF)
  endif()
endif()

if(VARVE_WITH_FORTRAN)
  include(CheckLanguage)
  check_language(Fortran)
  if(CMAKE_Fortran_COMPILER)
    enable_language(Fortran)
  else()
    message(STATUS "No Fortran compiler found (Debian: gfortran); no Fortran modules")
    set(VARVE_WITH_FORTRAN OFF)
  endif()
endif()
if(VARVE_WITH_PYTHON AND VARVE_SHARED AND NOT VARVE_SANITIZE)
  # The distribution's interpreter, where there is one: it has the packages that the tests use.
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS /usr/bin/python3)
    set(Python_EXECUTABLE /usr/bin/python3)
  endif()
  set(PYBIND11_FINDPYTHON ON)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    find_package(pybind11 2.6 CONFIG QUIET)                           # the Python package, over the C interface
  endif()
  if(NOT pybind11_FOUND)
    message(STATUS "No Python or no pybind11 found (Debian: python3-dev, pybind11-dev); no Python package")
    set(VARVE_WITH_PYTHON OFF)
  endif()
else()
  set(VARVE_WITH_PYTHON OFF)
endif()
if(VARVE_WITH_MPI)
  find_package(MPI QUIET COMPONENTS C)                                # ranks, for libvarve_mpi; libvarve has nothing of it
  if(NOT MPI_C_FOUND)
    message(STATUS "No MPI found (Debian: libopenmpi-dev); varve::mpi is not built")
    set(VARVE_WITH_MPI OFF)
  else()
    if(VARVE_WITH_FORTRAN)
      find_package(MPI QUIET COMPONENTS Fortran)                      # the same for programs in Fortran
    endif()
    # What tells ranks of one that has died (ULFM): MPICH has it in <mpi.h>, Open MPI from 5.0 on in <mpi-ext.h>.
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
    set(ulfm "int main(void) { MPI_Comm c = MPI_COMM_WORLD; return MPIX_Comm_revoke(c) + MPIX_Comm_shrink(c, &c) + MPIX_ERR_PROC_FAILED; }")
    check_c_source_compiles("#include <mpi.h>\n#include <mpi-ext.h>\nint main(void) { return 0; }" VARVE_MPI_HAS_EXTENSIONS)
    if(VARVE_MPI_HAS_EXTENSIONS)
      check_c_source_compiles("#include <mpi.h>\n#include <mpi-ext.h>\n${ulfm}" VARVE_MPI_HAS_ULFM)
    else()
      check_c_source_compiles("#include <mpi.h>\n${ulfm}" VARVE_MPI_HAS_ULFM)
    endif()
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
endif()
if(VARVE_WITH_HWLOC)
  pkg_check_modules(HWLOC REQUIRED hwloc>=2.1 hwloc<3)                # which cores a program leaves free; loaded by who asks
endif()
if(VARVE_WITH_FUSE)
  pkg_check_modules(FUSE REQUIRED IMPORTED_TARGET fuse3)              # varve mount
endif()
if(VARVE_WITH_METRICS)
  pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd) # who asks for metrics over HTTP gets them; loaded by who serves some
endif()
if(VARVE_WITH_TAR)
  pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)       # varve restore --tar; loaded by it
endif()
if(VARVE_WITH_TOML)
  find_package(tomlplusplus REQUIRED)                                 # options files; headers only, so that users need none
endif()

# BLAKE3: an installed CMake package, else the C and assembly sources that Debian's librust-blake3-dev ships.
set(VARVE_BLAKE3_TARGET "")
if(VARVE_WITH_BLAKE3)
  find_package(BLAKE3 CONFIG QUIET)
  if(TARGET BLAKE3::blake3)
    set(VARVE_BLAKE3_TARGET BLAKE3::blake3)
  else()
    file(GLOB VARVE_BLAKE3_DIRS /usr/share/cargo/registry/blake3-*/c)
    if(VARVE_BLAKE3_DIRS)
      list(GET VARVE_BLAKE3_DIRS 0 VARVE_BLAKE3_DIR)
      set(blake3_sources blake3.c blake3_dispatch.c blake3_portable.c)
      set(blake3_definitions "")
      if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
        list(APPEND blake3_sources blake3_sse2_x86-64_unix.S blake3_sse41_x86-64_unix.S
             blake3_avx2_x86-64_unix.S blake3_avx512_x86-64_unix.S)
      elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
        list(APPEND blake3_sources blake3_neon.c)
        set(blake3_definitions BLAKE3_USE_NEON=1)
      endif()
      list(TRANSFORM blake3_sources PREPEND ${VARVE_BLAKE3_DIR}/)
      add_library(varve_blake3 OBJECT ${blake3_sources})
      target_include_directories(varve_blake3 SYSTEM PUBLIC $<BUILD_INTERFACE:${VARVE_BLAKE3_DIR}>)
      target_compile_definitions(varve_blake3 PRIVATE ${blake3_definitions})
      set_target_properties(varve_blake3 PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11)
      set(VARVE_BLAKE3_TARGET varve_blake3)
    else()
      message(STATUS "No BLAKE3 found (Debian: librust-blake3-dev); scores are SHA-256")
    endif()
  endif()
endif()

# The charting library of the pages that `varve study` writes: fetched by tools/fetch_charts.sh.
set(VARVE_CHARTS_FILE "")
if(VARVE_WITH_CHARTS)
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/charts/echarts.min.js)
    set(VARVE_CHARTS_FILE ${PROJECT_SOURCE_DIR}/build/charts/echarts.min.js)
  else()
    message(STATUS "No charting library (tools/fetch_charts.sh brings it); varve study writes JSON and CSV, and no page")
  endif()
endif()

pkg_check_modules(PNG QUIET IMPORTED_TARGET libpng)                   # pictures of the flow solver in examples/, and of studies

# The static libraries, where there are: what the dynamic loader does for libcrypto alone takes as long as saving a small file.
function(varve_prefer_archives target names)
  get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
  if(NOT libraries)
    return()
  endif()
  set(preferred "")
  foreach(library ${libraries})
    string(REGEX REPLACE "\\.so$" ".a" archive "${library}")
    if(archive MATCHES "/lib(${names})\\.a$" AND EXISTS "${archive}")
      list(APPEND preferred ${archive})
      get_filename_component(folder "${archive}" DIRECTORY)
      foreach(beside ${ARGN})  # what it needs itself: a flag, or an archive in the same folder
        if(EXISTS "${folder}/${beside}")
          list(APPEND preferred "${folder}/${beside}")
        else()
          list(APPEND preferred ${beside})
        endif()
      endforeach()
    else()
      list(APPEND preferred ${library})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${preferred}")
endfunction()
foreach(prefix ZSTD LZMA DEFLATE CRYPTO SSL LZ4 EXPAT)
  if(TARGET PkgConfig::${prefix})
    varve_prefer_archives(PkgConfig::${prefix} ".*")
  endif()
endforeach()
if(TARGET PkgConfig::PNG)
  varve_prefer_archives(PkgConfig::PNG "png.*" -lz -lm)
endif()
if(TARGET hdf5::hdf5)
  varve_prefer_archives(hdf5::hdf5 sz libaec.a)
endif()
if(VARVE_TESTS)
  find_package(GTest REQUIRED)                                        # tests
  find_package(rapidcheck REQUIRED)                                   # property tests
  find_package(fpzip QUIET)                                           # our fpzip codec must write what the library writes
endif()
if(VARVE_BENCH)
  find_package(benchmark REQUIRED)                                    # micro-benchmarks
endif()
