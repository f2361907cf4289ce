# What `cmake --install` puts where: the libraries, their headers, the program, a CMake package and pkg-config files.
# The components are the packages that cmake/VarvePackages.cmake makes.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME libvarve-dev)

# Whoever links the static library links what it uses. For each library that varve links: how a CMake package
# finds it, then what a pkg-config file says: what the .pc file of that name does ("module"), or a linker flag ("flag"). The flags
# themselves, as pkg-config wants the files that a .pc file requires even where the shared library is linked.
set(VARVE_USED_nlohmann_json::nlohmann_json "find_dependency(nlohmann_json)" flag "")
set(VARVE_USED_Threads::Threads       "find_dependency(Threads)"       flag -pthread)
set(VARVE_USED_hdf5::hdf5             "find_dependency(HDF5 COMPONENTS C)" module hdf5)
set(VARVE_USED_HDF5::HDF5             "find_dependency(HDF5 COMPONENTS C)" module hdf5)
set(VARVE_USED_BLAKE3::blake3         "find_dependency(BLAKE3)"        module libblake3)
foreach(prefix ZSTD LZMA ISAL DEFLATE CRYPTO SSL LZ4 FUSE EXPAT)
  if(DEFINED ${prefix}_MODULE_NAME)
    set(VARVE_USED_PkgConfig::${prefix}
        "pkg_check_modules(${prefix} REQUIRED QUIET IMPORTED_TARGET ${${prefix}_MODULE_NAME})"
        module ${${prefix}_MODULE_NAME})
  endif()
endforeach()

set(VARVE_FIND_DEPENDENCIES "")
set(VARVE_PC_LIBS "")
set(varve_exported varve)
get_target_property(varve_links varve LINK_LIBRARIES)
list(REMOVE_DUPLICATES varve_links)
foreach(library ${varve_links})
  if(DEFINED VARVE_USED_${library})
    list(GET VARVE_USED_${library} 0 find)
    list(GET VARVE_USED_${library} 1 kind)
    list(GET VARVE_USED_${library} 2 name)
    list(APPEND VARVE_FIND_DEPENDENCIES "${find}")
    if(kind STREQUAL "module")
      execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs ${name} OUTPUT_VARIABLE name OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    list(APPEND VARVE_PC_LIBS ${name})
  elseif(IS_ABSOLUTE "${library}")
    list(APPEND VARVE_PC_LIBS ${library})
  elseif(TARGET ${library})
    get_target_property(imported ${library} IMPORTED)
    if(imported)
      message(FATAL_ERROR "varve links ${library}: say in cmake/VarveInstall.cmake how its users find it")
    endif()
    list(APPEND varve_exported ${library})  # ours: its objects are in the archive, or it only carries flags
  endif()
endforeach()
foreach(list VARVE_FIND_DEPENDENCIES VARVE_PC_LIBS varve_exported)
  list(REMOVE_DUPLICATES ${list})
endforeach()
list(JOIN VARVE_FIND_DEPENDENCIES "\n" VARVE_FIND_DEPENDENCIES)
list(JOIN VARVE_PC_LIBS " " VARVE_PC_LIBS)

set(varve_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/varve)

# varve_install(target name export): a library, in a file of the package of its own.
function(varve_install target name export)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set(package libvarve1)
  if(name STREQUAL "mpi")
    set(package libvarve-mpi1)
  endif()
  install(TARGETS ${target} ${ARGN} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${package} NAMELINK_COMPONENT libvarve-dev)
  install(EXPORT ${export} NAMESPACE varve:: DESTINATION ${varve_package_dir})
endfunction()

list(REMOVE_ITEM varve_exported varve)
varve_install(varve static VarveStaticTargets ${varve_exported})
if(TARGET varve_shared)
  varve_install(varve_shared varve VarveTargets)
endif()
if(TARGET varve_mpi)  # a component of the package: who does not ask for it need not have MPI
  varve_install(varve_mpi mpi_static VarveMpiStaticTargets)
endif()
if(TARGET varve_mpi_shared)
  varve_install(varve_mpi_shared mpi VarveMpiTargets)
endif()
# A component each, for programs in Fortran: static, as a module file is for one compiler. Their sources come along for others.
if(TARGET varve_fortran)
  varve_install(varve_fortran fortran VarveFortranTargets)
  set(varve_fortran_files ${VARVE_FORTRAN_MODULES}/varve.mod ${VARVE_FORTRAN_SOURCE})
  if(TARGET varve_mpi_fortran)
    varve_install(varve_mpi_fortran mpi_fortran VarveMpiFortranTargets)
    list(APPEND varve_fortran_files ${VARVE_FORTRAN_MODULES}/varve_mpi.mod ${VARVE_FORTRAN_MODULES}/varve_mpi_f08.mod
      bindings/fortran/varve_mpi.f90 bindings/fortran/varve_mpi_f08.f90)
  endif()
  install(FILES ${varve_fortran_files} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/varve/fortran)
endif()

set(varve_headers_left_out "")
if(NOT TARGET varve_mpi)
  set(varve_headers_left_out REGEX "mpi\\.h$" EXCLUDE)
endif()
install(DIRECTORY include/varve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${varve_headers_left_out})

