// Records on a device: the CPU's bytes, whatever the preset and however records and scales lie, and nothing else is
// written.
#include "checks/oracle.h"
#include "read/groups.h"
#include "tests/gpu/working_run.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>

namespace {

constexpr int most_tensors = HALYARD_MAX_TENSORS;

std::int64_t element_bytes(std::int32_t dtype) { return halyard::element_bytes(static_cast<halyard::Dtype>(dtype)); }

/// Bytes that several arrays share, each from a multiple of 16 on or as far behind one as it wants.
class Arena {
public:
    std::int64_t add(std::int64_t bytes, std::int64_t past = 0) {
        const std::int64_t at = (std::ssize(bytes_) + 15) / 16 * 16 + 16 + past;
        bytes_.resize(static_cast<std::size_t>(at + bytes + 5), 0x5a);
        return at;
    }
    char *at(std::int64_t offset) { return bytes_.data() + offset; }
    std::vector<char> &bytes() { return bytes_; }

private:
    std::vector<char> bytes_;
};

/// A preset, or something else that a device stores, of heads that it is for (0: any multiple of `group`).
struct Kind {
    std::int32_t preset;
    std::int64_t head_dim;
    bool aligned;
    std::function<void(halyard_groups_desc &)> describe = {};
};

void describe_int8_with_halves(halyard_groups_desc &groups) {
    groups.element = HALYARD_ELEMENT_INT8;
    groups.rule = HALYARD_RULE_LARGEST;
    groups.rounding = HALYARD_ROUNDING_AWAY;
    groups.reciprocal = HALYARD_RECIPROCAL_OF_SCALE;
    groups.scale_dtype = HALYARD_GROUP_SCALE_F32;
    groups.floor = 0x1p-64f;
    groups.group = 16;
    groups.n_grouped = 48;
    groups.data_offset = 32;
    groups.data_stride = 16;
    groups.scale_offset = 1;  // no multiple of its size
    groups.scale_stride = 6;
    groups.raw_dtype = HALYARD_F16;
    groups.raw_offset = 96;
}
void describe_scattered_e4m3(halyard_groups_desc &groups) {
    groups.element = HALYARD_ELEMENT_E4M3;
    groups.rule = HALYARD_RULE_LARGEST;
    groups.scale_dtype = HALYARD_GROUP_SCALE_F32;
    groups.floor = 1.0f;
    groups.group = 64;
    groups.data_offset = 5;
    groups.data_stride = 70;
    groups.scale_offset = 70;
    groups.scale_stride = 70;
}
void describe_powers_of_int8(halyard_groups_desc &groups) {
    groups.element = HALYARD_ELEMENT_INT8;
    groups.rule = HALYARD_RULE_LARGEST;
    groups.rounding = HALYARD_ROUNDING_AWAY;
    groups.scale_dtype = HALYARD_GROUP_SCALE_E8M0_UP;
    groups.floor = 0x1p-60f;
    groups.group = 32;
    groups.n_grouped = 64;
    groups.data_stride = 32;
    groups.scale_stride = 2;
    groups.scales_apart = 1;
    groups.scale_offset = 3;
    groups.raw_dtype = HALYARD_F32;
    groups.raw_offset = 64;
}

const Kind kinds[] = {{HALYARD_GROUPS_MLA_V32, 576, true},      {HALYARD_GROUPS_MLA_V4, 512, true},
                      {HALYARD_GROUPS_MLA_V41, 512, true},      {HALYARD_GROUPS_MX, 0, false},
                      {HALYARD_GROUPS_VLLM_INT8, 0, true},      {HALYARD_GROUPS_VLLM_FP8, 0, true},
                      {0, 64, true, describe_int8_with_halves}, {0, 0, false, describe_scattered_e4m3},
                      {0, 80, true, describe_powers_of_int8}};

/// A random call of tensors that become records, and of others beside them.
class Scene {
public:
    Scene(oracle::Random &random, const Kind &kind, std::int32_t dtype) : random_(random), kind_(kind), dtype_(dtype) {
        n_ = static_cast<int>(random.in(1, 3));
        n_batch_ = random.one_in(3) ? random.in(2, 3) : 1;
        n_tokens_ = random.one_in(3) ? 1 : random.in(2, 6);
        head_dim_ = kind.head_dim != 0 ? kind.head_dim : random.one_in(4) ? 640 : 64 * random.in(1, 4);
        has_cache_ = random.one_in(2);
        slot_bytes_ = random.one_in(2) ? 8 : 4;
        block_size_ = random.one_in(3) ? 16 : random.in(1, 4);
        n_slots_ = block_size_ * random.in((n_batch_ * n_tokens_ - 1) / block_size_ + 1, 20);
        const int record = static_cast<int>(random.in(0, n_ - 1));  // the others are whatever comes
        for (int i = 0; i < n_; i++) {
            describe(i, i == record || random.one_in(2));
        }
        for (int i = 0; i < n_; i++) {
            place(i);
        }
        fill_tokens();
    }

