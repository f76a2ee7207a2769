// Passes over GPU kernels after Halide has lowered them.
#pragma once

#include "Halide.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace halyard::lowered {

using namespace Halide::Internal;
using Halide::Expr;

/// The statements of a block, with nested blocks flattened.
inline std::vector<Stmt> statements_of(const Stmt &stmt) {
    const auto *const block = stmt.as<Block>();
    if (block == nullptr) {
        return {stmt};
    }
    std::vector<Stmt> all = statements_of(block->first), rest = statements_of(block->rest);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

/// Makes the indices of some buffers 64 bits wide. Generators write indices in 32 bits, which Halide 21's warp shuffles
/// need, and cast 64-bit offsets to int32: this pass removes those casts. It also states that dense accesses are
/// aligned to their whole width, which Halide 21 does not find out from such indices.
class WideIndices : public IRMutator {
public:
    explicit WideIndices(std::set<std::string> buffers) : buffers_(std::move(buffers)) {}

private:
    using IRMutator::visit;

    std::set<std::string> buffers_;
    std::map<std::string, Expr> lets_;

    Expr widen(const Expr &e) const {
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
    static ModulusRemainder alignment_of(const Expr &index, const ModulusRemainder &known) {
        const auto *const ramp = index.as<Ramp>();
        return ramp != nullptr && is_const_one(ramp->stride) ? ModulusRemainder(ramp->lanes, 0) : known;
    }
    Expr visit(const Let *op) override {
        lets_[op->name] = op->value;
        return IRMutator::visit(op);
    }
    Stmt visit(const LetStmt *op) override {
        lets_[op->name] = op->value;
        return IRMutator::visit(op);
    }
    Expr visit(const Load *op) override {
        return buffers_.count(op->name) == 0 ? IRMutator::visit(op)
                                             : Load::make(op->type, op->name, widen(op->index), op->image, op->param,
                                                          op->predicate, alignment_of(op->index, op->alignment));
    }
    Stmt visit(const Store *op) override {
        return buffers_.count(op->name) == 0
                   ? IRMutator::visit(op)
                   : Store::make(op->name, mutate(op->value), widen(op->index), op->param, op->predicate,
                                 alignment_of(op->index, op->alignment));
    }
};

/// Warp shuffles need all threads of a warp, which has several heads of one token. So a branch that shuffles must be
/// taken for all heads or for none. If its condition differs between heads, this takes it under the condition
/// `instead`, which is the same for a whole launch; only stores to y keep their condition by head. Neighbouring
/// branches with equal conditions are joined: no store after the barriers changes a condition. Registers are allocated
/// unconditionally, because Halide 21 hoists an allocation above its condition's definition.
class KeepWarpsTogether : public IRMutator {
public:
    explicit KeepWarpsTogether(Expr instead) : instead_(std::move(instead)) {}

private:
    using IRMutator::visit;

    Expr instead_;
    std::set<std::string> varying_;  // variables whose values differ within a warp
    std::vector<Expr> stored_if_;

    struct Finds : IRGraphVisitor {
        const std::set<std::string> &varying;
        bool shuffles = false, varies = false, stores = false;

        template <typename Node>
        Finds(const std::set<std::string> &names, const Node &in) : varying(names) {
            in.accept(this);
        }
        using IRGraphVisitor::visit;
        void visit(const Call *op) override {
            shuffles = shuffles || op->name.find("shfl") != std::string::npos;
            IRGraphVisitor::visit(op);
        }
        void visit(const Store *op) override {
            stores = stores || op->name == "y";
            IRGraphVisitor::visit(op);
        }
        void visit(const Load *op) override {
            varies = true;
            IRGraphVisitor::visit(op);
        }
        void visit(const Variable *op) override {
            varies = varies || op->name.find("thread_id_x") != std::string::npos ||
                     op->name.find("thread_id_y") != std::string::npos || varying.count(op->name) != 0;
        }
    };

    Stmt visit(const LetStmt *op) override {
        if (Finds(varying_, op->value).varies) {
            varying_.insert(op->name);
        }
        return IRMutator::visit(op);
    }
    Stmt visit(const IfThenElse *op) override {
        const Finds inside(varying_, op->then_case);
        if (op->else_case.defined() || !inside.shuffles || !Finds(varying_, op->condition).varies) {
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
                equal(one->condition, before->condition)) {
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
                   : Allocate::make(op->name, op->type, op->memory_type, op->extents, const_true(), mutate(op->body));
    }
};

/// Removes the second barrier of a thread block: between it and the third, nothing reads what was written since the
/// first. (The tests' emulated driver detects if something does.)
class DropSecondBarrier : public IRMutator {
    using IRMutator::visit;

    int n_seen_ = 0;

    static bool is_barrier(const Stmt &stmt) {
        const auto *const evaluate = stmt.as<Evaluate>();
        return evaluate != nullptr && Call::as_intrinsic(evaluate->value, {Call::gpu_thread_barrier}) != nullptr;
    }

    Stmt visit(const Block *op) override {
        std::vector<Stmt> kept;
        for (const Stmt &stmt : statements_of(op)) {
            if (!is_barrier(stmt) || ++n_seen_ != 2) {
                kept.push_back(mutate(stmt));
            }
        }
        return Block::make(kept);
    }
};

}  // namespace halyard::lowered
