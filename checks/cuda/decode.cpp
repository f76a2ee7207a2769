// Parses PTX by the PTX ISA, sections 4 (syntax) and 11 (directives). Anything that our kernels do not use is refused.
// Types and other errors are not checked here: tests/cuda/check_ptx.py has ptxas check all kernels.
#include "checks/cuda/machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <regex>

namespace emulated_cuda {

namespace {

using Words = std::vector<std::string>;

/// Splits a PTX statement's operands at blanks and commas, and drops its brackets and braces.
Words words_of(const std::string &text) {
    static const std::regex word(R"([^\s,{}[\]]+)");
    return {std::sregex_token_iterator(text.begin(), text.end(), word), {}};
}

class Decoder {
public:
    Module decode(const std::string &ptx) {
        const char *at = ptx.c_str();
        std::cmatch found;
        for (auto line = 1; *at != '\0';
             line += static_cast<int>(std::count(at, found[0].second, '\n')), at = found[0].second) {
            const auto rule = std::ranges::find_if(rules(), [&](const Rule &each) {
                return std::regex_search(at, found, each.form, std::regex_constants::match_continuous);
            });
            const bool is_known = rule != rules().end();
            place_ = "line " + std::to_string(line) + ": " +
                     std::string(at, is_known ? found[0].second : at + std::strcspn(at, "\n"));
            need(is_known && (to_ != nullptr || rule->is_outside));
            (this->*rule->take)(found);
        }
        end_function();
        return std::move(module_);
    }

private:
    /// A form of PTX text, and the function that decodes it.
    struct Rule {
        std::regex form;
        void (Decoder::*take)(const std::cmatch &);
        bool is_outside = false;  // allowed outside of functions
    };

    Module module_;
    std::shared_ptr<Function> to_;
    std::string place_;
    std::string shared_;  // the name of the launch's shared memory
    std::map<std::string, std::uint32_t> parameters_, labels_;
    std::vector<std::pair<std::size_t, std::string>> branches_;

    static const std::vector<Rule> &rules() {
        static const std::vector<Rule> all = {
            {std::regex(R"(\s+|//[^\n]*|[{}(),]|\.(version|target|address_size|maxnreg)\b[^\n]*|\.reg\b[^;]*;)"),
             &Decoder::pass, true},
            {std::regex(R"((?:@(!?)(%\w+)\s+)?([a-z][\w.]*)\s*([^;\n]*);)"), &Decoder::add_instruction},
            {std::regex(R"((\$\w+):)"), &Decoder::add_label},
            {std::regex(R"(\.param \.[a-z](8|16|32|64)\b[^,)]*?(\w+)\s*(?=[,)]))"), &Decoder::add_parameter},
            {std::regex(R"(\.visible \.entry (\w+))"), &Decoder::begin_function, true},
            {std::regex(R"(\.extern \.shared [^;]*?(\w+)\[\];)"), &Decoder::name_shared_array, true}};
        return all;
    }

    void need(bool is_so) const {
        if (!is_so) {
            throw Fault("the module has what the machine does not know, in " + place_);
        }
    }

    void pass(const std::cmatch &) {}  // also skips .reg: registers are made when an operand names them
    void name_shared_array(const std::cmatch &found) { shared_ = found[1]; }
    void add_label(const std::cmatch &found) { labels_[found[1]] = static_cast<std::uint32_t>(to_->code.size()); }

    void begin_function(const std::cmatch &found) {
        end_function();
        to_ = std::make_shared<Function>();
        to_->name = found[1];
        parameters_.clear();
        labels_.clear();
    }

    void end_function() {
        for (const auto &[at, label] : branches_) {
            place_ = to_->places[at];
            need(labels_.contains(label));
            to_->code[at].target = labels_[label];
        }
        branches_.clear();
        if (to_ != nullptr) {
            push({.flow = Flow::exit});
            module_[to_->name] = to_;
        }
    }

    void push(const Instruction &instruction) {
        to_->code.push_back(instruction);
        to_->places.push_back(place_);
    }

    void add_parameter(const std::cmatch &found) {
        const auto n_bytes = static_cast<std::uint32_t>(std::stoul(found[1])) / 8;
        const std::uint32_t offset = (to_->parameter_bytes + n_bytes - 1) / n_bytes * n_bytes;
        to_->parameters.push_back({offset, n_bytes});
        to_->parameter_bytes = offset + n_bytes;
        parameters_[found[2]] = offset;
    }

