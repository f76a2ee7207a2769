// What is done to a GPU's kernels once Halide has lowered them.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace halyard {

/// The statements of a block, and of the blocks in it.
inline std::vector<Halide::Internal::Stmt> statements_of(const Halide::Internal::Stmt &stmt) {
    const auto *const block = stmt.as<Halide::Internal::Block>();
    if (block == nullptr) {
        return {stmt};
    }
    std::vector<Halide::Internal::Stmt> all = statements_of(block->first), rest = statements_of(block->rest);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

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

/// Says of dense accesses of some buffers that they are aligned to their whole width, which Halide 21 does not find out
/// of indices of 64 bits.
class AlignVectors : public Halide::Internal::IRMutator {
public:
    explicit AlignVectors(std::set<std::string> buffers) : buffers_(std::move(buffers)) {}

private:
    using Load = Halide::Internal::Load;
    using Store = Halide::Internal::Store;
    using IRMutator::visit;

    std::set<std::string> buffers_;

    /// How many elements; 1 where it is no such access.
    int count(const std::string &buffer, const Halide::Expr &index) const {
        const auto *const ramp = index.as<Halide::Internal::Ramp>();
        const bool is_dense = ramp != nullptr && Halide::Internal::is_const_one(ramp->stride);
        return is_dense && buffers_.count(buffer) != 0 ? ramp->lanes : 1;
    }
    Halide::Expr visit(const Load *op) override {
        const int n = count(op->name, op->index);
        return n == 1 ? IRMutator::visit(op)
                      : Load::make(op->type, op->name, mutate(op->index), op->image, op->param, op->predicate, {n, 0});
    }
    Halide::Internal::Stmt visit(const Store *op) override {
        const int n = count(op->name, op->index);
        return n == 1 ? IRMutator::visit(op)
                      : Store::make(op->name, mutate(op->value), mutate(op->index), op->param, op->predicate, {n, 0});
    }
};

/// Makes indices of some buffers of 64 bits. Generators count in 32, of which Halide 21's warp shuffles want them to be,
/// and say cast<int32_t>() of what has 64: that is what this takes away.
class WideIndices : public Halide::Internal::IRMutator {
public:
    explicit WideIndices(std::set<std::string> buffers) : buffers_(std::move(buffers)) {}

private:
    using Expr = Halide::Expr;
    using Load = Halide::Internal::Load;
    using Store = Halide::Internal::Store;
    using Let = Halide::Internal::Let;
    using LetStmt = Halide::Internal::LetStmt;
    using IRMutator::visit;

    std::set<std::string> buffers_;
    std::map<std::string, Expr> lets_;

    Expr widen(const Expr &e) const {
        using namespace Halide::Internal;
        const Halide::Type wide = Halide::Int(64).with_lanes(e.type().lanes());
        if (const auto *op = e.as<Cast>(); op != nullptr && op->value.type().bits() == 64) {
            return Cast::make(wide, op->value);
        } else if (const auto *op = e.as<Add>()) {
            return Add::make(widen(op->a), widen(op->b));
        } else if (const auto *op = e.as<Sub>()) {
            return Sub::make(widen(op->a), widen(op->b));
        } else if (const auto *op = e.as<Mul>()) {
            return Mul::make(widen(op->a), widen(op->b));
        } else if (const auto *op = e.as<Ramp>()) {
            return Ramp::make(widen(op->base), widen(op->stride), op->lanes);
        } else if (const auto *op = e.as<Broadcast>()) {
            return Broadcast::make(widen(op->value), op->lanes);
        } else if (const auto *op = e.as<Variable>()) {
            const auto found = lets_.find(op->name);
            if (found != lets_.end() && found->second.type().bits() == 32) {
                return widen(found->second);
            }
        }
        return Halide::cast(wide, e);
    }
    Expr visit(const Let *op) override {
        lets_[op->name] = op->value;
        return IRMutator::visit(op);
    }
    Halide::Internal::Stmt visit(const LetStmt *op) override {
        lets_[op->name] = op->value;
        return IRMutator::visit(op);
    }
    Expr visit(const Load *op) override {
        return buffers_.count(op->name) == 0 ? IRMutator::visit(op)
                                             : Load::make(op->type, op->name, widen(op->index), op->image, op->param,
                                                          op->predicate, op->alignment);
    }
    Halide::Internal::Stmt visit(const Store *op) override {
        return buffers_.count(op->name) == 0 ? IRMutator::visit(op)
                                             : Store::make(op->name, mutate(op->value), widen(op->index), op->param,
                                                           op->predicate, op->alignment);
    }
};

/// Warp shuffles need all threads of a warp, which has several heads of one token (thread_id_z). So what is done for
/// some heads only and shuffles is done for all of them, under a condition `instead` that holds for a whole launch, and
/// y alone is stored by head. Neighbours with one condition are joined: nothing behind the barriers stores what
/// conditions load. And registers are allocated unconditionally, because Halide 21 hoists them out of what defines
/// their condition.
class KeepWarpsTogether : public Halide::Internal::IRMutator {
public:
    explicit KeepWarpsTogether(Halide::Expr instead) : instead_(std::move(instead)) {}

private:
    using Expr = Halide::Expr;
    using Allocate = Halide::Internal::Allocate;
    using Block = Halide::Internal::Block;
    using IfThenElse = Halide::Internal::IfThenElse;
    using LetStmt = Halide::Internal::LetStmt;
    using Store = Halide::Internal::Store;
    using Stmt = Halide::Internal::Stmt;
    using IRMutator::visit;

    Expr instead_;
    std::set<std::string> varying_;  // within a warp
    std::vector<Expr> stored_if_;

    struct Finds : Halide::Internal::IRGraphVisitor {
        const std::set<std::string> &varying;
        bool shuffles = false, varies = false, stores = false;
        explicit Finds(const std::set<std::string> &names) : varying(names) {}
        using IRGraphVisitor::visit;
        void visit(const Halide::Internal::Call *op) override {
            shuffles = shuffles || op->name.find("shfl") != std::string::npos;
            IRGraphVisitor::visit(op);
        }
        void visit(const Store *op) override {
            stores = stores || op->name == "y";
            IRGraphVisitor::visit(op);
        }
        void visit(const Halide::Internal::Load *op) override {
            varies = true;
            IRGraphVisitor::visit(op);
        }
        void visit(const Halide::Internal::Variable *op) override {
            varies = varies || op->name.find("thread_id_x") != std::string::npos ||
                     op->name.find("thread_id_y") != std::string::npos || varying.count(op->name) != 0;
        }
    };
    template <typename Node>
    Finds find(const Node &in) const {
        Finds found(varying_);
        in.accept(&found);
        return found;
    }

    Stmt visit(const LetStmt *op) override {
        if (find(op->value).varies) {
            varying_.insert(op->name);
        }
        return IRMutator::visit(op);
    }
    Stmt visit(const IfThenElse *op) override {
        const Finds inside = find(op->then_case);
        if (op->else_case.defined() || !inside.shuffles || !find(op->condition).varies) {
            return IRMutator::visit(op);
        }
        if (!inside.stores) {
            return IfThenElse::make(instead_, mutate(op->then_case));
        }
        stored_if_.push_back(op->condition);
        const Stmt body = mutate(op->then_case);
        stored_if_.pop_back();
        return body;
    }
    Stmt visit(const Store *op) override {
        Stmt store = IRMutator::visit(op);
        for (const Expr &condition : stored_if_) {
            store = op->name == "y" ? IfThenElse::make(condition, store) : store;
        }
        return store;
    }
    Stmt visit(const Block *op) override {
        std::vector<Stmt> joined;
        for (const Stmt &each : statements_of(op)) {
            const auto *const one = each.as<IfThenElse>();
            const auto *const before = joined.empty() ? nullptr : joined.back().as<IfThenElse>();
            if (one != nullptr && before != nullptr && !one->else_case.defined() && !before->else_case.defined() &&
                Halide::Internal::equal(one->condition, before->condition)) {
                joined.back() = IfThenElse::make(one->condition, Block::make(before->then_case, one->then_case));
            } else {
                joined.push_back(each);
            }
        }
        for (Stmt &each : joined) {
            each = mutate(each);
        }
        return Block::make(joined);
    }
    Stmt visit(const Allocate *op) override {
        return op->memory_type != Halide::MemoryType::Register
                   ? IRMutator::visit(op)
                   : Allocate::make(op->name, op->type, op->memory_type, op->extents, Halide::Internal::const_true(),
                                    mutate(op->body));
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

    Stmt visit(const Block *op) override {
        const std::vector<Stmt> all = statements_of(op);
        std::vector<Stmt> kept;
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