# In lower case, it is found as Varve as well as varve.
configure_package_config_file(cmake/varve-config.cmake.in ${PROJECT_BINARY_DIR}/varve-config.cmake
  INSTALL_DESTINATION ${varve_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/varve-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/varve-config.cmake ${PROJECT_BINARY_DIR}/varve-config-version.cmake
  DESTINATION ${varve_package_dir})

# Where it lies says where the rest is, so that `cmake --install --prefix` may choose another place.
set(VARVE_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH VARVE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(PREPEND VARVE_PC_PREFIX "\${pcfiledir}/")
endif()
configure_file(cmake/varve.pc.in ${PROJECT_BINARY_DIR}/varve.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/varve.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET varve_mpi)
  list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE VARVE_PC_MPI_CFLAGS)
  list(JOIN VARVE_PC_MPI_CFLAGS " " VARVE_PC_MPI_CFLAGS)
  list(JOIN MPI_C_LIBRARIES " " VARVE_PC_MPI_LIBS)
  configure_file(cmake/varve-mpi.pc.in ${PROJECT_BINARY_DIR}/varve-mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/varve-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TARGET varve_fortran)
  configure_file(cmake/varve-fortran.pc.in ${PROJECT_BINARY_DIR}/varve-fortran.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/varve-fortran.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TARGET varve_mpi_fortran)
  configure_file(cmake/varve-mpi-fortran.pc.in ${PROJECT_BINARY_DIR}/varve-mpi-fortran.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/varve-mpi-fortran.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# varve_install_manual(component program...): the manual pages of what does not write its own.
function(varve_install_manual component)
  foreach(program ${ARGN})
    configure_file(packaging/man/${program}.1.in ${PROJECT_BINARY_DIR}/man/${program}.1 @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/man/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  endforeach()
endfunction()

# What programs of VELOC and SCR find by those names: a CMake package and a pkg-config file each.
if(TARGET varve_veloc)
  foreach(peer "VELOC;varve_veloc;veloc-client;veloc.h" "scr;varve_scr;scr;scr.h;scrf.h")
    list(POP_FRONT peer VARVE_PEER target VARVE_PEER_LIBRARY)
    list(TRANSFORM peer PREPEND bindings/peers/)
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${VARVE_PEER_LIBRARY} INSTALL_RPATH "$ORIGIN")
    target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/varve/peers>)
    install(TARGETS ${target} EXPORT ${VARVE_PEER}Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT varve-peers-dev)
    install(EXPORT ${VARVE_PEER}Targets NAMESPACE ${VARVE_PEER}:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${VARVE_PEER} COMPONENT varve-peers-dev)
    install(FILES ${peer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/varve/peers COMPONENT varve-peers-dev)
    configure_package_config_file(cmake/peer-config.cmake.in ${PROJECT_BINARY_DIR}/${VARVE_PEER}Config.cmake
      INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${VARVE_PEER} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
    install(FILES ${PROJECT_BINARY_DIR}/${VARVE_PEER}Config.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${VARVE_PEER} COMPONENT varve-peers-dev)
    configure_file(cmake/peer.pc.in ${PROJECT_BINARY_DIR}/${VARVE_PEER_LIBRARY}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${VARVE_PEER_LIBRARY}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT varve-peers-dev)
  endforeach()
  set_target_properties(varve_scrf PROPERTIES EXPORT_NAME scrf)
  install(TARGETS varve_scrf EXPORT scrTargets)
  install(FILES ${PROJECT_BINARY_DIR}/peers/libscrf.so DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT varve-peers-dev)
  install(PROGRAMS bindings/peers/scr_index bindings/peers/scr_halt bindings/peers/veloc-backend DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT varve-peers-dev)
  varve_install_manual(varve-peers-dev scr_index scr_halt veloc-backend)
endif()

if(TARGET python_native)
  # Where Debian's interpreter looks for what packages bring, or where one looks below another prefix.
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
    set(default lib/python3/dist-packages)
  else()
    set(default lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
  endif()
  set(VARVE_PYTHON_INSTALL_DIR ${default} CACHE STRING "Where the Python package is installed, below the prefix")
  install(DIRECTORY ${VARVE_PYTHON_FOLDER}/ DESTINATION ${VARVE_PYTHON_INSTALL_DIR} COMPONENT python3-varve
    PATTERN "__pycache__" EXCLUDE PATTERN "*.so" EXCLUDE)
  file(RELATIVE_PATH libraries /${VARVE_PYTHON_INSTALL_DIR}/varve /${CMAKE_INSTALL_LIBDIR})
  foreach(extension python_native python_mpi)
    if(TARGET ${extension})
      if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
        set_target_properties(${extension} PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries}")
      endif()
      install(TARGETS ${extension} LIBRARY DESTINATION ${VARVE_PYTHON_INSTALL_DIR}/varve COMPONENT python3-varve)
    endif()
  endforeach()
endif()

if(TARGET varve_cli)
  # At the top of the build tree, where a person looks for it.
  set_target_properties(varve_cli PROPERTIES OUTPUT_NAME varve RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  install(TARGETS varve_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT varve)

  # What the program says of itself, for man and for shells.
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/share/made
    COMMAND ${CMAKE_COMMAND} -D program=$<TARGET_FILE:varve_cli> -D folder=${PROJECT_BINARY_DIR}/share
      -P ${PROJECT_SOURCE_DIR}/cmake/VarveManual.cmake
    DEPENDS varve_cli ${PROJECT_SOURCE_DIR}/cmake/VarveManual.cmake)
  add_custom_target(varve_manual ALL DEPENDS ${PROJECT_BINARY_DIR}/share/made)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT varve)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/completion/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT varve)
endif()
if(TARGET varve_mpi_cli)
  install(TARGETS varve_mpi_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT varve-mpi)
  varve_install_manual(varve-mpi varve-mpi)
endif()

# For a site: a service of users, and what an administrator copies and changes. And all that is to be read.
install(FILES "examples/site/varve-watch@.service" DESTINATION lib/systemd/user COMPONENT varve)
install(DIRECTORY examples/site DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT varve PATTERN "*.service" EXCLUDE)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT varve-doc FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples/heat examples/torch examples/peers examples/lammps DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT varve-doc)
include(cmake/VarvePackages.cmake)

if(VARVE_TESTS)
  add_subdirectory(tests/install)
endif()
