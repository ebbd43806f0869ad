# Headers that most sources include, parsed once. Only where a whole build matters more than a small one: these are the
# builds that compile several sources at a time and optimise little (`soon` in CMakePresets.json). What a source forgets to
# include shows in the others.
if(NANSCOPE_UNITY AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[0g]" AND NOT NANSCOPE_SANITIZE)
  set(NANSCOPE_PRECOMPILED ON)
else()
  set(NANSCOPE_PRECOMPILED OFF)
endif()
set(NANSCOPE_COMMON_HEADERS
    <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <filesystem> <functional> <map> <memory> <mutex> <numeric>
    <optional> <set> <span> <stop_token> <string> <string_view> <thread> <unordered_map> <variant> <vector>
    <fmt/format.h> <nlohmann/json.hpp> <tl/expected.hpp>)
if(NANSCOPE_PRECOMPILED)
  foreach(header core/result.h core/recording/reader.h core/run/run_view.h)
    list(APPEND NANSCOPE_COMMON_HEADERS ${PROJECT_SOURCE_DIR}/${header})
  endforeach()
endif()

# One object owns those of libraries, another those of programs: g++ takes them for code of the same options alone, so every
# library is made to lie anywhere (-fPIC).
function(nanscope_own_headers owner)
  file(CONFIGURE OUTPUT ${owner}.cpp CONTENT "// the object that owns the precompiled headers\n")
  add_library(${owner} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp)
  target_link_libraries(${owner} PRIVATE nanscope_flags fmt::fmt nlohmann_json::nlohmann_json tl::expected)
  # By its contents, not by the time of day: else a compiler cache returns what clang takes for out of date.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${owner} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  target_precompile_headers(${owner} PRIVATE ${NANSCOPE_COMMON_HEADERS})
endfunction()
if(NANSCOPE_PRECOMPILED)
  nanscope_own_headers(nanscope_library_headers)
  nanscope_own_headers(nanscope_program_headers)
  set_target_properties(nanscope_library_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()

# nanscope_headers(target): the common headers for a static library or a program that has no others yet.
function(nanscope_headers target)
  get_target_property(others ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(others OR NOT NANSCOPE_PRECOMPILED)
    return()
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json tl::expected)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_precompile_headers(${target} REUSE_FROM nanscope_program_headers)
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_precompile_headers(${target} REUSE_FROM nanscope_library_headers)
  endif()
endfunction()
