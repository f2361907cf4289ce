# Debian packages, by `./run packages` (preset packages), or cpack -G DEB: one for each component of VarveInstall.cmake.
# What each needs of other packages is found by dpkg-shlibdeps, but for what is loaded by who uses it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Varve <varve@localhost>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/src/comm)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # and has the loader look for them anew
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENTS_ALL "")

# varve_package(name summary [DEPENDS ...] [RECOMMENDS ...] [SUGGESTS ...]): of the component of that name.
macro(varve_package name summary)
  cmake_parse_arguments(P "" "" "DEPENDS;RECOMMENDS;SUGGESTS" ${ARGN})
  string(TOUPPER ${name} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name})
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}")
  foreach(relation DEPENDS RECOMMENDS SUGGESTS)
    list(JOIN P_${relation} ", " CPACK_DEBIAN_${key}_PACKAGE_${relation})
  endforeach()
  list(APPEND CPACK_COMPONENTS_ALL ${name})
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${name})
  endif()
endmacro()

set(same "(= ${PROJECT_VERSION})")
varve_package(varve "The program varve, its manual pages, and what completes its commands in shells."
  RECOMMENDS fuse3 libcurl4 libarchive13 libmicrohttpd12 libhwloc15 SUGGESTS varve-doc)
varve_package(varve-doc "The guide, formats and examples.")
set(CPACK_DEBIAN_VARVE-DOC_PACKAGE_ARCHITECTURE all)
if(TARGET varve_shared)
  varve_package(libvarve1 "What programs use that keep their own checkpoints." RECOMMENDS libcurl4 libhwloc15)
  set(development "libvarve1 ${same}")
  if(TARGET varve_mpi_shared)
    varve_package(libvarve-mpi1 "The same for the ranks of MPI programs." DEPENDS "libvarve1 ${same}")
    list(APPEND development "libvarve-mpi1 ${same}")
  endif()
  varve_package(libvarve-dev "Headers, static libraries and Fortran modules, to build programs with."
    DEPENDS ${development} SUGGESTS varve-doc libopenmpi-dev)
endif()
if(TARGET varve_veloc AND TARGET varve_mpi_shared)
  varve_package(varve-peers-dev "What programs of VELOC and SCR link, to keep their checkpoints in Varve."
    DEPENDS "libvarve-mpi1 ${same}" "varve ${same}" SUGGESTS libvarve-dev)
endif()
if(TARGET python_native)
  # The extension modules are for the interpreter that they were built with.
  math(EXPR next "${Python_VERSION_MINOR} + 1")
  set(python python${Python_VERSION_MAJOR})
  varve_package(python3-varve "The Python package varve, for NumPy, xarray and PyTorch."
    DEPENDS "libvarve1 ${same}" "varve ${same}" python3-numpy
      "${python} (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})" "${python} (<< ${Python_VERSION_MAJOR}.${next})"
    RECOMMENDS python3-mpi4py SUGGESTS python3-xarray python3-torch)
  # Python's byte code comes and goes with it.
  foreach(script postinst prerm)
    if(script STREQUAL "postinst")
      set(command py3compile)
    else()
      set(command py3clean)
    endif()
    file(WRITE ${PROJECT_BINARY_DIR}/debian/${script} "#!/bin/sh\nset -e\nif command -v ${command} >/dev/null; then ${command} -p python3-varve; fi\n")
    file(CHMOD ${PROJECT_BINARY_DIR}/debian/${script} PERMISSIONS
      OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endforeach()
  set(CPACK_DEBIAN_PYTHON3-VARVE_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/postinst ${PROJECT_BINARY_DIR}/debian/prerm)
endif()
if(TARGET varve_mpi_cli)
  varve_package(varve-mpi "The program varve-mpi: commands that the processes of a job do together."
    DEPENDS "varve ${same}")
endif()
include(CPack)
