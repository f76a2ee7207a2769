#include "halyard/halyard.h"

#define HALYARD_TEXT(x) #x
#define HALYARD_DOTTED(major, minor, patch) HALYARD_TEXT(major) "." HALYARD_TEXT(minor) "." HALYARD_TEXT(patch)

extern "C" const char *halyard_version(void) {
    return HALYARD_DOTTED(HALYARD_VERSION_MAJOR, HALYARD_VERSION_MINOR, HALYARD_VERSION_PATCH);
}