    /// What a device with this queue does otherwise than the CPU, in words.
    std::string fault(const halyard_gpu_queue &queue) {
        const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim_);
        const auto angles = make_angles(frequencies);
        halyard::plan_desc desc(rotary_dim_, std::vector(tensors_.begin(), tensors_.begin() + n_));
        const halyard::gpu_angles angles_there(queue, angles);
        const halyard::gpu_plan plan(queue, desc, angles_there);
        const std::vector<char> before = out_.bytes();
        const auto [result, scales] = run_there(plan, queue);
        desc.target = "reference";
        run_here(halyard::plan(desc), angles);
        if (scales != own_scales_.bytes()) {
            return "scales in memory of their own differ; " + text();
        }
        return difference(before, out_.bytes(), result);
    }

private:
    oracle::Random &random_;
    const Kind &kind_;
    std::int32_t dtype_;
    int n_;
    std::int64_t n_batch_, n_tokens_, head_dim_, block_size_, n_slots_, rotary_dim_ = 16;
    bool has_cache_;
    std::array<halyard_tensor_desc, most_tensors> tensors_ = {};
    std::array<halyard_groups_desc, most_tensors> groups_ = {};
    std::array<halyard_cache_desc, most_tensors> caches_ = {};
    std::array<halyard_norm_desc, most_tensors> norms_ = {};
    std::array<std::int64_t, most_tensors> n_heads_ = {}, bytes_ = {};  // of a head, as it is stored
    std::array<std::int64_t, most_tensors> x_at_ = {}, y_at_ = {}, scales_at_ = {}, weight_at_ = {};
    std::array<halyard_tensor, most_tensors> x_ = {}, y_ = {};
    std::array<bool, most_tensors> in_place_ = {};
    std::array<bool, most_tensors> own_ = {};  // whether its scales lie in own_scales_
    Arena in_, out_, own_scales_, weights_, tokens_;
    std::int64_t positions_at_ = 0, slots_at_ = 0, slot_bytes_ = 4;
    std::array<std::vector<std::int64_t>, 8> elements_;  // in out_: where those of a dtype are that are in no group

    Arena &arena_of_x(std::size_t i) { return in_place_[i] ? out_ : in_; }
    Arena &arena_of_scales(std::size_t i) { return own_[i] ? own_scales_ : out_; }
    /// Angles for positions 0 … 99 but 50.
    halyard::angle_source make_angles(const halyard::frequencies &frequencies) {
        std::vector<std::int32_t> list(100);
        std::iota(list.begin(), list.end(), 0);
        list.erase(list.begin() + 50);
        switch (random_.in(0, 3)) {
        case 0: return halyard::angle_source::phase(frequencies, 0, 99);
        case 1: return halyard::angle_source::factored(frequencies, 0, 99);
        case 2:
            return halyard::angle_source::table(frequencies, 0, 99,
                                                halyard::positions(list.data(), {1, std::ssize(list)}));
        default: return halyard::angle_source::table(frequencies, 0, 99);
        }
    }

    bool has_records(int i) const { return tensors_[i].groups != nullptr; }
    bool has_apart(int i) const { return has_records(i) && groups_of(i).scales_apart; }

    /// A description with all that it leaves out.
    halyard::GroupsDesc groups_of(int i) const {
        halyard::GroupsDesc groups;
        REQUIRE(halyard::read_groups(&groups_[i], 0, "groups", head_dim_, &groups, nullptr) == HALYARD_OK);
        return groups;
    }
    /// Bytes that the scales of a head take where they lie apart.
    std::int64_t scale_bytes(int i) const {
        if (!has_apart(i)) {
            return 0;
        }
        const halyard::GroupsDesc groups = groups_of(i);
        return groups.scale_offset + groups.n_groups * groups.scale_stride;
    }

