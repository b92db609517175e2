# Compiles one source of a kernel once per SIMD level of the target's architecture. ISA flags reach those objects and nothing
# else: an inline function that is compiled with -mavx2 in one object and without it in another is one weak symbol to the
# linker, and the copy it keeps decides whether an old CPU crashes. tests/kernels/level_symbols.cmake checks the objects.

set(QEVICT_SIMD_LEVELS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(QEVICT_SIMD_LEVELS Avx2 Avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(QEVICT_SIMD_LEVELS Neon)
endif()

# The flags of a level are what CpuSupports() in src/core/isa.cc tests. Highway would want AES for its AVX2 level too; no
# kernel of ours uses it.
set(QEVICT_SIMD_FLAGS_Avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -DHWY_DISABLE_PCLMUL_AES)
set(QEVICT_SIMD_FLAGS_Avx512 ${QEVICT_SIMD_FLAGS_Avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
    -mavx512vnni -mavx512vbmi -mavx512bf16 -mprefer-vector-width=512)
# Highway marks its NEON functions +crypto, and GCC inlines them only into callers that have it too; no kernel of ours uses it.
set(QEVICT_SIMD_FLAGS_Neon -march=armv8.2-a+dotprod+crypto)

# qevict_simd_kernels(TARGET source_simd.cc...): adds source_avx2.o, source_avx512.o, ... to TARGET, each of which defines its
# entry function with the level's name at the end. TARGET's other sources see QEVICT_HAVE_AVX2=1 and so on.
function(qevict_simd_kernels target)
  # -O3 in every build type: without optimisation always-inline code is slow enough to make the tests useless, and functions of
  # the standard library would be left behind as weak symbols. Sanitizers make fully unrolled loops slow to compile: with checks
  # that are calls, -O1 and without UBSan, for which the scalar reference computes the same, attend_codes for AVX-512 takes
  # 29 s instead of 279 s (g++ 12.2 on one core of Zen 4, December 2026).
  set(options -O3)
  if(QEVICT_SANITIZE)  # not a generator expression: the list of sanitizers has commas
    set(options -O1 -fno-sanitize=undefined --param asan-instrumentation-with-call-threshold=0)
  endif()
  foreach(level IN LISTS QEVICT_SIMD_LEVELS)
    string(TOLOWER ${level} suffix)
    string(TOUPPER ${level} upper)
    target_compile_definitions(${target} PRIVATE QEVICT_HAVE_${upper}=1)
    foreach(source IN LISTS ARGN)
      get_filename_component(stem ${source} NAME_WE)
      string(REPLACE "_simd" "_${suffix}" stem ${stem})
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE path)
      set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/simd/${stem}.cc")
      file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#define QEVICT_LEVEL ${level}\n#include \"${path}\"\n")
      set_source_files_properties("${wrapper}" PROPERTIES COMPILE_OPTIONS "${options};${QEVICT_SIMD_FLAGS_${level}}")
      target_sources(${target} PRIVATE "${wrapper}")
    endforeach()
  endforeach()
  target_include_directories(${target} SYSTEM PRIVATE "${QEVICT_HIGHWAY_INCLUDE}")
endfunction()
