// Reads PTX, line by line: PTX ISA, sections 4 (syntax) and 11 (directives). An opcode or a directive that our kernels
// do not have is refused. What else may be wrong is left to ptxas, to which tests/gpu/check_ptx.py gives all kernels.
#include "checks/cuda/machine.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace emulated_cuda {

namespace {

constexpr const char *spaces = " \t\r";

std::string_view trimmed(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    return text.substr(0, text.find_last_not_of(spaces) + 1);
}

/// Takes what stands before one of these characters, and that character.
std::string_view take(std::string_view &text, std::string_view ends) {
    const std::size_t n = std::min(text.find_first_of(ends), text.size());
    const std::string_view word = trimmed(text.substr(0, n));
    text = trimmed(text.substr(std::min(n + 1, text.size())));
    return word;
}

std::string last_word(std::string_view text) { return std::string(text.substr(text.find_last_of(spaces) + 1)); }

/// The bytes of .u64, b32 or mov.b32.
std::uint8_t bytes_of(std::string_view type) {
    return type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
}

/// Operands, of which one may be a list in braces, or the elements of such a list.
std::vector<std::string_view> split(std::string_view text) {
    text = text.starts_with('{') && text.ends_with('}') ? text.substr(1, text.size() - 2) : text;
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const std::size_t n = std::min(text.find(',', text[0] == '{' ? text.find('}') : 0), text.size());
        parts.push_back(trimmed(text.substr(0, n)));
        text = trimmed(text.substr(n));
        take(text, ",");
    }
    return parts;
}

class Decoder {
public:
    Module decode(const std::string &ptx) {
        std::istringstream text(ptx);
        for (std::string line; std::getline(text, line);) {
            module_.lines.push_back(line);
            try {
                read(trimmed(std::string_view(line).substr(0, line.find("//"))));
            } catch (const Fault &fault) {
                throw Fault("line " + std::to_string(module_.lines.size()) + " of the module " + fault.what());
            }
        }
        end_function();
        return std::move(module_);
    }

private:
    Module module_;
    Function *to_ = nullptr;
    std::string shared_;  // the name of what a launch asks for
    std::map<std::string, std::uint32_t> parameters_, labels_;
    std::vector<std::pair<std::size_t, std::string>> branches_;

    void read(std::string_view line) {
        while (!line.empty()) {
            if (line.starts_with(".version") || line.starts_with(".target") || line.starts_with(".address_size") ||
                line.starts_with(".maxnreg")) {
                return;
            }
            if (std::string_view("{}(),").find(line[0]) != std::string_view::npos) {
                line = trimmed(line.substr(1));
            } else if (line.starts_with(".extern .shared")) {
                shared_ = last_word(take(line, "["));
                take(line, ";");
            } else if (line.starts_with(".visible .entry")) {
                begin_function(last_word(take(line, "(")));
            } else if (line.starts_with(".param")) {
                add_parameter(take(line, ",)"));
            } else if (line.starts_with(".reg")) {
                take(line, ";");  // a register is what has a name
            } else if (line[0] == '.' || to_ == nullptr) {
                throw Fault("has the directive " + std::string(take(line, spaces)) +
                            ", which the machine does not know");
            } else if (line[0] == '$') {
                labels_[std::string(take(line, ":"))] = static_cast<std::uint32_t>(to_->code.size());
            } else {
                add(take(line, ";"));
            }
        }
    }

    void begin_function(const std::string &name) {
        end_function();
        to_ = &module_.functions[name];
        to_->name = name;
        parameters_.clear();
        labels_.clear();
    }

    void end_function() {
        for (const auto &[at, label] : branches_) {
            to_->code[at].target = labels_[label];
        }
        branches_.clear();
        if (to_ != nullptr) {
            to_->code.push_back({.flow = Flow::exit, .line = static_cast<std::uint32_t>(module_.lines.size())});
        }
    }

    /// .param .u64 .ptr .align 1 name
    void add_parameter(std::string_view text) {
        take(text, spaces);
        const std::uint32_t n_bytes = bytes_of(take(text, spaces));
        const std::uint32_t offset = (to_->parameter_bytes + n_bytes - 1) / n_bytes * n_bytes;
        to_->parameters.push_back({offset, n_bytes});
        to_->parameter_bytes = offset + n_bytes;
        parameters_[last_word(text)] = offset;
    }

