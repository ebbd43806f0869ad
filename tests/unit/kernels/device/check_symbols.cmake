# cmake -DNM=nm -DOBJECTS=a;b -DISA=avx2 -P check_symbols.cmake
# A weak function is merged by the linker with its namesake of any other object: if lane code built for
# AVX-512 brings one along, a program may run it on a CPU without AVX-512. Only symbols inside the
# instruction set's own namespace may be global.
set(bad "")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --demangle --defined-only --extern-only ${object}
                  OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "cannot read the symbols of ${object}")
  endif()
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  if(NOT symbols)
    message(FATAL_ERROR "${object} defines nothing")
  endif()
  foreach(symbol ${symbols})
    # Sanitizers add their own data symbols, never weak functions.
    if(symbol MATCHES " [A-Za-z] (.*)" AND NOT symbol MATCHES "nanscope::kernels::${ISA}::|__asan|__ubsan|__odr_asan")
      string(APPEND bad "${object}: ${symbol}\n")
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "lane objects share symbols with other objects; force them inline:\n${bad}")
endif()
