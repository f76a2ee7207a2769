// Where the records of a tensor's heads lie, and their scales.
#pragma once

#include "read/read_run.h"

namespace halyard {

/// The records of one token: that of head h is `bytes` + h * stride_head.
struct TokenRecords {
    char *bytes;  // NULL where the token has no slot
    std::int64_t stride_head;
    char *scales;  // of head 0, in the record or apart from it
    std::int64_t scales_stride_head;
};

/// The records that a tensor with groups writes for a token, which is counted through all batch rows.
TokenRecords written_records(const Run &run, int index, std::int64_t token) noexcept;

/// Those that a tensor with from_groups reads, which are only read where the plan does not rerotate.
TokenRecords read_records(const Run &run, int index, std::int64_t token) noexcept;

/// The scale of a group, as stored.
float load_group_scale(const GroupsDesc &groups, const char *at) noexcept;

/// Checks that the records of keys that move have finite scales and zero points. Slots were checked before.
halyard_status check_moved_records(const Run &run, int index, halyard_error *error) noexcept;

}  // namespace halyard
