#include "base/share.h"

#include "base/error.h"

namespace halyard {

halyard_status read_part(std::int32_t part, std::int32_t n_parts, bool has_executor, Share *out,
                         halyard_error *error) noexcept {
    *out = {part, n_parts == 0 ? 1 : n_parts};
    if (part == 0 && out->count == 1) {
        return HALYARD_OK;
    }
    if (n_parts < 0 || n_parts > 1024) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_parts is ", n_parts, ", but must be 0 to 1024");
    }
    if (part < 0 || part >= out->count) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.part is ", part, ", but must be 0",
                    out->count == 1 ? Part("") : Part(" to "), out->count == 1 ? Part("") : Part(out->count - 1));
    }
    if (has_executor) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", n_parts,
                    ", but the run has an executor, which shares it out already");
    }
    return HALYARD_OK;
}

}  // namespace halyard