    void describe(int i, bool is_record) {
        auto tensor =
            halyard::describe_tensor(static_cast<halyard::dtype>(dtype_), head_dim_,
                                     random_.one_in(2) ? halyard::pairing::half : halyard::pairing::interleaved);
        tensor.no_rotation = random_.one_in(3) ? 1 : 0;
        tensor.rotary_offset = tensor.no_rotation != 0 ? 0 : random_.in(0, head_dim_ - rotary_dim_);
        n_heads_[i] = random_.one_in(2) ? 1 : random_.in(2, 6);
        if (random_.one_in(3)) {
            norms_[i] = halyard::describe_norm(halyard::dtype::f32);
            tensor.norm = &norms_[i];
            weight_at_[i] = weights_.add(head_dim_ * 4);
            const std::vector<char> words =
                oracle::random_elements(random_, HALYARD_F32, oracle::Values::ordinary, head_dim_);
            std::copy(words.begin(), words.end(), weights_.at(weight_at_[i]));
        }
        if (is_record) {
            groups_[i] = sized<halyard_groups_desc>();
            groups_[i].preset = kind_.preset;
            if (kind_.describe) {
                kind_.describe(groups_[i]);
            }
            tensor.groups = &groups_[i];
            tensor.out_dtype = HALYARD_UINT8;
            bytes_[i] = groups_of(i).record_bytes;
        } else {
            const std::int32_t dtypes[] = {HALYARD_F32,  HALYARD_F16,  HALYARD_BF16,
                                           HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8};
            tensor.out_dtype = random_.one_of(dtypes);
            bytes_[i] = head_dim_ * element_bytes(tensor.out_dtype);
        }
        tensors_[i] = tensor;
    }

    std::string text() const {
        std::ostringstream text;
        text << "preset " << kind_.preset << ", " << n_ << " tensors of " << head_dim_ << ", " << n_batch_ << " x "
             << n_tokens_ << " tokens, " << (has_cache_ ? "caches, blocks of " : "views, ") << block_size_;
        for (int i = 0; i < n_; i++) {
            text << "; " << n_heads_[i] << (has_records(i) ? " records of " : " heads of ") << bytes_[i] << " bytes at "
                 << y_at_[i] << ", strides " << y_[i].strides[0] << " " << y_[i].strides[1] << " " << y_[i].strides[2]
                 << ", scales at " << scales_at_[i];
        }
        return text.str();
    }

