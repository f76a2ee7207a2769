// Calls of rotate that come again with other memory: bound runs of the C ABI.
#pragma once

#include "calls/call.h"

namespace halyard::python {

/// From which of a call's arrays each pointer of its run is taken, by their number; fixed: it stays as it was bound.
struct Origins {
    static constexpr std::size_t fixed = ~std::size_t{0};

    std::array<std::size_t, max_tensors> x{}, y{};
    std::size_t positions = fixed, slots = fixed;
};

/// Make and destroy it with the GIL held.
class Bound {
public:
    /// `described` are the arguments of rotate, in a tuple. Nothing is kept of arrays that each call brings.
    Bound(nb::handle described, const Origins &origins, void *const *data);

    /// `data` are the arrays' memory. Takes no GIL.
    void run(void *const *data) const;

    bool writes(std::size_t array) const;

private:
    /// An array, and how far from its begin in bytes; or where the memory lies.
    struct Place {
        std::size_t origin = Origins::fixed;
        std::ptrdiff_t offset = 0;
        void *kept = nullptr;

        Place() = default;
        Place(std::size_t from, const void *pointer, void *const *data);
        void *in(void *const *data) const {
            return origin == Origins::fixed ? kept : static_cast<char *>(data[origin]) + offset;
        }
    };

    std::shared_ptr<const Angles> angles_;
    std::unique_ptr<Call> call_;
    std::shared_ptr<const plan> plan_;
    bound_run bound_{static_cast<halyard_bound_run *>(nullptr)};
    std::array<Place, max_tensors> x_, y_;
    Place positions_, slots_;
    std::size_t scratch_bytes_ = 0;
};

/// Calls that were bound. The last to hold one may be a thread without the GIL.
class BoundCalls : public run_cache<Form, std::shared_ptr<const Bound>> {
public:
    BoundCalls() : run_cache(64) {}

    /// That of a form. If it is new, describe() gives the arguments of rotate. Takes the GIL for that.
    template <typename Describe>
    std::shared_ptr<const Bound> find(const Form &form, const Origins &origins, void *const *data,
                                      Describe &&describe) {
        return *run_cache::find(form, [&] {
            const nb::gil_scoped_acquire acquire;
            return std::shared_ptr<const Bound>(new Bound(describe(), origins, data), [](const Bound *bound) {
                const nb::gil_scoped_acquire again;
                delete bound;
            });
        });
    }
};

}  // namespace halyard::python
