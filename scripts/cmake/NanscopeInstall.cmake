# What `cmake --install` lays below any prefix and `cpack` packs. The program finds all of it from where it lies itself
# (core/files/program_files.h), so that a prefix may be moved.
install(TARGETS nanscope COMPONENT command)
if(TARGET nanscope_inject)
  install(TARGETS nanscope_inject LIBRARY DESTINATION ${NANSCOPE_LIBRARY_FOLDER} COMPONENT command)
endif()
if(TARGET nanscope_mpi)
  # By `cmake --install build --component mpi` alone: it is for the MPI of the machine that built it.
  install(TARGETS nanscope_mpi LIBRARY DESTINATION ${NANSCOPE_LIBRARY_FOLDER} COMPONENT mpi EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY scenarios/ DESTINATION ${NANSCOPE_SHARE_FOLDER}/scenarios COMPONENT command
        FILES_MATCHING PATTERN "*.toml" PATTERN "*.png" PATTERN "*.safetensors" PATTERN "*.txt" PATTERN report EXCLUDE PATTERN CMakeLists.txt EXCLUDE)
install(FILES instrument/python/nanscope_capture.py DESTINATION ${NANSCOPE_SHARE_FOLDER}/python)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The program of the build finds the same folder there, see program_files.h.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/nanscope)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/scenarios ${PROJECT_BINARY_DIR}/share/nanscope/scenarios SYMBOLIC)

# The program writes its manual itself, from the definitions of its options.
set(manual ${PROJECT_BINARY_DIR}/manual)
find_program(NANSCOPE_GZIP gzip)
if(NANSCOPE_GZIP)
  set(compress COMMAND sh -c "${NANSCOPE_GZIP} -9nf ${manual}/*.1" VERBATIM)
endif()
add_custom_command(OUTPUT ${manual}.stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${manual}
  COMMAND nanscope manual --into ${manual}
  ${compress}
  COMMAND ${CMAKE_COMMAND} -E touch ${manual}.stamp
  DEPENDS nanscope COMMENT "Writing the manual")
add_custom_target(manual ALL DEPENDS ${manual}.stamp)
install(DIRECTORY ${manual}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

set(completions ${PROJECT_SOURCE_DIR}/cli/completions)
install(FILES ${completions}/nanscope.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME nanscope)
install(FILES ${completions}/nanscope.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
# Debian's zsh looks into another folder of /usr than of any other prefix.
install(CODE "
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\" AND EXISTS /etc/debian_version)
    set(folder vendor-completions)
  endif()
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\" TYPE FILE
       RENAME _nanscope FILES \"${completions}/nanscope.zsh\")")

if(NANSCOPE_GUI)
  install(FILES gui/desktop/nanscope.desktop DESTINATION ${CMAKE_INSTALL_DATADIR}/applications)
  install(FILES gui/desktop/nanscope.svg DESTINATION ${CMAKE_INSTALL_DATADIR}/icons/hicolor/scalable/apps)
  install(FILES gui/desktop/nanscope.xml DESTINATION ${CMAKE_INSTALL_DATADIR}/mime/packages)
endif()

set(NANSCOPE_MAINTAINER "nanscope maintainers <maintainers@nanscope.invalid>" CACHE STRING "Who answers for a package: Name <address>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "${NANSCOPE_MAINTAINER}")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"nanscope records a transformer's run op by op, replays it bit for bit, and
 walks from a NaN back to the setting that caused it. It reads the tensors that
 a server left behind (safetensors, .npy, .npz, .pt), names the fault, its
 cause and its fix, and shows all of it in a window.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(NANSCOPE_GUI)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS fonts-dejavu-core)  # the window's fonts are opened by their names
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