    /// Adds x, and the output or cache and its scales, in any order of heads and tokens.
    void place(int i) {
        const std::int64_t in_bytes = element_bytes(dtype_), n_all = n_batch_ * n_tokens_ * n_heads_[i];
        in_place_[i] = !has_records(i) && !has_cache_ && tensors_[i].out_dtype == dtype_;
        x_at_[i] = arena_of_x(i).add(n_all * head_dim_ * in_bytes);
        fill(i, n_all);
        x_[i] = halyard::tensor(nullptr, static_cast<halyard::dtype>(dtype_),
                                {n_batch_, n_tokens_, n_heads_[i], head_dim_});

        if (in_place_[i]) {
            y_[i] = x_[i];
            y_at_[i] = x_at_[i];
            const std::int64_t strides[] = {x_[i].strides[0], x_[i].strides[1], x_[i].strides[2]};
            note_elements(i, n_batch_, n_tokens_, strides, in_bytes);
            return;
        }
        const bool is_aligned = !has_records(i) || kind_.aligned;
        const std::int64_t step = is_aligned ? 16 : 1;
        const std::int64_t head = (bytes_[i] + step - 1) / step * step + step * random_.in(0, 2);
        const std::int64_t n_rows = has_cache_ ? block_size_ : n_tokens_,
                           n_blocks = has_cache_ ? n_slots_ / block_size_ : n_batch_;
        const bool heads_first = random_.one_in(2);
        const std::int64_t stride_head = heads_first ? n_rows * head : head,
                           stride_token = heads_first ? head : n_heads_[i] * head;
        const std::int64_t records = n_rows * n_heads_[i] * head;
        const bool in_page = has_apart(i) && random_.one_in(2);
        const std::int64_t scale = in_page ? scale_bytes(i) + random_.in(0, 1) : scale_bytes(i);
        std::int64_t page = records + (in_page ? n_rows * n_heads_[i] * scale : 0);
        page = (page + step - 1) / step * step + step * random_.in(0, 2);
        y_at_[i] = out_.add(n_blocks * page, is_aligned ? 0 : random_.in(0, 15));
        if (has_apart(i)) {
            own_[i] = !in_page && random_.one_in(2);
            scales_at_[i] = in_page
                                ? y_at_[i] + records
                                : arena_of_scales(i).add(n_blocks * n_rows * n_heads_[i] * scale, random_.in(0, 15));
            if (in_page || groups_of(i).scale_offset != 0 || random_.one_in(2)) {
                groups_[i].scales_stride_block = in_page ? page : n_rows * n_heads_[i] * scale;
                groups_[i].scales_stride_token = n_heads_[i] * scale;
                groups_[i].scales_stride_head = scale;
            }
        }
        const std::int64_t unit = has_records(i) ? 1 : element_bytes(tensors_[i].out_dtype);
        if (has_cache_) {
            caches_[i] = halyard::describe_nhd_cache(n_blocks, block_size_, n_heads_[i], bytes_[i] / unit);
            caches_[i].stride_block = page / unit;
            caches_[i].stride_token = stride_token / unit;
            caches_[i].stride_head = stride_head / unit;
            tensors_[i].cache = &caches_[i];
        }
        y_[i] = halyard::tensor(nullptr, static_cast<halyard::dtype>(tensors_[i].out_dtype),
                                {n_batch_, n_tokens_, n_heads_[i], bytes_[i] / unit});
        const std::int64_t strides[] = {page / unit, stride_token / unit, stride_head / unit};
        std::copy(std::begin(strides), std::end(strides), y_[i].strides);
        note_elements(i, n_blocks, n_rows, strides, unit);
    }

    /// Notes where elements are of which a NaN may be any.
    void note_elements(int i, std::int64_t n_blocks, std::int64_t n_rows, const std::int64_t (&strides)[3],
                       std::int64_t unit) {
        const halyard::GroupsDesc groups = has_records(i) ? groups_of(i) : halyard::GroupsDesc{};
        const std::int32_t raw = groups.raw ? static_cast<std::int32_t>(*groups.raw) : 0;
        const std::int32_t dtype = has_records(i) ? raw : tensors_[i].out_dtype;
        const std::int64_t first = has_records(i) ? groups.n_grouped() : 0;
        for (std::int64_t at = 0; dtype != 0 && at < n_blocks * n_rows * n_heads_[i]; at++) {
            const std::int64_t head = at % n_heads_[i], row = at / n_heads_[i] % n_rows,
                               block = at / n_heads_[i] / n_rows;
            const std::int64_t place = y_at_[i] + (block * strides[0] + row * strides[1] + head * strides[2]) * unit;
            for (std::int64_t e = first; e < head_dim_; e++) {
                elements_[static_cast<std::size_t>(dtype)].push_back(place + groups.raw_offset +
                                                                     (e - first) * element_bytes(dtype));
            }
        }
    }

    /// Fills the heads of x, each with values of some kind, and with groups that are hard.
    void fill(int i, std::int64_t n_heads) {
        using oracle::Values;
        const Values values[] = {Values::ordinary, Values::ordinary, Values::any_bits, Values::special,
                                 Values::short_mantissa};
        const std::int64_t in_bytes = element_bytes(dtype_);
        for (std::int64_t head = 0; head < n_heads; head++) {
            char *const to = arena_of_x(i).at(x_at_[i] + head * head_dim_ * in_bytes);
            const std::vector<char> words = oracle::random_elements(random_, dtype_, random_.one_of(values), head_dim_);
            std::copy(words.begin(), words.end(), to);
            for (std::int64_t at = 0; at < head_dim_; at += 32) {
                fill_group(to + at * in_bytes, std::min<std::int64_t>(32, head_dim_ - at));
            }
        }
    }
    void fill_group(char *to, std::int64_t n) {
        const std::int64_t how = random_.in(0, 11), in_bytes = element_bytes(dtype_);
        const auto set = [&](std::int64_t e, double value) {
            const auto given = static_cast<float>(value);
            const std::uint32_t word = dtype_ == HALYARD_F32   ? std::bit_cast<std::uint32_t>(given)
                                       : dtype_ == HALYARD_F16 ? halyard::F16::narrow(given)
                                                               : halyard::BF16::narrow(given);
            std::memcpy(to + e * in_bytes, &word, static_cast<std::size_t>(in_bytes));
        };
        const double power = std::ldexp(1.0, static_cast<int>(random_.in(-14, 5)));
        for (std::int64_t e = 0; e < n && how < 5; e++) {
            const auto half = static_cast<double>(random_.in(-254, 254)) / 2;
            const double of_e4m3 =
                std::ldexp(static_cast<double>(random_.in(-31, 31)), static_cast<int>(random_.in(-12, 4)));
            const double values[] = {0.0, e == n / 2 ? power : 0.0, e == 0 ? 127 * power : half * power,
                                     e == 0 ? -448 * power : of_e4m3 * power,
                                     std::ldexp(half, dtype_ == HALYARD_F16 ? -24 : -133)};
            set(e, values[how]);
        }
    }

