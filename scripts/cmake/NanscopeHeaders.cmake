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

# One object owns them. Compilers take them for code of the same options alone, so every library and program is made to lie
# anywhere (-fPIC).
if(NANSCOPE_PRECOMPILED)
  file(CONFIGURE OUTPUT nanscope_headers.cpp CONTENT "// the object that owns the precompiled headers\n")
  add_library(nanscope_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/nanscope_headers.cpp)
  target_link_libraries(nanscope_headers PRIVATE nanscope_flags fmt::fmt nlohmann_json::nlohmann_json tl::expected)
  # By its contents, not by the time of day: else a compiler cache returns what clang takes for out of date.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(nanscope_headers PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  target_compile_options(nanscope_headers PRIVATE -fPIC)
  target_precompile_headers(nanscope_headers PRIVATE ${NANSCOPE_COMMON_HEADERS})
endif()

# nanscope_headers(target): the common headers for a static library or a program that has no others yet.
function(nanscope_headers target)
  get_target_property(others ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(others OR NOT NANSCOPE_PRECOMPILED)
    return()
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json tl::expected)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM nanscope_headers)
endfunction()
