// Prints a hash of what each kernel makes of one set of random bits: a line for each kernel, named without its target.
// All targets of this machine must agree with the model. Two machines agree where they print the same.
#include "kernel_calls.h"

#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>

namespace {

/// FNV-1a of 64 bits. Any NaN counts as any other.
class Hash {
public:
    void add(std::int32_t dtype, std::uint32_t word) {
        const std::uint32_t same = oracle::is_nan(dtype, word) ? 0xffffffffu : word;
        for (int shift = 0; shift < 32; shift += 8) {
            value_ = (value_ ^ (same >> shift & 0xff)) * 0x100000001b3u;
        }
    }
    std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Hashes what random calls of a kernel leave, or of the model in its place.
std::uint64_t hash_of(const KernelRow &row, bool by_model) {
    Random random(20261121);
    Hash hash;
    for (int n = 0; n < (row.stage == Stage::rotate ? 4 * 99 : 100); n++) {
        Trial trial(row, random, n);
        trial.run_by(by_model ? Called() : Called(row), false);
        for (const auto &operand : trial.operands) {
            const bool is_of_use = trial.is_of_use(*operand);
            operand->for_each_element([&](std::uint32_t word, std::uint32_t) {
                hash.add(static_cast<std::int32_t>(operand->dtype), is_of_use ? word : 0);
            });
        }
    }
    return hash.value();
}

}  // namespace

int main() {
    std::map<std::string, std::uint64_t> hashes;  // of the model, once for each name
    bool agree = true;
    for (const KernelRow &row : kernel_rows()) {
        if (row.stage == Stage::rotate && row.rotation.place == Place::non_temporal) {
            continue;  // not every machine has non-temporal kernels, and halyard_tests compares their bits
        }
        if (!hashes.contains(row.name)) {
            hashes[row.name] = hash_of(row, true);
        }
        const bool is_here = (halyard::supported_targets() & halyard::bit(row.target)) != 0;
        const std::uint64_t hash = is_here ? hash_of(row, false) : hashes[row.name];
        if (hash != hashes[row.name]) {
            std::fprintf(stderr, "%s_%s differs from the model: %016" PRIx64 "\n", row.name.c_str(),
                         halyard::name_of(row.target), hash);
            agree = false;
        }
    }
    for (const auto &[name, hash] : hashes) {
        std::printf("%016" PRIx64 " %s\n", hash, name.c_str());
    }
    return agree ? 0 : 1;
}