    void fill_tokens() {
        positions_at_ = tokens_.add(n_batch_ * n_tokens_ * 4);
        slots_at_ = tokens_.add(n_batch_ * n_tokens_ * 8);
        std::vector<std::int32_t> free;
        for (std::int32_t slot = 0; slot < n_slots_; slot++) {
            free.insert(free.begin() + random_.in(0, slot), slot);
        }
        for (std::int64_t i = 0; i < n_batch_ * n_tokens_; i++) {
            auto position = static_cast<std::int32_t>(random_.in(0, 98));
            position += position < 50 ? 0 : 1;
            const std::int32_t slot = random_.one_in(6) ? -1 : free.back();
            if (slot >= 0) {
                free.pop_back();
            }
            std::memcpy(tokens_.at(positions_at_ + 4 * i), &position, 4);
            const std::int64_t wide = slot;  // the lower word comes first
            std::memcpy(tokens_.at(slots_at_ + slot_bytes_ * i), &wide, static_cast<std::size_t>(slot_bytes_));
        }
    }

    halyard_positions positions(const void *data) const {
        auto positions = sized<halyard_positions>();
        positions.type = HALYARD_INT32;
        positions.data = data;
        positions.shape[0] = n_batch_;
        positions.shape[1] = n_tokens_;
        positions.strides[0] = n_tokens_;
        positions.strides[1] = 1;
        return positions;
    }
    halyard_slots slots(const void *data) const {
        auto slots = sized<halyard_slots>();
        slots.type = slot_bytes_ == 8 ? HALYARD_INT64 : HALYARD_INT32;
        slots.policy = HALYARD_SLOTS_RANGE_ONLY;
        slots.data = data;
        slots.shape[0] = n_batch_;
        slots.shape[1] = n_tokens_;
        slots.strides[0] = n_tokens_;
        slots.strides[1] = 1;
        return slots;
    }

    /// Calls use(stages, x, y) with what a run brings, of which each pointer is that of an offset in an arena.
    template <typename Pointer, typename Use>
    void with_arguments(std::int32_t device, const Pointer &pointer, const Use &use) {
        std::array<halyard_stages, most_tensors> stages;
        std::array<halyard_tensor, most_tensors> x = x_, y = y_;
        for (std::size_t i = 0; i < stages.size(); i++) {
            stages[i] = sized<halyard_stages>();
            x[i].device = y[i].device = device;
            if (static_cast<int>(i) >= n_) {
                continue;
            }
            x[i].data = pointer(arena_of_x(i), x_at_[i]);
            y[i].data = pointer(out_, y_at_[i]);
            if (tensors_[i].norm != nullptr) {
                stages[i].weight = pointer(weights_, weight_at_[i]);
                stages[i].n_weights = head_dim_;
            }
            stages[i].cache = has_cache_ ? y[i].data : nullptr;
            stages[i].group_scales =
                has_apart(static_cast<int>(i)) ? pointer(arena_of_scales(i), scales_at_[i]) : nullptr;
        }
        use(stages.data(), x.data(), y.data());
    }

