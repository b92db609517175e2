# Provides the target qevict_llama: ggml, libllama and its common library. A compatible installation that has `common` is used
# when find_package sees one (-Dllama_DIR=...); otherwise scripts/build-llama.sh builds it once into build/deps.

set(QEVICT_LLAMA_VERSION 0.5)
set(QEVICT_LLAMA_PREFIX "${PROJECT_SOURCE_DIR}/build/deps/llama-${QEVICT_GGML_CPU}" CACHE PATH "Where ggml and libllama are built once")

find_package(llama ${QEVICT_LLAMA_VERSION} CONFIG QUIET)
if(NOT llama_FOUND)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/build-llama.sh" "${QEVICT_LLAMA_PREFIX}" ${QEVICT_GGML_CPU}
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "ggml and libllama could not be built; see the message above")
  endif()
  find_package(ggml CONFIG REQUIRED PATHS "${QEVICT_LLAMA_PREFIX}" NO_DEFAULT_PATH)
  find_package(llama ${QEVICT_LLAMA_VERSION} CONFIG REQUIRED PATHS "${QEVICT_LLAMA_PREFIX}" NO_DEFAULT_PATH)
endif()

get_filename_component(lib_dir "${llama_LIBRARY}" DIRECTORY)
find_library(QEVICT_LLAMA_COMMON llama-common REQUIRED HINTS "${lib_dir}" NO_DEFAULT_PATH)
find_library(QEVICT_LLAMA_COMMON_BASE llama-common-base REQUIRED HINTS "${lib_dir}" NO_DEFAULT_PATH)
find_library(QEVICT_LLAMA_HTTPLIB cpp-httplib HINTS "${lib_dir}" NO_DEFAULT_PATH)
find_path(QEVICT_LLAMA_COMMON_INCLUDE sampling.h REQUIRED HINTS "${LLAMA_INCLUDE_DIR}/llama-common" NO_DEFAULT_PATH)

add_library(qevict_llama INTERFACE)
target_include_directories(qevict_llama SYSTEM INTERFACE "${QEVICT_LLAMA_COMMON_INCLUDE}")
target_link_libraries(qevict_llama INTERFACE "${QEVICT_LLAMA_COMMON}" "${QEVICT_LLAMA_COMMON_BASE}" llama ggml::ggml Threads::Threads)
if(QEVICT_LLAMA_HTTPLIB)
  target_link_libraries(qevict_llama INTERFACE "${QEVICT_LLAMA_HTTPLIB}")
endif()
message(STATUS "ggml and libllama: ${llama_LIBRARY}")
