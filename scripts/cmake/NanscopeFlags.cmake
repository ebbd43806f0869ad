# Compiler settings shared by every target. Linked as nanscope_flags.
#
# -ffp-contract=off keeps a*b+c from becoming an fma where the source did not write one: bit
# equality between builds and machines rests on it. Fast math would silently break every contract
# of this project, so the build refuses it.
foreach(flags "${CMAKE_CXX_FLAGS}" "${CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}}" "${CMAKE_CUDA_FLAGS}")
  if(flags MATCHES "fast[-_]math|-Ofast|-funsafe-math-optimizations|-ftz=true")
    message(FATAL_ERROR "nanscope refuses fast-math flags: '${flags}'. They change the numbers that it records.")
  endif()
endforeach()

add_library(nanscope_flags INTERFACE)
target_compile_features(nanscope_flags INTERFACE cxx_std_20)
target_include_directories(nanscope_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(nanscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off -fno-math-errno>)
# g++ 12 sees an overlap in std::string where there is none, at -O3: https://gcc.gnu.org/PR105651.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# At -O1 and -Og, g++ 12 takes optionals that are empty for ones that were never set.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[1g]")
  target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(NANSCOPE_WERROR)
  target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(NANSCOPE_SANITIZE)
  target_compile_options(nanscope_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${NANSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(nanscope_flags INTERFACE -fsanitize=${NANSCOPE_SANITIZE})
endif()

# nanscope_waits(target): code that waits for files, people and other programs. Optimised less, a whole build takes a
# sixth less time, and nobody notices. The presets that build soon optimise nothing more than that anyway.
function(nanscope_waits target)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[01g]")
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# nanscope_computes(target): what a diagnosis waits for. The presets that build soon optimise it all the same, but for the
# demo's.
function(nanscope_computes target)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[1g]")
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O2>)
    set_property(TARGET ${target} PROPERTY NANSCOPE_OWN_OPTIONS ON)
  endif()
endfunction()

# Sources of many times the size leave g++ collecting garbage for a tenth of its time. A job takes 0.1 to 0.2 GiB more.
if(NANSCOPE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(nanscope_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288 --param ggc-min-expand=100>")
endif()

# Seventy programs take as long to link as ten sources to compile, by GNU's older linker; gold takes half of that.
if(NANSCOPE_UNITY AND NOT NANSCOPE_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold NANSCOPE_HAS_GOLD)
  if(NANSCOPE_HAS_GOLD)
    target_link_options(nanscope_flags INTERFACE -fuse-ld=gold)
  endif()
endif()

# nanscope_unity(target [OWN_OPTIONS] [BATCH count] [ALONE source...]): compiles 32 (or BATCH) sources of a target at
# a time, in less than half the time, where NANSCOPE_UNITY is on, with the headers that all have in common, but for one whose
# options are its own. ALONE: sources whose file-local names others of the target have.
function(nanscope_unity target)
  cmake_parse_arguments(ARG "OWN_OPTIONS" "BATCH" "ALONE" ${ARGN})
  if(NOT NANSCOPE_UNITY)
    return()
  endif()
  if(NOT ARG_BATCH)
    set(ARG_BATCH 32)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ARG_BATCH})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  get_target_property(own ${target} NANSCOPE_OWN_OPTIONS)
  if(NOT ARG_OWN_OPTIONS AND NOT own)
    nanscope_headers(${target})
  endif()
endfunction()
