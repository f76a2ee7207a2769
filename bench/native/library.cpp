#include "native/library.h"

#include <dlfcn.h>

using namespace bench;

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
constexpr const char *header_version =
    STRING(HALYARD_VERSION_MAJOR) "." STRING(HALYARD_VERSION_MINOR) "." STRING(HALYARD_VERSION_PATCH);

bench_library::bench_library(const std::string &its_path)
    : path(its_path), object_(dlopen(its_path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (object_ == nullptr) {
        throw Failed(dlerror());
    }
    const auto refuse = [&](const std::string &why) {
        dlclose(object_);
        throw Failed(path + " was built from other headers than this bench: " + why);
    };
#define X(name)                                                                                                        \
    name = reinterpret_cast<decltype(name)>(dlsym(object_, "halyard_" #name));                                         \
    if (name == nullptr) {                                                                                             \
        refuse("it has no halyard_" #name);                                                                            \
    }
    BENCH_FUNCTIONS(X)
#undef X
    if (version() != std::string(header_version)) {
        refuse(std::string("its version is ") + version() + ", and this is for " + header_version);
    }
    for (std::int32_t i = 0; i < get_target_count(); i++) {
        auto info = make_struct<halyard_target_info>();
        if (get_target_info(i, &info, nullptr) != HALYARD_OK) {
            refuse("halyard_target_info has another size");
        }
        targets += std::string(info.name) + (info.supported ? " supported" : "") + (info.active ? " active\n" : "\n");
    }
}

bench_library::~bench_library() {
    angles_.clear();
    dlclose(object_);
}

void bench_library::need(halyard_status status, const halyard_error &error) const {
    if (status == HALYARD_ERROR_STRUCT_SIZE) {
        throw Failed(path + " was built from other headers than this bench: " + error.message);
    }
    if (status != HALYARD_OK) {
        throw Failed(error.message);
    }
}

Angles bench_library::angles(std::int32_t kind, std::int64_t rotary_dim, std::int32_t first, std::int32_t last) {
    auto &[range, source] = angles_[kind];
    const Range wanted(rotary_dim, first, last);
    if (source == nullptr || range != wanted) {
        const auto frequencies = make(destroy_frequencies, create_frequencies_from_base, 10000.0, rotary_dim);
        auto desc = make_struct<halyard_angle_source_desc>();
        desc.kind = kind;
        desc.first = first;
        desc.n_positions = std::int64_t{last} - first + 1;
        source = make(destroy_angle_source, create_angle_source, frequencies.get(), &desc);
        range = wanted;
    }
    return source;
}
