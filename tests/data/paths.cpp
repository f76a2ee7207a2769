#include "data/paths.h"

std::string places::golden() { return HALYARD_DATA_DIR "/golden"; }
std::string places::configs() { return HALYARD_DATA_DIR "/configs"; }
std::string places::models_page() { return HALYARD_MODELS_PAGE; }
std::string places::tool() { return HALYARD_TOOL_PATH; }
std::string places::tool_launcher() { return HALYARD_TOOL_LAUNCHER; }
