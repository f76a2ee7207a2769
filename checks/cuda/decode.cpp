// Reads PTX: PTX ISA, sections 4 (syntax) and 11 (directives). All that our kernels have is read; the rest is refused.
#include "checks/cuda/machine.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>

namespace emulated_cuda {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_space(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

/// Takes the next word, which ends before one of these characters.
std::string_view take(std::string_view &text, std::string_view ends) {
    text = trimmed(text);
    const std::size_t n = std::min(text.find_first_of(ends), text.size());
    const std::string_view word = trimmed(text.substr(0, n));
    text = trimmed(text.substr(n));
    return word;
}

template <typename T>
std::optional<T> number_in(std::string_view text, int base = 10) {
    T value{};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return status == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// A literal: decimal, hexadecimal, or the eight digits of a float's bits (PTX ISA 4.5).
std::optional<std::uint64_t> literal(std::string_view text) {
    if (text.starts_with("0f") || text.starts_with("0F")) {
        return text.size() == 10 ? number_in<std::uint64_t>(text.substr(2), 16) : std::nullopt;
    }
    if (text.ends_with('U')) {
        text.remove_suffix(1);
    }
    if (text.starts_with("0x") || text.starts_with("0X")) {
        return number_in<std::uint64_t>(text.substr(2), 16);
    }
    if (text.size() > 1 && text[0] == '0') {
        return std::nullopt;  // octal or binary
    }
    if (const auto value = number_in<std::int64_t>(text)) {
        return static_cast<std::uint64_t>(*value);
    }
    return number_in<std::uint64_t>(text);
}

/// The bytes of b32, .u64 or pred.
std::uint8_t bytes_of_type(std::string_view type) {
    if (type.starts_with('.')) {
        type.remove_prefix(1);
    }
    if (type == "pred") {
        return 1;
    }
    const auto bits = number_in<unsigned>(type.substr(std::min<std::size_t>(1, type.size())));
    if (type.empty() || std::strchr("bsuf", type[0]) == nullptr || !bits ||
        (*bits != 8 && *bits != 16 && *bits != 32 && *bits != 64)) {
        throw Fault("has the type " + std::string(type) + ", which the machine does not know");
    }
    return static_cast<std::uint8_t>(*bits / 8);
}

/// {…}, a list of registers.
bool is_list(std::string_view text) { return text.starts_with('{') && text.ends_with('}'); }

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= text.size(); i++) {
        const bool is_end = i == text.size();
        depth += is_end ? 0 : (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        if (is_end || (text[i] == separator && depth == 0)) {
            parts.push_back(trimmed(text.substr(begin, i - begin)));
            begin = i + 1;
        }
    }
    return parts;
}

/// Decodes one function, statement by statement.
class FunctionDecoder {
public:
    FunctionDecoder(Function &to, const std::map<std::string, Address> &symbols) : to_(to), symbols_(symbols) {}

    void add_parameter(std::string_view text) {
        if (take(text, " \t") != ".param") {
            throw Fault("has a parameter without .param");
        }
        const std::uint32_t n_bytes = bytes_of_type(take(text, " \t"));
        const std::string name(text.substr(text.find_last_of(" \t") + 1));
        const std::uint32_t offset = (to_.parameter_bytes + n_bytes - 1) / n_bytes * n_bytes;
        to_.parameters.push_back({offset, n_bytes});
        parameters_[name] = offset;
        to_.parameter_bytes = offset + n_bytes;
    }

    void add(std::string_view statement, std::uint32_t line) {
        line_ = line;
        if (statement.starts_with(".reg")) {
            declare(statement.substr(4));
            return;
        }
        Instruction instruction;
        instruction.line = line;
        if (statement.starts_with('@')) {
            instruction.flow = statement.starts_with("@!") ? Flow::branch_if_not : Flow::branch_if;
            statement.remove_prefix(instruction.flow == Flow::branch_if ? 1 : 2);
            instruction.operands[0] = source(take(statement, " \t"), 1);
        }
        const std::string_view opcode = take(statement, " \t");
        const auto operands = statement.empty() ? std::vector<std::string_view>() : split(statement, ',');
        if (opcode == "bra" || opcode == "bra.uni") {
            add_branch(instruction, operands);
        } else if (instruction.flow != Flow::next) {
            throw Fault("has a predicate before " + std::string(opcode) +
                        ", which the machine knows before branches alone");
        } else {
            add_unconditional(instruction, opcode, operands);
        }
        to_.code.push_back(instruction);
    }

    void add_label(std::string_view name) { labels_[std::string(name)] = static_cast<std::uint32_t>(to_.code.size()); }

    void finish() {
        for (const auto &[at, label] : branches_) {
            const auto found = labels_.find(label);
            if (found == labels_.end()) {
                throw Fault("has no label " + label);
            }
            to_.code[at].target = found->second;
        }
        Instruction end;
        end.flow = Flow::exit;
        end.line = line_;
        to_.code.push_back(end);
    }

private:
    Function &to_;
    const std::map<std::string, Address> &symbols_;
    std::map<std::string, std::uint32_t> parameters_, labels_;
    std::map<std::string, std::uint8_t> declared_;  // the bytes of registers, by prefix or by name
    std::map<std::string, Operand> registers_;
    std::map<std::pair<std::uint64_t, std::uint8_t>, Operand> constants_;
    std::vector<std::pair<std::size_t, std::string>> branches_;
    std::map<std::uint8_t, std::uint32_t> next_;  // place for a register of so many bytes
    std::uint32_t line_ = 0;

    Operand new_operand(std::uint8_t n_bytes) {
        // Of each width there are stretches of 8 bytes a thread, so that each is aligned to its width.
        std::uint32_t &next = next_[n_bytes];
        if (next % 8 == 0) {
            next = to_.bytes_per_thread;
            to_.bytes_per_thread += 8;
        }
        const Operand operand = {next, n_bytes};
        next += n_bytes;
        return operand;
    }

    /// %r<12>, or names one by one, which a block of braces may declare again.
    void declare(std::string_view text) {
        const std::string_view type = take(text, " \t");
        const std::uint8_t n_bytes = bytes_of_type(type);
        if (n_bytes == 1 && type != ".pred") {
            throw Fault("has a register of 8 bits, which the machine does not know");
        }
        for (std::string_view name : split(text, ',')) {
            name = name.substr(0, name.find('<'));
            declared_[std::string(name)] = n_bytes;
            registers_.erase(std::string(name));
        }
    }

    std::optional<Operand> register_named(std::string_view text) {
        const std::string name(text);
        if (const auto known = registers_.find(name); known != registers_.end()) {
            return known->second;
        }
        auto found = declared_.find(name);
        if (found == declared_.end()) {
            found = declared_.find(name.substr(0, name.find_last_not_of("0123456789") + 1));
        }
        return found == declared_.end() ? std::nullopt : std::optional(registers_[name] = new_operand(found->second));
    }

    Operand constant(std::uint64_t value, std::uint8_t n_bytes) {
        const auto [found, is_new] = constants_.try_emplace({value, n_bytes});
        if (is_new) {
            found->second = new_operand(n_bytes);
            to_.constants.push_back({found->second, n_bytes == 1 ? std::uint64_t{value != 0} : value});
        }
        return found->second;
    }

    static bool is_special(std::string_view text) {
        const std::size_t dot = text.find('.');
        const std::string_view name = text.substr(0, dot), axis = dot == text.npos ? "" : text.substr(dot);
        return (name == "%tid" || name == "%ntid" || name == "%ctaid" || name == "%nctaid") &&
               (axis == ".x" || axis == ".y" || axis == ".z");
    }

    /// What is read. Where ld, st and cvt read, a register may be wider than what they take of it (PTX ISA 9.4.1).
    Operand source(std::string_view text, std::uint8_t n_bytes, bool may_be_wider = false) {
        if (is_special(text)) {
            const auto [found, is_new] = to_.special.try_emplace(std::string(text));
            if (is_new) {
                found->second = new_operand(4);
            }
            return require_width(found->second, n_bytes, text);
        }
        if (const auto known = register_named(text)) {
            return may_be_wider && known->n_bytes > n_bytes ? narrowed(*known, n_bytes)
                                                            : require_width(*known, n_bytes, text);
        }
        if (const auto symbol = symbols_.find(std::string(text)); symbol != symbols_.end()) {
            return constant(symbol->second, n_bytes);
        }
        if (const auto value = literal(text)) {
            return constant(*value, n_bytes);
        }
        throw Fault("has the operand " + std::string(text) + ", which the machine does not know");
    }

    static Operand require_width(const Operand &operand, std::uint8_t n_bytes, std::string_view text) {
        if (operand.n_bytes != n_bytes) {
            throw Fault("has " + std::string(text) + ", which is " +
                        (n_bytes == 1 ? "no predicate" : "not of " + std::to_string(8 * n_bytes) + " bits"));
        }
        return operand;
    }

    Operand narrowed(const Operand &wide, std::uint8_t n_bytes) {
        Instruction narrow;
        narrow.line = line_;
        narrow.execute =
            operations().at("narrow." + std::to_string(wide.n_bytes) + "." + std::to_string(n_bytes)).execute;
        narrow.operands = {new_operand(n_bytes), wide};
        to_.code.push_back(narrow);
        return narrow.operands[0];
    }

    /// What is set.
    Operand destination(std::string_view text) {
        const auto known = register_named(text);
        if (!known) {
            throw Fault("sets " + std::string(text) + ", which is no register");
        }
        return *known;
    }

    void add_branch(Instruction &instruction, const std::vector<std::string_view> &operands) {
        if (operands.size() != 1) {
            throw Fault("branches to no label");
        }
        if (instruction.flow == Flow::next) {
            instruction.flow = Flow::branch;
        }
        branches_.emplace_back(to_.code.size(), operands[0]);
    }

    void add_unconditional(Instruction &instruction, std::string_view opcode,
                           const std::vector<std::string_view> &operands) {
        if (opcode == "ret" || opcode == "exit" || opcode == "trap") {
            instruction.flow = opcode == "trap" ? Flow::trap : Flow::exit;
        } else if (opcode == "bar.sync" && operands.size() == 1 && operands[0] == "0") {
            instruction.flow = Flow::barrier;
        } else if (opcode == "shfl.sync.idx.b32" && operands.size() == 5) {
            instruction.flow = Flow::shuffle;
            instruction.operands[0] = require_width(destination(operands[0]), 4, operands[0]);
            for (std::size_t i = 1; i < 5; i++) {
                instruction.operands[i] = source(operands[i], 4);
            }
        } else if (opcode.starts_with("ld.") || opcode.starts_with("st.")) {
            add_access(instruction, opcode, operands);
        } else if (opcode.starts_with("mov.b") && operands.size() == 2 &&
                   (is_list(operands[0]) || is_list(operands[1]))) {
            add_pack(instruction, opcode, operands);
        } else {
            add_operation(instruction, opcode, operands);
        }
    }

    void add_operation(Instruction &instruction, std::string_view opcode,
                       const std::vector<std::string_view> &operands) {
        const auto operation = operations().find(opcode);
        if (operation == operations().end() || opcode.starts_with("narrow.")) {
            throw Fault("has the opcode " + std::string(opcode) + ", which the machine does not know");
        }
        const auto &widths = operation->second.widths;
        if (operands.size() != widths.size()) {
            throw Fault("gives " + std::string(opcode) + " " + std::to_string(operands.size()) + " operands");
        }
        instruction.execute = operation->second.execute;
        for (std::size_t i = 1; i < operands.size(); i++) {
            instruction.operands[i] = source(operands[i], widths[i], opcode.starts_with("cvt."));
        }
        instruction.operands[0] = require_width(destination(operands[0]), widths[0], operands[0]);
    }

    /// mov.b64 {low, high}, wide and the reverse.
    void add_pack(Instruction &instruction, std::string_view opcode, const std::vector<std::string_view> &operands) {
        const bool unpacks = is_list(operands[0]);
        const std::string_view list = operands[unpacks ? 0 : 1];
        const auto parts = split(list.substr(1, list.size() - 2), ',');
        const std::string name = std::string(unpacks ? "unpack" : "pack") + std::string(opcode.substr(3));
        const auto operation = operations().find(name);
        if (operation == operations().end() || parts.size() != 2) {
            throw Fault("has a " + std::string(opcode) + " of parts that the machine does not know");
        }
        instruction.execute = operation->second.execute;
        const auto &widths = operation->second.widths;
        if (unpacks) {
            instruction.operands[2] = source(operands[1], widths[2]);
            for (std::size_t i = 0; i < 2; i++) {
                instruction.operands[i] = require_width(destination(parts[i]), widths[i], parts[i]);
            }
        } else {
            for (std::size_t i = 0; i < 2; i++) {
                instruction.operands[i + 1] = source(parts[i], widths[i + 1]);
            }
            instruction.operands[0] = require_width(destination(operands[0]), widths[0], operands[0]);
        }
    }

    /// ld.global.nc.v4.b32 {…}, [address + displacement] and the like: PTX ISA 9.7.9.
    void add_access(Instruction &instruction, std::string_view opcode, const std::vector<std::string_view> &operands) {
        const bool is_load = opcode.starts_with("ld.");
        auto words = split(opcode.substr(3), '.');
        const auto take_word = [&](std::string_view word) {
            const bool is_there = !words.empty() && words[0] == word;
            words.erase(words.begin(), words.begin() + is_there);
            return is_there;
        };
        const bool is_global = take_word("global"), is_shared = !is_global && take_word("shared");
        instruction.space = is_global ? Space::global : is_shared ? Space::shared : Space::parameter;
        const bool is_known_space = is_global || is_shared || (is_load && take_word("param"));
        instruction.is_nc = is_load && is_global && take_word("nc");
        instruction.n_elements = take_word("v4") ? 4 : take_word("v2") ? 2 : 1;
        if (!is_known_space || words.size() != 1 || operands.size() != 2) {
            throw Fault("has the opcode " + std::string(opcode) + ", which the machine does not know");
        }
        instruction.element_bytes = bytes_of_type(words[0]);
        instruction.is_signed = words[0][0] == 's';
        const unsigned all = 1u * instruction.n_elements * instruction.element_bytes;
        if (all > 16 || (all == 1 && is_load && instruction.space != Space::parameter)) {  // our kernels load no bytes
            throw Fault("has the opcode " + std::string(opcode) + ", which the machine does not know");
        }
        instruction.execute = is_load ? execute_load : execute_store;
        std::string_view list = operands[is_load ? 0 : 1];
        list = is_list(list) ? list.substr(1, list.size() - 2) : list;
        const auto elements = split(list, ',');
        if (elements.size() != instruction.n_elements) {
            throw Fault("has " + std::to_string(elements.size()) + " elements for " + std::string(opcode));
        }
        set_address(instruction, operands[is_load ? 1 : 0]);
        for (std::size_t i = 0; i < elements.size(); i++) {
            instruction.operands[i] =
                is_load ? destination(elements[i])
                        : source(elements[i], std::max<std::uint8_t>(2, instruction.element_bytes), true);
            if (instruction.operands[i].n_bytes < std::max<std::uint8_t>(2, instruction.element_bytes)) {
                throw Fault("loads into " + std::string(elements[i]) + ", which is narrower");
            }
        }
    }

    /// [register], [register+4], [name], [name+4] or [64]. Loads of parameters have the sum alone.
    void set_address(Instruction &instruction, std::string_view text) {
        if (!text.starts_with('[') || !text.ends_with(']')) {
            throw Fault("has no address in brackets");
        }
        text = text.substr(1, text.size() - 2);
        const std::size_t plus = text.find('+');
        const std::string_view base = trimmed(text.substr(0, plus));
        if (plus != text.npos) {
            const auto displacement = number_in<std::int64_t>(trimmed(text.substr(plus + 1)));
            if (!displacement) {
                throw Fault("has an address that the machine does not know");
            }
            instruction.displacement = *displacement;
        }
        if (instruction.space != Space::parameter) {
            instruction.operands[4] = source(base, 8);
            return;
        }
        const auto found = parameters_.find(std::string(base));
        if (found == parameters_.end()) {
            throw Fault("has no parameter " + std::string(base));
        }
        instruction.displacement += found->second;
        const std::int64_t all = 1 * instruction.n_elements * instruction.element_bytes;
        if (instruction.displacement < 0 || instruction.displacement + all > to_.parameter_bytes) {
            throw Fault("reads beyond the parameters");
        }
    }
};

/// A module's text without comments, and the line of each place in it.
struct Text {
    std::string plain;
    std::vector<std::string> lines;

    explicit Text(const std::string &ptx) {
        std::istringstream text(ptx);
        for (std::string line; std::getline(text, line);) {
            plain += line.substr(0, line.find("//")) + '\n';
            lines.push_back(line);
        }
    }
    /// Places must not go back.
    std::uint32_t line_of(std::size_t at) {
        for (; counted_ < at; counted_++) {
            line_ += plain[counted_] == '\n' ? 1 : 0;
        }
        return line_;
    }

private:
    std::size_t counted_ = 0;
    std::uint32_t line_ = 1;
};

class ModuleDecoder {
public:
    explicit ModuleDecoder(const std::string &ptx) : text_(ptx), rest_(text_.plain) {}

    Module decode() {
        while (!(rest_ = trimmed(rest_)).empty()) {
            if (rest_.starts_with(".extern .shared")) {
                add_shared(take_until(";"));
            } else if (rest_.starts_with(".version") || rest_.starts_with(".target") ||
                       rest_.starts_with(".address_size")) {
                rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            } else if (rest_.starts_with(".visible .entry")) {
                add_function();
            } else {
                refuse_directive();
            }
        }
        module_.lines = std::move(text_.lines);
        return std::move(module_);
    }

    std::uint32_t line() { return text_.line_of(text_.plain.size() - rest_.size()); }

private:
    Text text_;
    std::string_view rest_;
    Module module_;
    std::map<std::string, Address> symbols_;

    [[noreturn]] void refuse_directive() const {
        const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t\n"));
        throw Fault("has the directive " + std::string(word) + ", which the machine does not know");
    }

    /// What stands before a character, which is left behind.
    std::string_view take_until(std::string_view end) {
        const std::string_view taken = take(rest_, end);
        if (rest_.empty()) {
            throw Fault("ends where " + std::string(end) + " is missing");
        }
        rest_.remove_prefix(1);
        return taken;
    }

    /// .extern .shared .align 16 .b8 name[]: the memory that a launch asks for.
    void add_shared(std::string_view declaration) {
        const std::size_t end = declaration.find('['), begin = declaration.find_last_of(" \t") + 1;
        symbols_[std::string(trimmed(declaration.substr(begin, end - begin)))] = shared_begin;
    }

    void add_function() {
        std::string_view head = take_until("(");
        const std::string name(head.substr(head.find_last_of(" \t") + 1));
        Function &function = module_.functions[name];
        function.name = name;
        FunctionDecoder decoder(function, symbols_);
        const std::string_view parameters = take_until(")");
        for (const std::string_view parameter :
             parameters.empty() ? std::vector<std::string_view>() : split(parameters, ',')) {
            decoder.add_parameter(parameter);
        }
        rest_ = trimmed(rest_);
        if (rest_.starts_with(".maxnreg")) {  // how many registers a device may spend changes no result
            rest_ = trimmed(rest_.substr(std::min(rest_.find('\n'), rest_.size())));
        }
        if (!rest_.starts_with('{')) {
            refuse_directive();
        }
        rest_.remove_prefix(1);
        for (int depth = 1; depth > 0;) {
            rest_ = trimmed(rest_);
            if (rest_.empty()) {
                throw Fault("ends within a function");
            }
            if (rest_[0] == '{' || rest_[0] == '}') {
                depth += rest_[0] == '{' ? 1 : -1;
                rest_.remove_prefix(1);
            } else if (rest_[0] == '$') {
                decoder.add_label(take_until(":"));
            } else {
                const std::uint32_t at = line();
                const std::size_t n = std::min(rest_.find(';'), rest_.size());
                decoder.add(trimmed(rest_.substr(0, n)), at);
                rest_.remove_prefix(std::min(n + 1, rest_.size()));
            }
        }
        decoder.finish();
    }
};

}  // namespace

Module decode(const std::string &ptx) {
    ModuleDecoder decoder(ptx);
    try {
        return decoder.decode();
    } catch (const Fault &fault) {
        throw Fault("line " + std::to_string(decoder.line()) + " of the module " + fault.what());
    }
}

}  // namespace emulated_cuda
