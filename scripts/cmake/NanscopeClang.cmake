# Objects of a build by g++ that clang compiles in less time: where a whole build matters more than a small one
# (NANSCOPE_PRECOMPILED, see NanscopeHeaders.cmake) and clang++ is found. The two keep to one ABI and one standard library.
# Of an inline function that both compiled the linker takes the first object's: a program's own, before its libraries'.
find_program(NANSCOPE_CLANG clang++ DOC "Compiler of tests and of some kernels in a build that is g++'s otherwise (preset `test`)")
if(NANSCOPE_PRECOMPILED AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NANSCOPE_CLANG)
  set(NANSCOPE_PARTLY_BY_CLANG ON)
else()
  set(NANSCOPE_PARTLY_BY_CLANG OFF)
endif()

# nanscope_by_clang(target): where NANSCOPE_PARTLY_BY_CLANG is on, clang compiles this target.
function(nanscope_by_clang target)
  if(NOT NANSCOPE_PARTLY_BY_CLANG)
    return()
  endif()
  set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
    "${PROJECT_SOURCE_DIR}/scripts/cmake/by;${NANSCOPE_CLANG};${CMAKE_CXX_COMPILER};${CMAKE_CXX_COMPILER_LAUNCHER}")
  # Options that are meant for g++ are passed over.
  target_compile_options(${target} PRIVATE -Wno-unknown-warning-option -Wno-unused-command-line-argument)
endfunction()
