# Provides the target qevict_llama: ggml, libllama and its common library. An installation that find_package sees is used when
# its version fits and it has `common` with headers (-Dllama_DIR=... or CMAKE_PREFIX_PATH name one); otherwise
# scripts/build-llama.sh builds the pinned version once into build/deps.

set(llama_versions 0.5...<0.6)  # the C API and, less stable, `common`
set(QEVICT_LLAMA_PREFIX "" CACHE PATH "Where to build ggml and libllama once; empty: build/deps/llama-QEVICT_GGML_CPU")

# `common` is looked for first: loading a package cannot be undone, and upstream installs its library without headers.
find_path(QEVICT_LLAMA_COMMON_INCLUDE NAMES sampling.h PATH_SUFFIXES llama-common HINTS "${llama_DIR}/../../../include"
          DOC "Folder of the headers of llama.cpp's common library")
if(QEVICT_LLAMA_COMMON_INCLUDE AND NOT QEVICT_GGML_CPU STREQUAL blas)  # an installation may have no BLAS
  find_package(llama ${llama_versions} CONFIG QUIET)
endif()
if(llama_FOUND)
  set(common_include "${QEVICT_LLAMA_COMMON_INCLUDE}")
else()
  find_file(other_llama llama-config.cmake PATHS "${llama_DIR}" PATH_SUFFIXES lib/cmake/llama cmake/llama NO_CACHE)
  if(other_llama)
    message(STATUS "${other_llama} is not used: its version is not in ${llama_versions} or the headers of its common library "
                   "are missing (QEVICT_LLAMA_COMMON_INCLUDE names their folder)")
  endif()
  set(prefix "${QEVICT_LLAMA_PREFIX}")
  if(NOT prefix)
    set(prefix "${PROJECT_SOURCE_DIR}/build/deps/llama-${QEVICT_GGML_CPU}")
  endif()
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/build-llama.sh" "${prefix}" "${QEVICT_GGML_CPU}" RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "ggml and libllama are missing; the message above says why. libqevict alone needs neither: "
                        "-DQEVICT_ENGINE=OFF")
  endif()
  # Nothing of this search is remembered: the next configuration may ask for another prefix.
  unset(llama_DIR CACHE)
  unset(llama_LIBRARY CACHE)
  unset(ggml_DIR CACHE)
  # Their packages look for the libraries in CMAKE_PREFIX_PATH first, where another installation may lie.
  set(user_prefix_path "${CMAKE_PREFIX_PATH}")
  set(CMAKE_PREFIX_PATH "${prefix}")
  if(QEVICT_GGML_CPU STREQUAL blas)
    set(BLA_VENDOR OpenBLAS)  # ggml's package asks for any
  endif()
  find_package(ggml CONFIG REQUIRED PATHS "${prefix}" NO_DEFAULT_PATH)
  find_package(llama ${llama_versions} CONFIG REQUIRED PATHS "${prefix}" NO_DEFAULT_PATH)
  set(CMAKE_PREFIX_PATH "${user_prefix_path}")
  unset(llama_DIR CACHE)
  unset(ggml_DIR CACHE)
  set(common_include "${prefix}/include/llama-common")
endif()

# Static archives of `common` come in parts; the shared library holds them.
get_filename_component(llama_lib_dir "${llama_LIBRARY}" DIRECTORY)
find_library(llama_common llama-common HINTS "${llama_lib_dir}" NO_DEFAULT_PATH NO_CACHE REQUIRED)
set(llama_common_libraries "${llama_common}")
foreach(part llama-common-base cpp-httplib)
  find_library(llama_common_part ${part} HINTS "${llama_lib_dir}" NO_DEFAULT_PATH NO_CACHE)
  if(llama_common_part)
    list(APPEND llama_common_libraries "${llama_common_part}")
  endif()
  unset(llama_common_part)
endforeach()

add_library(qevict_llama INTERFACE)
target_include_directories(qevict_llama SYSTEM INTERFACE "${common_include}")
target_link_libraries(qevict_llama INTERFACE ${llama_common_libraries} llama ggml::ggml Threads::Threads)

# What an installed program needs beside it; empty with static libraries.
set(QEVICT_LLAMA_SHARED_DIR "")
if(LLAMA_SHARED_LIB)
  set(QEVICT_LLAMA_SHARED_DIR "${llama_lib_dir}")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/qevict")
endif()
message(STATUS "ggml and libllama ${llama_VERSION}: ${llama_LIBRARY}")
