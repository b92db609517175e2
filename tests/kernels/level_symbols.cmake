# cmake -DNM=... "-DOBJECTS=a.o;b.o" -P level_symbols.cmake
# Fails when an object of a SIMD level defines any symbol that the linker can see but its one entry function. An inline function
# left behind as a weak symbol would be compiled with the level's instructions, and the linker might keep that copy for everyone.
list(FILTER OBJECTS INCLUDE REGEX "/simd/[a-z_0-9]+_(avx2|avx512|neon)\\.cc\\.o")
if(NOT OBJECTS)
  message(FATAL_ERROR "no object of a SIMD level was found")
endif()
set(wrong "")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" --defined-only --extern-only --format=posix "${object}"
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
  list(LENGTH symbols count)
  # The entry function is qevict::AttendDecodeAvx2(...) and the like: a strong symbol, T.
  if(NOT count EQUAL 1 OR NOT symbols MATCHES "^_ZN6qevict[0-9]+[A-Za-z0-9]+(Avx2|Avx512|Neon)ERKNS_[A-Za-z0-9]+E T ")
    list(JOIN symbols "\n  " lines)
    string(APPEND wrong "${object} defines:\n  ${lines}\n")
  endif()
endforeach()
if(wrong)
  message(FATAL_ERROR "objects of a SIMD level may define their entry function and nothing else\n${wrong}")
endif()
list(LENGTH OBJECTS count)
message(STATUS "${count} objects define their entry function and nothing else")
