// halyard._core.AngleSource: an angle source, what its frequencies told, and the plans that were made for it.
#pragma once

#include "array.h"
#include "refuse.h"

namespace halyard::python {

constexpr std::size_t max_plans = 256;  // of a source: a model has a few, and a stream of shapes must not fill memory

/// All that a description says, as bytes. Its structs were made of zeros, so that nothing is in their gaps.
std::string key_of(const halyard_plan_desc &desc);

/// A source and the memory that it reads. Destroy it with the GIL held.
struct Angles {
    angle_source source{static_cast<halyard_angle_source *>(nullptr)};
    std::unique_ptr<Array> cos, sin;  ///< given rows
    std::unique_ptr<float[]> rows;    ///< that were made of linear angles
};

class AngleSource {
public:
    std::shared_ptr<Angles> angles = std::make_shared<Angles>();  ///< which what was bound to them shares
    std::int64_t rotary_dim = 0;
    std::int32_t pairing = 0;      ///< the model's, or 0
    std::int32_t out_pairing = 0;  ///< likewise
    std::int64_t n_axes = 1;
    bool by_token = false;             ///< the rows are a run's own, which names no positions
    std::shared_ptr<void> on_devices;  ///< what cuda.cpp keeps

    const angle_source &source() const { return angles->source; }

    /// The plan of a description, made where it is the first time that it is asked for. Call it with the GIL held.
    std::shared_ptr<const plan> find_plan(const halyard_plan_desc &desc) {
        return plans_.find(key_of(desc), [&] { return plan(desc); });
    }

private:
    run_cache<std::string, plan> plans_{max_plans};
};

}  // namespace halyard::python
