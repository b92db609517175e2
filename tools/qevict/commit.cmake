# cmake -DSOURCE_DIR=... -DOUTPUT=... -P commit.cmake: writes the source that says the current commit, if that has changed.
execute_process(COMMAND git -C "${SOURCE_DIR}" describe --always --abbrev=12 --dirty --match ""
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR commit STREQUAL "")
  set(commit unknown)
endif()
set(text "#include \"tools/qevict/commit.h\"\n\nnamespace qevict::cli {\n\nstd::string_view BuildCommit() { return \"${commit}\"; }\n\n}  // namespace qevict::cli\n")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${OUTPUT}" "${text}")
endif()
