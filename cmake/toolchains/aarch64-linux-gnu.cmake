# Cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu; programs run under qemu-user.
# The cross compiler searches /usr/include after its own headers, so header-only packages of the build machine (Highway,
# tl::expected) are found; libraries of the build machine are not, because their paths name its architecture.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