    void run_here(const halyard::plan &plan, const halyard::angle_source &angles) {
        const auto pointer = [](Arena &arena, std::int64_t offset) { return static_cast<void *>(arena.at(offset)); };
        with_arguments(HALYARD_CPU, pointer, [&](const auto *stages, const auto *x, const auto *y) {
            const auto given_positions = positions(tokens_.at(positions_at_));
            const auto given_slots = slots(tokens_.at(slots_at_));
            auto args = sized<halyard_run_args>();
            args.angles = angles.get();
            args.positions = &given_positions;
            args.x = x;
            args.y = y;
            args.slots = has_cache_ ? &given_slots : nullptr;
            args.stages = stages;
            auto error = sized<halyard_error>();
            const halyard_status status = halyard_run(plan.get(), &args, &error);
            INFO(error.message << "; " << text());
            REQUIRE(status == HALYARD_OK);
        });
    }

    /// Returns what outputs hold then, and scales in memory of their own.
    std::pair<std::vector<char>, std::vector<char>> run_there(const halyard::gpu_plan &plan,
                                                              const halyard_gpu_queue &queue) {
        const gpu_test::Memory in(queue, in_.bytes()), out(queue, out_.bytes()), tokens(queue, tokens_.bytes());
        const gpu_test::Memory weights(queue, weights_.bytes().empty() ? std::vector<char>(16) : weights_.bytes());
        const std::vector<char> scales = own_scales_.bytes();
        const gpu_test::Memory own_scales(queue, scales.empty() ? std::vector<char>(16) : scales);
        const auto memory_of = [&](const Arena &arena) -> const gpu_test::Memory & {
            return &arena == &in_ ? in : &arena == &out_ ? out : &arena == &weights_ ? weights : own_scales;
        };
        const auto pointer = [&](const Arena &arena, std::int64_t offset) { return memory_of(arena).data(offset); };
        with_arguments(queue.device, pointer, [&](const auto *stages, const auto *x, const auto *y) {
            const auto given_positions = positions(tokens.data(positions_at_));
            const auto given_slots = slots(tokens.data(slots_at_));
            std::array<std::int64_t, most_tensors> x_offsets, y_offsets, weight_offsets, scale_offsets;
            for (std::size_t i = 0; i < x_offsets.size(); i++) {
                x_offsets[i] = memory_of(arena_of_x(i)).offset(x_at_[i] / element_bytes(dtype_));
                const std::int64_t unit = tensors_[i].groups != nullptr || static_cast<int>(i) >= n_
                                              ? 1
                                              : element_bytes(tensors_[i].out_dtype);
                y_offsets[i] = out.offset(y_at_[i] / unit);
                weight_offsets[i] = weights.offset(weight_at_[i] / 4);
                scale_offsets[i] = memory_of(arena_of_scales(i)).offset(scales_at_[i]);
            }
            auto args = sized<halyard_gpu_run_args>();
            args.stream = queue.stream;
            args.positions = &given_positions;
            args.positions_offset = tokens.offset(positions_at_ / 4);
            args.x = x;
            args.y = y;
            args.x_offsets = x_offsets.data();
            args.y_offsets = args.cache_offsets = y_offsets.data();
            args.weight_offsets = weight_offsets.data();
            args.group_scale_offsets = scale_offsets.data();
            args.slots = has_cache_ ? &given_slots : nullptr;
            args.slots_offset = tokens.offset(slots_at_ / slot_bytes_);
            args.stages = stages;
            auto error = sized<halyard_error>();
            const halyard_status status = halyard_run_gpu(plan.get(), &args, &error);
            INFO(error.message << "; " << text());
            REQUIRE(status == HALYARD_OK);
        });
        return {out.read(), scales.empty() ? scales : own_scales.read()};
    }

    std::string difference(const std::vector<char> &before, std::vector<char> expected,
                           const std::vector<char> &result) {
        for (std::size_t dtype = 0; dtype < elements_.size(); dtype++) {
            for (const std::int64_t at : elements_[dtype]) {
                const auto element = [&](const std::vector<char> &bytes) {
                    return std::vector<char>(bytes.begin() + at,
                                             bytes.begin() + at + element_bytes(static_cast<std::int32_t>(dtype)));
                };
                if (gpu_test::difference(static_cast<std::int32_t>(dtype), element(expected), element(result))
                        .empty()) {
                    const std::vector<char> same = element(result);
                    std::copy(same.begin(), same.end(), expected.begin() + at);
                }
            }
        }
        const auto [is, should_be] = std::mismatch(result.begin(), result.end(), expected.begin());
        if (is == result.end()) {
            return "";
        }
        std::ostringstream text;
        const std::int64_t at = is - result.begin();
        text << "byte " << at << " is " << std::hex << (*is & 0xff) << ", not " << (*should_be & 0xff) << " (before "
             << (before[static_cast<std::size_t>(at)] & 0xff) << "); " << this->text();
        return text.str();
    }
};

