// What a GPU does besides rotating.
#include "gpu/device_angles.h"

#include <memory>

namespace halyard {

/// Stores a code in a word if an angle source does not cover a position. Otherwise the word is left alone.
class CheckPositions : public Halide::Generator<CheckPositions> {
public:
    std::unique_ptr<Fields::Check> in;
    Output<Buffer<int32_t, 1>> word{"word"};  // [offset]

    void configure() { in.reset(new Fields::Check{*this}); }

    void generate() {
        const DevicePositions positions(in->positions);
        const Halide::RDom over({{0, positions.n_tokens()}, {0, positions.n_axes()}, {*in->word_offset, 1}}, "over");
        const Halide::RVar token = over.x;
        // The last block's spare threads store nothing, but read: of the last token.
        const Expr last = Halide::min(token, positions.n_tokens() - 1);
        const Expr slot =
            number_at(*in->slots_offset, *in->n_slot_words, [&](const Expr &at) { return (*in->slots)(at, last); });
        Halide::RDom bad = over;
        bad.where(!positions.covers(positions.at(last, over.y)) && (*in->has_slots == 0 || slot != -1));
        word(i) = Halide::undef<int32_t>();
        word(over.z) = Expr(*in->code);
        positions.constrain();
        begin_at_zero(*in->slots, word);

        const Var block("block"), thread("thread");
        word.gpu_tile(i, block, thread, 1);
        // Every thread that stores at all stores the same. A grid's first dimension holds any number of blocks.
        const Halide::RVar token_block("token_block"), token_thread("token_thread");
        word.update()
            .allow_race_conditions()
            .split(token, token_block, token_thread, 128, Halide::TailStrategy::GuardWithIf)
            .gpu_blocks(token_block)
            .gpu_threads(token_thread);
    }

private:
    Var i{"i"};
};

/// Copies the columns of heads that are not rotated. The runtime chooses the largest element that divides all sizes. At
/// 128 bits a thread copies four words.
class CopyColumns : public Halide::Generator<CopyColumns> {
public:
    GeneratorParam<int> bits{"bits", 32};  // of an element: 16, 32 or 128 (as four words)

    std::unique_ptr<Fields::Offsets> offsets;
    Input<Buffer<void>> *x;          // [column, head, token, offset]
    Output<Buffer<void, 4>> y{"y"};  // likewise

    void configure() {
        const Halide::Type element = Halide::UInt(bits == 16 ? 16 : 32);
        offsets.reset(new Fields::Offsets{*this});
        x = add_input<Buffer<void>>("x", element, 4);
        y.set_type(element);
    }

    void generate() {
        const int lanes = bits == 128 ? 4 : 1;
        const auto aligned = [&](const Expr &words) { return words / lanes * lanes; };
        const Halide::RDom start({{aligned(*offsets->y), 1}}, "start");
        y(column, head, token, offset) = Halide::undef(y.type());
        y(column, head, token, start) = (*x)(column, head, token, aligned(*offsets->x));

        const auto constrain = [&](auto &buffer) {
            begin_at_zero(buffer);
            buffer.dim(3).set_stride(1);
            buffer.dim(1).set_stride(aligned(buffer.dim(1).stride()));
            buffer.dim(2).set_stride(aligned(buffer.dim(2).stride()));
            buffer.dim(0).set_extent(aligned(buffer.dim(0).extent()));
            if (lanes == 1) {
                buffer.dim(0).set_stride(Expr());
            }
        };
        constrain(*x);
        constrain(y);

        const auto tail = Halide::TailStrategy::GuardWithIf;
        const Var chunk("chunk"), chunks("chunks"), inner("inner"), thread("thread"), heads("heads"),
            head_thread("head_thread");
        y.gpu_tile(column, head, chunks, heads, thread, head_thread, 1, 1);
        Halide::Stage update = y.update();
        update.split(column, chunk, inner, lanes, tail).split(chunk, chunks, thread, 8, tail);
        update.split(head, heads, head_thread, 16, tail);
        update.reorder(inner, thread, head_thread, token, heads, chunks);
        update.gpu_threads(thread, head_thread).gpu_blocks(token, heads, chunks);
        if (lanes > 1) {
            update.vectorize(inner);
        }
    }

private:
    Var column{"column"}, head{"head"}, token{"token"}, offset{"offset"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::CheckPositions, check_positions)
HALIDE_REGISTER_GENERATOR(halyard::CopyColumns, copy_columns)
