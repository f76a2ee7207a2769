// halyard_get_groups_info: the layout of records, so that a caller can allocate them.
#include "base/error.h"
#include "base/versioned.h"
#include "kv/stages.h"

using namespace halyard;

extern "C" {

halyard_status halyard_get_groups_info(int32_t preset, int64_t head_dim, halyard_groups_info *info,
                                       halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    if (head_dim < 1) {
        return fail(error, HALYARD_ERROR_SHAPE, "head_dim is ", head_dim, ", but must be at least 1");
    }
    if (head_dim > max_head) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "head_dim is ", head_dim, ", but heads in groups have at most ",
                    max_head, " elements");
    }
    GroupsDesc groups;
    HALYARD_TRY(read_preset(preset, "", head_dim, &groups, error));
    const halyard_groups_info value = {0,
                                       groups.scales_apart ? 1 : 0,
                                       groups.record_bytes,
                                       groups.n_groups,
                                       groups.group,
                                       groups.data_offset,
                                       groups.data_stride,
                                       groups.scale_offset,
                                       groups.scale_stride,
                                       groups.zero_offset,
                                       groups.raw_offset};
    return write_struct(value, "info", info, error);
}

}  // extern "C"