/// Of each kind so many runs.
void test_records(std::int32_t device, int n_runs) {
    const halyard_gpu_queue &queue = gpu_test::queue_of(device);
    oracle::Random random(Catch::getSeed());
    for (const Kind &kind : kinds) {
        for (const std::int32_t dtype : {HALYARD_BF16, HALYARD_F16, HALYARD_F32}) {
            for (int i = 0, n = gpu_test::n_calls(n_runs); i < n; i++) {
                INFO("seed " << Catch::getSeed() << ", kind " << &kind - kinds << ", run " << i << ", dtype " << dtype);
                Scene scene(random, kind, dtype);
                REQUIRE(scene.fault(queue) == "");
            }
        }
    }
}

void test_refused_plans(std::int32_t device) {
    WorkingPlan plan{device};
    auto groups = sized<halyard_groups_desc>(), preset = groups;
    groups.element = HALYARD_ELEMENT_E4M3;
    groups.rule = HALYARD_RULE_LARGEST;
    groups.scale_dtype = HALYARD_GROUP_SCALE_F32;
    groups.floor = 1.0f;
    groups.scale_offset = 64;
    auto &tensor = plan.tensor;
    tensor.groups = &groups;
    tensor.out_dtype = HALYARD_UINT8;
    const char *const elements = ".groups has elements that are neither HALYARD_ELEMENT_E4M3 (5) nor "
                                 "HALYARD_ELEMENT_INT8 (1) with HALYARD_ROUNDING_AWAY (1), which no kernel of a device "
                                 "stores";
    const char *const places =
        ".groups has scales apart, or elements in no group, beside places that are no multiples of "
        "16 bytes, which no kernel of a device stores";
    plan.refuse({
        {".from_groups is set, but no kernel of a device reads records",
         {{preset.preset, HALYARD_GROUPS_MX},
          {tensor.from_groups, &preset},
          {tensor.groups, nullptr},
          {tensor.dtype, HALYARD_UINT8},
          {tensor.out_dtype, HALYARD_F32}}},
        {elements, {{tensor.groups, &preset}, {preset.preset, HALYARD_GROUPS_GGML_Q8_0}}},
        {elements, {{tensor.groups, &preset}, {preset.preset, HALYARD_GROUPS_GGML_Q4_0}}},
        {elements, {{tensor.groups, &preset}, {preset.preset, HALYARD_GROUPS_OPENVINO_U8}}},
        {elements, {{groups.element, HALYARD_ELEMENT_E5M2}}},
        {".groups->reciprocal is HALYARD_RECIPROCAL_OF_LARGEST (2), but on a device it is that of the scale",
         {{groups.reciprocal, HALYARD_RECIPROCAL_OF_LARGEST}, {groups.floor, 0}}},
        {".groups has scales of 16 bits, but on a device they are HALYARD_GROUP_SCALE_F32 (1) or E8M0 (4, 5)",
         {{groups.scale_dtype, HALYARD_GROUP_SCALE_F16}}},
        {".groups->floor is less than the 2^-64 that scales are at least on a device",
         {{groups.floor, 0x1.fffffep-65f}}},
        {".groups->group is no multiple of the 16 elements that a device stores at once",
         {{tensor.head_dim, 72}, {groups.scale_offset, 72}}},
        {places, {{groups.scales_apart, 1}, {groups.scale_offset, 0}, {groups.data_offset, 8}}},
        {places, {{groups.n_grouped, 48}, {groups.raw_dtype, HALYARD_F16}, {groups.raw_offset, 72}}},
        {places,
         {{tensor.head_dim, 76}, {groups.n_grouped, 64}, {groups.raw_dtype, HALYARD_F16}, {groups.raw_offset, 80}}},
        {".groups lie more than 32,767 bytes apart in their record",
         {{groups.group, 32}, {groups.data_stride, 32768}, {groups.scale_stride, 32}}},
    });
    preset.preset = HALYARD_GROUPS_VLLM_FP8;
    tensor.groups = &preset;
    CHECK_THAT(halyard::explain(device, halyard::plan_desc(64, {tensor})),
               Catch::Matchers::ContainsSubstring("* halyard_road_records_"));
}

