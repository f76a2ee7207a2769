#include "base/share.h"

#include "base/error.h"

namespace halyard {

halyard_status check_part(std::int32_t part, std::int32_t n_parts, bool has_executor, halyard_error *error) noexcept {
    if (n_parts < 0 || n_parts > 1024) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_parts is ", n_parts, ", but must be 0 to 1024");
    }
    const std::int32_t count = std::max(n_parts, 1);
    if (part < 0 || part >= count) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.part is ", part, ", but must be 0",
                    count == 1 ? Part("") : Part(" to "), count == 1 ? Part("") : Part(count - 1));
    }
    if (has_executor) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", n_parts,
                    ", but the run has an executor, which shares it out already");
    }
    return HALYARD_OK;
}

}  // namespace halyard
