// halyard._core.AngleSource: an angle source, the pairings of its model, and the plans for it.
#pragma once

#include "array.h"
#include "errors.h"

namespace halyard::python {

constexpr std::size_t max_plans = 256;  // kept for each source; a model needs few, but a program may vary its shapes

/// The contents of a description as bytes, a key for plans. All structs were zeroed, so that padding bytes are equal.
std::string key_of(const halyard_plan_desc &desc);

/// A source and the memory that it reads. Destroy it with the GIL held.
struct Angles {
    angle_source source{static_cast<halyard_angle_source *>(nullptr)};
    std::unique_ptr<Array> cos, sin;  ///< the arrays of AngleSource.given
    std::unique_ptr<float[]> rows;    ///< the rows of AngleSource.linear
};

class AngleSource {
public:
    std::shared_ptr<Angles> angles = std::make_shared<Angles>();  ///< shared with the runs that are bound to it
    std::int64_t rotary_dim = 0;
    std::int32_t pairing = 0;      ///< the model's HALYARD_PAIRING_…; 0: unknown
    std::int32_t out_pairing = 0;  ///< likewise
    std::int64_t n_axes = 1;
    bool by_token = false;             ///< there is a row for each token of a call; such calls have no positions
    std::shared_ptr<void> on_devices;  ///< the copies on CUDA devices; their type is private to cuda.cpp

    const angle_source &source() const { return angles->source; }

    /// The plan of a description, which is made at the first call. Call it with the GIL held.
    std::shared_ptr<const plan> find_plan(const halyard_plan_desc &desc) {
        return plans_.find(key_of(desc), [&] { return plan(desc); });
    }

private:
    run_cache<std::string, plan> plans_{max_plans};
};

}  // namespace halyard::python
