# Compiler settings that every target shares. Linked as nanscope_flags, with the libraries that most sources include.
#
# -ffp-contract=off keeps a*b+c from becoming an fma where the source did not write one: bit equality between builds and
# machines depends on it. Fast math would break every contract of this project, so the build refuses it.
foreach(flags "${CMAKE_CXX_FLAGS}" "${CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}}" "${CMAKE_CUDA_FLAGS}")
  if(flags MATCHES "fast[-_]math|-Ofast|-funsafe-math-optimizations|-ftz=true")
    message(FATAL_ERROR "nanscope refuses fast-math flags: '${flags}'. They change the numbers that it records.")
  endif()
endforeach()

add_library(nanscope_flags INTERFACE)
target_compile_features(nanscope_flags INTERFACE cxx_std_20)
target_include_directories(nanscope_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(nanscope_flags INTERFACE fmt::fmt nlohmann_json::nlohmann_json tl::expected)
# -fPIC: the Python extension and the library of `attach --run` are shared libraries of the same objects.
target_compile_options(nanscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off -fno-math-errno -fPIC>)
if(NANSCOPE_WERROR)
  target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 reports an overlap inside std::string that does not exist, at -O3: https://gcc.gnu.org/PR105651.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  # At -O1 and -Og, g++ 12 reports the value of an empty optional as uninitialized.
  if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}" MATCHES "-O[1g]")
    target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
endif()
if(NANSCOPE_SANITIZE)
  target_compile_options(nanscope_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${NANSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(nanscope_flags INTERFACE -fsanitize=${NANSCOPE_SANITIZE})
  if(NANSCOPE_SANITIZE MATCHES undefined)
    # clang needs 5 minutes instead of 4 s for a source of kernels with this check; AddressSanitizer sees where they point.
    target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=pointer-overflow>)
  endif()
endif()

# LLVM's linker needs a third of the time of GNU's for a program of 40 MB.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld NANSCOPE_HAS_LLD)
if(NANSCOPE_HAS_LLD)
  target_link_options(nanscope_flags INTERFACE -fuse-ld=lld)
endif()

# nanscope_optimized(target...): libraries whose time a user waits for. The preset `default` compiles everything else
# unoptimised.
function(nanscope_optimized)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O0")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
      set_property(TARGET ${target} PROPERTY NANSCOPE_HEADER_OWNER nanscope_optimized_headers)
    endforeach()
  endif()
endfunction()

# nanscope_fast_sources(source...): loops over every element of a tensor, optimised for speed in every build.
function(nanscope_fast_sources)
  if(NOT NANSCOPE_SANITIZE)
    set_source_files_properties(${ARGN} PROPERTIES
      COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
