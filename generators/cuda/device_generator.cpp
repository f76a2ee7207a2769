// GPU kernels that do not rotate: checks and copies.
#include "cuda/device_angles.h"

#include <memory>

namespace halyard {

/// Stores an error code in a word if a position (or slot) is out of range; otherwise it does not write the word.
class CheckPositions : public Halide::Generator<CheckPositions> {
public:
    std::unique_ptr<Fields::Check> in;
    Output<Buffer<int32_t, 1>> word{"word"};  // [1]

    void configure() { in.reset(new Fields::Check{*this}); }

    void generate() {
        const DevicePositions positions(in->positions);
        Halide::RDom over(0, positions.n_tokens(), 0, positions.n_axes(), 0, 1, "over");
        const Halide::RVar token = over.x;
        // Spare threads of the last thread block store nothing, but they read, so they read the last token's position.
        const Expr last = Halide::min(token, positions.n_tokens() - 1);
        const Expr is_stored = *in->has_slots == 0 || read_as_int64(*in->slots, last) != -1;
        over.where(!positions.covers(positions.at(last, over.y)) && is_stored);
        word(i) = Halide::undef<int32_t>();
        word(over.z) = Expr(*in->code);
        positions.constrain();
        begin_at_zero(*in->slots, word);

        const Var one_block("one_block"), one_thread("one_thread");
        word.gpu_tile(i, one_block, one_thread, 1);
        // All threads that store, store the same code. A grid's first dimension can have any number of blocks.
        const Halide::RVar block("block"), thread("thread");
        word.update()
            .allow_race_conditions()
            .split(token, block, thread, 128, Halide::TailStrategy::GuardWithIf)
            .gpu_blocks(block)
            .gpu_threads(thread);
    }

private:
    Var i{"i"};
};

/// Copies those columns of each head that are not rotated. The runtime chooses the widest element whose size divides
/// all sizes. With elements of 128 bits, a thread copies four words of 32 bits at a time.
class CopyColumns : public Halide::Generator<CopyColumns> {
public:
    GeneratorParam<int> bits{"bits", 32};  // of an element: 16, 32 or 128 (as four words)

    Input<Buffer<void>> *x;          // [column, head, token]
    Output<Buffer<void, 3>> y{"y"};  // likewise

    void configure() {
        const Halide::Type element = Halide::UInt(bits == 16 ? 16 : 32);
        x = add_input<Buffer<void>>("x", element, 3);
        y.set_type(element);
    }

    void generate() {
        const int lanes = bits == 128 ? 4 : 1;
        y(column, head, token) = (*x)(column, head, token);

        const auto constrain = [&](auto &buffer) {
            begin_at_zero(buffer);
            if (lanes == 1) {
                buffer.dim(0).set_stride(Expr());
                return;
            }
            buffer.dim(0).set_extent(buffer.dim(0).extent() / lanes * lanes);
            for (const int i : {1, 2}) {
                buffer.dim(i).set_stride(buffer.dim(i).stride() / lanes * lanes);
            }
        };
        constrain(*x);
        constrain(y);

        const auto tail = Halide::TailStrategy::GuardWithIf;
        const Var chunk("chunk"), chunks("chunks"), inner("inner"), thread("thread"), heads("heads"),
            head_thread("head_thread");
        y.split(column, chunk, inner, lanes, tail).split(chunk, chunks, thread, 8, tail);
        y.split(head, heads, head_thread, 16, tail);
        y.reorder(inner, thread, head_thread, token, heads, chunks);
        y.gpu_threads(thread, head_thread).gpu_blocks(token, heads, chunks);
        if (lanes > 1) {
            y.vectorize(inner);
        }
    }

private:
    Var column{"column"}, head{"head"}, token{"token"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::CheckPositions, check_positions)
HALIDE_REGISTER_GENERATOR(halyard::CopyColumns, copy_columns)
