// Prints the name by which schedules are named for this machine's CPU: emit.py asks for it where HALYARD_SCHEDULES is
// auto.
#include "rotate/cpu.h"

#include <cstdio>

int main() {
    std::puts(halyard::cpu_name());
    return 0;
}