    /// The register of a name, or of a constant (PTX ISA, section 4.5), which holds the constant from the start.
    Operand register_of(const std::string &name) {
        static const std::regex special(R"(%n?(cta|t)id\.[xyz])");
        need(name.find('.') == name.npos || std::regex_match(name, special));
        const auto [found, is_new] = to_->registers.try_emplace(name, static_cast<Operand>(to_->registers.size()));
        if (is_new && (name == shared_ || name[0] == '-' || (name[0] >= '0' && name[0] <= '9'))) {
            const bool is_float = name.starts_with("0f");
            to_->constants[found->second] =
                name == shared_ ? shared_begin
                                : std::strtoull(name.c_str() + (is_float ? 2 : 0), nullptr, is_float ? 16 : 0);
        }
        return found->second;
    }

    void set(Instruction &instruction, const Words &words) {
        need(words.size() <= instruction.operands.size());
        std::ranges::transform(words, instruction.operands.begin(), [&](const auto &of) { return register_of(of); });
    }

    /// Adds an instruction from a statement's predicate, opcode and operands.
    void add_instruction(const std::cmatch &found) {
        Instruction instruction;
        const std::string opcode = found[3], operands = found[4];
        const Words words = words_of(operands);
        const auto known = operations().find(opcode);
        if (opcode == "bra" || opcode == "bra.uni") {
            need(words.size() == 1);
            instruction.flow = !found[2].matched        ? Flow::branch
                               : found[1].length() == 0 ? Flow::branch_if
                                                        : Flow::branch_if_not;
            instruction.operands[0] = found[2].matched ? register_of(found[2]) : 0;
            branches_.emplace_back(to_->code.size(), words[0]);
        } else if (opcode == "ret" || opcode == "bar.sync") {
            instruction.flow = opcode == "ret" ? Flow::exit : Flow::barrier;
        } else if (opcode == "shfl.sync.idx.b32") {
            need(words.size() == 5);
            instruction.flow = Flow::shuffle;
            set(instruction, words);
        } else if (operands.find("{") != operands.npos && opcode.starts_with("mov.b")) {
            set_vector_move(instruction, opcode, operands.starts_with("{"), words);
        } else if (known != operations().end()) {
            need(words.size() == known->second.n_operands);
            instruction.compute = known->second.compute;
            set(instruction, words);
        } else {
            decode_memory_access(instruction, opcode, words);
        }
        need(!found[2].matched || opcode.starts_with("bra"));  // only branches may have predicates
        push(instruction);
    }

    /// Decodes mov.b64 {low, high}, wide and mov.b64 wide, {low, high}.
    void set_vector_move(Instruction &to, const std::string &opcode, bool splits, Words words) {
        need(words.size() == 3 || words.size() == 5);
        const auto whole = splits ? words.end() - 1 : words.begin();
        to.operands[4] = register_of(*whole);
        words.erase(whole);
        set(to, words);
        to.n_elements = static_cast<unsigned>(words.size());
        to.element_bytes = (opcode.ends_with("64") ? 8 : 4) / to.n_elements;
        to.compute = splits ? unpack_vector : pack_vector;
    }

    /// Decodes loads and stores (PTX ISA, section 9.7.9), such as ld.global.nc.v4.b32 {…}, [address + displacement].
    void decode_memory_access(Instruction &to, const std::string &opcode, Words words) {
        static const std::regex form(R"((?:(ld)|st)\.(param|shared|global)(\.nc)?(?:\.v([24]))?\.b(8|16|32|64))");
        std::smatch found;
        need(std::regex_match(opcode, found, form) && words.size() >= 2);
        const auto at = found[1].matched ? words.end() - 1 : words.begin();
        const std::string address = *at, base = address.substr(0, address.find('+'));
        words.erase(at);
        set(to, words);
        to.flow = found[1].matched ? Flow::load : Flow::store;
        to.space = found[2] == "param" ? Space::parameter : found[2] == "shared" ? Space::shared : Space::global;
        to.is_nc = found[3].matched;
        to.n_elements = found[4].matched ? static_cast<unsigned>(std::stoul(found[4])) : 1;
        to.element_bytes = static_cast<unsigned>(std::stoul(found[5])) / 8;
        to.displacement = std::strtoll(address.c_str() + std::min(base.size() + 1, address.size()), nullptr, 10);
        const unsigned n_bytes = to.n_elements * to.element_bytes;
        need(words.size() == to.n_elements && n_bytes <= 16);
        if (to.space == Space::parameter) {
            need(to.flow == Flow::load && parameters_.contains(base));
            to.displacement += parameters_[base];
            need(to.displacement >= 0 && to.displacement + n_bytes <= to_->parameter_bytes);
        } else {
            to.operands[4] = register_of(base);
        }
        if (to.flow == Flow::store && to.space == Space::global) {
            to_->store_bits = std::max(to_->store_bits, 8 * n_bytes);
        }
    }
};

}  // namespace

Module decode(const std::string &ptx_text) { return Decoder().decode(ptx_text); }

}  // namespace emulated_cuda
