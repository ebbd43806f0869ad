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
if(NANSCOPE_WERROR)
  target_compile_options(nanscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(NANSCOPE_SANITIZE)
  target_compile_options(nanscope_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${NANSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(nanscope_flags INTERFACE -fsanitize=${NANSCOPE_SANITIZE})
endif()
