// Records: how a block of floats becomes groups of few bits with scales, and how those become floats again.
#pragma once

#include "walk/blocks.h"

namespace halyard {

/// How many groups are worked on at once, which have at most record_room elements. A head has at most 64.
inline constexpr std::int64_t max_groups = 256, record_room = max_staged_block;
inline constexpr std::int64_t numbers_of_groups = 6;

/// A thread's memory for groups.
struct RecordMemory {
    unsigned char *elements;  // [record_room]
    float *numbers;           // [numbers_of_groups][max_groups]
};

/// Quantises the heads of a block and stores them, those of tokens without a slot excepted.
void store_records(const Run &run, int index, const Stretch &stretch, const Block &block, const float *heads,
                   const RecordMemory &memory) noexcept;

/// Makes floats of the records of a block; zeros of tokens without a slot.
void load_records(const Run &run, int index, const Stretch &stretch, const Block &block, float *heads,
                  const RecordMemory &memory) noexcept;

}  // namespace halyard