    /// The register of a name, or of a literal (PTX ISA 4.5), which it has from the beginning.
    Operand operand(std::string_view text) {
        const std::string name(text);
        const auto [found, is_new] = to_->registers.try_emplace(name, static_cast<Operand>(to_->registers.size()));
        if (is_new && (name == shared_ || name[0] == '-' || (name[0] >= '0' && name[0] <= '9'))) {
            const bool is_float = name.starts_with("0f");
            to_->constants[found->second] =
                name == shared_ ? shared_begin
                                : std::strtoull(name.c_str() + (is_float ? 2 : 0), nullptr, is_float ? 16 : 0);
        }
        return found->second;
    }

    void add(std::string_view statement) {
        Instruction instruction;
        instruction.line = static_cast<std::uint32_t>(module_.lines.size());
        if (statement.starts_with('@')) {
            instruction.flow = statement.starts_with("@!") ? Flow::branch_if_not : Flow::branch_if;
            statement.remove_prefix(instruction.flow == Flow::branch_if ? 1 : 2);
            instruction.operands[0] = operand(take(statement, spaces));
        }
        const std::string_view opcode = take(statement, spaces);
        const auto operands = split(statement);
        const auto known = operations().find(opcode);
        if (opcode == "bra" || opcode == "bra.uni") {
            instruction.flow = instruction.flow == Flow::next ? Flow::branch : instruction.flow;
            branches_.emplace_back(to_->code.size(), operands.at(0));
        } else if (instruction.flow != Flow::next) {
            throw Fault("has a predicate before " + std::string(opcode) +
                        ", which the machine knows before branches alone");
        } else if (opcode == "ret") {
            instruction.flow = Flow::exit;
        } else if (opcode == "bar.sync") {
            instruction.flow = Flow::barrier;
        } else if (opcode.starts_with("ld.") || opcode.starts_with("st.")) {
            add_access(instruction, opcode, operands);
        } else if (statement.find('{') != statement.npos) {
            add_pack(instruction, opcode, operands);
        } else if (known != operations().end() || opcode == "shfl.sync.idx.b32") {
            instruction.flow = known == operations().end() ? Flow::shuffle : Flow::next;
            instruction.execute = known == operations().end() ? nullptr : known->second;
            std::ranges::transform(operands, instruction.operands.begin(), [&](auto text) { return operand(text); });
        } else {
            refuse(opcode);
        }
        to_->code.push_back(instruction);
    }

    [[noreturn]] static void refuse(std::string_view opcode) {
        throw Fault("has the opcode " + std::string(opcode) + ", which the machine does not know");
    }

    void set_elements(Instruction &instruction, std::string_view list) {
        const auto elements = split(list);
        instruction.n_elements = static_cast<std::uint8_t>(elements.size());
        std::ranges::transform(elements, instruction.operands.begin(), [&](auto text) { return operand(text); });
    }

    /// mov.b64 {low, high}, wide and the reverse.
    void add_pack(Instruction &instruction, std::string_view opcode, const std::vector<std::string_view> &operands) {
        const bool is_unpacked = operands[0].starts_with('{');
        set_elements(instruction, operands[is_unpacked ? 0 : 1]);
        instruction.operands[4] = operand(operands[is_unpacked ? 1 : 0]);
        instruction.element_bytes = bytes_of(opcode) / instruction.n_elements;
        instruction.execute = is_unpacked ? execute_unpack : execute_pack;
    }

    /// ld.global.nc.v4.b32 {…}, [address + displacement] and the like: PTX ISA 9.7.9.
    void add_access(Instruction &instruction, std::string_view opcode, const std::vector<std::string_view> &operands) {
        const bool is_load = opcode.starts_with("ld.");
        set_elements(instruction, operands.at(is_load ? 0 : 1));
        instruction.execute = is_load ? execute_load : execute_store;
        std::string_view words = opcode, address = operands[is_load ? 1 : 0];
        take(words, ".");
        const std::string_view space = take(words, ".");
        instruction.space = space == "param" ? Space::parameter : space == "shared" ? Space::shared : Space::global;
        instruction.is_nc = words.starts_with("nc.");
        words = words.substr(instruction.is_nc ? 3 : 0);
        words = words.substr(words.starts_with('v') ? 3 : 0);
        instruction.element_bytes = bytes_of(words);
        if ((space != "param" && space != "shared" && space != "global") || !words.starts_with('b') ||
            words.find('.') != words.npos) {
            refuse(opcode);
        }
        address = address.substr(1, address.size() - 2);
        const std::string base(take(address, "+")), displacement(address);
        instruction.displacement = std::strtoll(displacement.c_str(), nullptr, 10);
        if (instruction.space == Space::parameter) {
            instruction.displacement += parameters_.at(base);
        } else {
            instruction.operands[4] = operand(base);
        }
    }
};

}  // namespace

Module decode(const std::string &ptx) { return Decoder().decode(ptx); }

}  // namespace emulated_cuda
