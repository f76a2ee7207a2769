// The Side of LaunchFields for generators: each field is a generator's input.
#pragma once

#include "Halide.h"

#include "cuda/launch_fields.h"
#include "halyard/halyard.h"

#include <array>
#include <string>

namespace halyard {

struct InputSide {
    using Owner = Halide::Internal::GeneratorBase;

    /// A field is used like a pointer to its input: *field.
    template <typename T>
    class Scalar {
    public:
        Scalar(Owner &generator, const std::string &name) : input_(generator.add_input<T>(name)) {}
        Halide::GeneratorInput<T> &operator*() const { return *input_; }
        Halide::GeneratorInput<T> *operator->() const { return input_; }

    private:
        Halide::GeneratorInput<T> *input_;
    };

    template <typename T, int n_dims>
    using Array = Scalar<Halide::Buffer<T, n_dims>>;

    template <typename T>
    class OfTensors {
    public:
        OfTensors(Owner &generator, const std::string &name) {
            for (size_t i = 0; i < inputs_.size(); i++) {
                inputs_[i] = generator.add_input<T>(name + "_" + std::to_string(i));
            }
        }
        Halide::Expr operator[](size_t i) const { return *inputs_[i]; }

    private:
        std::array<Halide::GeneratorInput<T> *, HALYARD_MAX_TENSORS> inputs_;
    };
};

using Fields = LaunchFields<InputSide>;

}  // namespace halyard
