// Rows of cos and sin of the caller's own.
#pragma once

#include "checks/make_sources.h"

inline halyard_angle_source_desc describe_given(const void *cos, const void *sin, std::int64_t n_rows,
                                                std::int64_t stride_row, std::int64_t rotary_dim,
                                                std::int32_t dtype = HALYARD_F32) {
    auto desc = describe_source(HALYARD_ANGLES_GIVEN);
    desc.cos_rows = cos;
    desc.sin_rows = sin;
    desc.n_rows = n_rows;
    desc.stride_row = stride_row;
    desc.rotary_dim = rotary_dim;
    desc.rows_dtype = dtype;
    return desc;
}