/// A run that makes records of four tokens of two heads, with scales in memory of their own.
struct RecordsThere : Working {
    struct Desc {
        halyard_groups_desc groups = halyard::describe_groups(HALYARD_GROUPS_VLLM_FP8);
        halyard_tensor_desc tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);

        explicit Desc(std::int64_t stride_token = 0, std::int64_t stride_head = 0) {
            groups.scales_stride_token = stride_token;
            groups.scales_stride_head = stride_head;
            tensor.groups = &groups;
            tensor.out_dtype = HALYARD_UINT8;
        }
    };
    std::vector<char> scales_before = std::vector<char>(4 * 2 * 4 + 4, 9);
    gpu_test::Memory scales{queue, scales_before};
    halyard_stages stages = sized<halyard_stages>();
    std::int64_t scale_offset = 0;

    RecordsThere(std::int32_t its_device, const Desc &desc) : Working(its_device, desc.tensor, 64) {
        y.dtype = HALYARD_UINT8;
        stages.group_scales = scales.data();
        args.stages = &stages;
        args.group_scale_offsets = &scale_offset;
    }
};

void test_refused_runs(std::int32_t device) {
    RecordsThere w(device, RecordsThere::Desc());
    const bool is_cuda = device == HALYARD_CUDA;
    int not_of_the_device = 0;
    w.runs.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"group_scales is NULL"}, {{w.stages.group_scales, nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"group_scales", "y[0]"}, {{w.stages.group_scales, w.y.data}}},
        {HALYARD_ERROR_OVERLAP, {"group_scales", "x[0]"}, {{w.stages.group_scales, w.x.data}}},
        {HALYARD_ERROR_OVERFLOW, {"scales"}, {{w.scale_offset, -1}}},
        {is_cuda ? HALYARD_ERROR_OVERFLOW : HALYARD_ERROR_SHAPE, {"scales"}, {{w.scale_offset, 6}}},
        {HALYARD_ERROR_UNSUPPORTED, {"begin on 16 bytes"}, {{w.y.data, w.to.data(8)}, {w.y_offset, w.to.offset(8)}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"begin on 16 bytes"},
         {{w.y.strides[2], 72},
          {w.y.strides[1], 144},
          {w.y.shape[1], 2},
          {w.x.shape[1], 2},
          {w.positions.shape[1], 2}}},
    });
    RecordsThere far(device, RecordsThere::Desc(std::int64_t{1} << 31, 4));
    far.runs.refuse({{is_cuda ? HALYARD_ERROR_UNSUPPORTED : HALYARD_ERROR_SHAPE, {"scales"}, {}}});
    if (is_cuda) {
        w.runs.refuse({{HALYARD_ERROR_UNSUPPORTED, {"group_scales"}, {{w.stages.group_scales, &not_of_the_device}}}});
    }
    CHECK((w.scales.read() == w.scales_before));
    w.y.data = w.to.data(16);
    w.y_offset = w.to.offset(16);
    w.stages.group_scales = w.scales.data(is_cuda ? 1 : 0);
    w.scale_offset = w.scales.offset(1);
    CHECK(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
    CHECK(w.scales.read()[0] == 9);
}

}  // namespace

TEST_CASE("gpu records: what the kernel does not store is refused by the plan", "[gpu][opencl]") {
    test_refused_plans(HALYARD_OPENCL);
}

TEST_CASE("cuda device: records that the kernel does not store are refused by the plan", "[gpu][cuda]") {
    test_refused_plans(HALYARD_CUDA);
}

TEST_CASE("gpu records: what cannot be launched is refused, and nothing is written", "[gpu][opencl]") {
    test_refused_runs(HALYARD_OPENCL);
}

TEST_CASE("cuda device: records that cannot be launched are refused, and nothing is written", "[gpu][cuda]") {
    test_refused_runs(HALYARD_CUDA);
}

TEST_CASE("gpu records: bytes are the reference's, beside plain tensors too", "[gpu][opencl]") {
    test_records(HALYARD_OPENCL, 4);
}

TEST_CASE("cuda device: records have the reference's bytes, beside plain tensors too", "[gpu][cuda]") {
    test_records(HALYARD_CUDA, 4);
}
