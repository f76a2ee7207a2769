// What is done to a GPU's kernels once Halide has lowered them.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace halyard {

/// Takes apart dense loads and stores of eight words: Halide 21 makes accesses of 128 bits just of four. Every second
/// word of eight is loaded with those between, too.
class ByQuads : public Halide::Internal::IRMutator {
    using Expr = Halide::Expr;
    using Ramp = Halide::Internal::Ramp;
    using Shuffle = Halide::Internal::Shuffle;
    using Load = Halide::Internal::Load;
    using Store = Halide::Internal::Store;
    using IRMutator::visit;

    static constexpr int quad = 4;

    static Expr words(const Expr &first) { return Ramp::make(first, 1, quad); }

    /// The first word and the stride of an access whose alignment is known, or no ramp.
    static const Ramp *plain_ramp(const Expr &index, const Expr &predicate, const Halide::Type &type) {
        return type.bits() == 32 && Halide::Internal::is_const_one(predicate) ? index.as<Ramp>() : nullptr;
    }

    Expr visit(const Load *op) override {
        const Ramp *ramp = plain_ramp(op->index, op->predicate, op->type);
        const bool is_dense =
            ramp != nullptr && ramp->lanes == 2 * quad && Halide::Internal::is_const_one(ramp->stride);
        const bool is_every_second =
            ramp != nullptr && ramp->lanes == quad && Halide::Internal::is_const(ramp->stride, 2);
        if ((!is_dense && !is_every_second) || op->alignment.modulus % quad != 0) {
            return IRMutator::visit(op);
        }
        const int past = static_cast<int>(op->alignment.remainder % quad);
        const Expr first = Halide::Internal::simplify(mutate(ramp->base) - past),
                   one = Halide::Internal::const_true(quad);
        const auto load = [&](const Expr &at) {
            return Load::make(op->type.with_lanes(quad), op->name, words(at), op->image, op->param, one, {quad, 0});
        };
        const Expr eight = Shuffle::make_concat({load(first), load(first + quad)});
        return is_dense ? (past == 0 ? eight : IRMutator::visit(op))
                        : (past < 2 ? Shuffle::make_slice(eight, past, 2, quad) : IRMutator::visit(op));
    }

    Halide::Internal::Stmt visit(const Store *op) override {
        const Ramp *ramp = plain_ramp(op->index, op->predicate, op->value.type());
        if (ramp == nullptr || ramp->lanes != 2 * quad || !Halide::Internal::is_const_one(ramp->stride) ||
            op->alignment.modulus % quad != 0 || op->alignment.remainder % quad != 0) {
            return IRMutator::visit(op);
        }
        const std::string name = Halide::Internal::unique_name("eight");
        const Expr value = mutate(op->value), first = mutate(ramp->base);
        const Expr eight = Halide::Internal::Variable::make(value.type(), name),
                   one = Halide::Internal::const_true(quad);
        const auto store = [&](int i) {
            return Store::make(op->name, Shuffle::make_slice(eight, i, 1, quad), words(first + i), op->param, one,
                               {quad, 0});
        };
        return Halide::Internal::LetStmt::make(name, value, Halide::Internal::Block::make(store(0), store(quad)));
    }
};

/// Lets LLVM believe that a kernel may write its input x, which in place is its output. Else it would load x by
/// ld.global.nc, for which CUDA wants memory that nobody writes while the kernel runs. It is enough to say so once.
class MayWriteInput : public Halide::Internal::IRMutator {
public:
    explicit MayWriteInput(Halide::Expr never) : never_(std::move(never)) {}

private:
    using Load = Halide::Internal::Load;
    using Store = Halide::Internal::Store;
    using IRMutator::visit;

    Halide::Expr never_;
    Halide::Parameter x_;
    bool is_done_ = false;

    Halide::Expr visit(const Load *op) override {
        if (op->name == "x") {
            x_ = op->param;
        }
        return IRMutator::visit(op);
    }

    Halide::Internal::Stmt visit(const Store *op) override {
        if (op->name != "y" || !x_.defined() || std::exchange(is_done_, true)) {
            return IRMutator::visit(op);
        }
        const auto write = Store::make("x", Halide::Expr(0u), Halide::Expr(0), x_, Halide::Internal::const_true(), {});
        return Halide::Internal::Block::make(Halide::Internal::IfThenElse::make(never_, write), op);
    }
};

/// Says of dense loads of two halves of a word from an input that they are aligned, which makes one load of them.
/// Halide 21 does not find that out of indices of 64 bits.
class AlignPairs : public Halide::Internal::IRMutator {
public:
    explicit AlignPairs(std::string input) : input_(std::move(input)) {}

private:
    using Load = Halide::Internal::Load;
    using IRMutator::visit;

    std::string input_;

    Halide::Expr visit(const Load *op) override {
        const auto *const ramp = op->index.as<Halide::Internal::Ramp>();
        return op->name == input_ && ramp != nullptr && ramp->lanes == 2
                   ? Load::make(op->type, op->name, mutate(op->index), op->image, op->param, op->predicate, {2, 0})
                   : IRMutator::visit(op);
    }
};

/// Takes out the barriers behind the first Funcs of a block, which nothing reads before a later one. What they share
/// memory with would be stored before them, so they have to be the first.
class DropBarriers : public Halide::Internal::IRMutator {
public:
    explicit DropBarriers(std::set<std::string> first) : first_(std::move(first)) {}

private:
    using Block = Halide::Internal::Block;
    using Call = Halide::Internal::Call;
    using Evaluate = Halide::Internal::Evaluate;
    using ProducerConsumer = Halide::Internal::ProducerConsumer;
    using Stmt = Halide::Internal::Stmt;
    using IRMutator::visit;

    std::set<std::string> first_;

    static bool is_barrier(const Stmt &stmt) {
        const auto *const evaluate = stmt.as<Evaluate>();
        return evaluate != nullptr && Call::as_intrinsic(evaluate->value, {Call::gpu_thread_barrier}) != nullptr;
    }

    /// What a statement stores.
    struct Stored : Halide::Internal::IRGraphVisitor {
        std::set<std::string> names;
        void visit(const ProducerConsumer *op) override {
            if (op->is_producer) {
                names.insert(op->name);
            }
            IRGraphVisitor::visit(op);
        }
        using IRGraphVisitor::visit;
    };

    static void list(const Stmt &stmt, std::vector<Stmt> &to) {
        if (const auto *const block = stmt.as<Block>()) {
            list(block->first, to);
            list(block->rest, to);
        } else {
            to.push_back(stmt);
        }
    }

    Stmt visit(const Block *op) override {
        std::vector<Stmt> all, kept;
        list(op, all);
        if (std::none_of(all.begin(), all.end(), is_barrier)) {
            return IRMutator::visit(op);
        }
        size_t n_dropped = 0;
        Stored stored;
        for (const Stmt &stmt : all) {
            stmt.accept(&stored);
            const bool drops = is_barrier(stmt) && n_dropped < first_.size();
            if (drops) {
                n_dropped++;
            } else {
                kept.push_back(mutate(stmt));
            }
            if (drops && n_dropped == first_.size()) {
                _halide_user_assert(
                    std::includes(stored.names.begin(), stored.names.end(), first_.begin(), first_.end()))
                    << "Other Funcs come first.";
            }
        }
        return Block::make(kept);
    }
};

}  // namespace halyard
